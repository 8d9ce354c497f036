"""Answers READ: from this node's disk, from the buffer, or with what `fetches` brings from other nodes."""

import errno
import logging
import os
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

from tdcs.reader.content_buffer import ContentBuffer
from tdcs.reader.counters import Count, Counters
from tdcs.reader.fuse import protocol as fuse_protocol
from tdcs.reader.open_versions import OpenVersion, OpenVersions
from tdcs.reader.peers.fetch import PART_BYTES, Key, Waiter, part_of
from tdcs.reader.peers.fetches import Fetches, Poller
from tdcs.reader.read_ahead import PARTS_AHEAD, EpochOrder, FileOrder, OffsetOrder

_log: Final = logging.getLogger(__name__)

STALL_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 5.0
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW

Reply = Callable[[int, Sequence[bytes | memoryview]], None]
"""Answers the request in a place, and gives the place back."""


class _Read:
    """A read that waits for pieces.

    Attributes:
        place, unique: of the request.
        pieces: what has come of it so far, in order.
        wanted: for each piece its key, and the bytes of it that are asked for.
        began: when the request was taken, in seconds of the monotonic clock.
    """

    __slots__ = ("began", "file", "missing", "pieces", "place", "unique", "version", "wanted")

    def __init__(
        self, *, place: int, unique: int, version: OpenVersion, file: int, wanted: list[tuple[Key, int, int]]
    ) -> None:
        self.place, self.unique, self.version, self.file = place, unique, version, file
        self.wanted = wanted
        self.pieces: list[bytes | memoryview | None] = [None] * len(wanted)
        self.missing = len(wanted)
        self.began = time.monotonic()


