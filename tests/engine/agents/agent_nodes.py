"""Agents as processes beside the workers of a real Alluxio, and the operator's client to them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.engine.servers import AlluxioCluster
from tests.support.dataplane.agent_processes import AGENT, AgentProcess
from tests.support.dataplane.agents import Version
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.alluxio.exported_files import ExportedFiles, for_alluxio
from tdcs.alluxio.master_watch import MasterWatch
from tdcs.alluxio.rpc import Rpc
from tdcs.api import names
from tdcs.control.cache_registry import Cache, CachePool, Caches, ClusterObjects
from tdcs.control.operator.cache_factory import cache_of, follow_exports, has_master, serve_manifests
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.kube.api import KubeApi
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import FolderAgents
from tdcs.listing.one_listing import list_source
from tdcs.listing.source_keys import SourceKeys
from tdcs.listing.transfer import manifest_url
from tdcs.model.agent_state import (
    AgentState,
    Assignment,
    MountState,
    SourceAccess,
)
from tdcs.model.cache_engine import Source
from tdcs.model.file_blocks import EXTENTS
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import Identify, TrustFolder
from tdcs.trust.roles import Role

_SWEEP_SECONDS: Final = 2.0
_SWEEP_PATIENCE: Final = 10.0


def operator_of(cluster: AlluxioCluster) -> Identify | None:
    """What the operator of a cluster shows."""
    if cluster.authority is None:
        return None
    identity = cluster.authority.identity(Role.OPERATOR, hosts=())
    return lambda: identity


class AgentNode(AgentProcess):
    """The agent beside one worker."""

    def __init__(self, *, cluster: AlluxioCluster, node: str, capacity: int) -> None:
        self.cluster = cluster
        host = cluster.worker_hosts[node]
        self.trust = None
        if cluster.authority is not None:
            self.trust = cluster.trust_folder(f"agent-{node}")
            cluster.authority.folder(self.trust, Role.AGENT, hosts=(host,))
        super().__init__(
            node=node,
            tier=cluster.folder / "blocks" / node,
            host=host,
            worker=f"{host}:{names.WORKER_RPC_PORT}",
            master=cluster.target,
            capacity=capacity,
            log=cluster.folder / "logs" / f"agent-{node}.log",
            trust=self.trust,
        )

    async def prepare(self) -> None:
        """What the init container does, which succeeds."""
        running = await asyncio.create_subprocess_exec(*AGENT, "prepare", "--tier", str(self.tier))
        assert await running.wait() == 0


class AgentCluster:
    """All agents of a cluster, which have Alluxio told of whole files."""

    def __init__(
        self,
        *,
        cluster: AlluxioCluster,
        folder: Path,
        capacity: int | Mapping[str, int],
        identify: Identify | None = None,
    ) -> None:
        self.cluster = cluster
        self.manifests = ManifestFolder(folder)
        self.nodes = {
            node: AgentNode(
                cluster=cluster,
                node=node,
                capacity=capacity if isinstance(capacity, int) else capacity[node],
            )
            for node in cluster.workers
        }
        self._identify = identify or operator_of(cluster)
        tls = Contexts(self._identify) if self._identify is not None else None
        self.client = HttpAgents(poll_seconds=5, tls=tls)

    async def start(self) -> None:
        """Prepare the disks, start the agents, and wait until the client sees them."""
        await asyncio.gather(*(node.prepare() for node in self.nodes.values()))
        for node in self.nodes.values():
            node.process.launch()
        for node in self.nodes.values():
            await asyncio.to_thread(node.process.wait_ready)
        self.connect()
        await eventually_async(lambda: set(self.client.states()) == set(self.nodes), deadline=30)

    def connect(self) -> None:
        """Follow all agents."""
        self.client.connect(
            {name: AgentAddress(url=node.url, blocks=node.address) for name, node in self.nodes.items()}
        )

    async def version(self, source: Source) -> Version:
        """List a source."""
        path = f"/datasets/{uuid.uuid4().hex[:16]}"
        urls = {node: state.url for node, state in self.client.states().items()}
        listed = await list_source(
            source=source, path=path, folder=self.manifests, agents=FolderAgents(urls=urls), cut=EXTENTS
        )
        pair = source.credentials
        access = SourceAccess(
            uri=source.uri,
            options=dict(source.options),
            access_key_id=pair.access_key_id if pair else "",
            secret_access_key=pair.secret_access_key if pair else "",
        )
        return Version(manifest=self.manifests.open(listed.digest), folder=self.manifests, source=access)

    async def give(self, node: str, version: Version, **fields: object) -> Assignment:
        """Assign a version to one node, which gets the manifest with it."""
        target = self.nodes[node]
        number = max((state.version for state in self._states(version)), default=0) + 1
        assignment = version.assignment(**{"version": number, **fields})  # type: ignore[arg-type]
        file = target.disk.manifests / assignment.manifest
        if not file.exists():
            await asyncio.to_thread(
                lambda: file.write_bytes(version.folder.file(assignment.manifest).read_bytes())
            )
        await self.client.assign(node=node, assignments=[assignment])
        return assignment

    def state(self, node: str) -> AgentState | None:
        """The last state of a node's agent."""
        return self.client.states().get(node)

    def mount(self, node: str, version: Version) -> MountState:
        """What a node's agent says of a version's mount."""
        state, path = self.state(node), version.manifest.path
        return (state.mounts if state else {}).get(path, MountState(mount=path))

    async def holds(self, node: str, version: Version, *, deadline: float = 60) -> None:
        """Wait until a node holds all of a version."""

        def there() -> bool:
            state = self.mount(node, version)
            return state.manifest == version.manifest.digest and state.held_bytes == version.bytes

        await eventually_async(there, deadline=deadline, describe=self.describe, interval=0.05)

    async def exported(self, path: str, files: Mapping[str, bytes], *nodes: str) -> None:
        """Wait until Alluxio has each file of a mount, on these nodes."""
        trust = next(iter(self.nodes.values())).trust  # agents alone ask for exported files
        identify = TrustFolder(trust) if trust is not None else None
        async with master_of(self.cluster, identify) as master:
            exported = ExportedFiles(master)

            async def there() -> bool:
                for name, content in files.items():
                    file = await exported.find(f"{path}/{for_alluxio(name)}")
                    if file is None or not file.is_whole or file.length != len(content):
                        return False
                    if file.workers != set(nodes):
                        return False
                return True

            await eventually_async(there, deadline=240, describe=self.describe, interval=0.5)

    def manifest_url(self, node: str, version: Version) -> str:
        """Where a node's agent serves a manifest."""
        address = f"{self.nodes[node].host}:{names.AGENT_CONTROL_PORT}"
        return manifest_url(address=address, digest=version.manifest.digest)

    def describe(self) -> str:
        """States and logs, for a failed wait."""
        logs = [f"--- {node.node}\n{node.process.tail(lines=15)}" for node in self.nodes.values()]
        return "\n".join([*(repr(state) for state in self.client.states().values()), *logs])

    async def close(self) -> None:
        """End the client and the agents."""
        await self.client.close()
        for node in self.nodes.values():
            node.process.kill()

    def _states(self, version: Version) -> Iterable[MountState]:
        for state in self.client.states().values():
            if version.manifest.path in state.mounts:
                yield state.mounts[version.manifest.path]


