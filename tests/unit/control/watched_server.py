"""The API server in memory with lists and watches, for a whole operator."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.unit.control.server import Key, Server, copied
from tests.unit.kube.fake import error

from tdcs.kube.api import ObjectList, WatchEvent
from tdcs.kube.errors import GoneError, KubeError, UnavailableError
from tdcs.model.kube_objects import Object, object_key
from tdcs.model.kube_resources import Resource


class WatchedServer(Server):
    """Gives each change to those who watch, in order; a watch begins where a list ended. It knows no selectors.

    Attributes:
        lists: how often each resource was listed, by its plural.
        watches: how many watches of each resource are open, by its plural.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, int] = {}
        self.watches: dict[str, int] = {}
        self._events: list[tuple[Resource, WatchEvent]] = []
        self._oldest = 0
        self._problem: KubeError | None = None
        self._cuts = 0
        self._silent = False
        self._changed = asyncio.Event()

    def cut(self, problem: KubeError) -> None:
        """End every watch with an error, and answer nobody, until `heal`."""
        self._problem = problem
        self._cuts += 1
        self._tell()

    def fall_silent(self) -> None:
        """Take watches from now on, and send nothing to those who watch; lists are answered."""
        self._silent = True

    def heal(self, *, compacted: bool = False) -> None:
        """Answer again; with `compacted` no watch can begin at a version from before."""
        self._problem = None
        if compacted:
            self._events.clear()
            self._oldest = int(self._version())
        self._tell()

    async def list(
        self,
        resource: Resource,
        *,
        keep: Callable[[Object], Object] | None = None,
        **options: Any,
    ) -> ObjectList:
        if self._problem is not None:
            raise self._problem
        namespace = options.get("namespace")
        self.lists[resource.plural] = self.lists.get(resource.plural, 0) + 1
        objects = [copied(obj) for key, obj in self.store(resource).items() if namespace in (None, key[0])]
        return ObjectList(
            items=list(map(keep, objects)) if keep else objects, resource_version=self._version()
        )

    async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
        namespace, heard, cuts = options.get("namespace"), int(options["resource_version"]), self._cuts
        if self._problem is not None:
            raise self._problem
        if heard < self._oldest:
            raise error(GoneError)
        self.watches[resource.plural] = self.watches.get(resource.plural, 0) + 1
        try:
            while True:
                if cuts != self._cuts:
                    raise self._problem or error(UnavailableError)
                for followed, event in () if self._silent else list(self._events):
                    version = int(event.object["metadata"]["resourceVersion"])
                    if followed is resource and version > heard and self._is_of(event, namespace):
                        heard = version
                        yield event
                await self._changed.wait()
        finally:
            self.watches[resource.plural] -= 1

    @staticmethod
    def _is_of(event: WatchEvent, namespace: str | None) -> bool:
        return namespace in (None, object_key(event.object)[0])

    def _version(self) -> str:
        return str(next(self._numbers))

    def _written(self, verb: str, resource: Resource, key: Key, obj: Object) -> Object:
        written = super()._written(verb, resource, key, obj)
        event = WatchEvent(
            type="MODIFIED" if key in self.store(resource) else "DELETED", object=copied(written)
        )
        self._events.append((resource, event))
        self._tell()
        return written

    def _tell(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()
