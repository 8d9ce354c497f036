"""Pieces of blocks that are on this node's disks."""

import errno
import functools
import io
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from tdcs.api import names
from tdcs.node.extents import extent_place, read_part
from tdcs.node.file_facts import is_other_file
from tdcs.node.reader.counters import Count, Counters
from tdcs.node.reader.serving.fetch import PART_BYTES
from tdcs.node.reader.serving.local_disks import LocalDisks
from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.serving.read import Key
from tdcs.node.store_boot import is_doubtful

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_KEPT_FILES: Final = 64
_KEPT_SECONDS: Final = 1.0
"""An open file keeps its bytes on the disk when the agent drops it: for no longer than this."""
_NOT_CACHED: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP})

T = TypeVar("T")


class _Kept(NamedTuple):
    """An open file of a block."""

    file: io.FileIO
    disk: str
    until: float


class _Found(NamedTuple):
    """What a disk has of a piece: its bytes, and the open file, if the block has one for itself."""

    content: bytes
    file: io.FileIO | None
    disk: str


class LocalBlocks:
    """The blocks of this node, read by the disks' own threads.

    Args:
        is_refused: whether the agent has found its copy of a block of a version wrong.
    """

    def __init__(
        self,
        *,
        disks: LocalDisks,
        counters: Counters,
        is_refused: Callable[[OpenVersion, int], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disks: Final = disks
        self._counters: Final = counters
        self._is_refused: Final = is_refused
        self._clock: Final = clock
        self._files: Final[OrderedDict[tuple[int, int], _Kept]] = OrderedDict()
        self._wrong: Final = deque[int]()
        self._ready: Final[set[str]] = set()

    def may_have(self, version: OpenVersion, block: int) -> bool:
        """Whether a block (its number in the manifest) may be here, and be right, by what is known of it."""
        return version.may_be_here(block) and not self._is_refused(version, version.block_ids[block])

    def cached(self, version: OpenVersion, key: Key, begin: int, end: int) -> memoryview | None:
        """Bytes of a piece, if the block is open and the kernel has them in memory."""
        block_file = self._files.get((version.number, key.block))
        if block_file is None:
            return None
        content = bytearray(end - begin)
        try:
            count = os.preadv(block_file.file.fileno(), [content], key.offset + begin, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _NOT_CACHED:
                self.close_block(version, key.block)
            return None
        return memoryview(content) if count == len(content) else None

    def read(
        self,
        version: OpenVersion,
        key: Key,
        begin: int,
        end: int,
        done: Callable[[bytes | None], None],
    ) -> None:
        """Have bytes of a piece read from a disk.

        Args:
            done: gets them, or None: no disk has them, or one does not answer in time. From one that answers after all
                it gets them later.
        """
        work = functools.partial(self._read, version, key, begin, end)
        self._look(version, work, functools.partial(self._keep, version, key, done))

    def find(self, version: OpenVersion, block: int, done: Callable[[bool], None]) -> None:
        """Have looked whether a block is here."""
        work = functools.partial(self._exists, version, block)
        self._look(version, work, lambda exists: done(bool(exists)))

    def close_block(self, version: OpenVersion, block: int) -> None:
        """Keep no open file of a block."""
        block_file = self._files.pop((version.number, block), None)
        if block_file is not None:
            self._disks.look(block_file.disk, block_file.file.close, lambda _: None)

    def tick(self) -> None:
        """Close files that nobody reads on. A few times a second."""
        now = self._clock()
        while self._files:
            (number, block), block_file = next(iter(self._files.items()))
            if block_file.until > now and len(self._files) <= _KEPT_FILES:
                return
            del self._files[number, block]
            self._disks.look(block_file.disk, block_file.file.close, lambda _: None)

    def _look(
        self, version: OpenVersion, work: Callable[[str], T | None], done: Callable[[T | None], None]
    ) -> None:
        """Look at one disk after the other until one has something; those that hang are passed over."""
        tiers = iter(version.registration.tiers)

        def look_at_next() -> None:
            for tier in tiers:
                if not self._disks.hangs(tier):
                    look_at(tier)
                    return
            done(None)

        def look_at(tier: str) -> None:
            went_on = False

            def late() -> None:
                nonlocal went_on
                went_on = True
                look_at_next()

            def answered(answer: T | None) -> None:
                while self._wrong:
                    self._counters.add(self._wrong.popleft(), Count.REFUSED)
                if answer is not None:
                    done(answer)
                elif not went_on:
                    look_at_next()

            self._disks.look(tier, functools.partial(work, tier), answered, late=late)

        look_at_next()

    def _keep(
        self, version: OpenVersion, key: Key, done: Callable[[bytes | None], None], piece: _Found | None
    ) -> None:
        if piece is None or self._is_refused(version, version.block_ids[key.block]):
            done(None)
            return
        if piece.file is not None and version.block_lengths[key.block] > PART_BYTES:
            self.close_block(version, key.block)
            self._files[version.number, key.block] = _Kept(
                piece.file, piece.disk, self._clock() + _KEPT_SECONDS
            )
        done(piece.content)

    # In a thread of the disk.

    def _read(self, version: OpenVersion, key: Key, begin: int, end: int, tier: str) -> _Found | None:
        block = version.block_ids[key.block]
        if tier not in self._ready:
            if is_doubtful(
                tier
            ):  # the agent has not looked yet through what may have been lost with the power
                return None
            self._ready.add(tier)
        if os.path.exists(f"{tier}/{version.refused}/{block}"):
            return None
        if (file := self._opened(version, key.block, tier)) is not None:
            content = os.pread(file.fileno(), end - begin, key.offset + begin)
            if len(content) == end - begin:
                return _Found(content, file, tier)
        content_of_part = self._part(version, key.block, tier, begin=key.offset + begin, length=end - begin)
        return _Found(content_of_part, None, tier) if content_of_part is not None else None

    def _opened(self, version: OpenVersion, block: int, tier: str) -> io.FileIO | None:
        """The file of a block that has one for itself, if it is what the version says."""
        try:
            file = io.FileIO(os.open(f"{tier}/{names.AGENT_SPOOL}/{version.block_ids[block]}", _OPEN))
        except OSError:
            return None
        right = not is_other_file(file.fileno(), block=block, manifest=version.manifest)
        if right and os.fstat(file.fileno()).st_size == version.block_lengths[block]:
            return file
        self._wrong.append(version.number)
        return None

    def _part(self, version: OpenVersion, block: int, tier: str, *, begin: int, length: int) -> bytes | None:
        """Bytes of a block that is in one file with others of its source file."""
        place = extent_place(version.manifest, block)
        if place is None:
            return None
        return read_part(tier, place, offset=begin, length=length)

    def _exists(self, version: OpenVersion, block: int, tier: str) -> bool | None:
        identity = version.block_ids[block]
        exists = (
            os.path.exists(f"{tier}/{names.AGENT_SPOOL}/{identity}")
            or self._part(version, block, tier, begin=0, length=0) is not None
        )
        refused = exists and os.path.exists(f"{tier}/{version.refused}/{identity}")
        return (exists and not refused) or None
