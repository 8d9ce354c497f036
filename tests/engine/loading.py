"""Blocks on the workers of a real Alluxio, put there and evicted as its own clients do it: for tests of the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import pytest
from tests.support.waiting import eventually_async

from tdcs.alluxio import AlluxioEngine
from tdcs.alluxio.rpc import BLOCK_WORKER, Rpc
from tdcs.alluxio.worker_blocks import WorkerBlocks
from tdcs.model.cache_engine import Block

_BATCH_BYTES, _BATCH_BLOCKS = 16 << 20, 500
"""A worker takes one direct buffer for each block of a request, and hangs above its limit of direct memory."""


async def load(worker: Rpc, blocks: Sequence[Block]) -> list[str]:
    """Let a worker read blocks from their source, whatever it has to evict for them; why some are not there."""
    failures = []
    for batch in _batches(blocks):
        answer = await worker.unary(
            service=BLOCK_WORKER,
            method="Load",
            deadline=120,
            blocks=[
                {
                    "block_id": block.id,
                    "length": block.length,
                    "ufs_path": block.source_path,
                    "offset_in_file": block.offset,
                    "mountId": block.mount_id,
                }
                for block in batch
            ],
            options={"tag": "tests", "position_short": False},
        )
        failures += [
            status.message
            for status in answer.block_status
            if status.code and "already committed" not in status.message
        ]
    return failures


async def placed(engine: AlluxioEngine, *, worker: str, blocks: Sequence[Block]) -> None:
    """Load blocks onto a worker. What the worker of a busy machine gives up is asked for again."""
    client = Rpc(target=await _address(engine, worker), patience=60)
    last: list[str] = []

    async def all_there() -> bool:
        last[:] = await load(client, blocks)
        return not last

    condition: Callable[[], bool | Awaitable[bool]] = all_there
    try:
        await eventually_async(condition, deadline=180, describe=lambda: f"worker {worker}: {last[:3]}")
    finally:
        await client.close()


async def evicted(engine: AlluxioEngine, *, worker: str, path: str, ids: Iterable[int]) -> None:
    """Remove blocks of a path from a worker, and wait until the master knows: a block that is loaded earlier than that
    would be lost.
    """
    client, gone = WorkerBlocks(target=await _address(engine, worker), patience=60), set(ids)
    try:
        for number in gone:
            await client.remove(number)
    finally:
        await client.close()

    async def known() -> bool:
        pages = [page async for page in engine.files(path=path)]
        blocks = [block for page in pages for file in page for block in file.blocks]
        return not any(worker in block.workers for block in blocks if block.id in gone)

    condition: Callable[[], bool | Awaitable[bool]] = known
    await eventually_async(condition, deadline=60)


async def _address(engine: AlluxioEngine, worker: str) -> str:
    found = [info.address for info in await engine.workers() if info.name == worker and info.live]
    if not found:
        pytest.fail(f"worker {worker} is not live")
    return found[0]


def _batches(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    batch: list[Block] = []
    for block in blocks:
        size = sum(each.length for each in batch)
        if batch and (size + block.length > _BATCH_BYTES or len(batch) == _BATCH_BLOCKS):
            yield batch
            batch = []
        batch.append(block)
    if batch:
        yield batch
