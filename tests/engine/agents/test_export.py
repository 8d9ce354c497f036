"""Alluxio as an export: agents hold files under ids of their own, and a real Alluxio is told of them afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.agents.agent_nodes import AgentCluster, agents_of, master_of
from tests.engine.agents.test_agent import CAPACITY, ONE, TWO, bucket_of, two_workers
from tests.engine.servers import S3Server
from tests.engine.views.test_names import NAMES
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import Version
from tests.support.waiting import eventually_async

from tdcs.alluxio.export_sweep import ExportSweep
from tdcs.alluxio.exported_files import ExportedFiles, for_alluxio
from tdcs.alluxio.master_room import room_of
from tdcs.api import names
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS

FILES = {name: os.urandom(3_000 + 7 * number) for number, name in enumerate(NAMES)}
FILES |= {f"train/{number:03}.bin": os.urandom(20_000) for number in range(60)}


@pytest.fixture
async def agents(alluxio_home: Path, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    with two_workers(alluxio_home, tmp_path / "alluxio") as cluster:
        async with agents_of(cluster, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
            yield agents


def all_right(agent: AgentProcess, version: Version, files: Mapping[str, bytes]) -> bool:
    """Whether an agent gives every file of a version, of one block each, right to the byte."""
    manifest = version.manifest
    contents = read_by_wire(agent, manifest, range(manifest.blocks))
    return contents == {
        block: files[manifest.file_path(manifest.file_of(block)).decode()] for block in range(manifest.blocks)
    }


@contextmanager
def reading(agent: AgentProcess, version: Version, files: Mapping[str, bytes]) -> Iterator[list[bool]]:
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


# Starts of JVMs.
@pytest.mark.timeout(1200)
@pytest.mark.failure_mode("alluxio-export-master-disk-lost")
async def test_alluxio_is_told_of_what_agents_hold_and_its_journal_may_be_lost_under_load(
    agents: AgentCluster, s3: S3Server
) -> None:
    cluster, first, second = agents.cluster, agents.nodes[ONE], agents.nodes[TWO]
    version = await agents.version(bucket_of(s3, FILES))
    path = version.manifest.path
    await agents.give(ONE, version, peers=[second.peer()])
    await agents.give(TWO, version, origin=NO_SLOTS, source=None, peers=[first.peer()])
    for node in (ONE, TWO):
        await agents.holds(node, version)

    async with master_of(cluster) as master:
        files = ExportedFiles(master)

        await agents.exported(path, FILES, ONE, TWO)
        room = await room_of(master)
        assert len(FILES) < room.paths < room.most
        assert room.workers == 2
        client = await asyncio.to_thread(cluster.mount_fuse, ONE)

        # The master is killed and its disk deleted, and a node's pod starts anew before there is another one.
        with reading(second, version, FILES) as reads:
            await asyncio.to_thread(cluster.master.kill)
            for process in (first.process, cluster.workers[ONE]):
                await asyncio.to_thread(process.kill)
            await asyncio.to_thread(shutil.rmtree, cluster.folder / "master")
            await first.prepare()
            cluster.workers[ONE].launch()
            await asyncio.to_thread(first.process.start)
            await eventually_async(lambda: agents.state(ONE) is not None, deadline=60)
            assert all_right(first, version, FILES)
            await agents.give(ONE, version, source=None)
            await asyncio.to_thread(cluster.master.start)
            await agents.exported(path, FILES, ONE, TWO)
            assert len(reads) > 1
            assert all(reads)
        assert not agents.mount(ONE, version).source_bytes
        assert not agents.mount(TWO, version).source_bytes

        # What Alluxio's own clients read.
        folder = client.folder / path.lstrip("/")
        read = {name: (await cat(folder / for_alluxio(name))) for name in FILES if "\n" not in name}
        assert read == {name: FILES[name] for name in read}

        # What leaves a node leaves its worker, and what leaves all of them is no file of Alluxio's any more.
        await agents.give(ONE, version, parts=(), drop=ALL_SLOTS)
        await agents.exported(path, FILES, TWO)
        await agents.give(TWO, version, source=None, parts=(), drop=ALL_SLOTS)

        sweep = ExportSweep(master=master, root=names.ENGINE_DATASETS_ROOT, mounts=nothing)
        paths = {f"{path}/{for_alluxio(name)}" for name in FILES}

        async def emptied() -> bool:
            return {file async for file in sweep.without_places(path)} == paths

        await eventually_async(emptied, deadline=120, describe=agents.describe)
        assert not cluster.block_files(ONE)
        assert not cluster.block_files(TWO)
        assert await sweep.sweep_files() == [], "workers that are away would look the same"
        assert set(await sweep.sweep_files()) == paths
        assert await files.find(min(paths)) is None

        assert await sweep.folders() == [path]
        assert await sweep.sweep() == [path]
        assert await sweep.folders() == []


async def nothing() -> list[str]:
    """What is mounted when no Dataset is left."""
    return []


async def cat(file: Path) -> bytes:
    """The content of a file, read by another process: one that waits for FUSE cannot be killed."""
    running = await asyncio.create_subprocess_exec("cat", str(file), stdout=asyncio.subprocess.PIPE)
    content, _ = await running.communicate()
    return content
