"""`NativeEngine`: a cache of agents alone. What it has mounted stands in a ConfigMap; the rest is known of the agents.

A mount is no more than a path, a source and a version here: nobody but the operator and the agents reads the source.
So nothing waits for a master, and none can lose what is mounted.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

import msgspec

from tdcs.api import names
from tdcs.api.source_uri import is_claim, is_folder
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import owner_reference
from tdcs.kube.errors import KubeError
from tdcs.listening import at
from tdcs.listing.source_probe import probe
from tdcs.model.agent_state import Agents, AgentState
from tdcs.model.cache_engine import (
    EngineUnavailableError,
    MountConflictError,
    NoSuchPathError,
    NoSuchWorkerError,
    Source,
    WorkerInfo,
)
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CONFIG_MAPS
from tdcs.model.source_paths import canonical_uri, check_same_store, checked_path, store_of

_log: Final = logging.getLogger(__name__)

LOST_SECONDS: Final = 10.0
"""An agent that could not be reached for so long counts as lost: one that starts again is back sooner."""


class Mounted(msgspec.Struct, frozen=True, kw_only=True):
    """A mount.

    Attributes:
        uri: of its source, canonical.
        store: what tells the source's store from others (`store_of`).
        version: digest of its manifest; empty before the first.
    """

    uri: str
    store: str = ""
    version: str = ""


class MountTable:
    """The mounts of one cache cluster, in a ConfigMap that goes with it.

    The one operator that works writes it, so it is read once.

    Args:
        owner: gives the CacheCluster; None when there is none.
    """

    def __init__(
        self, *, api: KubeApi, namespace: str, cluster: str, owner: Callable[[], Object | None]
    ) -> None:
        self._api: Final = api
        self._namespace: Final = namespace
        self._cluster: Final = cluster
        self._name: Final = names.mounts_name(cluster=cluster)
        self._owner: Final = owner
        self._mounts: dict[str, Mounted] | None = None
        self._of: str | None = None
        self._lock: Final = asyncio.Lock()

    async def mounts(self) -> Mapping[str, Mounted]:
        """All of them by path. Raises EngineError."""
        async with self._lock:
            return dict(await self._read())

    async def put(self, path: str, mounted: Mounted | None) -> None:
        """Write a mount, or that it is gone. Raises EngineError, and nothing has changed then, or what was written is
        read again."""
        async with self._lock:
            await self._put(path, mounted)

    async def set_version(self, path: str, version: str) -> bool:
        """Write the version of a mount; False when nothing is mounted there. Raises EngineError as `put`."""
        # Read and written in one turn: a mount that goes in between would be written again.
        async with self._lock:
            mounted = (await self._read()).get(path)
            if mounted is not None:
                await self._put(path, msgspec.structs.replace(mounted, version=version))
            return mounted is not None

    async def _put(self, path: str, mounted: Mounted | None) -> None:
        mounts = await self._read()
        if mounts.get(path) == mounted:
            return
        remaining = {mount_path: value for mount_path, value in mounts.items() if mount_path != path}
        if mounted is not None:
            remaining[path] = mounted
        self._mounts = None  # whether a write that fails was done is not known
        await self._write(path, remaining)
        self._mounts = remaining

    async def _read(self) -> dict[str, Mounted]:
        uid = self._owner_of()["metadata"]["uid"]
        if self._mounts is None or self._of != uid:
            data: Mapping[str, str] = {}
            try:
                config_map = await self._api.get(CONFIG_MAPS, name=self._name, namespace=self._namespace)
            except KubeError as error:
                raise self._unavailable("read", error) from error
            if config_map is not None and _is_of(config_map, uid):
                data = config_map.get("data") or {}
            self._mounts, self._of = dict(self._understood(data)), uid
        return self._mounts

    def _understood(self, data: Mapping[str, str]) -> Iterator[tuple[str, Mounted]]:
        for key, text in data.items():
            try:
                entry = msgspec.json.decode(text, type=_Entry)
            except msgspec.MsgspecError as error:
                where = f"{self._namespace}/{self._name}"
                _log.warning("entry %s of ConfigMap %s is no mount, and is left out: %s", key, where, error)
            else:
                yield entry.path, entry.mounted

    async def _write(self, path: str, mounts: Mapping[str, Mounted]) -> None:
        owner = self._owner_of()
        data = {_key(mount_path): _text(mount_path, mounted) for mount_path, mounted in mounts.items()}
        try:
            config_map = await self._api.get(CONFIG_MAPS, name=self._name, namespace=self._namespace)
            if config_map is None:
                await self._api.create(CONFIG_MAPS, obj=self._object(owner, data))
                return
            if not _is_of(config_map, owner["metadata"]["uid"]):
                raise EngineUnavailableError(
                    attempted=f"write ConfigMap {self._namespace}/{self._name}",
                    reason=f"one of that name is there, which is not of CacheCluster {self._cluster}",
                    remedy="It goes with an earlier CacheCluster of that name; delete it if it does not",
                    retryable=True,
                )
            patch = {"data": {_key(path): data.get(_key(path))}}
            await self._api.merge(CONFIG_MAPS, name=self._name, namespace=self._namespace, patch=patch)
        except KubeError as error:
            raise self._unavailable("write", error) from error

    def _object(self, owner: Object, data: Mapping[str, str]) -> Object:
        labels = {
            names.LABEL_MANAGED_BY: names.MANAGED_BY,
            names.LABEL_CACHE_CLUSTER: self._cluster,
            names.LABEL_COMPONENT: "mounts",
        }
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
        }
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}

    def _owner_of(self) -> Object:
        owner = self._owner()
        if owner is None:
            raise EngineUnavailableError(
                attempted=f"read what CacheCluster {self._cluster} has mounted",
                reason="there is no such CacheCluster",
                remedy="Create it",
                retryable=True,
            )
        return owner

    def _unavailable(self, verb: str, error: Exception) -> EngineUnavailableError:
        return EngineUnavailableError(
            attempted=f"{verb} ConfigMap {self._namespace}/{self._name}",
            reason=str(error),
            remedy="It is tried again; see the API server if it does not answer, and the number of mounts of the "
            "CacheCluster if the ConfigMap has grown too large",
            retryable=True,
        )


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    mounted: Mounted


def _text(path: str, mounted: Mounted) -> str:
    return msgspec.json.encode(_Entry(path=path, mounted=mounted)).decode()


def _key(path: str) -> str:
    return path.strip("/").replace("/", ".")


def _is_of(child: Object, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in child["metadata"].get("ownerReferences") or ())


class NativeEngine:
    """An `Engine` of agents.

    Args:
        table: what is mounted.
        hosts: gives the host of each node that has, or shall have, an agent.
        agents: the agents there.
    """

    def __init__(
        self,
        *,
        table: MountTable,
        hosts: Callable[[], Mapping[str, str]],
        agents: Agents,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table: Final = table
        self._hosts: Final = hosts
        self._agents: Final = agents
        self._clock: Final = clock
        self._sources: Final[dict[str, Source]] = {}
        self._heard: Final[dict[str, tuple[float, AgentState]]] = {}
        self._retired: Final[dict[str, str]] = {}
        """Instances of agents that were taken out of service, by node."""

    async def mount(self, *, path: str, source: Source) -> None:
        checked_path(path)
        uri, store = canonical_uri(source.uri), store_of(source.options)
        attempted = f"mount {uri} at {path}"
        mounted = (await self._table.mounts()).get(path)
        if mounted is not None:
            if mounted.uri != uri:
                raise MountConflictError(
                    attempted=attempted,
                    reason="another source is mounted there",
                    remedy="Delete the Datasets that use it first",
                    path=path,
                )
            check_same_store(path=path, uri=uri, mounted=mounted.store, store=store)
        is_looked_at = is_folder(uri) or is_claim(uri)  # by agents, or a pod, before
        if not is_looked_at and (mounted is None or self._sources.get(path) != source):
            await probe(source, path=path)
        if mounted is None:
            await self._table.put(path, Mounted(uri=uri, store=store))
        self._sources[path] = source

    async def unmount(self, *, path: str) -> None:
        await self._table.put(path, None)
        self._sources.pop(path, None)

    async def mounts(self) -> Mapping[str, str]:
        return {path: mounted.uri for path, mounted in (await self._table.mounts()).items()}

    async def stores(self) -> Mapping[str, str]:
        return {
            path: mounted.store for path, mounted in (await self._table.mounts()).items() if mounted.store
        }

    def source_of(self, path: str) -> Source | None:
        """The source that this process has mounted at a path, with its keys; None when it has mounted none there."""
        return self._sources.get(path)

    @property
    def secrets(self) -> frozenset[str]:
        """Texts to hide wherever they occur."""
        keys = (source.credentials for source in self._sources.values())
        return frozenset(
            secret for credentials in keys if credentials is not None for secret in credentials.secrets
        )

    async def retire(self, *, worker: str) -> None:
        if worker not in self._hosts():
            raise NoSuchWorkerError(
                attempted=f"retire worker {worker}",
                reason=f"the workers are: {', '.join(sorted(self._hosts())) or 'none'}",
                remedy="Choose another node",
                worker=worker,
            )
        state = self._agents.states().get(worker)
        if state is not None:
            self._retired[worker] = state.instance
        self._heard.pop(worker, None)

    async def workers(self) -> list[WorkerInfo]:
        now, states, hosts = self._clock(), self._agents.states(), self._hosts()
        for times in (self._heard, self._retired):
            for node in times.keys() - hosts.keys():
                del times[node]
        workers = []
        for node, host in sorted(hosts.items()):
            state = states.get(node)
            if state is not None:
                if self._retired.get(node, state.instance) != state.instance:
                    del self._retired[node]  # it was started again since
                if node not in self._retired:
                    self._heard[node] = (now, state)
            heard_at, last = self._heard.get(node, (0.0, None))
            live = last is not None and now - heard_at < LOST_SECONDS
            workers.append(
                WorkerInfo(
                    name=node,
                    address=at(host, names.AGENT_BLOCK_PORT),
                    capacity_bytes=last.capacity_bytes if last is not None and live else 0,
                    used_bytes=last.used_bytes if last is not None and live else 0,
                    live=live,
                    target=last.target if last is not None else "",
                )
            )
        return workers

    async def set_version(self, *, path: str, version: str) -> None:
        if not await self._table.set_version(path, version):
            raise NoSuchPathError.not_mounted(path=path, attempted=f"publish the version of {path}")

    async def versions(self) -> Mapping[str, str]:
        mounts = await self._table.mounts()
        return {path: mounted.version for path, mounted in mounts.items() if mounted.version}

    async def close(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
