"""Workers that leave, die and come back on a real Alluxio; only the API server is in memory."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.engine.agents.agent_nodes import AgentCluster, ExportCaches, exports_of
from tests.engine.conftest import LARGE, SMALL
from tests.engine.servers import MIB, SMALL_CAPACITY, AlluxioCluster, S3Server
from tests.support.dataplane.agents import put_block
from tests.support.report import Measured
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import at_this_load, eventually_async
from tests.unit.control.cluster import Cluster

from tdcs.alluxio.rpc import FILE_SYSTEM, Rpc, RpcFailureError
from tdcs.api.names import DEFAULT_CACHE_CLUSTER
from tdcs.control.context import Settings
from tdcs.control.operator.native_engine import LOST_SECONDS
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NODES
from tdcs.model.manifest import Manifest
from tdcs.node.agent.disk.tier import Disk

AFTER_A_LOAD = 5.0
BEHIND_OUR_BACK = 60.0
WORKERS = 15.0
"""Seconds after which the status must be true; of a worker, once the master knows (`test_profile` bounds that time)."""


@pytest.fixture
async def source_away(s3: S3Server) -> AsyncIterator[None]:
    """While the test runs the S3 server answers nobody, so what can be read is in the cache."""
    yield
    s3.process.resume()


@pytest.fixture
def own(own_alluxio: Callable[[], AlluxioCluster]) -> AlluxioCluster:
    return own_alluxio()


@pytest.fixture
async def served(own: AlluxioCluster, tmp_path: Path) -> AsyncIterator[tuple[ExportCaches, AgentCluster]]:
    capacity = {LARGE: 512 * MIB, SMALL: SMALL_CAPACITY}
    async with exports_of(own, folder=tmp_path / "manifests", capacity=capacity) as caches_and_cluster:
        yield caches_and_cluster


@pytest.fixture
async def cluster(served: tuple[ExportCaches, AgentCluster], s3: S3Server) -> AsyncIterator[Cluster]:
    """Controllers with the product's own rhythms."""
    caches, _ = served
    cluster = Cluster(
        engine=cast(MemoryEngine, None),  # the cache is a real one
        nodes={LARGE: {"cache": "yes"}, SMALL: {"cache": "yes"}},
        settings=Settings(),
        most_wait=math.inf,
        caches=caches.seen_by,
    )
    caches.api = cluster.server
    async with cluster:
        pair = s3.credentials
        await cluster.create_keys(account=pair.access_key_id, key=pair.secret_access_key)
        store = {"name": "store", "endpoints": [s3.endpoint]}
        await cluster.create_cache(nodeSelector={"cache": "yes"}, sources=[store])
        yield cluster


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
    rng = random.Random(seed)
    tiny = {f"tiny/{number:03d}": rng.randbytes(500 + number) for number in range(small)}
    return tiny | {f"large/{number}": rng.randbytes(2 * MIB + number) for number in range(large)}


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


async def manifest_of(served: tuple[ExportCaches, AgentCluster], path: str) -> Manifest:
    """That of the published version."""
    caches, agents = served
    digest = ""

    async def published() -> bool:
        nonlocal digest
        digest = (await caches.get(cluster=DEFAULT_CACHE_CLUSTER).engine.versions()).get(path, "")
        return bool(digest)

    await eventually_async(published, deadline=BEHIND_OUR_BACK)
    return agents.manifests.open(digest)


async def checksums(folder: Path) -> dict[str, str]:
    """Every file below a folder with its SHA-256."""
    output = await _output("find", str(folder), "-type", "f", "-exec", "sha256sum", "{}", "+")
    lines = (line.split("  ", 1) for line in output.decode().splitlines())
    return {name.removeprefix(f"{folder}/"): digest for digest, name in lines}


