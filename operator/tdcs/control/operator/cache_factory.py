"""The caches behind `tdcs operator`: agents, which hold the data, and with the engine Alluxio its master."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import aiohttp
from aiohttp import web

from tdcs.alluxio.export_sweep import SWEEP_SECONDS, ExportSweep
from tdcs.alluxio.master_watch import MasterWatch
from tdcs.alluxio.rpc import Rpc
from tdcs.api import names
from tdcs.control.cache_registry import NO_CLAIMS, Cache, CachePool, ClusterObjects
from tdcs.control.dataset.access.claim_servers import ClaimServers
from tdcs.control.operator.native_engine import MountTable, NativeEngine
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.engine.holder_service import NO_TOPOLOGY, Known, KnownAgents, Topology, holder_routes
from tdcs.engine.read_reports_service import Report, TakeWaits, read_failure_routes, read_waits_routes
from tdcs.engine.role_check import check_roles
from tdcs.kube.api import KubeApi
from tdcs.listening import at, listen
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.other_node import OtherNodes
from tdcs.listing.source_keys import CheckKeys, SourceKeys
from tdcs.listing.transfer import ManifestFetcher, Obtain, manifest_routes
from tdcs.model.agent_state import Agents
from tdcs.model.cache_engine import Engine, WorkerInfo
from tdcs.model.file_blocks import EXTENTS
from tdcs.model.listing_limit import uncounted
from tdcs.trust.contexts import Contexts
from tdcs.trust.identity import Identify
from tdcs.trust.rights import OPERATOR_REQUESTS

MASTER_PATIENCE = 5.0
"""Seconds that a call waits for a master that is away; then it is tried again with the next look."""


def cluster_caches(
    objects: ClusterObjects,
    *,
    api: KubeApi,
    namespace: str,
    folder: ManifestFolder,
    manifest_url: str,
    session: aiohttp.ClientSession,
    identify: Identify | None = None,
    claims: ClaimServers | None = None,
) -> CachePool:
    """Caches that talk to the agents of the cache clusters in this namespace.

    Args:
        objects: what the operator sees of cache clusters.
        api: keeps what is mounted.
        folder: where listings write their manifests.
        manifest_url: see `operator_url`, at which agents reach this folder; empty when it is not served.
        session: fetches manifests that this process has lost from agents; closed by the caller.
        identify: gives the certificate to show to masters and agents; None: connections are plain.
        claims: has claims served that are sources; None: there are none. Closed by the caller.
    """
    check_keys = SourceKeys()
    tls = Contexts(identify) if identify is not None else None

    def make(cluster: str) -> Cache:
        agents = HttpAgents(tls=tls)
        cache = cache_of(
            cluster,
            objects,
            api=api,
            namespace=namespace,
            folder=folder,
            agents=agents,
            check_keys=check_keys,
            connect=lambda workers: agents.connect(agent_addresses(workers, secure=tls is not None)),
            identify=identify,
            claims=claims,
        )
        master = Rpc(
            target=names.master_address(cluster=cluster, namespace=namespace),
            patience=MASTER_PATIENCE,
            identify=identify,
        )
        watch = MasterWatch(master=master, has_master=partial(has_master, objects, cluster))
        exports = follow_exports(cluster, objects, engine=cache.engine, master=master, watch=watch)
        return replace(
            cache, exports=watch.view, alongside=asyncio.create_task(exports, name=f"exports of {cluster}")
        )

    return CachePool(
        make=make,
        folder=folder,
        manifest_url=manifest_url,
        fetcher=ManifestFetcher(folder=folder, session=session),
    )


def has_master(objects: ClusterObjects, cluster: str) -> bool:
    """Whether a cache cluster has Alluxio's master now."""
    obj = objects.cache_cluster(cluster)
    return obj is not None and (obj.get("spec") or {}).get("engine", "Alluxio") == "Alluxio"


async def follow_exports(
    cluster: str,
    objects: ClusterObjects,
    *,
    engine: Engine,
    master: Rpc,
    watch: MasterWatch,
    seconds: float = SWEEP_SECONDS,
) -> None:
    """Ask the master of a cluster, while it has one, how it stands, and have it forget exports of what is gone, until
    cancelled.

    Args:
        master: closed at the end.
        watch: of this master.
    """
    sweep = ExportSweep(
        master=master,
        root=names.ENGINE_DATASETS_ROOT,
        mounts=engine.mounts,
        has_master=partial(has_master, objects, cluster),
        seconds=seconds,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch.run())
            tasks.create_task(sweep.run())
    finally:
        await master.close()


