"""Workers that leave, die and come back on a real Alluxio; only the API server is in memory."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.engine.agents.agent_nodes import AgentCaches, AgentCluster, caches_of
from tests.engine.conftest import LARGE, SMALL
from tests.engine.contract import BLOCK_SIZE, MIB, SMALL_CAPACITY, blocks_of
from tests.engine.servers import AlluxioCluster, S3Server
from tests.engine.test_smoke import checksums, source_away
from tests.support.dataplane.agents import put_block
from tests.support.report import Measured
from tests.support.waiting import at_this_load, eventually_async
from tests.unit.control.cluster import Cluster

from tdcs.alluxio import AlluxioEngine
from tdcs.alluxio.master import Master
from tdcs.alluxio.rpc import FILE_SYSTEM
from tdcs.control.context import Settings
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NODES
from tdcs.node.agent.disk.tier import Disk

__all__ = ["source_away"]

AFTER_A_LOAD = 5.0
BEHIND_OUR_BACK = 60.0
WORKERS = 15.0
"""Seconds after which the status must be true; of a worker, once the master knows (`test_profile` bounds that time)."""


@pytest.fixture
def own(own_alluxio: Callable[[], AlluxioCluster]) -> AlluxioCluster:
    return own_alluxio()


@pytest.fixture
async def served(own: AlluxioCluster, tmp_path: Path) -> AsyncIterator[tuple[AgentCaches, AgentCluster]]:
    async with caches_of(
        own,
        folder=tmp_path / "manifests",
        capacity={LARGE: 512 * MIB, SMALL: SMALL_CAPACITY},
        block_size=BLOCK_SIZE,
    ) as found:
        yield found


@pytest.fixture
def engine(served: tuple[AgentCaches, AgentCluster]) -> AlluxioEngine:
    return served[1].engine


@pytest.fixture
async def cluster(
    served: tuple[AgentCaches, AgentCluster], engine: AlluxioEngine, s3: S3Server
) -> AsyncIterator[Cluster]:
    """Controllers with the product's own rhythms."""
    nodes = {LARGE: {"cache": "yes"}, SMALL: {"cache": "yes"}}
    async with Cluster(
        engine=engine,  # type: ignore[arg-type]
        nodes=nodes,
        settings=Settings(),
        most_wait=math.inf,
        caches=served[0],
    ) as made:
        pair = s3.credentials
        await made.create_keys(account=pair.access_key_id, key=pair.secret_access_key)
        store = {"name": "store", "endpoints": [s3.endpoint]}
        await made.create_cache(nodeSelector={"cache": "yes"}, sources=[store])
        yield made


async def create(cluster: Cluster, s3: S3Server, name: str, files: Mapping[str, bytes], **spec: Any) -> str:
    """A Dataset of a bucket of its own; its engine path once it is Ready."""
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{path}": content for path, content in files.items()})
    origin = s3.source(f"s3://{bucket}/data")
    options = {**origin.options, "pathStyle": True}
    source = {"uri": origin.uri, "options": options, "checkInterval": "0s"}
    await cluster.create_dataset(name, source=source, **spec)
    await cluster.until(lambda: cluster.status(name).get("state") == "Ready", deadline=120)
    return str(cluster.status(name)["mountPath"])


def content_of(*, small: int, large: int, seed: int) -> dict[str, bytes]:
    made = random.Random(seed)
    tiny = {f"tiny/{number:03d}": made.randbytes(500 + number) for number in range(small)}
    return tiny | {f"large/{number}": made.randbytes(2 * MIB + number) for number in range(large)}


def size_of(files: Mapping[str, bytes]) -> int:
    return sum(map(len, files.values()))


def states(cluster: Cluster) -> dict[str, str]:
    workers = cluster.status("default", resource=CACHE_CLUSTERS).get("workers", ())
    return {worker["node"]: worker["state"] for worker in workers}


async def seconds_until(cluster: Cluster, holds: Callable[[], object], *, deadline: float) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await cluster.until(holds, deadline=at_this_load(deadline))
    return clock() - began


async def as_read_by_jobs(
    cluster: Cluster, agents: AgentCluster, path: str, files: Mapping[str, bytes], *, node: str
) -> None:
    """Lay the files of a Dataset that nothing loads onto a node, as its agent does with what pods read there."""
    digest = ""

    async def published() -> bool:
        nonlocal digest
        digest = (await agents.engine.versions()).get(path, "")
        return bool(digest)

    await eventually_async(published, deadline=BEHIND_OUR_BACK)
    manifest, disk = agents.manifests.open(digest), Disk(agents.nodes[node].tier)
    for name, content in files.items():
        number = manifest.file_at(name.encode())
        assert number is not None
        for block in manifest.blocks_of(number):
            offset, length = manifest.offset(block), int(manifest.block_lengths[block])
            put_block(disk, manifest, block, content[offset : offset + length])
    name = next(
        key[1]
        for key, obj in cluster.server.store(DATASETS).items()
        if obj["status"].get("mountPath") == path
    )
    await cluster.until(lambda: cluster.nodes(name) == {node: size_of(files)}, deadline=BEHIND_OUR_BACK)


