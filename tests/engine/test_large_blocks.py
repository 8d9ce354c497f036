"""A large file is one block, and so one file on the disk of the node that holds it."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.engine.conftest import LARGE, registered
from tests.engine.contract import MIB, blocks_of, holders, placed
from tests.engine.servers import AlluxioCluster, S3Server
from tests.support.waiting import eventually_async

from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.alluxio.batches import LOADED
from tdcs.engine.alluxio.sources import BLOCK_SIZE

LENGTH = LOADED + 40 * MIB + 17
"""More than a worker could take as one direct buffer beside others."""


@pytest.fixture
async def product(alluxio: AlluxioCluster) -> AsyncIterator[AlluxioEngine]:
    """An engine with the product's own block size."""
    async with AlluxioEngine(master=alluxio.target) as engine:
        await registered(engine)
        yield engine
        for path in await engine.mounts():
            await engine.unmount(path=path)


async def test_a_large_file_is_loaded_as_one_block_with_the_sources_bytes(
    product: AlluxioEngine, alluxio: AlluxioCluster, s3: S3Server
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    content = random.Random(5).randbytes(LENGTH)
    s3.make_bucket(bucket)
    s3.put_files(bucket, {"data/large": content, "data/small": b"small"})
    await product.mount(path=path, source=s3.source(f"s3://{bucket}/data"))
    blocks = {block.length: block for block in await blocks_of(product, path)}
    assert LENGTH < BLOCK_SIZE
    assert set(blocks) == {LENGTH, 5}
    await placed(product, worker=LARGE, blocks=list(blocks.values()))
    assert await holders(product, path) == {frozenset({LARGE})}
    stored = alluxio.block_files(LARGE)[blocks[LENGTH].id].read_bytes()
    assert stored == content
    digest = hashlib.sha256(content).hexdigest()
    assert await product.digest(block=blocks[LENGTH]) == digest
    assert await product.digest(block=blocks[LENGTH], worker=LARGE) == digest


async def test_a_large_file_that_is_gone_fails_with_the_reason_and_the_others_are_placed(
    product: AlluxioEngine, s3: S3Server
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    s3.make_bucket(bucket)
    s3.put_files(
        bucket, {"data/gone": bytes(LENGTH), "data/there": bytes(LENGTH + 1), "data/small": b"small"}
    )
    await product.mount(path=path, source=s3.source(f"s3://{bucket}/data"))
    blocks = {block.length: block for block in await blocks_of(product, path)}
    s3.delete(bucket, "data/gone")
    (failure,) = await product.put(worker=LARGE, blocks=list(blocks.values()))
    assert failure.block_id == blocks[LENGTH].id
    assert "gone" in failure.reason or "NoSuchKey" in failure.reason or "404" in failure.reason, failure
    held = {block.length: block.workers for block in await blocks_of(product, path)}
    assert held == {LENGTH: frozenset(), LENGTH + 1: {LARGE}, 5: {LARGE}}


async def test_with_a_limit_a_large_block_comes_piece_by_piece_and_whole(
    product: AlluxioEngine, alluxio: AlluxioCluster, s3: S3Server
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    content = random.Random(6).randbytes(LENGTH)
    s3.make_bucket(bucket)
    s3.put_files(bucket, {"data/large": content, "data/small": b"small"})
    await product.mount(path=path, source=s3.source(f"s3://{bucket}/data"))
    blocks = {block.length: block for block in await blocks_of(product, path)}
    asked: list[int] = []

    async def pace(size: int) -> None:
        asked.append(size)

    for _ in range(2):  # the second time it is there
        assert await product.put(worker=LARGE, blocks=list(blocks.values()), pace=pace) == []
        assert await holders(product, path) == {frozenset({LARGE})}
    assert alluxio.block_files(LARGE)[blocks[LENGTH].id].read_bytes() == content
    assert max(asked) <= MIB
    assert sum(asked) == LENGTH + 5 + 5


async def test_a_limited_block_whose_source_breaks_leaves_nothing(
    product: AlluxioEngine, s3: S3Server
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {"data/large": bytes(LENGTH)})
    await product.mount(path=path, source=s3.source(f"s3://{bucket}/data"))
    (block,) = await blocks_of(product, path)

    async def breaks(size: int) -> None:
        if sum(asked) > LENGTH // 2:
            raise RuntimeError("the caller ends in the middle")
        asked.append(size)

    asked: list[int] = []
    with pytest.raises(RuntimeError, match="in the middle"):
        await product.put(worker=LARGE, blocks=[block], pace=breaks)
    assert await holders(product, path) == {frozenset()}

    async def placed() -> (
        bool
    ):  # the worker clears away what was begun a moment after the call was broken off
        return await product.put(worker=LARGE, blocks=[block]) == []

    condition: Callable[[], bool | Awaitable[bool]] = placed
    await eventually_async(condition, deadline=60)
    assert await holders(product, path) == {frozenset({LARGE})}
