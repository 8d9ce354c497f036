"""What has come of a bucket's listing, on the disk: one whose process is killed, or whose store goes away, goes on
behind the last page that came whole.

It is a journal next to the manifests: a head that says what is listed, the ranges of keys that the listing was split
into with the page before them, and a record of each further page. A record that was cut off, or is damaged, ends it:
what follows is listed again. A listing names what a store had at some time while it went on, so one that is older than
`RESUMED_SECONDS` begins again.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import logging
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Final

import msgspec

from tdcs.listing.folder import ManifestFolder
from tdcs.model.cache_engine import Source

_log: Final = logging.getLogger(__name__)

RESUMED_SECONDS: Final = 1800.0
"""A listing of a million names takes some ten minutes from a slow store."""
_FRAME: Final = struct.Struct("<II")
_LARGEST: Final = 64 << 20


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What is listed (`identity`), and since when, as seconds of the time of day."""

    identity: str
    began: float


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A page: of which range, its files as path, length and tag, paths that stand for others, its last key, and whether
    the range has ended with it, at its border (`whole`) or with the store's names."""

    range: int
    files: list[tuple[bytes, int, bytes]]
    unspelled: list[bytes]
    last: bytes
    ended: bool
    whole: bool


class Ranges(msgspec.Struct, frozen=True, array_like=True):
    """The borders of all ranges of keys but the ends, and the first page, behind which the first range begins: one
    without the other would lose its names."""

    borders: list[bytes]
    first: Page


class ListingProgress:
    """The journal of one listing. One that cannot be written costs nothing but the way back.

    Args:
        file: gives the journal, opened for reading and writing at its beginning; raises OSError.
        identity: of the source, its options and its selection: what another one left is no part of it.
        forget: removes the journal.
    """

    def __init__(
        self,
        *,
        file: Callable[[], IO[bytes]],
        identity: str,
        forget: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._identity: Final = identity
        self._forget: Final = forget
        self._now: Final = now
        self._file: IO[bytes] | None = None
        with suppress(OSError):
            opened = file()
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another process lists it
                opened.close()
                return
            self._file = opened

    def resume(self) -> tuple[list[bytes], Iterator[Page]] | None:
        """The ranges and the pages that came before, which are read as they are taken, all of them before anything is
        added; None when nothing is to be gone on with."""
        if self._file is None:
            return None
        with suppress(OSError, msgspec.MsgspecError, zlib.error):
            records = self._records(self._file)
            head = msgspec.msgpack.decode(next(records, b"\xc0"), type=Head | None)
            if head is None or head.identity != self._identity:
                return None
            if not 0 <= self._now() - head.began < RESUMED_SECONDS:
                return None
            ranges = msgspec.msgpack.decode(next(records, b"\xc0"), type=Ranges | None)
            if ranges is not None:
                pages = (msgspec.msgpack.decode(record, type=Page) for record in records)
                return ranges.borders, itertools.chain((ranges.first,), pages)
        return None

    def begin(self, borders: list[bytes], first: Page) -> None:
        """Begin again with these ranges, and the page before them."""
        if self._file is None:
            return
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            self._give_up(error)
            return
        self._write(Head(self._identity, self._now()))
        self._write(Ranges(borders, first))

    def add(self, page: Page) -> None:
        self._write(page)

    def end(self) -> None:
        """The listing has ended: nobody goes on with it."""
        if self._file is not None:
            self.close()
            with suppress(OSError):
                self._forget()

    def close(self) -> None:
        """This process does not go on with it; another one may."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _write(self, record: Head | Ranges | Page) -> None:
        if self._file is None:
            return
        packed = zlib.compress(msgspec.msgpack.encode(record), 1)
        try:
            self._file.write(_FRAME.pack(len(packed), zlib.crc32(packed)) + packed)
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _log.warning("a listing cannot be gone on with if it ends early: %s", error)
        self.end()

    @staticmethod
    def _records(file: IO[bytes]) -> Iterator[bytes]:
        """The records that are whole; what follows is written over."""
        file.seek(0)
        while True:
            begin = file.tell()
            raw = file.read(_FRAME.size)
            length, checksum = _FRAME.unpack(raw) if len(raw) == _FRAME.size else (0, 0)
            packed = file.read(length) if 0 < length <= _LARGEST else b""
            if len(packed) != length or not packed or zlib.crc32(packed) != checksum:
                file.seek(begin)
                file.truncate()
                return
            yield zlib.decompress(packed)


def progress_of(folder: ManifestFolder, source: Source, *, path: str) -> ListingProgress:
    """The journal of the listing of a mount."""
    account = source.credentials.access_key_id if source.credentials is not None else ""
    listed = repr((path, source.uri, sorted(source.options.items()), account))  # others may see other names
    identity = hashlib.blake2b(listed.encode("utf-8", "replace"), digest_size=16).hexdigest()
    return ListingProgress(
        file=lambda: os.fdopen(folder.open_progress(path), "r+b"),
        identity=identity,
        forget=lambda: folder.remove_progress(path),
    )