@pytest.mark.timeout(600)
@pytest.mark.failure_mode("source-away-during-drain")
async def test_a_worker_is_drained_while_the_source_is_away_and_every_byte_is_read_from_the_other(
    cluster: Cluster,
    served: tuple[AgentCaches, AgentCluster],
    engine: AlluxioEngine,
    own: AlluxioCluster,
    s3: S3Server,
    source_away: None,
    measured: Measured,
) -> None:
    loaded, read = content_of(small=400, large=3, seed=1), content_of(small=40, large=2, seed=2)
    # Else the copy lies whole on the worker that came first, until the other one is seen.
    await cluster.until(lambda: states(cluster) == {LARGE: "Ready", SMALL: "Ready"}, deadline=120)
    path = await create(cluster, s3, "pictures", loaded, placement={"mode": "Partition", "nodeCount": 2})
    by_jobs = await create(cluster, s3, "by-jobs", read, preload={"enabled": False})
    await as_read_by_jobs(cluster, served[1], by_jobs, read, node=SMALL)
    await cluster.until(lambda: sorted(cluster.nodes()) == sorted([LARGE, SMALL]), deadline=BEHIND_OUR_BACK)
    s3.process.pause()  # whatever is asked of the source from now on gets no answer
    await cluster.server.merge(NODES, name=SMALL, patch={"metadata": {"labels": {"cache": None}}})
    took = await seconds_until(cluster, lambda: states(cluster) == {LARGE: "Ready"}, deadline=120)
    assert [event["reason"] for event in cluster.events("Drained")] == ["Drained"]
    assert not cluster.events("DataLeftBehind")
    total = size_of(loaded) + size_of(read)
    measured(f"drained a worker of {total / MIB:.0f} MiB, {len(loaded) + len(read)} files in {took:.1f} s")
    assert [info.name for info in await engine.workers() if info.live] == [LARGE]
    # Its pod goes, and the agent with it.
    await asyncio.to_thread(own.workers[SMALL].kill)
    await asyncio.to_thread(served[1].nodes[SMALL].process.kill)
    client = await asyncio.to_thread(own.mount_fuse, LARGE)
    for place, files in ((path, loaded), (by_jobs, read)):
        wanted = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        assert await checksums(client.folder / place.lstrip("/")) == wanted
    await cluster.until(lambda: cluster.nodes() == {LARGE: size_of(loaded)}, deadline=BEHIND_OUR_BACK)
    await cluster.until(lambda: cluster.nodes("by-jobs") == {LARGE: size_of(read)}, deadline=BEHIND_OUR_BACK)


@pytest.mark.timeout(900)
@pytest.mark.failure_mode("blocks-freed-by-hand")
async def test_the_status_is_true_soon_after_a_load_a_hand_and_a_death(
    cluster: Cluster,
    served: tuple[AgentCaches, AgentCluster],
    engine: AlluxioEngine,
    own: AlluxioCluster,
    s3: S3Server,
    measured: Measured,
) -> None:
    files = content_of(small=30, large=2, seed=3)
    total = size_of(files)
    path = await create(cluster, s3, "by-jobs", files, preload={"enabled": False})
    # After a load of ours: the listing is complete, and so is the status.
    held = {LARGE: total, SMALL: total}
    await cluster.create_preload(datasetRef={"name": "by-jobs"}, nodes=[LARGE, SMALL])

    async def truth() -> dict[str, int]:
        found: dict[str, int] = {}
        for block in await blocks_of(engine, path):
            for node in block.workers:
                found[node] = found.get(node, 0) + block.length
        return found

    async def loaded() -> bool:
        return await truth() == held

    await eventually_async(loaded, deadline=120, interval=0.05)
    ours = await seconds_until(cluster, lambda: cluster.nodes("by-jobs") == held, deadline=AFTER_A_LOAD)

    # Somebody frees the path by hand.
    master = Master(target=own.target, patience=30)
    await master.unary(
        service=FILE_SYSTEM,
        method="Free",
        deadline=30,
        path=path,
        options={"recursive": True, "forced": True},
    )
    await master.close()
    by_hand = await seconds_until(cluster, lambda: cluster.nodes("by-jobs") != held, deadline=BEHIND_OUR_BACK)
    measured(f"status true {ours:.1f} s after a load, {by_hand:.1f} s after a path was freed by hand")

    # A worker's pod dies, its agent with it, and comes back with what it holds. (An agent whose worker alone is lost
    # still gives what is on its disk.)
    agent = served[1].nodes[LARGE]
    await cluster.until(lambda: cluster.nodes("by-jobs") == held, deadline=2 * BEHIND_OUR_BACK)
    await cluster.until(lambda: states(cluster) == {LARGE: "Ready", SMALL: "Ready"}, deadline=WORKERS)
    await asyncio.to_thread(own.workers[LARGE].kill)
    await asyncio.to_thread(agent.process.kill)
    begin = time.monotonic()

    async def missed() -> bool:
        return [info.name for info in await engine.workers() if info.live] == [SMALL]

    await eventually_async(missed, deadline=120)
    await cluster.until(lambda: states(cluster)[LARGE] == "Lost", deadline=at_this_load(WORKERS))
    lost = time.monotonic() - begin
    ledger = await seconds_until(
        cluster, lambda: cluster.nodes("by-jobs") == {SMALL: total}, deadline=BEHIND_OUR_BACK
    )
    await asyncio.to_thread(own.workers[LARGE].launch)
    agent.process.launch()

    async def answers() -> bool:
        return all(info.live for info in await engine.workers())

    await eventually_async(answers, deadline=120)
    back = await seconds_until(cluster, lambda: states(cluster)[LARGE] == "Ready", deadline=WORKERS)
    again = await seconds_until(cluster, lambda: cluster.nodes("by-jobs") == held, deadline=BEHIND_OUR_BACK)
    measured(
        f"a killed worker: Lost after {lost:.1f} s, its bytes struck {ledger:.1f} s later; "
        f"back: Ready after {back:.1f} s, its bytes {again:.1f} s later"
    )
