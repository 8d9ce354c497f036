"""How many blocks may travel onto a worker at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tdcs.engine.protocol import Block

MAX_BYTES = 16 << 20
"""A worker takes one direct buffer per block of a request, and hangs for minutes above its limit of direct memory.
Little under way also keeps a request far below its deadline over a slow link."""

LOADED = MAX_BYTES // 4
"""Blocks up to this size travel in a Load request, each in a direct buffer of its full length."""

FETCHED_BYTES = 8 << 20
"""What a larger block takes of a worker's memory, however large it is: it is fetched in steps of this."""

MAX_COUNT = 500
"""Larger batches of small files load no faster, and a failed one has more to repeat."""


def batches(
    blocks: Iterable[Block], *, max_bytes: int = MAX_BYTES, max_count: int = MAX_COUNT
) -> Iterator[list[Block]]:
    """`blocks` in their order, cut into batches by the memory that they take.

    Each block id appears once: Alluxio answers nonsense when a request names a block twice.
    """
    batch: list[Block] = []
    size, seen = 0, set[int]()
    for block in blocks:
        if block.id in seen:
            continue
        seen.add(block.id)
        takes = block.length if block.length <= LOADED else FETCHED_BYTES
        if batch and (size + takes > max_bytes or len(batch) == max_count):
            yield batch
            batch, size = [], 0
        batch.append(block)
        size += takes
    if batch:
        yield batch
