"""Agents beside a real Alluxio: what they bring is readable, exported, dropped, and theirs again after a kill."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.agents.agent_nodes import AgentCluster, agents_of
from tests.engine.servers import AlluxioCluster, S3Server, random_network
from tests.engine.views.test_names import NAMES
from tests.support.dataplane.agents import fill
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS
from tdcs.model.cache_engine import Source

ONE, TWO = "node-1", "node-2"
CAPACITY = 256 << 20


@contextmanager
def two_workers(home: Path, folder: Path) -> Iterator[AlluxioCluster]:
    cluster = AlluxioCluster(
        home=home,
        folder=folder,
        network=random_network(),
        workers={ONE: CAPACITY, TWO: CAPACITY},
        overrides={},
    )
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def cluster(alluxio_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AlluxioCluster]:
    """One for the tests that leave it as it was but for datasets of their own."""
    with two_workers(alluxio_home, tmp_path_factory.mktemp("agents") / "alluxio") as cluster:
        yield cluster


@pytest.fixture
async def agents(cluster: AlluxioCluster, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    """Agents of the test's own on the disks of the file's workers."""
    async with agents_of(cluster, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
        yield agents


def bucket_of(s3: S3Server, files: dict[str, bytes]) -> Source:
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{name}": content for name, content in files.items()})
    return s3.source(f"s3://{bucket}/data")


async def test_every_name_is_brought_from_a_bucket_and_from_a_folder(
    agents: AgentCluster, s3: S3Server, tmp_path: Path
) -> None:
    files = {name: os.urandom(random.randint(1, 3_000)) for name in [*NAMES, "tab\tand\nline/\x7f.bin"]}
    folder = fill(tmp_path / "source", files)
    for source in (bucket_of(s3, files), Source(uri=f"file://{folder}")):
        version = await agents.version(source)
        await agents.give(ONE, version)
        await agents.holds(ONE, version)
        assert agents.nodes[ONE].content(version) == files


async def test_an_agent_killed_in_the_middle_goes_on_from_what_is_on_its_disk(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"{number:04}.bin": os.urandom(50_000) for number in range(400)}
    version = await agents.version(bucket_of(s3, files))
    node = agents.nodes[ONE]
    await agents.give(ONE, version, bandwidth=10_000_000)
    for held_bytes in (2_000_000, 8_000_000):
        await eventually_async(
            lambda kept=held_bytes: agents.mount(ONE, version).held_bytes > kept,  # type: ignore[misc]
            deadline=60,
            describe=agents.describe,
        )
        await asyncio.to_thread(node.process.kill)
        await eventually_async(lambda: agents.state(ONE) is None, deadline=30)
        await asyncio.to_thread(node.process.start)
        await eventually_async(
            lambda kept=held_bytes: agents.mount(ONE, version).held_bytes > kept,  # type: ignore[misc]
            deadline=30,
            describe=agents.describe,
        )
        assert agents.mount(ONE, version).version == 0
        await agents.give(ONE, version, bandwidth=10_000_000)
    await agents.holds(ONE, version)
    assert node.content(version) == files
    await agents.exported(version.manifest.path, files, ONE)


async def test_agent_and_worker_killed_together_lose_nothing_that_was_readable(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"{number:04}.bin": os.urandom(20_000) for number in range(200)}
    version = await agents.version(bucket_of(s3, files))
    node, worker = agents.nodes[ONE], agents.cluster.workers[ONE]
    await agents.give(ONE, version)
    await agents.holds(ONE, version)
    for process in (node.process, worker):
        await asyncio.to_thread(process.kill)
    await asyncio.to_thread(node.process.start)
    await eventually_async(lambda: agents.mount(ONE, version).held_bytes == version.bytes, deadline=30)
    await asyncio.to_thread(worker.start)
    await agents.give(ONE, version, source=None)
    await agents.holds(ONE, version, deadline=120)
    await agents.exported(version.manifest.path, files, ONE)


@pytest.mark.failure_mode("block-open-while-dropped")
async def test_what_a_client_of_alluxios_holds_open_leaves_its_worker_when_it_is_closed(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {"read.bin": b"x" * 1_000_000, "other.bin": b"y" * 1_000}
    version = await agents.version(bucket_of(s3, files))
    path, node = version.manifest.path, agents.nodes[ONE]
    await agents.give(ONE, version)
    await agents.holds(ONE, version)
    await agents.exported(path, files, ONE)
    client = await asyncio.to_thread(agents.cluster.mount_fuse, ONE)
    reader = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec 3<"$0"; head -c 100 <&3; exec cat', str(client.folder / path[1:] / "read.bin")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    def lent(*lengths: int) -> bool:
        return sorted(file.stat().st_size for file in node.disk.lent.glob("[0-9]*")) == list(lengths)

    try:
        assert reader.stdout is not None
        assert await asyncio.wait_for(reader.stdout.readexactly(100), timeout=60) == b"x" * 100
        await agents.give(ONE, version, parts=(), drop=ALL_SLOTS)
        await eventually_async(
            lambda: not agents.mount(ONE, version).held_bytes, deadline=30, describe=agents.describe
        )
        assert node.content(version) == {}
        await eventually_async(lambda: lent(1_000_000), deadline=60, describe=agents.describe)
    finally:
        await reader.communicate(b"")  # ends its standard input, and so the reader
    await eventually_async(lent, deadline=90, describe=agents.describe)


async def test_what_leaves_and_comes_again_is_exported_again(agents: AgentCluster, s3: S3Server) -> None:
    files = {f"{number:04}.bin": os.urandom(10_000) for number in range(100)}
    version = await agents.version(bucket_of(s3, files))
    await agents.give(ONE, version)
    await agents.holds(ONE, version)
    await agents.exported(version.manifest.path, files, ONE)

    await agents.give(ONE, version, parts=(), drop=ALL_SLOTS)
    await eventually_async(lambda: not agents.mount(ONE, version).held_bytes, deadline=30)
    await agents.give(ONE, version)  # at once: within the heartbeat that tells the master of the removals
    await agents.holds(ONE, version)
    assert agents.nodes[ONE].content(version) == files
    await agents.exported(version.manifest.path, files, ONE)


async def test_data_comes_from_the_source_once_and_is_exported_by_both_nodes(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"train/{number:04}.bin": os.urandom(20_000) for number in range(300)}
    files |= {"large.bin": os.urandom(60_000_000)}  # larger than a worker's direct buffers
    version = await agents.version(bucket_of(s3, files | {"empty": b""}))
    assert version.manifest.blocks == 301

    await agents.give(ONE, version, peers=[agents.nodes[TWO].peer()])
    await agents.give(TWO, version, origin=NO_SLOTS, source=None, peers=[agents.nodes[ONE].peer()])
    await agents.holds(ONE, version)
    await agents.holds(TWO, version)

    assert agents.nodes[ONE].content(version) == agents.nodes[TWO].content(version) == files | {"empty": b""}
    assert agents.mount(ONE, version).source_bytes == version.bytes
    assert agents.mount(TWO, version).peer_bytes == version.bytes
    await agents.exported(version.manifest.path, files, ONE, TWO)
