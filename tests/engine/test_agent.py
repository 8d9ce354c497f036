"""Agents beside a real Alluxio: what they bring is registered, readable, dropped, and theirs again after a kill."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.engine.agent_nodes import AgentCluster, agents_of
from tests.engine.servers import AlluxioCluster, S3Server, random_network

from tdcs.engine.agents import NO_SLOTS
from tdcs.engine.protocol import Source

ONE, TWO = "node-1", "node-2"
CAPACITY = 256 << 20


@pytest.fixture
def cluster(alluxio_home: Path, tmp_path: Path) -> Iterator[AlluxioCluster]:
    cluster = AlluxioCluster(
        home=alluxio_home,
        folder=tmp_path / "alluxio",
        network=random_network(),
        workers={ONE: CAPACITY, TWO: CAPACITY},
        overrides={},
    )
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
async def agents(cluster: AlluxioCluster, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    async with agents_of(cluster, folder=tmp_path / "manifests", capacity=CAPACITY) as agents:
        yield agents


def bucket_of(s3: S3Server, files: dict[str, bytes]) -> Source:
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{name}": content for name, content in files.items()})
    return s3.source(f"s3://{bucket}/data")


async def test_blocks_come_from_the_source_once_and_are_registered_on_both_nodes(
    agents: AgentCluster, s3: S3Server
) -> None:
    files = {f"train/{number:04}.bin": os.urandom(20_000) for number in range(300)}
    files |= {"large.bin": os.urandom(9_000_000), "empty": b""}
    version = await agents.version(bucket_of(s3, files))

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
    assert not agents.nodes[ONE].disk.spooled().size
