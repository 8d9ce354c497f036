"""What a load has done so far, counted. Pure."""

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tdcs.controllers.dataset.work import LoadWork

FAILURES_KEPT = 10
RATE_SECONDS = 10.0
"""The rate shown is that of the last so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFailure:
    """A file of which something could not be placed.

    Attributes:
        path: relative to the source.
        reason: a sentence, free of secrets.
        retryable: whether another try can succeed without anything being changed.
    """

    path: str
    reason: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """A moment of a load. Bytes and files are those that the load had to place, not what was there before.

    Attributes:
        bytes_total: bytes to place, over all nodes.
        bytes_done: bytes placed.
        bytes_moving: bytes of blocks on their way that have been asked of the source, where that is known: with a
            bandwidth limit.
        files_total: files of which something is to be placed.
        files_done: files of which all is placed, on all its nodes.
        bytes_per_second: bytes that were read from the source, over the last seconds; over the whole load once it has
            ended.
        copied_per_second: the same of bytes that came from other nodes.
        source_bytes: bytes that were asked of the source; the others came from other nodes.
        node_bytes: bytes placed, by node.
        cached_bytes: bytes of blocks that lay nowhere before and do now.
        failed_files: how many files could not be placed completely.
        failures: the first few of them.
    """

    bytes_total: int
    bytes_done: int
    files_total: int
    files_done: int
    bytes_per_second: float
    source_bytes: int
    copied_per_second: float = 0.0
    bytes_moving: int = 0
    node_bytes: Mapping[str, int] = field(default_factory=dict)
    cached_bytes: int = 0
    failed_files: int = 0
    failures: tuple[FileFailure, ...] = ()

    def since(self, earlier: "LoadProgress | None") -> "LoadProgress":
        """What was placed after an earlier moment of the same load; everything else as it is now."""
        if earlier is None:
            return self
        before = earlier.node_bytes
        return replace(
            self,
            bytes_done=self.bytes_done - earlier.bytes_done,
            files_done=self.files_done - earlier.files_done,
            cached_bytes=self.cached_bytes - earlier.cached_bytes,
            node_bytes={node: size - before.get(node, 0) for node, size in self.node_bytes.items()},
        )


class Tally:
    """Counts the placements of a load as they happen."""

    def __init__(self, *, work: LoadWork, clock: Callable[[], float]) -> None:
        self._table = work.table
        self._clock = clock
        self._began = clock()
        self._ended: float | None = None
        self._recent: deque[tuple[float, int, int]] = deque([(self._began, 0, 0)])
        self._total = work.bytes
        self._done = 0
        self._cached = 0
        self._reached = bytearray(len(work.table))  # whether a block lies somewhere
        self._open = array("I", bytes(4 * work.table.files))  # placements that a file still lacks
        self._broken: set[int] = set()
        self._failures: list[FileFailure] = []
        self._files_done = 0
        self.node_bytes = dict.fromkeys(work.bytes_by_node, 0)
        self.source_bytes = 0
        self.taken: dict[str, int] = {}
        self._paced = 0
        self._files_total = 0

    def begun(self, *, node: str, size: int) -> None:
        """So many bytes are on their way to a node, which keeps room for them."""
        self.taken[node] = self.taken.get(node, 0) + size

    def paced(self, size: int) -> None:
        """So many of them were asked of the source; less than nothing when they are counted otherwise now."""
        self._paced += size

    def expect(self, *, block: int, copies: int) -> None:
        """Something of the work is going to be placed; to be called once for each of its entries, before that."""
        file = self._table.file_of(block)
        self._files_total += self._open[file] == 0
        self._open[file] += copies

    def placed(self, *, block: int, node: str, copied: bool) -> None:
        """A block lies on a node where it was wanted: `copied` from another one, or read from the source."""
        length = self._table.length(block)
        self.source_bytes += 0 if copied else length
        self.node_bytes[node] += length
        self._done += length
        if not self._reached[block]:
            self._reached[block] = 1
            self._cached += 0 if self._table.holders(block) else length
        file = self._table.file_of(block)
        self._open[file] -= 1
        self._files_done += self._open[file] == 0

    def failed(self, *, block: int, reason: str, retryable: bool) -> None:
        """A block could not be placed somewhere, and is not tried again."""
        file = self._table.file_of(block)
        if file in self._broken:
            return
        self._broken.add(file)
        if len(self._failures) < FAILURES_KEPT:
            path = self._table.path(file)
            self._failures.append(FileFailure(path=path, reason=reason, retryable=retryable))

    def ended(self) -> None:
        """Nothing is placed any more."""
        self._ended = self._clock()

    def progress(self) -> LoadProgress:
        """All of it at this moment."""
        read, copied = self._rates()
        return LoadProgress(
            bytes_total=self._total,
            bytes_done=self._done,
            bytes_moving=self._paced,
            files_total=self._files_total,
            files_done=self._files_done,
            bytes_per_second=read,
            copied_per_second=copied,
            source_bytes=self.source_bytes,
            node_bytes=dict(self.node_bytes),
            cached_bytes=self._cached,
            failed_files=len(self._broken),
            failures=tuple(self._failures),
        )

    def _rates(self) -> tuple[float, float]:
        """Bytes a second from the source, and from other nodes."""
        read, copied = self.source_bytes, self._done - self.source_bytes
        if self._ended is not None:
            took = max(self._ended - self._began, 0.001)
            return read / took, max(copied, 0) / took
        now, read = self._clock(), read + self._paced
        if now > self._recent[-1][0] + RATE_SECONDS / 20:
            self._recent.append((now, read, copied))
        while len(self._recent) > 2 and self._recent[1][0] < now - RATE_SECONDS:
            self._recent.popleft()
        since, read_before, copied_before = self._recent[0]
        took = max(now - since, 0.001)
        return max(read - read_before, 0) / took, max(copied - copied_before, 0) / took