async def _output(*command: str) -> bytes:
    """What another process prints: one that waits for an answer through FUSE cannot even be killed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), timeout=120)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors.decode())
    return output


async def as_read_by_jobs(
    cluster: Cluster,
    served: tuple[ExportCaches, AgentCluster],
    path: str,
    files: Mapping[str, bytes],
    *,
    node: str,
) -> None:
    """Lay the files of a Dataset that nothing loads onto a node, as its agent does with what pods read there."""
    manifest, disk = await manifest_of(served, path), Disk(served[1].nodes[node].tier)
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
    served: tuple[ExportCaches, AgentCluster],
    own: AlluxioCluster,
    s3: S3Server,
    source_away: None,
    measured: Measured,
) -> None:
    # Nodes share a copy by their room: of files that are larger than its share the small one would hold none.
    loaded, read = content_of(small=1200, large=0, seed=1), content_of(small=40, large=2, seed=2)
    # Else the copy lies whole on the worker that came first, until the other one is seen.
    await cluster.until(lambda: states(cluster) == {LARGE: "Ready", SMALL: "Ready"}, deadline=120)
    path = await create(cluster, s3, "pictures", loaded, placement={"mode": "Partition", "nodeCount": 2})
    by_jobs = await create(cluster, s3, "by-jobs", read, preload={"enabled": False})
    await as_read_by_jobs(cluster, served, by_jobs, read, node=SMALL)
    await cluster.until(lambda: sorted(cluster.nodes()) == sorted([LARGE, SMALL]), deadline=BEHIND_OUR_BACK)
    s3.process.pause()  # whatever is asked of the source from now on gets no answer
    await cluster.server.merge(NODES, name=SMALL, patch={"metadata": {"labels": {"cache": None}}})
    took = await seconds_until(cluster, lambda: states(cluster) == {LARGE: "Ready"}, deadline=120)
    assert [event["reason"] for event in cluster.events("Drained")] == ["Drained"]
    assert not cluster.events("DataLeftBehind")
    total = size_of(loaded) + size_of(read)
    measured(f"drained a worker of {total / MIB:.0f} MiB, {len(loaded) + len(read)} files in {took:.1f} s")
    # Its pod goes, and the agent with it.
    await asyncio.to_thread(own.workers[SMALL].kill)
    await asyncio.to_thread(served[1].nodes[SMALL].process.kill)
    for place, files in ((path, loaded), (by_jobs, read)):
        await served[1].exported(place, files, LARGE)
    client = await asyncio.to_thread(own.mount_fuse, LARGE)
    for place, files in ((path, loaded), (by_jobs, read)):
        checksums_of_files = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        assert await checksums(client.folder / place.lstrip("/")) == checksums_of_files
    await cluster.until(lambda: cluster.nodes() == {LARGE: size_of(loaded)}, deadline=BEHIND_OUR_BACK)
    await cluster.until(lambda: cluster.nodes("by-jobs") == {LARGE: size_of(read)}, deadline=BEHIND_OUR_BACK)


@pytest.mark.timeout(900)
@pytest.mark.failure_mode("blocks-freed-by-hand")
async def test_the_status_is_true_soon_after_a_load_a_hand_and_a_death(
    cluster: Cluster,
    served: tuple[ExportCaches, AgentCluster],
    own: AlluxioCluster,
    s3: S3Server,
    measured: Measured,
) -> None:
    agents = served[1]
    files = content_of(small=30, large=2, seed=3)
    total = size_of(files)
    path = await create(cluster, s3, "by-jobs", files, preload={"enabled": False})
    # After a load of ours: the agents have all, and so has the status.
    held = {LARGE: total, SMALL: total}
    await cluster.create_preload(datasetRef={"name": "by-jobs"}, nodes=[LARGE, SMALL])

    def loaded() -> bool:
        states = [agents.state(node) for node in held]
        return all(
            state and path in state.mounts and state.mounts[path].held_bytes == total for state in states
        )

    await eventually_async(loaded, deadline=120, interval=0.05)
    ours = await seconds_until(cluster, lambda: cluster.nodes("by-jobs") == held, deadline=AFTER_A_LOAD)
    await agents.exported(path, files, *held)

    # Alluxio frees nothing of it by hand: it could not be read through again.
    master = Rpc(target=own.target, patience=30)
    with pytest.raises(RpcFailureError) as refused:
        await master.unary(
            service=FILE_SYSTEM,
            method="Free",
            deadline=30,
            path=path,
            options={"recursive": True, "forced": True},
        )
    assert "is not persisted" in refused.value.text
    await master.close()

    # Somebody removes the files of a node by hand.
    manifest, disk = await manifest_of(served, path), Disk(agents.nodes[SMALL].tier)
    for block in range(manifest.blocks):
        (disk.spool / str(int(manifest.block_ids[block]))).unlink()
    by_hand = await seconds_until(cluster, lambda: cluster.nodes("by-jobs") != held, deadline=BEHIND_OUR_BACK)
    measured(f"status true {ours:.1f} s after a load, {by_hand:.1f} s after files were removed by hand")
    await cluster.until(lambda: cluster.nodes("by-jobs") == held, deadline=2 * BEHIND_OUR_BACK)
    await agents.exported(path, files, *held)

    # A worker's pod dies, its agent with it, and comes back with what it holds. (An agent whose worker alone is lost
    # still gives what is on its disk.)
    agent = agents.nodes[LARGE]
    await cluster.until(lambda: states(cluster) == {LARGE: "Ready", SMALL: "Ready"}, deadline=WORKERS)
    await asyncio.to_thread(own.workers[LARGE].kill)
    await asyncio.to_thread(agent.process.kill)
    begin = time.monotonic()
    await cluster.until(
        lambda: states(cluster)[LARGE] == "Lost", deadline=at_this_load(LOST_SECONDS + WORKERS)
    )
    lost = time.monotonic() - begin
    ledger = await seconds_until(
        cluster, lambda: cluster.nodes("by-jobs") == {SMALL: total}, deadline=BEHIND_OUR_BACK
    )
    await asyncio.to_thread(own.workers[LARGE].launch)
    agent.process.launch()
    await eventually_async(lambda: agents.state(LARGE) is not None, deadline=120)
    back = await seconds_until(cluster, lambda: states(cluster)[LARGE] == "Ready", deadline=WORKERS)
    again = await seconds_until(cluster, lambda: cluster.nodes("by-jobs") == held, deadline=BEHIND_OUR_BACK)
    measured(
        f"a killed worker: Lost after {lost:.1f} s, its bytes struck {ledger:.1f} s later; "
        f"back: Ready after {back:.1f} s, its bytes {again:.1f} s later"
    )
    await agents.exported(path, files, *held)
