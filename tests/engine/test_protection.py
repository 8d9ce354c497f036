"""Copies that must not vanish: pinned ones, and those that a reader has open."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.engine.conftest import LARGE, SMALL
from tests.engine.contract import MIB, Mounts, becomes_empty, blocks_of, holders
from tests.engine.loading import evicted, load, placed
from tests.engine.servers import AlluxioCluster, FuseClient, S3Server
from tests.support.waiting import eventually_async

from tdcs.alluxio import AlluxioEngine
from tdcs.alluxio.rpc import Rpc
from tdcs.model.cache_engine import EngineError


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
    client = Rpc(target=address, patience=10)

    async def stays() -> bool:  # a worker learns of a pin with its next heartbeat
        await placed(engine, worker=SMALL, blocks=await blocks_of(engine, pinned))
        # more than fits beside it, which makes the worker evict what it may
        failures = await load(client, await blocks_of(engine, intruder))
        kept = await holders(engine, pinned) == {frozenset({SMALL})}
        taken = [block.id for block in await blocks_of(engine, intruder) if block.workers]
        await evicted(engine, worker=SMALL, path=intruder, ids=taken)
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


@pytest.mark.failure_mode("block-open-while-dropped")
async def test_a_mount_that_a_reader_has_a_file_of_open_goes_when_the_file_is_closed(
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
        with pytest.raises(EngineError, match="when the pods that read the dataset have ended") as refusal:
            await engine.unmount(path=path)
        assert refusal.value.retryable
        assert "a reader holds the block open" in refusal.value.reason
        assert path in await engine.mounts()
    finally:
        await reader.communicate(b"")  # ends its standard input, and so the reader

    async def gone() -> bool:
        await engine.unmount(path=path)
        return path not in await engine.mounts()

    condition: Callable[[], bool | Awaitable[bool]] = gone
    await eventually_async(condition, deadline=60, retry_on=(EngineError,))
    await becomes_empty(engine, LARGE)
