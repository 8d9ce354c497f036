"""How many blocks may travel in one Load request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tdcs.engine.protocol import Block

MAX_BYTES = 64 << 20
"""A worker takes one direct buffer per block of a request; above its limit of direct memory it hangs for minutes."""

MAX_COUNT = 500
"""Larger batches of small files load no faster, and a failed one has more to repeat."""


def batches(
    blocks: Iterable[Block], *, max_bytes: int = MAX_BYTES, max_count: int = MAX_COUNT
) -> Iterator[list[Block]]:
    """`blocks` in their order, cut into batches. A block larger than `max_bytes` makes a batch of its own.

    Each block id appears once: Alluxio answers nonsense when a request names a block twice.
    """
    batch: list[Block] = []
    size, seen = 0, set[int]()
    for block in blocks:
        if block.id in seen:
            continue
        seen.add(block.id)
        if batch and (size + block.length > max_bytes or len(batch) == max_count):
            yield batch
            batch, size = [], 0
        batch.append(block)
        size += block.length
    if batch:
        yield batch
