"""A CacheCluster without Alluxio, and one whose Alluxio never answers: the operator's controllers and agent processes,
from a bucket to a reader's bytes.

Only the API server is in memory.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import fill
from tests.support.programs.azure_store import ACCOUNT, KEY, azure_store
from tests.support.programs.bucket_store import KEYS, BucketStore, serving
from tests.support.programs.google_store import google_store, key_file
from tests.support.programs.ports import free_ports
from tests.support.programs.web_server import WebServer, web_server
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.api import names
from tdcs.control.cache_registry import Cache, CachePool, ClusterObjects
from tdcs.control.operator.cache_factory import cache_of, serve_manifests
from tdcs.engine.agent_client import HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import operator_url
from tdcs.listing.source_keys import SourceKeys
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, CONFIG_MAPS, DATASETS, STATEFUL_SETS
from tdcs.model.manifest import Manifest
from tdcs.node.agent.agent_process import prepare

NODES = ("one", "two")
NOBODY = "127.0.0.1:1"
"""An address where no process of Alluxio listens."""
FILES = {
    f"data/{number // 20:02}/{number:03}.jpg": random.Random(number).randbytes(20_000) for number in range(80)
}
BYTES = sum(map(len, FILES.values()))


class World:
    """The agents of two nodes, and the operator, which can be killed."""

    def __init__(self, folder: Path, engine: str, *, files: Mapping[str, bytes] = FILES) -> None:
        self.folder = folder
        self.files = files
        self.engine = engine
        self.store = BucketStore(
            keys=[name.encode() for name in files],
            size=lambda key: len(files[key.decode()]),
            content=lambda key: files[key.decode()],
        )
        self.web = WebServer(files=dict(FILES), large=15_000, head=False)
        self.manifests = ManifestFolder(folder / "manifests")
        (self.port,) = free_ports(1)
        self.made: list[CachePool] = []
        self.agents = {node: self._agent(folder, node) for node in NODES}
        self.cluster = Cluster(
            engine=MemoryEngine(sources={}, workers=dict.fromkeys(NODES, 1 << 30)),
            nodes={node: {} for node in NODES},
            settings=replace(QUICK, give_up_seconds=30.0, return_seconds=30.0, listing_seconds=60.0),
            caches=self._caches,
        )

    def _agent(self, folder: Path, node: str) -> AgentProcess:
        control, blocks = free_ports(2)
        return AgentProcess(
            node=node,
            tier=folder / node,
            log=folder / f"{node}.log",
            capacity=1 << 30,
            control_port=control,
            block_port=blocks,
            worker="" if self.engine == "Native" else NOBODY,
            master="" if self.engine == "Native" else NOBODY,
        )

    def _caches(self, objects: ClusterObjects) -> CachePool:
        """As the operator makes them, but that agents listen on ports of this machine."""
        url = operator_url(address=f"127.0.0.1:{self.port}", secure=False)
        pool = CachePool(
            make=lambda cluster: self._made(cluster, objects),
            folder=self.manifests,
            manifest_url=url,
        )
        self.made.append(pool)
        return pool

    def _made(self, cluster: str, objects: ClusterObjects) -> Cache:
        agents = HttpAgents(poll_seconds=2.0, call_seconds=5.0)
        return cache_of(
            cluster,
            objects,
            api=self.cluster.server,
            namespace=names.SYSTEM_NAMESPACE,
            folder=self.manifests,
            agents=agents,
            check_keys=SourceKeys(),
            connect=lambda workers: agents.connect(
                {worker.name: self.agents[worker.name].reached for worker in workers}
            ),
        )

    async def start(self) -> None:
        """The pods of the StatefulSets begin, and the operator."""
        for agent in self.agents.values():
            agent.tier.mkdir()
            await asyncio.to_thread(prepare, agent.tier)
            agent.process.launch()
        for agent in self.agents.values():
            await asyncio.to_thread(agent.process.wait_ready)
        await self.cluster.start()

    async def operator_is_killed(self) -> None:
        """Another operator begins, with nothing in its memory."""
        await self.cluster.stop()
        await self.cluster.start()

    @property
    def mounts(self) -> Object:
        place = (names.SYSTEM_NAMESPACE, names.mounts_name(cluster=names.DEFAULT_CACHE_CLUSTER))
        config_map = self.cluster.server.store(CONFIG_MAPS).get(place)
        return dict(config_map["data"]) if config_map is not None else {}

    def manifest(self, name: str = "pictures") -> Manifest:
        digest = self.cluster.observer.view("default").versions[self.cluster.status(name)["mountPath"]]
        return self.manifests.open(digest)

    async def reads(self, *nodes: str, name: str = "pictures") -> None:
        """Wait until every byte of a Dataset comes from one of these nodes, and never another one."""
        manifest = self.manifest(name)
        expected = {}
        for block in range(manifest.blocks):
            path = manifest.file_path(manifest.file_of(block)).decode()
            expected[block] = self.files[f"data/{path}"]

        def all_right() -> bool:
            contents: dict[int, bytes] = {}
            for node in nodes:
                contents |= read_by_wire(self.agents[node], manifest, expected)
            assert contents == {block: expected[block] for block in contents}
            return contents == expected

        await eventually_async(all_right, deadline=60, describe=self.cluster._describe)


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World(tmp_path, getattr(request, "param", "Native"))
    with web_server(world.web):
        async for world_of_test in running(world, tmp_path):
            yield world_of_test


async def running(made: World, tmp_path: Path) -> AsyncIterator[World]:
    async with serving(made.store), serve_manifests(made.manifests, port=made.port):
        stores = [made.store.source.options["endpoint"], made.web.origin]
        try:
            await made.cluster.create_keys(account=KEYS.access_key_id, key=KEYS.secret_access_key)
            await made.cluster.create_cache(
                engine=made.engine,
                sourceFolders=[str(tmp_path / "shared")],
                sources=[{"name": "stores", "endpoints": stores}],
            )
            await made.start()
            yield made
        finally:
            await made.cluster.stop()
            for caches in made.made:
                await caches.close()
            for agent in made.agents.values():
                await asyncio.to_thread(agent.process.kill)


@pytest.mark.parametrize("world", ["Native", "Alluxio"], indirect=True)
@pytest.mark.failure_mode("native-engine-process-killed", "alluxio-export-unanswered")
async def test_a_dataset_is_loaded_read_kept_drained_and_dropped_without_alluxio(world: World) -> None:
    cluster, server = world.cluster, world.cluster.server
    source = world.store.source
    await cluster.create_dataset(
        source={"uri": source.uri, "options": {"endpoint": source.options["endpoint"], "pathStyle": True}},
        placement={"mode": "Partition", "nodeCount": 2},
    )
    await cluster.until_state("Ready")
    assert cluster.status()["cachedBytes"] == BYTES
    assert sum(cluster.nodes().values()) == BYTES
    assert set(cluster.nodes()) == set(NODES), "one part on each"
    await world.reads(*NODES)
    await cluster.until(
        lambda: cluster.condition("Ready", "default", resource=CACHE_CLUSTERS)["status"] == "True"
    )

    sets = {name: stateful_set for (_, name), stateful_set in server.store(STATEFUL_SETS).items()}
    workers = {f"default-worker-{node}" for node in NODES}
    alluxio = world.engine == "Alluxio"
    assert set(sets) == workers | ({"default-master"} if alluxio else set())
    for name in workers:
        pod = sets[name]["spec"]["template"]["spec"]
        assert [container["name"] for container in pod["containers"]] == (["worker"] if alluxio else []) + [
            "agent"
        ]
        (prepare,) = pod["initContainers"]
        assert "TDCS_MASTER" not in {variable["name"] for variable in prepare["env"]}, "it waits for none"

    # The next operator knows what is mounted and which version it has: nothing is listed, and nothing is loaded.
    content, world.store.content = world.store.content, None
    await world.operator_is_killed()
    await cluster.until_state("Ready")
    assert cluster.status()["cachedBytes"] == BYTES

    # An agent is killed: what it had is there again.
    for agent in world.agents.values():
        await asyncio.to_thread(agent.process.kill)
        await asyncio.to_thread(agent.process.start)
    await world.reads(*NODES)
    world.store.content = content

    # A folder that the nodes share is a source as a bucket is.
    fill(world.folder / "shared", FILES)
    await cluster.create_dataset(
        "folder",
        source={"uri": f"file://{world.folder}/shared/data", "secretRef": None},
        placement={"mode": "Partition", "nodeCount": 2},
    )
    # The agents have just been killed, and a listing that finds one of them alone is tried again by and by.
    await cluster.until(lambda: cluster.status("folder").get("state") == "Ready", deadline=240)
    await world.reads(*NODES, name="folder")
    await server.delete(DATASETS, name="folder", namespace="n")
    await cluster.until(lambda: len(world.mounts) == 1)

    # So is a web server, with its credentials, and a repository of the Hub behind one.
    web = world.web
    web.credentials, web.large_host = "Basic dXNlcjpwYXNz", world.web.origin
    await cluster.create_secret("web", {"username": "user", "password": "pass"})
    for name, where in (
        ("web", {"uri": f"{web.origin}/data"}),
        ("hub", {"uri": "hf://datasets/team/pictures/data", "options": {"endpoint": web.origin}}),
    ):
        await cluster.create_dataset(
            name,
            source={**where, "secretRef": {"name": "web"}},
            placement={"mode": "Partition", "nodeCount": 2},
        )
        await cluster.until_state("Ready", name)
        await world.reads(*NODES, name=name)
        await server.delete(DATASETS, name=name, namespace="n")
        await cluster.until(lambda: len(world.mounts) == 1)

    # One node leaves: what only it held is moved to the other one before.
    await server.merge(
        CACHE_CLUSTERS, name="default", namespace=names.SYSTEM_NAMESPACE, patch={"spec": {"replicas": 1}}
    )
    await cluster.until(
        lambda: len(workers & {name for _, name in server.store(STATEFUL_SETS)}) == 1, deadline=120
    )
    (last_node,) = [
        node
        for node in NODES
        if f"default-worker-{node}" in {name for _, name in server.store(STATEFUL_SETS)}
    ]
    await world.reads(last_node)

    # The Dataset goes, and what it had.
    assert len(world.mounts) == 1
    await server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not server.store(DATASETS) and not world.mounts)
    await eventually_async(lambda: not list(world.agents[last_node].disk.spool.iterdir()), deadline=60)


async def test_a_bucket_of_google_is_loaded_and_read_with_a_service_accounts_key(world: World) -> None:
    cluster, server = world.cluster, world.cluster.server
    objects = {f"pictures/{name}": content for name, content in FILES.items()}
    with google_store(world.folder / "google", files=objects) as google:
        await server.merge(
            CACHE_CLUSTERS,
            name="default",
            namespace=names.SYSTEM_NAMESPACE,
            patch={"spec": {"sources": [{"name": "google", "endpoints": [google.endpoint]}]}},
        )
        await cluster.create_secret("google", {"key.json": key_file()})
        await cluster.create_dataset(
            source={
                "uri": "gs://pictures/data",
                "options": {"endpoint": google.endpoint},
                "secretRef": {"name": "google"},
            },
            placement={"mode": "Partition", "nodeCount": 2},
        )
        await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=240)
        assert cluster.status()["cachedBytes"] == BYTES
        await world.reads(*NODES)


async def test_a_container_of_azure_is_loaded_and_read_with_the_accounts_key(world: World) -> None:
    cluster, server = world.cluster, world.cluster.server
    with azure_store(world.folder / "azure") as azure:
        azure.make_container("pictures")
        for name, content in FILES.items():
            azure.put("pictures", name, content)
        await server.merge(
            CACHE_CLUSTERS,
            name="default",
            namespace=names.SYSTEM_NAMESPACE,
            patch={"spec": {"sources": [{"name": "azure", "endpoints": [azure.endpoint]}]}},
        )
        await cluster.create_secret("azure", {"accountKey": KEY})
        await cluster.create_dataset(
            source={
                "uri": f"az://{ACCOUNT}/pictures/data",
                "options": {"endpoint": azure.endpoint},
                "secretRef": {"name": "azure"},
            },
            placement={"mode": "Partition", "nodeCount": 2},
        )
        await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=240)
        assert cluster.status()["cachedBytes"] == BYTES
        await world.reads(*NODES)
