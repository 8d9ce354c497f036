"""Answers READ: from this node's disk, from the buffer, or with what `fetches` brings from other nodes."""

import errno
import functools
import logging
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from tdcs.engine.pod_wait_table import WaitOrigin
from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.counters import Count, Counters
from tdcs.node.reader.serving.content_buffer import ContentBuffer
from tdcs.node.reader.serving.fetch import PART_BYTES, part_of
from tdcs.node.reader.serving.fetches import Fetches
from tdcs.node.reader.serving.local_blocks import LocalBlocks
from tdcs.node.reader.serving.open_versions import OpenVersion, OpenVersions
from tdcs.node.reader.serving.place_shares import Asker, PlaceShares, Share
from tdcs.node.reader.serving.pod_clock import PodClock
from tdcs.node.reader.serving.poller import Poller
from tdcs.node.reader.serving.read import Key, Read
from tdcs.node.reader.serving.read_ahead import EpochOrder, FileOrder, OffsetOrder
from tdcs.node.reader.serving.signals import is_being_killed
from tdcs.node.wire.connection import kept

_log: Final = logging.getLogger(__name__)

STALL_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 5.0
"""A version's failures of one kind are logged and reported once in so many seconds."""

Reply = Callable[[int, Sequence[bytes | memoryview]], None]
"""Answers the request in a place, and gives the place back."""


