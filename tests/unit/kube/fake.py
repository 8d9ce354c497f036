"""An API server that misbehaves on request: a list and scripted watches."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tdcs.kube.api import ObjectList, WatchEvent
from tdcs.kube.errors import ConflictError, GoneError, KubeError, NotFoundError, UnavailableError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PODS, Resource

Step = WatchEvent | KubeError


def pod(name: str, version: int, *, labels: Mapping[str, str] | None = None) -> Object:
    """A pod of namespace n."""
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "resourceVersion": str(version),
            "labels": dict(labels or {}),
        }
    }


def error(kind: type[KubeError]) -> KubeError:
    """An answer of this kind."""
    return kind(verb="watch", resource=PODS, namespace=None, name=None, code=0, reason="", detail="as told")


class ScriptedApi:
    """Gives the lists in order (the last one forever), and the watches in order, then quiet ones.

    Attributes:
        written: every write, in order.
        listed: how many lists were asked for.
        asked: what the last of them asked for.
        watched_from: the version each watch began at.
    """

    def __init__(
        self,
        *,
        lists: list[ObjectList | KubeError] | None = None,
        watches: list[list[Step]] | None = None,
    ) -> None:
        self._lists = lists or [ObjectList(items=[], resource_version="1")]
        self._watches = watches or []
        self.written: list[tuple[str, Object]] = []
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.listed = 0
        self.options: dict[str, object] = {}
        self.watched_from: list[str] = []

    async def list(self, resource: Resource, **options: object) -> ObjectList:
        self.options = {name: value for name, value in options.items() if name != "namespace"}
        listing = self._lists[min(self.listed, len(self._lists) - 1)]
        self.listed += 1
        if isinstance(listing, KubeError):
            raise listing
        return listing

    async def watch(
        self, resource: Resource, *, resource_version: str, **_: object
    ) -> AsyncIterator[WatchEvent]:
        self.watched_from.append(resource_version)
        if len(self.watched_from) > len(self._watches):
            await asyncio.Event().wait()
        for step in self._watches[len(self.watched_from) - 1]:
            if isinstance(step, KubeError):
                raise step
            yield step

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        return self.objects.get((resource.plural, namespace or "", name))

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        key = (resource.plural, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if key in self.objects:
            raise error(ConflictError)
        self.objects[key] = obj
        self.written.append(("create", obj))
        return obj

    async def apply(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        applied = {**obj, "metadata": {**obj["metadata"], "uid": "made"}}
        self.written.append(("apply", applied))
        return applied

    async def apply_status(self, resource: Resource, *, obj: Object) -> Object:
        self.written.append(("status", obj))
        return obj

    async def merge(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        self.written.append(("merge", dict(patch)))
        return self.objects[resource.plural, namespace or "", name] | dict(patch)

    async def merge_status(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        self.written.append(("merge status", dict(patch)))
        return self.objects[resource.plural, namespace or "", name] | dict(patch)

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        foreground: bool = False,
    ) -> bool:
        return self.objects.pop((resource.plural, namespace or "", name), None) is not None

    async def request_token(self, *, namespace: str, account: str, audience: str, seconds: int) -> str:
        raise error(NotFoundError)

    async def close(self) -> None:
        pass


__all__ = ["GoneError", "ScriptedApi", "UnavailableError", "error", "pod"]
