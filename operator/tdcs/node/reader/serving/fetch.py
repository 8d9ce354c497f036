"""A piece of a block that is being fetched: who waits for it, who may be asked, who was asked. Decisions only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tdcs.node.reader.serving.read import Key, Read
from tdcs.node.wire import frames
from tdcs.node.wire.frames import SourceWanted, Wanted

PART_BYTES: Final = frames.PART_BYTES
"""Files are fetched in parts of this size; smaller files, and ends of blocks, as they are."""


@dataclass(slots=True, eq=False)
class Fetch:
    """A fetch under way.

    Attributes:
        block: the block's id.
        size: bytes of the whole block.
        source: the same piece as the source knows it.
        waiting: reads that it is for, and the index of the piece in each; none: it was fetched ahead.
        holders, sources: addresses that were not asked yet, in their order.
        across_zones: addresses in other zones than this node's.
        asked_at: addresses that have not answered yet, and when each was asked.
        reasons: why none of those who were asked could give it so far.
        changed: whether the source has another version.
        ahead: whether it began without a read that waits for it.
        retries: how often all were asked again.
    """

    key: Key
    block: int
    size: int
    source: Callable[[], SourceWanted]
    waiting: list[tuple[Read, int]] = field(default_factory=list)
    holders: Sequence[str] = ()
    sources: Sequence[str] = ()
    across_zones: frozenset[str] = frozenset()
    asked_at: dict[str, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    changed: bool = False
    done: bool = False
    ahead: bool = False
    retry_at: float = 0.0
    retries: int = 0

    def next_holder(self) -> tuple[str, bool] | None:
        """Who is to be asked next, and whether for a read of the source; None when all were."""
        if self.holders:
            first, self.holders = self.holders[0], self.holders[1:]
            return first, False
        if self.sources:
            first, self.sources = self.sources[0], self.sources[1:]
            return first, True
        return None


class BlockQuestion(NamedTuple):
    """A fetch as a holder of the block is asked."""

    fetch: Fetch
    block: int
    length: int

    def request(self) -> bytes:
        key = self.fetch.key
        whole = key.offset == 0 and key.length == self.fetch.size
        piece = Wanted(self.block) if whole else Wanted(self.block, key.offset, key.length)
        return frames.read_request([piece])


class SourceQuestion(NamedTuple):
    """A fetch as a reader of the source is asked."""

    fetch: Fetch
    block: int
    length: int

    def request(self) -> bytes:
        return frames.source_request(self.fetch.source())


class ReadOnQuestion(NamedTuple):
    """What this node's own agent is told: from which block a pod reads on. Its fetch is over already, as the answer has
    no bytes."""

    fetch: Fetch
    block: int
    length: int = 0

    def request(self) -> bytes:
        return frames.read_on_request(self.block)


Question = BlockQuestion | SourceQuestion | ReadOnQuestion


def part_of(*, offset: int, block_length: int) -> tuple[int, int]:
    """Offset and length of the part of a block in which an offset is."""
    begin = offset // PART_BYTES * PART_BYTES
    return begin, min(PART_BYTES, block_length - begin)
