"""A node whose pod starts while Alluxio's master is away, and one whose master has lost its disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.agents.agent_nodes import AgentCluster, agents_of
from tests.engine.agents.test_agent import CAPACITY, ONE, TWO, bucket_of, two_workers
from tests.engine.servers import S3Server
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import Version
from tests.support.waiting import eventually_async

from tdcs.node.agent.disk.epoch import read_epoch

FILES = {f"{number:03}.bin": os.urandom(20_000) for number in range(60)}


@pytest.fixture
async def agents(alluxio_home: Path, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    with two_workers(alluxio_home, tmp_path / "alluxio") as made:
        async with agents_of(made, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
            yield agents


def all_right(agent: AgentProcess, version: Version, files: Mapping[str, bytes] = FILES) -> bool:
    """Whether an agent gives every file of a version, of one block each, right to the byte."""
    manifest = version.manifest
    found = read_by_wire(agent, manifest, range(manifest.blocks), journal=read_epoch(agent.disk))
    return found == {
        block: files[manifest.file_path(manifest.file_of(block)).decode()] for block in range(manifest.blocks)
    }


@contextmanager
def reading(
    agent: AgentProcess, version: Version, files: Mapping[str, bytes] = FILES
) -> Iterator[list[bool]]:
    """Read a version from an agent over and over while the body runs; whether each time was right."""
    results, ended = list[bool](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                results.append(all_right(agent, version, files))
            except Exception:  # whatever it is, a read has failed
                results.append(False)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield results
    finally:
        ended.set()
        thread.join()


# Starts of JVMs, and twice the time for which a master is waited for.
@pytest.mark.timeout(1200)
@pytest.mark.failure_mode("worker-starts-without-master")
async def test_a_master_that_is_away_or_has_lost_its_disk_costs_no_read_and_no_byte_of_the_source(
    agents: AgentCluster, s3: S3Server
) -> None:
    cluster, one = agents.cluster, agents.nodes[ONE]
    source = bucket_of(s3, FILES)
    version = await agents.version(source)
    for node in (ONE, TWO):
        await agents.give(node, version)
    for node in (ONE, TWO):
        await agents.holds(node, version)
    ids = set(version.manifest.block_ids.tolist())

    async def kill_pod() -> None:
        for process in (one.process, cluster.workers[ONE]):
            await asyncio.to_thread(process.kill)

    async def start_pod() -> None:
        await one.prepare()
        cluster.workers[ONE].launch()
        await asyncio.to_thread(one.process.start)
        await eventually_async(lambda: agents.state(ONE) is not None, deadline=60)

    with reading(agents.nodes[TWO], version) as reads:
        # The master is away while the pod of a node starts.
        await asyncio.to_thread(cluster.master.kill)
        await kill_pod()
        await start_pod()
        assert all_right(one, version)
        assert not one.disk.registered_ids().size

        # It comes back as it was.
        await asyncio.to_thread(cluster.master.start)
        await agents.give(ONE, version, source=None)
        await agents.holds(ONE, version, deadline=180)

        async def known() -> bool:
            return (await agents.placed(version))[ONE] == ids

        await eventually_async(known, deadline=120, describe=agents.describe)
        assert not agents.mount(ONE, version).source_bytes

        # It is away again, and comes back with an empty disk: ids begin anew.
        await asyncio.to_thread(cluster.master.kill)
        await kill_pod()
        await asyncio.to_thread(shutil.rmtree, cluster.folder / "master")
        await start_pod()
        await agents.give(ONE, version, source=None)
        await asyncio.to_thread(cluster.master.start)
        await eventually_async(
            lambda: "the master has journal" in one.process.tail(lines=50),
            deadline=120,
            describe=agents.describe,
        )
        assert all_right(one, version)
        assert not one.disk.registered_ids().size, "nothing is registered under ids of the journal before"
        assert len(reads) > 1
        assert all(reads)

    # The operator starts such a pod anew, and lists the source again.
    await kill_pod()
    await start_pod()
    await asyncio.to_thread(cluster.workers[ONE].wait_ready)
    await agents.engine.mount(path=version.manifest.path, source=source)
    again = await agents.version(source, path=version.manifest.path)
    await agents.give(ONE, again, source=None)
    await agents.holds(ONE, again, deadline=180)
    assert one.content(again) == FILES
    assert not agents.mount(ONE, again).source_bytes
