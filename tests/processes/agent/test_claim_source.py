"""A PersistentVolumeClaim as the source of a Dataset: a real process serves its files to real agents, while they are
needed, and nothing else of the volume ever.

The API server and what makes pods of Jobs are in memory.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import fill
from tests.support.programs.claim_pods import ClaimPods
from tests.support.programs.ports import free_ports
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.api import names
from tdcs.control.cache_registry import Cache, CachePool, ClusterObjects
from tdcs.control.dataset.access.claim_servers import ClaimServers
from tdcs.control.operator.cache_factory import cache_of, serve_manifests
from tdcs.engine.agent_client import HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import operator_url
from tdcs.listing.source_keys import SourceKeys
from tdcs.model.kube_resources import DATASETS, JOBS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from tdcs.model.manifest import Manifest
from tdcs.node.agent.agent_process import prepare

NODES = ("one", "two")
FILES = {
    f"{number // 20:02}/{number:03} ä%.jpg": random.Random(number).randbytes(20_000) for number in range(80)
}
LARGE = random.Random(80).randbytes(40_000_000)
OUTSIDE = b"what is next to the folder"


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests = ManifestFolder(folder / "manifests")
        (self.port,) = free_ports(1)
        self.agents = {node: self._agent(node) for node in NODES}
        self.made: list[CachePool] = []
        self.claims: list[ClaimServers] = []
        self.cluster = Cluster(
            engine=MemoryEngine(sources={}, workers=dict.fromkeys(NODES, 1 << 30)),
            nodes={node: {} for node in NODES},
            settings=replace(QUICK, give_up_seconds=30.0, return_seconds=30.0, listing_seconds=60.0),
            caches=self._caches,
        )
        self.pods = ClaimPods(self.cluster.server, folder)

    def _agent(self, node: str) -> AgentProcess:
        control, blocks = free_ports(2)
        return AgentProcess(
            node=node,
            tier=self.folder / node,
            log=self.folder / f"{node}.log",
            capacity=1 << 30,
            control_port=control,
            block_port=blocks,
        )

    def _caches(self, objects: ClusterObjects) -> CachePool:
        pool = CachePool(
            make=lambda cluster: self._made(cluster, objects),
            folder=self.manifests,
            manifest_url=operator_url(address=f"127.0.0.1:{self.port}", secure=False),
        )
        self.made.append(pool)
        return pool

    def _made(self, cluster: str, objects: ClusterObjects) -> Cache:
        agents = HttpAgents(poll_seconds=2.0, call_seconds=5.0)
        claims = ClaimServers(
            api=self.cluster.server,
            image="tdcs",
            idle_seconds=3.0,
            patience_seconds=100.0,
            port=self.pods.port,
        )
        self.claims.append(claims)
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
            claims=claims,
        )

    async def start(self) -> None:
        for agent in self.agents.values():
            agent.tier.mkdir()
            await asyncio.to_thread(prepare, agent.tier)
            agent.process.launch()
        for agent in self.agents.values():
            await asyncio.to_thread(agent.process.wait_ready)
        await self.cluster.create_cache(engine="Native")
        await self.cluster.start()

    async def operator_is_killed(self) -> None:
        await self.cluster.stop()
        for claims in self.claims:
            await claims.close()
        await self.cluster.start()

    async def close(self) -> None:
        await self.cluster.stop()
        for claims in self.claims:
            await claims.close()
        for caches in self.made:
            await caches.close()
        for agent in self.agents.values():
            await asyncio.to_thread(agent.process.kill)

    def manifest(self, name: str = "pictures") -> Manifest:
        digest = self.cluster.observer.view("default").versions[self.cluster.status(name)["mountPath"]]
        return self.manifests.open(digest)

    async def reads(self, files: dict[str, bytes], name: str = "pictures") -> None:
        """Wait until the Dataset has these files alone, and agents every byte of them."""

        def all_right() -> bool:
            manifest = self.manifest(name)
            names_of = [manifest.file_path(file).decode() for file in range(len(manifest))]
            if sorted(names_of) != sorted(files):
                return False
            contents: dict[str, bytes] = {}
            for agent in self.agents.values():
                blocks = read_by_wire(agent, manifest, range(manifest.blocks))
                for block in sorted(blocks):
                    path = manifest.file_path(manifest.file_of(block)).decode()
                    if path not in contents or len(contents[path]) < len(files[path]):
                        contents[path] = contents.get(path, b"") + blocks[block]
            return contents == files

        await eventually_async(all_right, deadline=120, describe=self.cluster._describe)

    async def create(self, uri: str, name: str = "pictures", **source: object) -> None:
        await self.cluster.create_dataset(
            name,
            source={"uri": uri, "secretRef": None, **source},
            placement={"mode": "Replicate", "nodeCount": 1},
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    async with serve_manifests(world.manifests, port=world.port), world.pods.running():
        try:
            await world.start()
            yield world
        finally:
            await world.close()


@pytest.mark.failure_mode("claim-gone")
async def test_a_claim_is_loaded_through_a_pod_that_goes_afterwards(world: World) -> None:
    cluster, server, volume = world.cluster, world.cluster.server, world.folder / "volume"
    files = {**FILES, "large.bin": LARGE}
    fill(volume, {**{f"data/{name}": content for name, content in files.items()}, "secret.txt": OUTSIDE})
    (volume / "data" / "out.jpg").symlink_to("../secret.txt")
    (volume / "data" / "absolute.jpg").symlink_to("/etc/passwd")
    (volume / "data" / "within.jpg").symlink_to("00/001 ä%.jpg")
    os.mkfifo(volume / "data" / "pipe")
    (volume / "data" / "lost+found").mkdir()
    (volume / "data" / "lost+found" / "#12").write_bytes(b"of the file system")
    files["within.jpg"] = FILES["00/001 ä%.jpg"]
    await world.pods.create_claim("n", "photos", volume)

    await world.create("pvc://photos/data")
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=200)
    await world.reads(files)
    (job,) = world.pods.made
    # Nobody needs it any more: the Job goes, with its pod and its Secret.
    await cluster.until(lambda: not server.store(JOBS) and not server.store(SECRETS))

    # A new version brings it back.
    files["00/000 ä%.jpg"] = b"another content"
    (volume / "data" / "00" / "000 ä%.jpg").write_bytes(b"another content")
    await cluster.annotate("pictures", refresh="1")
    await world.reads(files)
    assert len(world.pods.made) == 2
    assert world.pods.made[1] != job, "a new name: the Secret of the one before may go late"
    await cluster.until(lambda: not server.store(JOBS) and not server.store(SECRETS))

    # What is cached outlives the claim, which is said.
    await server.delete(PERSISTENT_VOLUME_CLAIMS, name="photos", namespace="n")
    await cluster.annotate("pictures", refresh="2")
    await cluster.until(lambda: cluster.condition("SourceReachable").get("reason") == "SourceClaimNotFound")
    assert "PersistentVolumeClaim n/photos" in cluster.condition("SourceReachable")["message"]
    assert cluster.condition("Ready")["status"] == "True"
    await world.reads(files)

    await server.delete(DATASETS, name="pictures", namespace="n")
    await cluster.until(lambda: not server.store(DATASETS))


@pytest.mark.failure_mode("claim-pod-killed")
async def test_a_load_goes_on_when_its_pod_is_killed_and_when_the_operator_is(world: World) -> None:
    cluster, volume = world.cluster, world.folder / "volume"
    files = {f"{number:03}.bin": random.Random(number).randbytes(200_000) for number in range(100)}
    fill(volume, files)
    await world.pods.create_claim("n", "photos", volume)
    await world.create("pvc://photos", bandwidth="500k")
    await cluster.until(lambda: cluster.status().get("cachedBytes", 0) > 0, deadline=200)

    (process,) = world.pods.processes
    await asyncio.to_thread(process.kill)
    await cluster.until(lambda: len(world.pods.made) == 2, deadline=200)
    before = cluster.status().get("cachedBytes", 0)
    await cluster.until(lambda: cluster.status().get("cachedBytes", 0) > before, deadline=200)

    await world.operator_is_killed()
    await cluster.change(DATASETS, "pictures", source={"bandwidth": "100M"})
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=200)
    assert len(world.pods.made) == 3, "the token of the earlier one died with the operator"
    await world.reads(files)


async def test_claims_of_one_name_in_two_namespaces_are_two_sources(world: World) -> None:
    cluster, server = world.cluster, world.cluster.server
    mine, theirs = world.folder / "mine", world.folder / "theirs"
    fill(mine, {"a.jpg": b"mine"})
    fill(theirs, {"a.jpg": b"theirs"})
    await world.pods.create_claim("n", "photos", mine)
    await world.pods.create_claim("other", "photos", theirs)
    await world.create("pvc://photos")
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=200)
    await world.reads({"a.jpg": b"mine"})
    await cluster.until(lambda: not server.store(JOBS))

    await server.create(
        DATASETS,
        obj={
            "apiVersion": names.API_VERSION,
            "kind": "Dataset",
            "metadata": {"name": "pictures", "namespace": "other"},
            "spec": {"source": {"uri": "pvc://photos"}},
        },
    )

    def path(namespace: str) -> str:
        return str((server.store(DATASETS)[namespace, "pictures"].get("status") or {}).get("mountPath", ""))

    def state(namespace: str) -> str:
        return str((server.store(DATASETS)[namespace, "pictures"].get("status") or {}).get("state", ""))

    await cluster.until(lambda: state("other") == "Ready", deadline=200)
    assert path("n") != path("other")
    jobs = world.pods.made
    assert len(jobs) == 2