@asynccontextmanager
async def agents_of(
    cluster: AlluxioCluster,
    *,
    folder: Path,
    capacity: int | Mapping[str, int],
) -> AsyncIterator[AgentCluster]:
    """Agents beside all workers of a running cluster; see `AgentCluster`."""
    agents = AgentCluster(cluster=cluster, folder=folder, capacity=capacity)
    try:
        await agents.start()
        yield agents
    finally:
        await agents.close()


@asynccontextmanager
async def master_of(cluster: AlluxioCluster, identify: Identify | None = None) -> AsyncIterator[Rpc]:
    """The operator's connection to a master."""
    rpc = Rpc(target=cluster.target, patience=30.0, identify=identify or operator_of(cluster))
    try:
        yield rpc
    finally:
        await rpc.close()


class ExportCaches(CachePool):
    """As the operator makes them by default: agents with a real Alluxio behind them, which outlive the controllers.

    Attributes:
        api: where it stands what is mounted; given before there is a CacheCluster.
    """

    api: KubeApi

    def __init__(self, agents: AgentCluster, *, port: int) -> None:
        self._agents = agents
        super().__init__(make=self._of, folder=agents.manifests, manifest_url=f"http://127.0.0.1:{port}")

    def seen_by(self, objects: ClusterObjects) -> Caches:
        """These caches, for controllers that see these objects."""
        self._objects = objects
        return self

    def _of(self, cluster: str) -> Cache:
        cache = cache_of(
            cluster,
            self._objects,
            api=self.api,
            namespace=names.SYSTEM_NAMESPACE,
            folder=self._agents.manifests,
            agents=self._agents.client,
            check_keys=SourceKeys(),
            connect=lambda workers: None,  # it follows all of them
        )
        master = Rpc(
            target=self._agents.cluster.target,
            patience=_SWEEP_PATIENCE,
            identify=operator_of(self._agents.cluster),
        )
        objects = self._objects
        watch = MasterWatch(
            master=master, has_master=lambda: has_master(objects, cluster), seconds=_SWEEP_SECONDS
        )
        exports = follow_exports(
            cluster, objects, engine=cache.engine, master=master, watch=watch, seconds=_SWEEP_SECONDS
        )
        return replace(cache, exports=watch.view, alongside=asyncio.create_task(exports))

    async def close(self) -> None:
        """The controllers end; the agents do not."""
        for cache in self._caches.values():
            if cache.alongside is not None:
                cache.alongside.cancel()
                await asyncio.gather(cache.alongside, return_exceptions=True)


@asynccontextmanager
async def exports_of(
    cluster: AlluxioCluster, *, folder: Path, capacity: int | Mapping[str, int]
) -> AsyncIterator[tuple[ExportCaches, AgentCluster]]:
    """Agents beside all workers of a running cluster, and what controllers under test reach them by, which has
    Alluxio told of what they hold."""
    (port,) = free_ports(1)
    async with (
        agents_of(cluster, folder=folder, capacity=capacity) as agents,
        serve_manifests(agents.manifests, port=port),
    ):
        caches = ExportCaches(agents, port=port)
        try:
            yield caches, agents
        finally:
            await caches.close()
