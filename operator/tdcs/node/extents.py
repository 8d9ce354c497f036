"""Which extents of a large file are on a node's disk: a table next to the file, for the agent that writes it and the
processes that read it.

A file of more than one block has one sparse file on the disk, named by the id of its first block, in the folder of
files that are here in parts (`names.AGENT_PARTS`) or whole (`names.AGENT_WHOLE`). Holes read as zeros, so nothing but
the table says which bytes are there: a header, which says what the file is, and a row for each extent, with its hash.
A row is written after its bytes are on the disk. A file that has once been here whole never changes any more: pods
read it through links, without the table, and may have it open after the links are gone.

Whoever reads a part takes its row before and after: what went meanwhile is not believed.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.api import names
from tdcs.model.block_identity import identity_of
from tdcs.model.manifest import Manifest

_FORMAT: Final = 1
_HEADER: Final = struct.Struct("<IIQ16s16sQQ")
ROW: Final = np.dtype([("hash", "<u8"), ("era", "<u4"), ("turns", "<u4")])
"""Of one extent: xxh3_64 of its bytes, the era in which it came (`tdcs.node.agent.disk.shutdown_mark`), and how often
it has come and gone: it is here when that is odd. Sixteen bytes: none spans two sectors of a disk."""
Rows = npt.NDArray[np.void]


class LargeFile(NamedTuple):
    """What a file in extents is.

    Attributes:
        mount: `mount_key` of the mount that it is of.
        file: id of the source file.
        length: bytes of all of it.
        extent: bytes of each extent but the last.
    """

    mount: bytes
    file: bytes
    length: int
    extent: int

    @property
    def extents(self) -> int:
        return -(-self.length // self.extent)

    def length_of(self, number: int) -> int:
        """Bytes of an extent."""
        return min(self.extent, self.length - number * self.extent)


class ExtentPlace(NamedTuple):
    """Where a block of a file of several blocks belongs.

    Attributes:
        name: id of the file's first block.
        number: of the block in its file.
    """

    name: int
    number: int
    file: LargeFile


def extent_place(manifest: Manifest, block: int) -> ExtentPlace | None:
    """The place of a block in its file; None for the only block of one."""
    blocks = manifest.blocks_of(manifest.file_of(block))
    if len(blocks) < 2:
        return None
    file, identity = manifest.file_of(block), identity_of(manifest, block)
    extent = int(manifest.block_lengths[blocks.start])
    return ExtentPlace(
        int(manifest.block_ids[blocks.start]),
        block - blocks.start,
        LargeFile(identity.mount, identity.file, int(manifest.lengths[file]), extent),
    )


class Header(NamedTuple):
    """The beginning of a table.

    Attributes:
        inode: of the file that it is about: another one that had the name before or gets it later has other holes.
        frozen: whether the file has once been here whole.
    """

    file: LargeFile
    inode: int
    frozen: bool = False


def table_path(tier: str, name: int) -> str:
    return f"{tier}/{names.AGENT_EXTENTS}/{name}"


def header_bytes(header: Header) -> bytes:
    file = header.file
    return _HEADER.pack(_FORMAT, header.frozen, header.inode, file.mount, file.file, file.length, file.extent)


def row_place(number: int) -> int:
    """Where the row of an extent begins in its table."""
    return _HEADER.size + number * ROW.itemsize


def read_header(table: int) -> Header | None:
    """None of a table that is none, or of another format. Raises OSError."""
    raw = os.pread(table, _HEADER.size, 0)
    if len(raw) != _HEADER.size:
        return None
    form, frozen, inode, mount, file, length, extent = _HEADER.unpack(raw)
    if form != _FORMAT or not extent or not length:
        return None
    return Header(LargeFile(mount, file, length, extent), inode, bool(frozen))


def read_rows(table: int, file: LargeFile) -> Rows:
    """A row for each extent; what the table has not is not here. Raises OSError."""
    rows = np.zeros(file.extents, dtype=ROW)
    raw = os.pread(table, rows.nbytes, row_place(0))
    whole = len(raw) // ROW.itemsize
    rows[:whole] = np.frombuffer(raw[: whole * ROW.itemsize], dtype=ROW)
    return rows


def read_part(tier: str, place: ExtentPlace, *, offset: int, length: int) -> bytes | None:
    """Bytes of an extent that is on this disk, from one of its bytes on; None when it does not, or goes meanwhile."""
    name, number, file = place
    with suppress(OSError):
        data = _opened(tier, name)
        if data is None:
            return None
        try:
            table = os.open(table_path(tier, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                header, row = read_header(table), _row(table, number)
                about = header is not None and (header.file, header.inode) == (file, os.fstat(data).st_ino)
                if not about or not row["turns"] & 1:
                    return None
                content = os.pread(data, length, number * file.extent + offset)
                if _row(table, number) == row and len(content) == length:
                    return content
            finally:
                os.close(table)
        finally:
            os.close(data)
    return None


def _opened(tier: str, name: int) -> int | None:
    for folder in (names.AGENT_PARTS, names.AGENT_WHOLE):
        with suppress(FileNotFoundError):
            return os.open(f"{tier}/{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    return None


def _row(table: int, number: int) -> np.void:
    raw = os.pread(table, ROW.itemsize, row_place(number)).ljust(ROW.itemsize, b"\0")
    row: np.void = np.frombuffer(raw, dtype=ROW)[0]
    return row
