"""What a file of the store says of itself: which part of which source file it is, how long, the hash of its content.

It is kept in an extended attribute, and where the file system has none for users (tmpfs before Linux 6.6) in an index
next to the files, by the file's number (its inode, which all its links share). Nothing else says what a file is: not
its name, nor its length.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from tdcs.api import names
from tdcs.model.block_identity import BlockIdentity, Prints, first_blocks, identity_of, mount_key, prints
from tdcs.model.manifest import Manifest

_ATTRIBUTE: Final = b"user.tdcs"
"""A short name: with it an inode of 256 bytes holds all of it, and no block of the disk is taken."""
_LAYOUT: Final = struct.Struct("<BxxxI16s16sQQQ")
_FORMAT: Final = 3
_CHUNK: Final = 1 << 20
_NO_ATTRIBUTES: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENOSPC})
_INDEXED: Final = struct.Struct("<Q64s")

FACTS: Final = np.dtype(
    [
        ("form", "<u4"),
        ("era", "<u4"),
        ("mount", "<u8", (2,)),
        ("file", "<u8", (2,)),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("hash", "<u8"),
    ]
)
"""A row of `FactsStore.read_many`; `form` is 0 for a file that says nothing."""
Facts = npt.NDArray[np.void]


class FileFacts(NamedTuple):
    """What was written to a file.

    Attributes:
        length: bytes.
        content_hash: xxh3_64 of all of them.
        era: in which the file got its name (`tdcs.node.agent.disk.shutdown_mark`).
    """

    identity: BlockIdentity
    length: int
    content_hash: int
    era: int = 0


class FactsStore:
    """The facts of the files of one tier. Thread-safe.

    Args:
        tier: the tier's folder.
    """

    def __init__(self, tier: str) -> None:
        self._index: Final = os.path.join(tier, names.AGENT_FACTS)
        self._lock: Final = threading.Lock()
        self._indexed: dict[int, bytes] = {}
        self._read_to = 0
        self._inode = 0

    def write(self, path: str, facts: FileFacts) -> None:
        """Note them with the file; raises OSError."""
        raw = _packed(facts)
        try:
            os.setxattr(path, _ATTRIBUTE, raw)
        except OSError as error:
            if error.errno not in _NO_ATTRIBUTES:
                raise
            with self._lock, open(self._index, "ab") as opened:
                opened.write(_INDEXED.pack(os.stat(path).st_ino, raw))
                opened.flush()
                os.fsync(opened.fileno())

    def read(self, file: int | str) -> FileFacts | None:
        """None when the file says nothing, or cannot be asked."""
        raw = self._raw(file)
        if raw is None:
            return None
        _, era, mount, file_id, offset, length, content_hash = _LAYOUT.unpack(raw)
        return FileFacts(BlockIdentity(mount, file_id, offset), length, content_hash, era)

    def read_many(
        self, folder: str, ids: Iterable[int], *, facts_of: Callable[[int], FileFacts | None] | None = None
    ) -> Facts:
        """A row for each of these names in a folder.

        Args:
            facts_of: says what some of them are, which are no files of their own.
        """

        raws, ask, size = [], os.getxattr, _LAYOUT.size
        for identity in ids:  # a million when an agent starts: nothing is called for each but the system
            facts = facts_of(identity) if facts_of is not None else None
            if facts is not None:
                raws.append(_packed(facts))
                continue
            path = f"{folder}/{identity}"
            try:
                raw: bytes | None = ask(path, _ATTRIBUTE)
            except OSError as error:
                raw = self._otherwise(path, error)
            raws.append(raw if raw is not None and len(raw) == size and raw[0] == _FORMAT else _NOTHING)
        return np.frombuffer(b"".join(raws), dtype=FACTS)

    @property
    def indexed(self) -> bool:
        """Whether some files have no attributes."""
        return os.path.exists(self._index)

    def keep_only(self, inodes: set[int]) -> None:
        """Drop from the index what it says of files that there are no more. Raises OSError."""
        with self._lock:
            self._refresh()
            if not self._indexed.keys() - inodes:
                return
            draft = f"{self._index}.new"
            with open(draft, "wb") as opened:
                for inode in self._indexed.keys() & inodes:
                    opened.write(_INDEXED.pack(inode, self._indexed[inode]))
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(draft, self._index)

    def _raw(self, file: int | str) -> bytes | None:
        try:
            raw: bytes | None = os.getxattr(file, _ATTRIBUTE)
        except OSError as error:
            raw = self._otherwise(file, error)
        return raw if raw is not None and len(raw) == _LAYOUT.size and raw[0] == _FORMAT else None

    def _otherwise(self, file: int | str, error: OSError) -> bytes | None:
        """What the index says of a file without attributes; None when it cannot be asked."""
        return self._from_index(file) if error.errno in _NO_ATTRIBUTES else None

    def _from_index(self, file: int | str) -> bytes:
        try:
            size = os.stat(self._index).st_size  # most stores have none
            inode = os.stat(file).st_ino
        except OSError:
            return b""
        with self._lock:
            if size != self._read_to or inode not in self._indexed:
                self._refresh()
            return self._indexed.get(inode, b"")

    def _refresh(self) -> None:
        """Read what was added to the index; all of it when it is another file by now."""
        with suppress(FileNotFoundError), open(self._index, "rb") as opened:
            inode = os.fstat(opened.fileno()).st_ino
            if inode != self._inode:
                self._indexed, self._read_to, self._inode = {}, 0, inode
            opened.seek(self._read_to)
            added = opened.read()
            whole = len(added) // _INDEXED.size * _INDEXED.size
            self._indexed.update(_INDEXED.iter_unpack(added[:whole]))
            self._read_to += whole


_NOTHING: Final = bytes(_LAYOUT.size)


def _packed(facts: FileFacts) -> bytes:
    (mount, file, offset), length, content_hash, era = facts
    return _LAYOUT.pack(_FORMAT, era, mount, file, offset, length, content_hash)


def prints_of_facts(facts: Facts) -> Prints:
    """0 for a file that says nothing."""
    hashes = prints(facts["mount"], facts["file"], facts["offset"], facts["length"])
    return np.where(facts["form"] == 0, np.uint64(0), hashes)


def blocks_with(manifest: Manifest, facts: Facts) -> npt.NDArray[np.int64]:
    """The blocks of a version that these files are; -1 for files that are none of its blocks."""
    numbers = np.full(len(facts), -1, dtype=np.int64)
    if not len(facts) or not manifest.blocks:
        return numbers
    key = np.frombuffer(mount_key(manifest.path), dtype="<u8")
    files = manifest.files_at(np.ascontiguousarray(facts["file"]).view(np.uint8).reshape(-1, 16))
    places = np.flatnonzero((files >= 0) & (facts["mount"] == key).all(axis=1) & (facts["form"] != 0))
    files, rows = files[places], facts[places]
    firsts = first_blocks(manifest, files)
    sizes = np.maximum(manifest.block_lengths[np.minimum(firsts, manifest.blocks - 1)], 1)
    number, remainder = np.divmod(rows["offset"].astype(np.int64), sizes)
    fits = (remainder == 0) & (firsts + number < manifest.block_ends[files])
    blocks = np.where(fits, firsts + number, 0)
    fits &= manifest.block_lengths[blocks] == rows["length"].astype(np.int64)
    numbers[places[fits]] = blocks[fits]
    return numbers


def is_other_file(file: int | str, *, block: int, manifest: Manifest) -> bool:
    """Whether a file with the id of a block says that it is something else: the master has given the id again. One that
    says nothing is none that an agent has brought."""
    try:
        raw = os.getxattr(file, _ATTRIBUTE)
    except OSError:
        return False
    if len(raw) != _LAYOUT.size or raw[0] != _FORMAT:
        return False
    _, _, mount, file_id, offset, length, _ = _LAYOUT.unpack(raw)
    same_place = BlockIdentity(mount, file_id, offset) == identity_of(manifest, block)
    return not (same_place and length == int(manifest.block_lengths[block]))


def is_whole_file(place: str, *, file: int, manifest: Manifest) -> bool:
    """Whether a file says that it is all of a source file of several blocks."""
    with suppress(OSError, struct.error):
        form, _, mount, file_id, offset, length, _ = _LAYOUT.unpack(os.getxattr(place, _ATTRIBUTE))
        expected = (_FORMAT, mount_key(manifest.path), manifest.file_id(file), 0, int(manifest.lengths[file]))
        return (form, mount, file_id, offset, length) == expected
    return False


def noted_hash(fd: int, *, size: int) -> int | None:
    """xxh3_64 of a file as it was when it was written; None when its attribute does not say that.

    Args:
        size: of the file; another length than the one that was noted says that the note is of something else.
    """
    with suppress(OSError, struct.error):
        form, _, _, _, _, length, content_hash = _LAYOUT.unpack(os.getxattr(fd, _ATTRIBUTE))
        if (form, length) == (_FORMAT, size):
            return int(content_hash)
    return None


def hash_of(fd: int, *, offset: int, length: int) -> int:
    """xxh3_64 of a part of a file, read now."""
    state, end = xxhash.xxh3_64(), offset + length
    while offset < end:
        piece = os.pread(fd, min(_CHUNK, end - offset), offset)
        if not piece:
            break
        state.update(piece)
        offset += len(piece)
    return state.intdigest()