def cache_of(
    cluster: str,
    objects: ClusterObjects,
    *,
    api: KubeApi,
    namespace: str,
    folder: ManifestFolder,
    agents: Agents,
    check_keys: CheckKeys,
    connect: Callable[[Sequence[WorkerInfo]], None],
    identify: Identify | None = None,
    claims: ClaimServers | None = None,
) -> Cache:
    """The cache of a cluster, whatever its engine: its agents hold it; see `cluster_caches` and `Cache`."""
    table = MountTable(
        api=api, namespace=namespace, cluster=cluster, owner=lambda: objects.cache_cluster(cluster)
    )
    engine = NativeEngine(
        table=table,
        hosts=lambda: agent_hosts(objects, cluster=cluster, namespace=namespace),
        agents=agents,
    )
    return Cache(
        engine=engine,
        agents=agents,
        # A listing counts its source itself.
        check_size=uncounted if claims is None else claims.await_pod,
        check_keys=check_keys,
        count_elsewhere=OtherNodes(agents),
        lister=ProcessLister(
            folder=folder,
            secrets=lambda _path: engine.secrets,
            identify=identify,
            source_of=engine.source_of,
            nodes=partial(_urls_of, agents),
            expected=lambda: len(agent_hosts(objects, cluster=cluster, namespace=namespace)),
            cut=EXTENTS,
            reached=contextlib.nullcontext if claims is None else claims.in_use,
        ),
        claims=claims if claims is not None else NO_CLAIMS,
        connect=connect,
    )


def agent_hosts(objects: ClusterObjects, *, cluster: str, namespace: str) -> dict[str, str]:
    """The host of each node's agent, by the StatefulSets of the cluster's workers."""
    worker_labels = {names.LABEL_CACHE_CLUSTER: cluster, names.LABEL_COMPONENT: names.COMPONENT_WORKER}
    hosts = {}
    for (home, _), child in objects.stateful_sets.items():
        metadata = child["metadata"]
        node = (metadata.get("annotations") or {}).get(names.ANNOTATION_NODE)
        if home == namespace and node and worker_labels.items() <= (metadata.get("labels") or {}).items():
            hosts[str(node)] = names.worker_host(cluster=cluster, node=str(node), namespace=namespace)
    return hosts


def agent_addresses(workers: Sequence[WorkerInfo], *, secure: bool = False) -> dict[str, AgentAddress]:
    """Where the agents next to these workers are. An agent may answer though its worker is lost."""
    addresses = {}
    scheme = "https" if secure else "http"
    for worker in workers:
        host = worker.address.rpartition(":")[0]
        if host:
            addresses[worker.name] = AgentAddress(
                url=f"{scheme}://{at(host, names.AGENT_CONTROL_PORT)}",
                blocks=at(host, names.AGENT_BLOCK_PORT),
            )
    return addresses


@asynccontextmanager
async def serve_manifests(
    folder: ManifestFolder,
    *,
    port: int,
    known_agents: Known = lambda _: KnownAgents(),
    obtain: Obtain | None = None,
    report: Report | None = None,
    take_waits: TakeWaits | None = None,
    topology: Topology = NO_TOPOLOGY,
    tls: Contexts | None = None,
) -> AsyncIterator[None]:
    """Serve manifests to agents and node plugins, and who holds what to readers, while the body runs.

    Args:
        port: 0: nothing is served.
        known_agents: gives the agents of a cache cluster.
        obtain: puts a manifest into the folder that is not there, when it is to be had.
        report: takes what readers could not read.
        take_waits: takes how long reads of pods waited.
        topology: where nodes are, so that readers ask the nearest agents.
        tls: of this process; callers are answered as `tdcs.trust.rights` says of the role in their certificates then.
            None: connections are plain, and every caller is answered.
    """
    if not port:
        yield
        return
    app = web.Application(middlewares=[check_roles(OPERATOR_REQUESTS)] if tls is not None else [])
    app.add_routes([*manifest_routes(folder, obtain=obtain), *holder_routes(known_agents, topology=topology)])
    if report is not None:
        app.add_routes(read_failure_routes(report))
    if take_waits is not None:
        app.add_routes(read_waits_routes(take_waits))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        following = tls.following_server() if tls is not None else None
        await web.SockSite(runner, listen(port=port), ssl_context=following).start()
        yield
    finally:
        await runner.cleanup()


def _urls_of(agents: Agents) -> dict[str, str]:
    """Where the agents that have one are reached, by node."""
    return {node: state.url for node, state in agents.states().items() if state.url}
