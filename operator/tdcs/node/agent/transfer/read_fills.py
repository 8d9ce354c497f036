"""Keeps what was read from a source for readers, where reads fill the cache: no Dataset preloads the mount.

A block that was read as a whole is kept at once. A larger one is put together from the parts that are asked for; of the
source each byte is read once. A block of which no part came for a while is given up, and so is what finds no room: it
was read, and is not kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import xxhash

from tdcs.model.block_identity import identity_of
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.partial_file import BusyError, DiskError, PartialFile
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_blocks import MountBlocks
from tdcs.node.file_facts import hash_of
from tdcs.node.wire.frames import PART_BYTES, SourceWanted

_log: Final = logging.getLogger(__name__)

MOST_OPEN: Final = 16
"""Blocks that are put together at the same time. Further ones are read without being kept."""
IDLE_SECONDS: Final = 30.0
"""A block of which no part came for so long is given up."""
FULL_SECONDS: Final = 30.0
"""After a block found no room, none of its mount that is as large is kept for so long."""


class _Place(NamedTuple):
    """A piece as the manifest knows it: of which block, from which of its bytes."""

    number: int
    offset: int
    block_length: int


@dataclass(eq=False, slots=True, kw_only=True)
class _Parts:
    mount: MountBlocks
    ledger: Ledger
    number: int
    length: int
    partial: PartialFile
    cleanup: ExitStack
    missing: set[int]
    touched: float
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Short(NamedTuple):
    """Until a time blocks of so many bytes find no room; `usual`: nor does one of the mount's mean length."""

    until: float
    length: int
    usual: bool


