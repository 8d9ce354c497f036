"""Copies that must not vanish: pinned ones, and those that a reader has open."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.engine.conftest import LARGE, SMALL
from tests.engine.contract import MIB, Mounts, blocks_of, holders, placed
from tests.engine.servers import AlluxioCluster, FuseClient, S3Server
from tests.support.waiting import eventually_async

from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.alluxio.worker import Worker
from tdcs.engine.protocol import EngineError


async def _mounted(s3: S3Server, mounts: Mounts, *, length: int) -> str:
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {"data/file": b"x" * length})
    return await mounts.add(s3.source(f"s3://{bucket}/data"))


async def test_a_pinned_copy_is_not_evicted(engine: AlluxioEngine, s3: S3Server, mounts: Mounts) -> None:
    pinned = await _mounted(s3, mounts, length=4 * MIB)
    intruder = await _mounted(s3, mounts, length=6 * MIB)
    await engine.pin(path=pinned, pinned=True)
    address = next(info.address for info in await engine.workers() if info.name == SMALL)
    client = Worker(target=address, patience=10)

    async def stays() -> bool:  # a worker learns of a pin with its next heartbeat
        assert await engine.put(worker=SMALL, blocks=await blocks_of(engine, pinned)) == []
        # as nobody should: a load without a look at the free room, which makes the worker evict
        failures, _ = await client.load(await blocks_of(engine, intruder))
        kept = await holders(engine, pinned) == {frozenset({SMALL})}
        taken = [block.id for block in await blocks_of(engine, intruder) if block.workers]
        await engine.drop(worker=SMALL, block_ids=taken)
        return kept and bool(failures)

    condition: Callable[[], bool | Awaitable[bool]] = stays
    try:
        await eventually_async(condition, deadline=60)
    finally:
        await client.close()


@pytest.fixture
async def fuse(alluxio: AlluxioCluster) -> AsyncIterator[FuseClient]:
    """A FUSE client on the large worker's node."""
    client = await asyncio.to_thread(alluxio.mount_fuse, LARGE)
    yield client
    await asyncio.to_thread(client.stop)


async def test_a_copy_that_a_reader_has_open_is_reported_and_removed_later(
    engine: AlluxioEngine, s3: S3Server, fuse: FuseClient, mounts: Mounts
) -> None:
    path = await _mounted(s3, mounts, length=MIB)
    (block,) = await blocks_of(engine, path)
    await placed(engine, worker=LARGE, blocks=[block])
    reader = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec 3<"$0"; head -c 100 <&3; exec cat', str(fuse.folder / path.lstrip("/") / "file")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        assert await asyncio.wait_for(reader.stdout.readexactly(100), timeout=60) == b"x" * 100
        (failure,) = await engine.drop(worker=LARGE, block_ids=[block.id])
        assert failure.retryable
        assert "reader" in failure.reason
        with pytest.raises(EngineError, match="when the pods that read the dataset have ended") as refusal:
            await engine.unmount(path=path)
        assert refusal.value.retryable
        assert path in await engine.mounts()
    finally:
        await reader.communicate(b"")  # ends its standard input, and so the reader
    # what could not be removed at once is not lost on the way

    async def gone() -> bool:
        return await engine.drop(worker=LARGE, block_ids=[block.id]) == []

    condition: Callable[[], bool | Awaitable[bool]] = gone
    await eventually_async(condition, deadline=60)
    assert await holders(engine, path) == {frozenset()}
