"""A small API server in memory, for the stories of controllers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from tests.support.programs.token_service import TokenIssuer
from tests.unit.kube.fake import error

from tdcs.kube.api import ObjectList, WatchEvent
from tdcs.kube.errors import ConflictError, NotFoundError
from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    EVENTS,
    JOBS,
    PERSISTENT_VOLUMES,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Resource,
)

Key = tuple[str, str]
T = TypeVar("T")

PLAIN = frozenset({str, int, float, bool, type(None)})


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()


def copied(obj: T) -> T:
    """A copy of what JSON can carry, at a thirtieth of what `copy.deepcopy` costs."""
    try:
        return cast(T, _DECODER.decode(_ENCODER.encode(obj)))
    except (TypeError, OverflowError, UnicodeError):  # a quantity beyond 64 bits, a name that is no text
        return _copied(obj)


def _copied(obj: T) -> T:
    if type(obj) in PLAIN:  # most values are, and whether one is a Mapping takes long to ask
        return obj
    if isinstance(obj, dict | Mapping):
        return cast(T, {name: _copied(value) for name, value in obj.items()})
    if isinstance(obj, list | tuple):
        return cast(T, [_copied(value) for value in obj])
    return obj


class Server:
    """`KubeApi` over dicts: generations, finalizers, server-side apply as far as the operator needs them.

    Attributes:
        on_change: called with each written object; `deleted` when it is gone.
        refuse: raises to refuse a request; gets the verb and the resource.
    """

    def __init__(self) -> None:
        self.stores: dict[str, dict[Key, Object]] = {}
        self.on_change: Callable[[Resource, Object, bool], None] = lambda resource, obj, deleted: None
        self.refuse: Callable[[str, Resource], None] = lambda verb, resource: None
        self.writes: list[str] = []
        self.tokens = TokenIssuer()
        self.jobs_end_as = "Complete"
        self._numbers = itertools.count(1)

    def store(self, resource: Resource) -> dict[Key, Object]:
        """All objects of a type; live."""
        return self.stores.setdefault(resource.plural, {})

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        self.refuse("get", resource)
        return copied(self.store(resource).get((namespace or "", name)))

    async def list(
        self, resource: Resource, *, keep: Callable[[Object], Object] | None = None, **_: object
    ) -> ObjectList:
        objects = copied(list(self.store(resource).values()))
        return ObjectList(items=list(map(keep, objects)) if keep else objects, resource_version="1")

    async def watch(self, resource: Resource, **_: object) -> AsyncIterator[WatchEvent]:
        await asyncio.Event().wait()
        yield WatchEvent(type="BOOKMARK", object={})

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        self.refuse("create", resource)
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if key in self.store(resource):
            raise error(ConflictError)
        created = copied(obj)
        number = next(self._numbers)
        # Of equal length: of jobs made in one second the order is that of their ids.
        uid = f"uid-{number:06}"
        created["metadata"] |= {"uid": uid, "generation": 1, "creationTimestamp": utc_now()}
        if resource is PERSISTENT_VOLUMES:
            created["status"] = {"phase": "Available"}
        return self._written("create", resource, key, created)

    async def apply(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        live = self.store(resource).get(key)
        if live is None:
            return await self.create(resource, obj=obj)
        return self._written("apply", resource, key, _merged(live, obj))

    async def apply_status(self, resource: Resource, *, obj: Object) -> Object:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        live = self.store(resource).get(key)
        if live is None or live["metadata"]["uid"] != obj["metadata"]["uid"]:
            raise error(NotFoundError)
        return self._written("status", resource, key, {**live, "status": copied(obj["status"])})

    async def merge(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        key = (namespace or "", name)
        live = self.store(resource).get(key)
        if live is None:
            raise error(NotFoundError)
        version = patch.get("metadata", {}).get("resourceVersion")
        if version is not None and version != live["metadata"]["resourceVersion"]:
            raise error(ConflictError)
        return self._written("merge", resource, key, _merged(live, patch))

    async def merge_status(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        return await self.merge(resource, name=name, namespace=namespace, patch=patch)

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        foreground: bool = False,
    ) -> bool:
        self.refuse("delete", resource)
        key = (namespace or "", name)
        live = self.store(resource).get(key)
        if live is None:
            return False
        metadata = {**live["metadata"], "deletionTimestamp": utc_now()}
        self._written("delete", resource, key, {**live, "metadata": metadata})
        return True

    async def request_token(self, *, namespace: str, account: str, audience: str, seconds: int) -> str:
        self.refuse("create token", SERVICE_ACCOUNTS)
        if (namespace, account) not in self.store(SERVICE_ACCOUNTS):
            raise error(NotFoundError)
        return self.tokens.issue(namespace=namespace, account=account, audience=audience, seconds=seconds)

    async def close(self) -> None:
        pass

    def _written(self, verb: str, resource: Resource, key: Key, obj: Object) -> Object:
        live = self.store(resource).get(key)
        metadata = {**obj["metadata"], "resourceVersion": str(next(self._numbers))}
        if live is not None and live.get("spec") != obj.get("spec"):
            metadata["generation"] = live["metadata"].get("generation", 1) + 1
        written = {**copied(obj), "metadata": metadata}
        self.play(resource, written)
        if resource is not EVENTS:
            self.writes.append(f"{verb} {resource.kind} {'/'.join(filter(None, key))}")
        is_gone = bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")
        if is_gone:
            self.store(resource).pop(key, None)
        else:
            self.store(resource)[key] = written
        self.on_change(resource, written, is_gone)
        return copied(written)

    def play(self, resource: Resource, obj: Object) -> None:
        """What the controllers of Kubernetes make of an object that was written, at once."""
        if resource is STATEFUL_SETS:
            replicas = obj["spec"]["replicas"]
            obj["status"] = {
                "observedGeneration": obj["metadata"]["generation"],
                "replicas": replicas,
            }
        if resource is JOBS:
            obj["status"] = {"conditions": [{"type": self.jobs_end_as, "status": "True"}]}


def _merged(before: Any, patch: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(patch, Mapping):
        return copied(patch)
    merged = dict(before)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
