"""Brings blocks from the source of a mount: threads that end when there is nothing to take for now."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import xxhash

from tdcs.model.block_identity import identity_of
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.partial_file import BusyError, DiskError, PartialFile
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import ContentCheck, Extent, SourceFailureError, SourceReader
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.file_facts import hash_of

PIECE_BYTES: Final = 4 << 20
"""Larger blocks are read from the source in pieces of this size, several at a time."""

_SOURCE_BATCH: Final = 8
IN_FLIGHT_BYTES: Final = 64 << 20
"""Of all pieces that are read from sources at the same time."""


@dataclass
class LargeBlock:
    """A block that several threads read, each its pieces."""

    ledger: Ledger
    block: int
    partial: PartialFile
    cleanup: ExitStack
    ranges: deque[tuple[int, int]]
    running: int = 0
    error: Exception | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class SourcePuller:
    """Brings blocks from sources onto one disk.

    Args:
        disk, room: where they go, and what fits.
        in_flight: bounds the bytes in memory.
    """

    def __init__(self, *, disk: Disk, room: Room, stopped: threading.Event, in_flight: InFlight) -> None:
        self._disk: Final = disk
        self._room: Final = room
        self._stopped: Final = stopped
        self._in_flight: Final = in_flight
        self._large: dict[str, deque[LargeBlock]] = {}
        self._large_lock: Final = threading.Lock()

    def run(self, mount: MountWork, *, over: Callable[[], bool] = lambda: False) -> None:
        """Read blocks of a mount from its source until none can be taken. Runs in a thread of its own.

        Args:
            over: asked again and again whether to end now, for others.
        """
        while not self._stopped.is_set() and not over():
            ledger, source = mount.ledger, mount.source.reader
            if source is None or mount.forgotten:
                self.abandon(mount)
            if ledger is None or source is None or not ledger.looked_at:
                return
            if self._piece_of_large(mount, source):
                continue
            now = mount.clock()
            if mount.forgotten or now < max(mount.source.until, mount.room_until):
                return
            blocks = self._next(mount, ledger, now=now)
            if not blocks:
                self._disk.names.wait()  # what this thread has brought is not missing
                return
            while blocks:
                block = blocks.pop(0)
                try:
                    goes_on = self._bring(mount, ledger, source, block)
                except BaseException:
                    with mount.lock:
                        ledger.release([block, *blocks])
                    raise
                if not goes_on or self._stopped.is_set():
                    with mount.lock:
                        ledger.release(blocks)
                    break

    @staticmethod
    def _next(mount: MountWork, ledger: Ledger, *, now: float) -> list[int]:
        """Claim the next blocks; where the source refuses one after the other, any one: it may give others."""
        with mount.lock:
            if not mount.source.refuses_all:
                return ledger.take(now=now, most=_SOURCE_BATCH, most_bytes=PIECE_BYTES, cursor="source")
            ledger.begin_anywhere("probe")
            return ledger.take(now=now, most=1, most_bytes=PIECE_BYTES, cursor="probe")

    def _bring(self, mount: MountWork, ledger: Ledger, source: SourceReader, block: int) -> bool:
        """Bring one block; whether the next may follow at once."""
        length = int(ledger.manifest.block_lengths[block])
        if reason := self._room.reserve(length):
            mount.no_room(ledger, [block], reason)
            return False
        if length > PIECE_BYTES:
            return self._open_large(mount, ledger, block, length)
        try:
            self._bring_small(mount, ledger, source, block, length)
        except SourceFailureError as error:
            self._room.cancel(length)
            self._refused(mount, ledger, block, error)
            return mount.clock() >= mount.source.until
        except BusyError:
            self._room.cancel(length)
            mount.busy(ledger, block)
        except DiskError as error:
            self._room.cancel(length)
            mount.no_room(ledger, [block], str(error))
            return False
        except BaseException:
            self._room.cancel(length)
            raise
        return True

    def _bring_small(
        self, mount: MountWork, ledger: Ledger, source: SourceReader, block: int, length: int
    ) -> None:
        if mount.source.limit.wait(length, stopped=self._stopped):
            raise SourceFailureError("SourceAway", "the agent ends")
        identity, place = int(ledger.manifest.block_ids[block]), ledger.place(block)
        extent = extent_of(ledger, block)
        state, content, done = xxhash.xxh3_64(), ContentCheck(extent), 0
        with (
            self._in_flight.hold(length, owner=mount.path),
            self._disk.create(identity, place=place) as partial,
        ):

            def write(data: memoryview) -> None:
                nonlocal done
                state.update(data)
                content.add(data)
                partial.write(data, offset=done)
                done += len(data)

            source.read(extent, write)
            content.finish()
            mount.source.answered(length)
            self._keep(mount, ledger, block, partial, content_hash=state.intdigest())

    def _keep(
        self, mount: MountWork, ledger: Ledger, block: int, partial: PartialFile, *, content_hash: int
    ) -> None:
        """Have a block that came whole become readable once it is on the disk. Raises DiskError."""
        length = int(ledger.manifest.block_lengths[block])

        def named(error: DiskError | None) -> None:
            if error is None:
                mount.brought(ledger, block)
                return
            self._room.cancel(length)
            mount.no_room(ledger, [block], str(error))

        self._disk.keep_later(
            partial,
            block=int(ledger.manifest.block_ids[block]),
            identity=identity_of(ledger.manifest, block),
            length=length,
            content_hash=content_hash,
            done=named,
        )

    def _open_large(self, mount: MountWork, ledger: Ledger, block: int, length: int) -> bool:
        cleanup = ExitStack()
        try:
            partial = cleanup.enter_context(
                self._disk.create(int(ledger.manifest.block_ids[block]), place=ledger.place(block))
            )
        except BusyError:
            self._room.cancel(length)
            mount.busy(ledger, block)
            return True
        except DiskError as error:
            self._room.cancel(length)
            mount.no_room(ledger, [block], str(error))
            return False
        pieces = deque(
            (offset, min(PIECE_BYTES, length - offset)) for offset in range(0, length, PIECE_BYTES)
        )
        large = LargeBlock(ledger=ledger, block=block, partial=partial, cleanup=cleanup, ranges=pieces)
        with self._large_lock:
            self._large.setdefault(mount.path, deque()).append(large)
            mount.source.pieces_waiting += len(pieces)
        return True

    def _piece_of_large(self, mount: MountWork, source: SourceReader) -> bool:
        """Read one piece of a large block that is under way; False when there is none."""
        with self._large_lock:
            waiting = self._large.get(mount.path)
            if not waiting:
                return False
            large = waiting[0]
            offset, length = large.ranges.popleft()
            large.running += 1
            mount.source.pieces_waiting -= 1
            if not large.ranges:
                waiting.popleft()
        try:
            if mount.source.limit.wait(length, stopped=self._stopped):
                raise SourceFailureError("SourceAway", "the agent ends")
            at = offset

            def write(data: memoryview) -> None:
                nonlocal at
                large.partial.write(data, offset=at)
                at += len(data)

            with self._in_flight.hold(length, owner=mount.path):
                source.read(extent_of(large.ledger, large.block, offset=offset, length=length), write)
            mount.source.answered(length)
        except Exception as error:
            self._give_up(mount, large, error)
        with self._large_lock:
            large.running -= 1
            last = not large.running and not large.ranges
        if last:
            self._finish_large(mount, large)
        return True

    def abandon(self, mount: MountWork) -> None:
        """Give back the large blocks under way of a mount that is read no more. One of which pieces are being read is
        given back by the thread that ends last.
        """
        with self._large_lock:
            waiting = list(self._large.pop(mount.path, ()))
            for large in waiting:
                mount.source.pieces_waiting -= len(large.ranges)
                large.ranges.clear()
                large.error = large.error or _AbandonedError()
            idle = [large for large in waiting if not large.running]
        for large in idle:
            self._finish_large(mount, large)

    def _give_up(self, mount: MountWork, large: LargeBlock, error: Exception) -> None:
        with self._large_lock:
            large.error = large.error or error
            mount.source.pieces_waiting -= len(large.ranges)
            large.ranges.clear()
            waiting = self._large.get(mount.path)
            if waiting and large in waiting:
                waiting.remove(large)

    def _finish_large(self, mount: MountWork, large: LargeBlock) -> None:
        ledger, block = large.ledger, large.block
        length = int(ledger.manifest.block_lengths[block])
        error = large.error
        try:
            with large.cleanup:
                if error is None:
                    _require_content(extent_of(ledger, block), large.partial.fd)
                    content_hash = hash_of(large.partial.fd, offset=large.partial.base, length=length)
                    self._keep(mount, ledger, block, large.partial, content_hash=content_hash)
        except (DiskError, SourceFailureError) as failure:
            error = failure
        except OSError as failure:  # it is not read again, or its file cannot be closed or removed
            error = error or DiskError(f"the disk does not finish the block: {failure.strerror}")
        if error is None:
            return
        self._room.cancel(length)
        if isinstance(error, SourceFailureError):
            self._refused(mount, ledger, block, error)
        elif isinstance(error, DiskError):
            mount.no_room(ledger, [block], str(error))
        else:
            with mount.lock:
                ledger.release([block])
            if not isinstance(error, _AbandonedError):
                raise error

    def _refused(self, mount: MountWork, ledger: Ledger, block: int, error: SourceFailureError) -> None:
        """Note that the source did not give a block. When nothing else is to be read by which one could see whether it
        answers at all, or refuses other files, too, a byte of what is here is asked for."""
        mount.source_refused(ledger, block, error)
        source, healthy_block = mount.source.reader, mount.doubtful(ledger, block)
        if source is None or healthy_block is None or self._stopped.is_set():
            return
        try:
            source.read(extent_of(ledger, healthy_block, length=1), lambda _: None)
        except SourceFailureError as failure:
            if failure.code == "SourceAway":
                return
            if failure.common and error.common and error.code != "SourceAway":
                mount.refuses_all(ledger, block, failure)
                return
        mount.source.answered(0)


def _require_content(extent: Extent, file: int) -> None:
    """Compare a block of a file, as it is on the disk, with the hash of its tag; raises SourceFailureError."""
    content = ContentCheck(extent)
    for offset in range(0, extent.length if content.is_due else 0, PIECE_BYTES):
        content.add(os.pread(file, min(PIECE_BYTES, extent.length - offset), offset))
    content.finish()


class _AbandonedError(Exception):
    """The mount is not read from its source any more."""


def extent_of(ledger: Ledger, block: int, *, offset: int = 0, length: int | None = None) -> Extent:
    """Where a block, or a part of it, is at the source."""
    manifest = ledger.manifest
    file = manifest.file_of(block)
    whole = int(manifest.block_lengths[block])
    return Extent(
        path=manifest.file_path(file),
        offset=manifest.offset(block) + offset,
        length=whole if length is None else length,
        size=int(manifest.lengths[file]),
        tag=manifest.tag(file),
    )