class Reads:
    """The reads of a process.

    Args:
        versions: what is read.
        counters: what happened.
        poller: watches connections.
        reply: answers requests.
        buffer_bytes: how much may be kept.
        patience_seconds: a read that no agent and no source can answer for so long fails.
        tls: gives the context of the time, with which agents are asked; None: plain TCP.
    """

    def __init__(
        self,
        *,
        versions: OpenVersions,
        counters: Counters,
        poller: Poller,
        reply: Reply,
        buffer_bytes: int,
        patience_seconds: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._versions: Final = versions
        self._counters: Final = counters
        self._reply: Final = reply
        self.buffer: Final = ContentBuffer(buffer_bytes)
        self.fetches: Final = Fetches(
            poller=poller,
            answers=self,
            buffer=self.buffer,
            counters=counters,
            journal_of=self._journal,
            patience_seconds=patience_seconds,
            tls=tls,
        )
        self._orders: Final[dict[int, tuple[FileOrder, EpochOrder]]] = {}
        self._offsets: Final = OffsetOrder()
        self._logged_at = 0.0

    def start(
        self, version: OpenVersion, *, file: int, offset: int, size: int, place: int, unique: int
    ) -> None:
        """Answer a read now, or when its bytes are there."""
        manifest = version.manifest
        length = int(manifest.lengths[file])
        size = min(size, length - offset)
        if size <= 0:
            self._reply(place, (fuse_protocol.failure(unique, number=0),))
            return
        blocks = manifest.blocks_of(file)
        if not len(blocks):
            _log.warning("%s is not read: the cache does not know its blocks", self._path(version, file))
            self._reply(place, (fuse_protocol.failure(unique, number=errno.EIO),))
            return
        if len(blocks) == 1 and length <= PART_BYTES and int(manifest.block_lengths[blocks.start]) == length:
            key = Key(version.number, blocks.start, 0, length)
            read = _Read(
                place=place,
                unique=unique,
                version=version,
                file=file,
                wanted=[(key, offset, offset + size)],
            )
            self._piece_of(read, 0, key, offset, offset + size)
            if not offset and size == length:
                self._files_ahead(version, file)
            return
        in_order = length <= PART_BYTES or self._offsets.in_order(
            version.number, file, offset=offset, size=size, slack=PART_BYTES
        )
        wanted = self._pieces(version, blocks, offset=offset, size=size, parts=in_order)
        read = _Read(place=place, unique=unique, version=version, file=file, wanted=wanted)
        for index, (key, begin, end) in enumerate(wanted):
            self._piece_of(read, index, key, begin, end)
        if in_order and len(wanted):
            self._look_ahead(read, blocks, first=offset == 0)

    def tick(self) -> None:
        """See `Fetches.tick`; drops what was known of versions that are closed."""
        self.fetches.tick(self._versions.get)
        for number in [number for number in self._orders if not self._versions.is_open(number)]:
            del self._orders[number]

    # What `fetches` says.

    def piece(
        self, waiter: Waiter, index: int, content: memoryview | bytes, *, key: Key, origin: Count
    ) -> None:
        """A piece of a read is there."""
        assert isinstance(waiter, _Read)
        _, begin, end = waiter.wanted[index]
        if end < key.length and key not in self.buffer:
            self.buffer.put(key, bytes(content))  # its next bytes are asked for in a moment
        found = memoryview(content)[begin:end]
        self._have(waiter, index, found if len(waiter.wanted) == 1 else bytes(found), origin=origin)

    def failed(self, waiter: Waiter, *, stale: bool, reason: str) -> None:
        """A piece of a read cannot be had: the read fails as a whole, once."""
        assert isinstance(waiter, _Read)
        if waiter.missing < 0:
            return
        waiter.missing = -1
        version = waiter.version
        self._counters.add(version.number, Count.STALE if stale else Count.ERRORS)
        now = time.monotonic()
        if now - self._logged_at > _LOG_SECONDS:
            self._logged_at = now
            what = "has another version at its source by now" if stale else "cannot be read from anywhere"
            _log.error("%s %s: %s", self._path(version, waiter.file), what, reason)
            path = version.manifest.file_path(waiter.file).decode("utf-8", "replace")
            self._versions.note_failure(version, path=path, reason=reason, stale=stale)
        number = errno.ESTALE if stale else errno.EIO
        self._reply(waiter.place, (fuse_protocol.failure(waiter.unique, number=number),))

    # Inside.

    def _pieces(
        self, version: OpenVersion, blocks: range, *, offset: int, size: int, parts: bool
    ) -> list[tuple[Key, int, int]]:
        """The pieces that a read consists of: whole parts of blocks, or no more than what is asked for."""
        found, begin = [], 0
        lengths = version.manifest.block_lengths[blocks.start : blocks.stop].tolist()
        for block, length in zip(blocks, lengths, strict=True):
            low, high = max(offset - begin, 0), min(offset + size - begin, length)
            while low < high:
                at, span = part_of(offset=low, block_length=length) if parts else (low, high - low)
                end = min(high, at + span)
                found.append((Key(version.number, block, at, span), low - at, end - at))
                low = end
            begin += length
            if begin >= offset + size:
                break
        return found

    def _piece_of(self, read: _Read, index: int, key: Key, begin: int, end: int) -> None:
        kept = self.buffer.get(key)
        if kept is not None:
            if end == key.length:
                self.buffer.drop(key)
            self._have(read, index, memoryview(kept)[begin:end], origin=Count.BUFFER_READS)
            return
        found = self._from_disk(read.version, key, begin, end)
        if found is not None:
            self._have(read, index, found, origin=Count.DISK_READS)
            return
        self.fetches.want(read.version, key, waiter=(read, index))

    def _from_disk(self, version: OpenVersion, key: Key, begin: int, end: int) -> bytes | None:
        """Bytes of a block that lies on this node, and is as long as it should be."""
        if not version.may_be_here(key.block):
            return None
        block = int(version.manifest.block_ids[key.block])
        if version.is_refused(block):
            return None
        for folder in version.folders:
            try:
                fd = os.open(f"{folder}{block}", _OPEN)
            except OSError:
                continue
            try:
                if not version.has_own_blocks_here():
                    return None
                if os.fstat(fd).st_size != version.manifest.block_lengths[key.block]:
                    self._counters.add(version.number, Count.REFUSED)
                    continue
                found = os.pread(fd, end - begin, key.offset + begin)
            except OSError as error:
                _log.warning("block %d of %s cannot be read here: %s", block, version.name, error)
                continue
            finally:
                os.close(fd)
            if len(found) == end - begin:
                return found
        return None

    def _have(self, read: _Read, index: int, content: bytes | memoryview, *, origin: Count) -> None:
        if read.missing < 0:
            return
        read.pieces[index] = content
        read.missing -= 1
        if read.missing:
            return
        pieces = [piece for piece in read.pieces if piece is not None]
        size = sum(map(len, pieces))
        head = fuse_protocol.ANSWER.pack(fuse_protocol.ANSWER.size + size, 0, read.unique)
        self._reply(read.place, (head, *pieces))
        seconds = time.monotonic() - read.began
        add, number = self._counters.add, read.version.number
        add(number, origin)
        add(number, Count(origin + 1), size)
        add(number, Count(origin + 2), int(seconds * 1e9))
        if seconds > STALL_SECONDS:
            add(number, Count.STALLS)

    def _look_ahead(self, read: _Read, blocks: range, *, first: bool) -> None:
        version, manifest = read.version, read.version.manifest
        last, _, end = read.wanted[-1]
        length = int(manifest.block_lengths[last.block])
        if last.offset + last.length < length or last.block + 1 < blocks.stop:
            self._parts_ahead(version, blocks, last)
        elif first and len(read.wanted) == 1 and end == last.length:
            self._files_ahead(version, read.file)

    def _files_ahead(self, version: OpenVersion, read: int) -> None:
        manifest = version.manifest
        orders = self._orders.get(version.number)
        if orders is None:
            orders = self._orders[version.number] = FileOrder(), EpochOrder(files=len(manifest))
        listing, epoch = orders
        for file in (*listing.next(read, files=len(manifest)), *epoch.next(read)):
            blocks = manifest.blocks_of(file)
            if len(blocks) == 1:
                whole = int(manifest.block_lengths[blocks.start])
                self._ahead(version, Key(version.number, blocks.start, 0, min(whole, PART_BYTES)))

    def _parts_ahead(self, version: OpenVersion, blocks: range, last: Key) -> None:
        block, at = last.block, last.offset + last.length
        for _ in range(PARTS_AHEAD):
            length = int(version.manifest.block_lengths[block])
            if at >= length:
                block, at = block + 1, 0
                if block >= blocks.stop:
                    return
                length = int(version.manifest.block_lengths[block])
            span = min(PART_BYTES, length - at)
            self._ahead(version, Key(version.number, block, at, span))
            at += span

    def _ahead(self, version: OpenVersion, key: Key) -> None:
        ahead = self.fetches.ahead
        # An equal part for each version that is read ahead now.
        room = self.buffer.limit // 2 // len({*ahead, *self.buffer.versions, key.version})
        if key in self.buffer or self.fetches.has(key) or ahead.get(key.version, 0) + key.length > room:
            return
        block = int(version.manifest.block_ids[key.block])
        here = any(os.path.exists(f"{folder}{block}") for folder in version.folders)
        if here and version.has_own_blocks_here() and not version.is_refused(block):
            return
        self.fetches.want(version, key, waiter=None)

    def _journal(self, number: int, at_source: bool) -> str:
        """Ids of blocks are of the version's own journal; at the source a file is known by its path and its tag."""
        version = self._versions.get(number)
        if version is None:
            return ""
        return version.table.journal if at_source or not version.journal else version.journal

    def _path(self, version: OpenVersion, file: int) -> str:
        path = os.fsdecode(version.manifest.file_path(file))
        return f"file {path!r} of {version.registration.path} (version {version.name})"
