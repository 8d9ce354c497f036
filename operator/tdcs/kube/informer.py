"""A live copy of one resource: list, watch, and list again *with a difference*.

After a lost watch the fresh list is compared with what was known, so a deletion that fell into the gap is
noticed; that is the case which frameworks that only replay existing objects miss.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable

from tdcs.kube.api import KubeApi, WatchEvent
from tdcs.kube.errors import GoneError, KubeError, UnavailableError
from tdcs.model.kube_objects import Key, Object, object_key
from tdcs.model.kube_resources import Resource

OnChange = Callable[[Key, Object | None, Object | None], None]
"""Called with every change: the key, the object as it was known (None: it was not), and as it is (None: it is gone).

Must not block. What it raises is logged as a defect met with this object; the others are still followed.
"""

_log = logging.getLogger(__name__)

BACKOFF_FIRST = 0.5
BACKOFF_MAX = 10.0
WATCH_TIMEOUT = 300.0
"""Seconds after which the server ends a quiet watch; it is then resumed, without a list."""

SILENCE_SECONDS = 120.0
"""A watch that brings nothing for so long is given up for a new list: a server may take a watch and never send
anything, and nothing else says so. A quiet resource has a bookmark a minute. Health turns red only later."""

CURT_SECONDS = 1.0
"""A watch that ends sooner and has brought no change is no sign that the next one will do better."""

AT_ONCE = 500
"""So many objects of a list are taken in at a time: whoever asks for the health is answered in between."""


class Informer:
    """Keeps `store` equal to the server's objects of one resource.

    Args:
        namespace: None: all of them.
        keep: what to keep of an object, for resources of which there are many; its metadata must stay.
        store: where the objects are kept, shared with informers of the same resource in other namespaces.
        silence: seconds without anything from a watch after which the resource is listed again.
        gather: seconds that changes may come late, for resources that change often: many at once cost less.

    Attributes:
        store: the objects by (namespace, name). Read only; values are replaced, never changed in place.
        synced: set once the first list is in.
        problem: why the server was not heard when it was last asked; None when it was.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        resource: Resource,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        keep: Callable[[Object], Object] | None = None,
        on_change: OnChange | None = None,
        clock: Callable[[], float] = time.monotonic,
        watch_timeout: float = WATCH_TIMEOUT,
        silence: float = SILENCE_SECONDS,
        gather: float = 0.0,
        store: dict[Key, Object] | None = None,
    ) -> None:
        self.store: dict[Key, Object] = {} if store is None else store
        self.synced = asyncio.Event()
        self.problem: KubeError | None = None
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._keep = keep
        self._on_change = on_change
        self._clock = clock
        self._watch_timeout = watch_timeout
        self._silence = silence
        self._gather = gather
        self._version = ""
        self._failures = 0
        self._curt = 0
        self._begun = clock()
        self._changed = False
        self._contact = clock()

    def last_contact_age(self) -> float:
        """Seconds since the server was last heard: a list, an event, a bookmark, an orderly end of a watch.

        The server sends a bookmark about once a minute, so an age of several minutes means a stale view.
        """
        return self._clock() - self._contact

    def silent_seconds(self) -> float:
        """As `last_contact_age`, but 0 while the server is known to be away: to hear nothing is no fault then."""
        return 0.0 if isinstance(self.problem, UnavailableError) else self.last_contact_age()

    async def run(self) -> None:
        """Follow the resource until cancelled. Errors are logged and tried again, with growing pauses."""
        while True:
            self._begun, self._changed = self._clock(), False
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                await self._pause_if_curt()
            except GoneError:
                self._version = ""  # too old: list again, at once
                await self._pause_if_curt()
            except KubeError as error:
                self._failures += 1
                self.problem = error
                # A watch may break at a version that the server no longer has; a list is always right.
                self._version = "" if self._failures > 1 else self._version
                pause = backoff(failures=self._failures)
                _log.warning("%s; trying again in %.1f s", error, pause)
                await asyncio.sleep(pause)

    async def _pause_if_curt(self) -> None:
        """Wait where several watches in a row ended as soon as they had begun, or lists were outdated at once."""
        if self._changed or self._clock() - self._begun >= CURT_SECONDS:
            self._curt = 0
            return
        self._curt += 1
        if self._curt > 1:
            await asyncio.sleep(backoff(failures=self._curt - 1))

    async def _list(self) -> None:
        listing = await self._api.list(
            self._resource,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            keep=self._keep,
        )
        self._heard()
        fresh = {object_key(obj): obj for obj in listing.items}
        for key in self.store.keys() - fresh.keys():
            if self._namespace is None or key[0] == self._namespace:
                self._put(key, None)
        for number, (key, obj) in enumerate(fresh.items(), start=1):
            # Equal versions are not enough: a server whose store was restored gives them out a second time.
            if self.store.get(key) != obj:
                self._put(key, obj)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        self._version = listing.resource_version
        self.synced.set()

    async def _follow(self) -> None:
        self._begun = self._clock()  # however long the list took
        begun_at = self._version
        events = self._api.watch(
            self._resource,
            resource_version=self._version,
            namespace=self._namespace,
            labels=self._labels,
            fields=self._fields,
            max_seconds=self._watch_timeout,
            gather=self._gather,
        )
        while (event := await self._next(events)) is not None:
            self._failures = 0
            if self._is_of_another_history(event, begun_at=begun_at):
                _log.warning(
                    "%s: versions of the server went back from %s to %s, as after a restore of its store; "
                    "listing again",
                    self._resource.kind,
                    self._version,
                    _version(event.object),
                )
                self._version = ""
                return
            self._take(event)
        self._failures = 0

    async def _next(self, events: AsyncIterator[WatchEvent]) -> WatchEvent | None:
        """What the watch brings next; None at its end, after which the resource is listed again if the watch was
        silent for too long."""
        try:
            async with asyncio.timeout(self._silence):
                event = await anext(events, None)
        except TimeoutError:
            _log.warning(
                "%s: a watch brought nothing for %.0f s, not even a bookmark; listing again",
                self._resource.kind,
                self._silence,
            )
            self._version = ""
            return None
        self._heard()
        return event

    def _is_of_another_history(self, event: WatchEvent, *, begun_at: str) -> bool:
        """Whether an event is older than what was listed before it: the store may have been restored from a backup.

        A watch gives only what is newer than where it began, and a bookmark says that all up to it was given.
        """
        least = self._version if event.type == "BOOKMARK" else begun_at
        version = _version(event.object)
        is_older = version != least and _is_passed(version, by=least)
        return is_older and self._version.isdecimal()

    def _take(self, event: WatchEvent) -> None:
        version = _version(event.object)
        if _is_passed(version, by=self._version):
            return
        if event.type != "BOOKMARK":
            self._changed = True
            self._put(object_key(event.object), None if event.type == "DELETED" else self._kept(event.object))
        self._version = version

    def _kept(self, obj: Object) -> Object:
        return obj if self._keep is None else self._keep(obj)

    def _put(self, key: Key, after: Object | None) -> None:
        before = self.store.get(key)
        if after is not None:
            self.store[key] = after
        elif before is not None:
            del self.store[key]
        else:
            return
        if self._on_change is None:
            return
        try:
            self._on_change(key, before, after)
        except Exception:
            name = "/".join(filter(None, key))
            _log.exception("%s %s: a change of it met a defect", self._resource.kind, name)

    def _heard(self) -> None:
        self._contact = self._clock()
        self.problem = None


def backoff(*, failures: int, first: float = BACKOFF_FIRST, most: float = BACKOFF_MAX) -> float:
    """Seconds to wait after the n-th failure in a row: doubling, bounded, with up to half of it random."""
    ceiling = min(most, first * 2.0 ** min(failures - 1, 32))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret


def _is_passed(version: str, *, by: str) -> bool:
    """Whether the place of a watch says that an event of this version was taken in: it comes twice, or too late.

    A watch gives versions in order, and they are comparable numbers (KEP-5504). What is no number is never passed.
    """
    return version.isdecimal() and by.isdecimal() and int(version) <= int(by)


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
