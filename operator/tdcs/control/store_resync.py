"""Compares views that another event source feeds with the server's own list.

An event source that lists again after a lost watch replays what exists, and says nothing of what was deleted in the
gap. Such an object would stay in the view, with all that is reserved for it, until the operator restarts.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.kube.informer import backoff
from tdcs.kube.scope import Scope
from tdcs.model.kube_objects import Key, Object, object_key
from tdcs.model.kube_resources import Resource

PAUSE = 0.5
"""Seconds between a doubt and the list, so that many doubts are one list, and the event may still come by itself."""

_log = logging.getLogger(__name__)


class TakeIn(Protocol):
    """Takes in one custom resource; `deleted`: as it was last."""

    def __call__(self, resource: Resource, obj: Object, *, deleted: bool) -> None: ...


class StoreResync:
    """Lists a resource again when somebody doubts its view.

    Args:
        views: what is known, by resource and key; only read.
        missed: takes in an object that changed without an event.
        pause: seconds between a doubt and the list.
    """

    def __init__(
        self,
        *,
        api: KubeApi,
        views: Mapping[Resource, Mapping[Key, Object]],
        missed: TakeIn,
        pause: float = PAUSE,
        scope: Scope | None = None,
    ) -> None:
        self._api = api
        self._scope = scope
        self._views = views
        self._missed = missed
        self._pause = pause
        self._doubted: set[Resource] = set()
        self._looking: dict[Resource, asyncio.Task[None]] = {}

    def doubt(self, resource: Resource) -> None:
        """Something of the view of this resource may have been missed."""
        self._doubted.add(resource)
        if resource not in self._looking:
            self._looking[resource] = asyncio.create_task(self._look(resource))

    def is_gone(self, resource: Resource, key: Key) -> None:
        """The API server has no object of this key: its view is doubted if it has one."""
        if key in self._views[resource]:
            self.doubt(resource)

    async def close(self) -> None:
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, resource: Resource) -> None:
        failures = 0
        try:
            while resource in self._doubted:
                await asyncio.sleep(backoff(failures=failures) if failures else self._pause)
                self._doubted.discard(resource)
                try:
                    await self._compare(resource)
                    failures = 0
                except KubeError as error:
                    failures += 1
                    self._doubted.add(resource)
                    _log.warning("%s; it is tried again", error)
        finally:
            self._looking.pop(resource, None)

    async def _compare(self, resource: Resource) -> None:
        view = self._views[resource]
        before = dict(view)
        namespaces = self._scope.namespaces(resource) if self._scope is not None else (None,)
        found = {
            object_key(obj): obj
            for namespace in namespaces
            for obj in (await self._api.list(resource, namespace=namespace)).items
        }
        for key, obj in before.items():
            # One that an event has replaced meanwhile is newer than the list.
            if key not in found and view.get(key) is obj:
                _log.info("%s %s is gone, and there was no event", resource.kind, "/".join(filter(None, key)))
                self._missed(resource, obj, deleted=True)
        for key, obj in found.items():
            # Unchanged while the list was read, and yet not as listed: a watch that stands still.
            if view.get(key) is before.get(key) and _version(obj) != _version(before.get(key)):
                self._missed(resource, obj, deleted=False)


def _version(obj: Object | None) -> str:
    return "" if obj is None else str(obj["metadata"].get("resourceVersion", "?"))
