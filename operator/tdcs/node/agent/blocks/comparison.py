"""Compares single blocks with the source, and brings those that differ again. In threads."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import xxhash

from tdcs.model.block_identity import identity_of
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.partial_file import DiskError
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_blocks import MountBlocks
from tdcs.node.agent.mount.source_pieces import SourceFailureError
from tdcs.node.agent.mount.source_state import SourceState
from tdcs.node.agent.transfer.source_puller import PIECE_BYTES, extent_of
from tdcs.node.file_facts import hash_of

_log: Final = logging.getLogger(__name__)

LANES: Final = 4

_NOT_OF_THE_COPY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

Sink = Callable[[memoryview], None]


class Comparison:
    """Reads blocks from the disk and from the source."""

    def __init__(self, *, disk: Disk, room: Room, stopped: threading.Event) -> None:
        self._disk: Final = disk
        self._room: Final = room
        self._stopped: Final = stopped
        self._threads: ThreadPoolExecutor | None = None

    async def same(self, source: SourceState, ledger: Ledger, block: int) -> bool | None:
        """Whether a block can be read and equals the source; None when it is not here any more.

        Raises:
            SourceFailureError: The source does not give it.
        """
        return await self._thread(self._same, source, ledger, block)

    async def bring(self, mount: MountBlocks, source: SourceState, ledger: Ledger, block: int) -> bool:
        """Bring a refused block, and make it readable if it equals what the source gives a second time.

        Raises:
            SourceFailureError: The source does not give it.
            DiskError: The disk does not take it.
        """
        return bool(await self._thread(self._bring, mount, source, ledger, block))

    async def _thread(self, work: Callable[..., bool | None], *arguments: Any) -> bool | None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="check")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _same(self, source: SourceState, ledger: Ledger, block: int) -> bool | None:
        try:
            file = self._disk.open(int(ledger.manifest.block_ids[block]))
        except OSError as error:
            if error.errno in _NOT_OF_THE_COPY:
                raise
            return False
        if file is None:
            return None
        try:
            if file.length != int(ledger.manifest.block_lengths[block]):
                return False
            equal = self._equals(source, ledger, block, file.fd, base=file.base)
            return equal if file.is_here() else None
        finally:
            os.close(file.fd)

    def _equals(self, source: SourceState, ledger: Ledger, block: int, file: int, *, base: int) -> bool:
        length = int(ledger.manifest.block_lengths[block])
        state = xxhash.xxh3_64()
        self._read(source, ledger, block, state.update)
        try:
            return state.intdigest() == hash_of(file, offset=base, length=length)
        except OSError as error:  # a copy that cannot be read is of no use, as one that differs
            _log.warning("the copy of %s cannot be read: %s", ledger.path(block), error.strerror)
            return False

    def _bring(self, mount: MountBlocks, source: SourceState, ledger: Ledger, block: int) -> bool:
        identity = int(ledger.manifest.block_ids[block])
        length = int(ledger.manifest.block_lengths[block])
        if reason := self._room.reserve(length):
            raise DiskError(reason)
        is_kept = False
        try:
            with self._disk.create(identity, place=ledger.place(block)) as partial:
                state, done = xxhash.xxh3_64(), 0

                def write(data: memoryview) -> None:
                    nonlocal done
                    state.update(data)
                    partial.write(data, offset=done)
                    done += len(data)

                self._read(source, ledger, block, write)
                os.fdatasync(partial.fd)
                # The disk is asked, not the memory.
                os.posix_fadvise(partial.fd, 0, 0, os.POSIX_FADV_DONTNEED)
                if not self._equals(source, ledger, block, partial.fd, base=partial.base):
                    return False
                with mount.lock:
                    if not ledger.claim([block]):
                        return False
                try:
                    self._disk.keep(
                        partial,
                        block=identity,
                        identity=identity_of(ledger.manifest, block),
                        length=length,
                        content_hash=state.intdigest(),
                    )
                except DiskError:
                    with mount.lock:
                        ledger.release([block])
                    raise
            mount.admit(self._disk.refused.discard(mount.path, (identity,)))
            mount.brought(ledger, block)
            is_kept = True
            return True
        finally:
            if not is_kept:
                self._room.cancel(length)

    def _read(self, source: SourceState, ledger: Ledger, block: int, sink: Sink) -> None:
        reader = source.reader
        if reader is None:
            raise SourceFailureError("SourceAway", "the source's credentials are not to be had", common=True)
        length = int(ledger.manifest.block_lengths[block])
        for offset in range(0, length, PIECE_BYTES):
            piece = min(PIECE_BYTES, length - offset)
            source.limit.wait(piece, stopped=self._stopped)
            reader.read(extent_of(ledger, block, offset=offset, length=piece), sink)
            source.answered(piece)