class Reads:
    """The reads of a process.

    Args:
        shares: says which reads begin, and which wait their turn.
        local: the blocks on this node's disks.
        patience_seconds: a read that no agent and no source can answer for so long fails.
        tls: gives the context of the time, with which agents are asked; None: plain TCP.
        pods: counts how long pods wait; None: nothing does.
    """

    def __init__(
        self,
        *,
        versions: OpenVersions,
        counters: Counters,
        poller: Poller,
        reply: Reply,
        shares: PlaceShares,
        local: LocalBlocks,
        buffer_bytes: int,
        patience_seconds: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
        pods: PodClock | None = None,
    ) -> None:
        self._pods: Final = pods
        self._versions: Final = versions
        self._counters: Final = counters
        self._reply: Final = reply
        self._shares: Final = shares
        self._local: Final = local
        self.buffer: Final = ContentBuffer(buffer_bytes)
        self.fetches: Final = Fetches(
            poller=poller,
            answers=self,
            buffer=self.buffer,
            counters=counters,
            patience_seconds=patience_seconds,
            tls=tls,
        )
        self._orders: Final[dict[int, tuple[FileOrder, EpochOrder]]] = {}
        self._offsets: Final = OffsetOrder()
        self._logged_at: Final[dict[tuple[int, bool], float]] = {}
        self._in_turn: Final[dict[Asker, deque[Read]]] = {}
        self._turns: Final = deque[Asker]()
        self._begins = False
        self._pending: Final[dict[int, Read]] = {}
        self._signalled: Final[dict[int, Read]] = {}

    def start(
        self,
        version: OpenVersion,
        *,
        file: int,
        offset: int,
        size: int,
        place: int,
        unique: int,
        thread: int = 0,
    ) -> None:
        """Answer a read of a thread now, or when its bytes are there."""
        length = version.file_lengths[file]
        size = min(size, length - offset)
        if size <= 0:
            self._reply(place, (fuse_protocol.failure(unique, number=0),))
            return
        blocks = version.blocks_of(file)
        if not blocks:
            _log.warning("%s is not read: the cache does not know its blocks", self._path(version, file))
            self._reply(place, (fuse_protocol.failure(unique, number=errno.EIO),))
            return
        if len(blocks) == 1 and length <= PART_BYTES and version.block_lengths[blocks.start] == length:
            key = Key(version.number, blocks.start, 0, length)
            read = Read(
                place=place,
                unique=unique,
                thread=thread,
                version=version,
                file=file,
                ranges=[(key, offset, offset + size)],
            )
            self._piece_of(read, 0, key, offset, offset + size)
            if read.missing > 0:
                self._pending[unique] = read
            if not offset and size == length:
                self._files_ahead(version, file)
            return
        in_order = length <= PART_BYTES or self._offsets.in_order(
            version.number, file, offset=offset, size=size, slack=PART_BYTES
        )
        ranges = self._pieces(version, blocks, offset=offset, size=size, parts=in_order)
        read = Read(place=place, unique=unique, thread=thread, version=version, file=file, ranges=ranges)
        for index, (key, begin, end) in enumerate(ranges):
            self._piece_of(read, index, key, begin, end)
        if read.missing > 0:
            self._pending[unique] = read
        if in_order and len(ranges):
            self._look_ahead(read, blocks, first=offset == 0)

    def tick(self) -> None:
        """See `Fetches.tick`; drops what was known of versions that are closed."""
        self.fetches.tick(self._opened)
        self._local.tick()
        for unique, read in list(self._signalled.items()):
            if read.missing <= 0:
                del self._signalled[unique]
            elif is_being_killed(read.thread):
                del self._signalled[unique]
                self._end(read)
        for number in [number for number in self._orders if not self._versions.is_open(number)]:
            del self._orders[number]
        for kind in [kind for kind in self._logged_at if not self._versions.is_open(kind[0])]:
            del self._logged_at[kind]

    def signal(self, unique: int) -> int | None:
        """A signal has reached the thread of a read. A thread that is being killed stands still for nothing more: its
        read is answered, and its place is free. Any other one waits on: no signal makes a read of a file fail.

        Returns:
            the place of a read that waits on.
        """
        read = self._pending.get(unique)
        if read is None:
            return None
        if is_being_killed(read.thread):
            self._end(read)
            return None
        self._signalled[unique] = read  # the kernel says it once, whatever signal comes later
        return read.place

    def drop_block(self, version: OpenVersion, block: int) -> None:
        """Keep nothing of a block (its number in the manifest) that was found wrong."""
        self.buffer.drop_block(version.number, block)
        self._local.close_block(version, block)

    # What `fetches` says.

    def piece(self, waiter: Read, index: int, content: memoryview, *, key: Key, origin: Count) -> None:
        _, begin, end = waiter.ranges[index]
        if end < key.length and key not in self.buffer:
            self.buffer.put(key, kept(content))  # its next bytes are asked for in a moment
        part = content[begin:end]
        whole = len(waiter.ranges) == 1
        self._have(waiter, index, part if whole else kept(content, part=part), origin=origin)

    def failed(self, waiter: Read, *, stale: bool, reason: str) -> None:
        """A piece of a read cannot be had: the read fails as a whole, once."""
        if waiter.missing <= 0:
            return
        waiter.missing = -1
        version = waiter.version
        self._waited(waiter, WaitOrigin.SOURCE)  # the last one that was to give it
        self._counters.add(version.number, Count.STALE if stale else Count.ERRORS)
        now, kind = time.monotonic(), (version.number, stale)
        if now - self._logged_at.get(kind, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._logged_at[kind] = now
            problem = "has another version at its source by now" if stale else "cannot be read from anywhere"
            if stale and not self._versions.is_open(version.number):
                problem = "is of a version that is registered no more"
            _log.error("%s %s: %s", self._path(version, waiter.file), problem, reason)
            path = version.manifest.file_path(waiter.file).decode("utf-8", "replace")
            self._versions.note_failure(version, path=path, reason=reason, stale=stale)
        number = errno.ESTALE if stale else errno.EIO
        self._reply(waiter.place, (fuse_protocol.failure(waiter.unique, number=number),))
        self._ended(waiter)

    # Inside.

    def _end(self, read: Read) -> None:
        """Answer a read of a thread that is being killed."""
        read.missing = -1
        self.fetches.leave(read)
        self._waited(read, WaitOrigin.SOURCE)
        self._reply(read.place, (fuse_protocol.failure(read.unique, number=errno.EINTR),))
        waiting = self._in_turn.get(read.asker) if read.asker is not None and read.in_turn else None
        if read.asker is not None and waiting is not None:
            waiting.remove(read)
            if not waiting:
                del self._in_turn[read.asker]
            self._shares.give_back(read.asker, begun=False)
            self._pending.pop(read.unique, None)
        else:
            self._ended(read)

    def _pieces(
        self, version: OpenVersion, blocks: range, *, offset: int, size: int, parts: bool
    ) -> list[tuple[Key, int, int]]:
        """The pieces that a read consists of: whole parts of blocks, or no more than what is asked for."""
        ranges, begin = [], 0
        for block in blocks:
            length = version.block_lengths[block]
            low, high = max(offset - begin, 0), min(offset + size - begin, length)
            while low < high:
                at, span = part_of(offset=low, block_length=length) if parts else (low, high - low)
                end = min(high, at + span)
                ranges.append((Key(version.number, block, at, span), low - at, end - at))
                low = end
            begin += length
            if begin >= offset + size:
                break
        return ranges

    def _piece_of(self, read: Read, index: int, key: Key, begin: int, end: int) -> None:
        if read.missing < 0 or read.in_turn:
            return
        buffered = self.buffer.get(key)
        if buffered is not None:
            if end == key.length:
                self.buffer.drop(key)
            self._have(read, index, memoryview(buffered)[begin:end], origin=Count.BUFFER_READS)
            return
        version = read.version
        if self._local.may_have(version, key.block):
            content = self._local.cached(version, key, begin, end)
            if content is not None:
                self._have(read, index, content, origin=Count.DISK_READS)
            else:
                self._local.read(version, key, begin, end, functools.partial(self._looked, read, index))
            return
        self._fetch(read, index)

    def _looked(self, read: Read, index: int, content: bytes | None) -> None:
        """This node's disks have a piece of a read, or not."""
        if read.in_turn:
            return  # they are asked again when its turn has come
        if content is not None:
            self._have(read, index, content, origin=Count.DISK_READS)
        elif read.missing > 0:
            self._fetch(read, index)

    def _fetch(self, read: Read, index: int) -> None:
        if read.wait is None and self._pods is not None:
            read.wait = self._pods.begin(read.thread)
        if read.asker is not None or self._may_begin(read):
            self.fetches.want(read.version, read.ranges[index][0], waiter=(read, index))

    def _may_begin(self, read: Read) -> bool:
        """Whether it may be fetched; else it waits its turn."""
        thread = read.thread
        asker = Asker(read.version.number, self._pods.uid(thread) if self._pods is not None else "", thread)
        waiting = self._in_turn.get(asker)
        if waiting and self._shares.is_crowded(asker):
            # Its thread has gone on, so it does not stand still for it, and sees no error: the kernel asks again for
            # what is read after all. This one may be what it stands still for.
            self._give_up(waiting.pop())
            share = Share.WAITS_ITS_TURN
        else:
            share = self._shares.take(asker)
        read.asker = asker
        if share is Share.WAITS_ITS_TURN:
            read.in_turn = True
            self._in_turn.setdefault(asker, deque()).append(read)
        return not read.in_turn

    def _give_up(self, read: Read) -> None:
        read.missing = -1
        self._pending.pop(read.unique, None)
        self._waited(read, WaitOrigin.SOURCE)
        self._reply(read.place, (fuse_protocol.failure(read.unique, number=errno.EIO),))

    def _have(self, read: Read, index: int, content: bytes | memoryview, *, origin: Count) -> None:
        if read.missing < 0 or read.pieces[index] is not None:
            return
        read.pieces[index] = content
        read.missing -= 1
        if read.missing:
            return
        pieces: Sequence[bytes | memoryview] = (content,)
        size = len(content)
        if len(read.pieces) > 1:
            pieces = [piece for piece in read.pieces if piece is not None]
            size = sum(map(len, pieces))
        head = fuse_protocol.ANSWER.pack(fuse_protocol.ANSWER.size + size, 0, read.unique)
        self._reply(read.place, (head, *pieces))
        seconds = time.monotonic() - read.began
        number = read.version.number
        self._counters.answered(number, origin, size=size, nanoseconds=int(seconds * 1e9))
        if seconds > STALL_SECONDS:
            self._counters.add(number, Count.STALLS)
        self._waited(read, WaitOrigin.SOURCE if origin is Count.SOURCE_READS else WaitOrigin.PEER)
        self._ended(read)

    def _ended(self, read: Read) -> None:
        """It has its answer: another read of its version may wait, and the next one of its thread begins."""
        self._pending.pop(read.unique, None)
        if read.asker is None:
            return
        self._shares.give_back(read.asker)
        if read.asker in self._in_turn:
            self._turns.append(read.asker)
            self._begin_next()

    def _begin_next(self) -> None:
        if self._begins:
            return  # one that has begun has ended at once: the loop below goes on with the next one
        self._begins = True
        try:
            while self._turns:
                asker = self._turns.popleft()
                waiting = self._in_turn.get(asker)
                if not waiting:
                    continue
                read = waiting.popleft()
                if not waiting:
                    del self._in_turn[asker]
                read.in_turn = False
                self._shares.begin(asker)
                for index, (key, begin, end) in enumerate(read.ranges):
                    if read.pieces[index] is None:
                        self._piece_of(read, index, key, begin, end)
        finally:
            self._begins = False

    def _waited(self, read: Read, origin: WaitOrigin) -> None:
        if read.wait is not None and self._pods is not None:
            self._pods.end(read.wait, origin)
            read.wait = None

    def _look_ahead(self, read: Read, blocks: range, *, first: bool) -> None:
        version, manifest = read.version, read.version.manifest
        last, _, end = read.ranges[-1]
        length = int(manifest.block_lengths[last.block])
        if last.offset + last.length < length or last.block + 1 < blocks.stop:
            self._parts_ahead(version, read.file, blocks, last)
        elif first and len(read.ranges) == 1 and end == last.length:
            self._files_ahead(version, read.file)

    def _files_ahead(self, version: OpenVersion, read: int) -> None:
        manifest = version.manifest
        orders = self._orders.get(version.number)
        if orders is None:
            orders = self._orders[version.number] = FileOrder(), EpochOrder(files=len(manifest))
        listing, epoch = orders
        for file in (*listing.next(read, files=len(manifest)), *epoch.next(read)):
            blocks = version.blocks_of(file)
            if len(blocks) == 1:
                whole = version.block_lengths[blocks.start]
                self._ahead(version, Key(version.number, blocks.start, 0, min(whole, PART_BYTES)))

    def _parts_ahead(self, version: OpenVersion, file: int, blocks: range, last: Key) -> None:
        block, at = last.block, last.offset + last.length
        for _ in range(self._offsets.parts_ahead(version.number, file)):
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
        if key in self.buffer or self.fetches.has(key):
            return
        ahead = self.fetches.ahead
        # An equal part for each version that is read ahead now.
        room = self.buffer.limit // 2 // len({*ahead, *self.buffer.versions, key.version})
        if ahead.get(key.version, 0) + key.length > room:
            return
        if not self._local.may_have(version, key.block):
            self.fetches.want(version, key, waiter=None)
            return

        def looked(is_here: bool) -> None:
            if not is_here and key not in self.buffer and not self.fetches.has(key):
                self.fetches.want(version, key, waiter=None)

        self._local.find(version, key.block, looked)

    def _opened(self, number: int) -> OpenVersion | None:
        return self._versions.get(number) if self._versions.is_open(number) else None

    def _path(self, version: OpenVersion, file: int) -> str:
        path = os.fsdecode(version.manifest.file_path(file))
        return f"file {path!r} of {version.registration.path} (version {version.name})"
