"""Agents beside a real Alluxio: what they bring is registered, readable, dropped, and theirs again after a kill."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
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
    with two_workers(alluxio_home, tmp_path_factory.mktemp("agents") / "alluxio") as made:
        yield made


@pytest.fixture
async def agents(cluster: AlluxioCluster, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    """Agents of the test's own on the disks of the file's workers."""
    async with agents_of(cluster, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
        yield agents


@pytest.fixture
async def own_agents(alluxio_home: Path, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    """Agents beside a cluster of the test's own."""
    with two_workers(alluxio_home, tmp_path / "alluxio") as made:
        async with agents_of(made, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
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


async def test_an_agent_killed_in_the_middle_goes_on_from_what_lies_on_its_disk(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"{number:04}.bin": os.urandom(50_000) for number in range(400)}
    version = await agents.version(bucket_of(s3, files))
    node = agents.nodes[ONE]
    await agents.give(ONE, version, bandwidth=10_000_000)
    for kept in (2_000_000, 8_000_000):
        await eventually_async(
            lambda kept=kept: agents.mount(ONE, version).held_bytes > kept,  # type: ignore[misc]
            deadline=60,
            describe=agents.describe,
        )
        await asyncio.to_thread(node.process.kill)
        await eventually_async(lambda: agents.state(ONE) is None, deadline=30)
        await asyncio.to_thread(node.process.start)
        await eventually_async(
            lambda kept=kept: agents.mount(ONE, version).held_bytes > kept,  # type: ignore[misc]
            deadline=30,
            describe=agents.describe,
        )
        assert agents.mount(ONE, version).version == 0
        await agents.give(ONE, version, bandwidth=10_000_000)
    await agents.holds(ONE, version)
    assert node.content(version) == files
    assert (await agents.placed(version))[ONE] == set(version.manifest.block_ids.tolist())


async def test_agent_and_worker_killed_together_lose_nothing_that_was_readable(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"{number:04}.bin": os.urandom(20_000) for number in range(200)}
    version = await agents.version(bucket_of(s3, files))
    node, worker = agents.nodes[ONE], agents.cluster.workers[ONE]
    await agents.give(ONE, version)
    await agents.holds(ONE, version, registered=False)
    for process in (node.process, worker):
        await asyncio.to_thread(process.kill)
    await asyncio.to_thread(node.process.start)
    await eventually_async(lambda: agents.mount(ONE, version).held_bytes == version.bytes, deadline=30)
    await asyncio.to_thread(worker.start)
    await agents.give(ONE, version, source=None)
    await agents.holds(ONE, version, deadline=120)
    ids = set(version.manifest.block_ids.tolist())

    async def known() -> bool:
        return (await agents.placed(version))[ONE] == ids

    await eventually_async(known, deadline=60)


async def test_blocks_of_a_journal_that_was_formatted_are_never_taken_for_new_ones(
    own_agents: AgentCluster, s3: S3Server
) -> None:
    old, new = ({f"{number:03}.bin": os.urandom(10_000) for number in range(60)} for _ in range(2))
    version = await own_agents.version(bucket_of(s3, old))
    for node in (ONE, TWO):
        await own_agents.give(node, version)
        await own_agents.holds(node, version)
    cluster = own_agents.cluster

    for agent in own_agents.nodes.values():
        await asyncio.to_thread(agent.process.kill)
    await asyncio.to_thread(cluster.stop)
    await asyncio.to_thread(shutil.rmtree, cluster.folder / "master")
    await asyncio.to_thread(cluster.master.start)
    for agent in own_agents.nodes.values():
        await agent.prepare()
        assert not agent.disk.registered_ids().size
        assert not agent.disk.spooled().size
    await asyncio.to_thread(cluster.start_workers)
    for agent in own_agents.nodes.values():
        await asyncio.to_thread(agent.process.start)

    again = await own_agents.version(bucket_of(s3, new))
    assert set(again.manifest.block_ids.tolist()) & set(version.manifest.block_ids.tolist()), "ids begin anew"
    for node in (ONE, TWO):
        await own_agents.give(node, again)
        await own_agents.holds(node, again, deadline=120)
        assert own_agents.nodes[node].content(again) == new


@pytest.mark.failure_mode("block-open-while-dropped")
async def test_a_block_that_a_reader_holds_open_is_dropped_when_it_is_closed(
    agents: AgentCluster, s3: S3Server
) -> None:
    version = await agents.version(bucket_of(s3, {"read.bin": b"x" * 1_000_000, "other.bin": b"y" * 1_000}))
    await agents.give(ONE, version)
    await agents.holds(ONE, version)
    client = await asyncio.to_thread(agents.cluster.mount_fuse, ONE)
    file = str(client.folder / version.manifest.path.lstrip("/") / "read.bin")
    reader = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec 3<"$0"; head -c 100 <&3; exec cat', file),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        assert await asyncio.wait_for(reader.stdout.readexactly(100), timeout=60) == b"x" * 100
        await agents.give(ONE, version, parts=(), drop=ALL_SLOTS)
        await eventually_async(
            lambda: agents.mount(ONE, version).held_bytes == 1_000_000, deadline=30, describe=agents.describe
        )
        assert agents.nodes[ONE].content(version) == {"read.bin": b"x" * 1_000_000}
    finally:
        await reader.communicate(b"")  # ends its standard input, and so the reader
    await eventually_async(
        lambda: agents.mount(ONE, version).held_bytes == 0, deadline=60, describe=agents.describe
    )
    await agents.give(ONE, version)
    await agents.holds(ONE, version)


async def test_blocks_that_leave_and_come_again_are_registered_again(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"{number:04}.bin": os.urandom(10_000) for number in range(100)}
    version = await agents.version(bucket_of(s3, files))
    await agents.give(ONE, version)
    await agents.holds(ONE, version)

    await agents.give(ONE, version, parts=(), drop=ALL_SLOTS)
    await eventually_async(lambda: not agents.mount(ONE, version).held_bytes, deadline=30)
    await agents.give(ONE, version)  # at once: within the heartbeat that tells the master of the removals
    await agents.holds(ONE, version)
    assert agents.nodes[ONE].content(version) == files


async def test_blocks_come_from_the_source_once_and_are_registered_on_both_nodes(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"train/{number:04}.bin": os.urandom(20_000) for number in range(300)}
    files |= {
        "large.bin": os.urandom(60_000_000),
        "empty": b"",
    }  # one block, larger than a worker's direct buffers
    version = await agents.version(bucket_of(s3, files))
    assert version.manifest.blocks == 301

    await agents.give(ONE, version, peers=[agents.nodes[TWO].peer()])
    await agents.give(
        TWO,
        version,
        origin=NO_SLOTS,
        source=None,
        peers=[agents.nodes[ONE].peer()],
    )
    await agents.holds(ONE, version)
    await agents.holds(TWO, version)

    assert agents.nodes[ONE].content(version) == agents.nodes[TWO].content(version) == files
    ids = set(version.manifest.block_ids.tolist())
    assert await agents.placed(version) == {ONE: ids, TWO: ids}
    assert agents.mount(ONE, version).source_bytes == version.bytes
    assert agents.mount(TWO, version).peer_bytes == version.bytes
    assert not ids.intersection(agents.nodes[ONE].disk.spooled().tolist())
