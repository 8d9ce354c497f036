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
        found = copied(list(self.store(resource).values()))
        return ObjectList(items=list(map(keep, found)) if keep else found, resource_version="1")

    async def watch(self, resource: Resource, **_: object) -> AsyncIterator[WatchEvent]:
        await asyncio.Event().wait()
        yield WatchEvent(type="BOOKMARK", object={})

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        self.refuse("create", resource)
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if key in self.store(resource):
            raise error(ConflictError)
        made = copied(obj)
        number = next(self._numbers)
        # Of equal length: of jobs made in one second the order is that of their ids.
        uid = f"uid-{number:06}"
        made["metadata"] |= {"uid": uid, "generation": 1, "creationTimestamp": utc_now()}
        if resource is PERSISTENT_VOLUMES:
            made["status"] = {"phase": "Available"}
        return self._written("create", resource, key, made)

    async def apply(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        known = self.store(resource).get(key)
        if known is None:
            return await self.create(resource, obj=obj)
        return self._written("apply", resource, key, _merged(known, obj))

    async def apply_status(self, resource: Resource, *, obj: Object) -> Object:
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        known = self.store(resource).get(key)
        if known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            raise error(NotFoundError)
        return self._written("status", resource, key, {**known, "status": copied(obj["status"])})

    async def merge(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        key = (namespace or "", name)
        known = self.store(resource).get(key)
        if known is None:
            raise error(NotFoundError)
        wanted = patch.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != known["metadata"]["resourceVersion"]:
            raise error(ConflictError)
        return self._written("merge", resource, key, _merged(known, patch))

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
        known = self.store(resource).get(key)
        if known is None:
            return False
        metadata = {**known["metadata"], "deletionTimestamp": utc_now()}
        self._written("delete", resource, key, {**known, "metadata": metadata})
        return True

    async def request_token(self, *, namespace: str, account: str, audience: str, seconds: int) -> str:
        self.refuse("create token", SERVICE_ACCOUNTS)
        if (namespace, account) not in self.store(SERVICE_ACCOUNTS):
            raise error(NotFoundError)
        return self.tokens.issue(namespace=namespace, account=account, audience=audience, seconds=seconds)

    async def close(self) -> None:
        pass

    def _written(self, verb: str, resource: Resource, key: Key, obj: Object) -> Object:
        known = self.store(resource).get(key)
        metadata = {**obj["metadata"], "resourceVersion": str(next(self._numbers))}
        if known is not None and known.get("spec") != obj.get("spec"):
            metadata["generation"] = known["metadata"].get("generation", 1) + 1
        made = {**copied(obj), "metadata": metadata}
        self.play(resource, made)
        if resource is not EVENTS:
            self.writes.append(f"{verb} {resource.kind} {'/'.join(filter(None, key))}")
        gone = bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")
        if gone:
            self.store(resource).pop(key, None)
        else:
            self.store(resource)[key] = made
        self.on_change(resource, made, gone)
        return copied(made)

    def play(self, resource: Resource, made: Object) -> None:
        """What the controllers of Kubernetes make of an object that was written, at once."""
        if resource is STATEFUL_SETS:
            replicas = made["spec"]["replicas"]
            made["status"] = {"observedGeneration": made["metadata"]["generation"], "replicas": replicas}
        if resource is JOBS:
            made["status"] = {"conditions": [{"type": self.jobs_end_as, "status": "True"}]}


def _merged(known: Any, patch: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(patch, Mapping):
        return copied(patch)
    found = dict(known)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found
