"""Counting what of a dataset lies where, from the engine's listing. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tdcs.engine.protocol import CachedFile
from tdcs.engine.table import BlockTable


@dataclass(slots=True, kw_only=True)
class Survey:
    """What a listing of a dataset's files showed.

    Attributes:
        total_bytes: size of all files.
        total_files: number of files.
        cached_bytes: bytes that lie on some worker, each once.
        node_bytes: bytes by worker, every copy of a block counted.
        held_by: bytes by the set of workers that hold them: what would go with which workers.
        largest_block: length of the largest block.
        table: all files and blocks, in the order of the listing.
    """

    total_bytes: int = 0
    total_files: int = 0
    cached_bytes: int = 0
    node_bytes: dict[str, int] = field(default_factory=dict)
    held_by: dict[frozenset[str], int] = field(default_factory=dict)
    largest_block: int = 0
    table: BlockTable = field(default_factory=BlockTable)

    @property
    def physical_bytes(self) -> int:
        """Bytes in the cache, every copy counted."""
        return sum(self.node_bytes.values())

    @property
    def cached_ratio(self) -> float:
        """Cached bytes over all bytes; an empty dataset counts as cached."""
        return ratio(self.cached_bytes, self.total_bytes)

    def add(self, page: Iterable[CachedFile]) -> None:
        """Count one page of the listing."""
        files = list(page)
        self.table.add(files)
        for file in files:
            self.total_files += 1
            self.total_bytes += file.length
            for block in file.blocks:
                self.largest_block = max(self.largest_block, block.length)
                if block.workers:
                    self.cached_bytes += block.length
                    self.held_by[block.workers] = self.held_by.get(block.workers, 0) + block.length
                for worker in block.workers:
                    self.node_bytes[worker] = self.node_bytes.get(worker, 0) + block.length

    def forget_blocks(self) -> None:
        """Keep the counts only: the blocks of a million files take much room."""
        self.table = BlockTable()


def ratio(part: int, whole: int) -> float:
    """Part over whole, rounded down to four digits so that 1 means all; 1 for an empty whole."""
    if whole <= 0 or part >= whole:
        return 1.0
    return int(part * 10_000 / whole) / 10_000


def held_nodes(node_bytes: Mapping[str, int]) -> list[tuple[str, int]]:
    """The nodes that hold something, by name."""
    return sorted((name, held) for name, held in node_bytes.items() if held > 0)