class ReadFills:
    """Fills one disk by what is read. Thread-safe."""

    def __init__(self, *, disk: Disk, room: Room, clock: Callable[[], float] = time.monotonic) -> None:
        self._disk: Final = disk
        self._room: Final = room
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._open: Final[dict[tuple[str, int], _Parts]] = {}
        self._claimed: Final[dict[str, int]] = {}
        """Bytes by mount that have room, and are not here by name yet; under the mount's lock."""
        self._short: Final[dict[str, _Short]] = {}

    def fills(self, mount: MountBlocks) -> bool:
        """Whether what is read of a mount for readers is kept now, as far as its blocks are of the usual size."""
        short = self._short_of(mount)
        return self._ledger(mount) is not None and not (short is not None and short.usual)

    def keep(self, mount: MountBlocks, piece: SourceWanted, content: memoryview) -> None:
        """Keep a piece that was read, where reads fill the cache and there is room.

        What the disk cannot take as fast as it is read is not kept: no reader waits for it.
        """
        if self._disk.names.crowded:
            return
        ledger = self._ledger(mount)
        place = _place(ledger, piece) if ledger is not None else None
        if ledger is None or place is None:
            return
        length, short = place.block_length, self._short_of(mount)
        if short is not None and length >= short.length:
            return
        whole_part = len(content) == min(PART_BYTES, length - place.offset)
        try:
            if len(content) == length:
                self._keep_whole(mount, ledger, place, content)
            elif whole_part and not place.offset % PART_BYTES:
                self._keep_part(mount, ledger, place, content)
        except BusyError:
            return  # its file is being changed; the next block may be kept
        except (DiskError, OSError) as error:
            self._note_short(mount, ledger, length=0, reason=str(error))

    def give_up_idle(self, *, mounts: Collection[str]) -> None:
        """Give up blocks of which no part came for long, and those of mounts that reads fill no more.

        Args:
            mounts: that there are; what is known of others is forgotten.
        """
        for path in list(self._short):
            if path not in mounts:
                self._short.pop(path, None)
        if not self._open:
            return
        now = self._clock()
        with self._lock:
            unfinished = list(self._open.values())
        for parts in unfinished:
            if now - parts.touched <= IDLE_SECONDS and self._ledger(parts.mount) is parts.ledger:
                continue
            with parts.lock:
                ended, parts.ended = parts.ended, True
            if not ended:
                self._give_up(parts)

    # Inside.

    @staticmethod
    def _ledger(mount: MountBlocks) -> Ledger | None:
        """The ledger of a mount that reads fill; None of others."""
        assignment, ledger = mount.assignment, mount.ledger
        if assignment is None or ledger is None or not assignment.fill_bytes or mount.forgotten:
            return None
        return ledger if ledger.looked_at and ledger.manifest.digest == assignment.manifest else None

    def _short_of(self, mount: MountBlocks) -> _Short | None:
        short = self._short.get(mount.path)
        return short if short is not None and self._clock() < short.until else None

    def _note_short(self, mount: MountBlocks, ledger: Ledger, *, length: int, reason: str) -> None:
        """A block of this length was not kept: what is smaller may find room still."""
        short = self._short_of(mount)
        usual = length <= ledger.manifest.block_lengths.mean()
        self._short[mount.path] = _Short(self._clock() + FULL_SECONDS, length, usual)
        if short is None:
            kind = "what is read" if usual else f"blocks of {length} bytes and more"
            _log.warning("%s of %s is not kept for %g s: %s", kind, mount.path, FULL_SECONDS, reason)

    def _keep_whole(self, mount: MountBlocks, ledger: Ledger, place: _Place, content: memoryview) -> None:
        if not self._claim(mount, ledger, place):
            return
        block = int(ledger.manifest.block_ids[place.number])
        try:
            with self._disk.create(block, place=ledger.place(place.number)) as partial:
                partial.write(content, offset=0)
                content_hash = xxhash.xxh3_64_intdigest(content)
                self._disk.keep_later(
                    partial,
                    block=block,
                    identity=identity_of(ledger.manifest, place.number),
                    length=len(content),
                    content_hash=content_hash,
                    done=lambda error: self._named(mount, ledger, place.number, error),
                )
        except BaseException:
            self._release(mount, ledger, place.number, length=place.block_length)
            raise

    def _named(self, mount: MountBlocks, ledger: Ledger, number: int, error: DiskError | None) -> None:
        """A block is readable, or was not taken by the disk after all."""
        length = int(ledger.manifest.block_lengths[number])
        if error is None:
            mount.brought(ledger, number)
            self._settle(mount, length)
            return
        self._release(mount, ledger, number, length=length)
        self._note_short(mount, ledger, length=0, reason=str(error))

    def _keep_part(self, mount: MountBlocks, ledger: Ledger, place: _Place, content: memoryview) -> None:
        key = (mount.path, int(ledger.manifest.block_ids[place.number]))
        with self._lock:
            parts = self._open.get(key)
            if parts is None:
                if len(self._open) >= MOST_OPEN or not self._claim(mount, ledger, place):
                    return
                parts = self._open[key] = self._begin(mount, ledger, place)
        if parts.ledger is not ledger:
            return
        with parts.lock:
            if parts.ended or place.offset // PART_BYTES not in parts.missing:
                return
            try:
                parts.partial.write(content, offset=place.offset)
            except DiskError:
                parts.ended = True
                self._give_up(parts)
                raise
            parts.missing.discard(place.offset // PART_BYTES)
            parts.touched = self._clock()
            # What another thread sets after the lock is its own to end.
            ended = parts.ended = not parts.missing
        if ended:
            self._finish(parts, block=key[1])

    def _begin(self, mount: MountBlocks, ledger: Ledger, place: _Place) -> _Parts:
        cleanup = ExitStack()
        try:
            block = int(ledger.manifest.block_ids[place.number])
            partial = cleanup.enter_context(self._disk.create(block, place=ledger.place(place.number)))
        except DiskError:
            self._release(mount, ledger, place.number, length=place.block_length)
            raise
        return _Parts(
            mount=mount,
            ledger=ledger,
            number=place.number,
            length=place.block_length,
            partial=partial,
            cleanup=cleanup,
            missing=set(range(-(-place.block_length // PART_BYTES))),
            touched=self._clock(),
        )

    def _finish(self, parts: _Parts, *, block: int) -> None:
        try:
            with parts.cleanup:
                content_hash = hash_of(parts.partial.fd, offset=parts.partial.base, length=parts.length)
                self._disk.keep_later(
                    parts.partial,
                    block=block,
                    identity=identity_of(parts.ledger.manifest, parts.number),
                    length=parts.length,
                    content_hash=content_hash,
                    done=lambda error: self._named(parts.mount, parts.ledger, parts.number, error),
                )
        except BaseException:
            self._give_up(parts)
            raise
        self._close_fill(parts)

    def _give_up(self, parts: _Parts) -> None:
        """Remove what has come; `ended` is set, so that nothing more is written."""
        self._close_fill(parts)
        try:
            parts.cleanup.close()
        except OSError as error:
            _log.warning("an unfinished block cannot be removed: %s", error)
        self._release(parts.mount, parts.ledger, parts.number, length=parts.length)

    def _close_fill(self, parts: _Parts) -> None:
        with self._lock:
            self._open.pop((parts.mount.path, int(parts.ledger.manifest.block_ids[parts.number])), None)

    def _claim(self, mount: MountBlocks, ledger: Ledger, place: _Place) -> bool:
        """Claim a block that is not here, with room for it; False when that is not to be had."""
        length = place.block_length
        with mount.lock:
            if mount.ledger is not ledger or not ledger.absent(place.number):
                return False
            most = mount.assignment.fill_bytes if mount.assignment is not None else 0
            claimed = self._claimed.get(mount.path, 0)
            reason = ""
            if ledger.held_bytes() + claimed + length > most:
                reason = f"reads may fill {most} bytes of this cache"
            reason = reason or self._room.reserve(length)
            if reason:
                self._note_short(mount, ledger, length=length, reason=reason)
                return False
            self._claimed[mount.path] = claimed + length
            ledger.claim([place.number])
        return True

    def _settle(self, mount: MountBlocks, length: int) -> None:
        """What was claimed is here, or will not come."""
        with mount.lock:
            claimed = self._claimed.get(mount.path, 0) - length
            if claimed > 0:
                self._claimed[mount.path] = claimed
            else:
                self._claimed.pop(mount.path, None)

    def _release(self, mount: MountBlocks, ledger: Ledger, number: int, *, length: int) -> None:
        self._room.cancel(length)
        self._settle(mount, length)
        with mount.lock:
            ledger.release([number])


def _place(ledger: Ledger, piece: SourceWanted) -> _Place | None:
    """Where a piece belongs; None when it is not of the ledger's version."""
    manifest = ledger.manifest
    number = manifest.block_at(piece.block)
    if number is None:
        return None
    file = manifest.file_of(number)
    length = int(manifest.block_lengths[number])
    offset = piece.offset - manifest.offset(number)
    same_file = (
        manifest.file_path(file) == piece.path
        and manifest.tag(file) == piece.tag
        and int(manifest.lengths[file]) == piece.size
    )
    inside = offset >= 0 and piece.length > 0 and offset + piece.length <= length
    return _Place(number, offset, length) if same_file and inside else None
