"""The files of the folder that is served: no link leads out of it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from tdcs.engine.confined_path import open_beneath, open_plain_folder
from tdcs.model.claim_source import file_etag


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file. Whoever opened it closes it.

    Attributes:
        etag: changes whenever the file does.
    """

    descriptor: int
    size: int
    etag: str
    modified: float

    def read(self, length: int, offset: int) -> bytes:
        """So many bytes, fewer where the file has become shorter. Raises OSError."""
        parts, end = [], offset + length
        while offset < end and (part := os.pread(self.descriptor, end - offset, offset)):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self.descriptor)


def open_file(folder: bytes, path: bytes) -> OpenFile:
    """The regular file at a path below a folder. Links are followed as long as they stay below it.

    Raises:
        OSError: It is not there, is no regular file, may not be read, or a link leads out of the folder.
    """
    root = open_plain_folder(folder)
    try:
        # Who may write to the claim can put a pipe there.
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK, links=True)
    finally:
        os.close(root)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{os.fsdecode(path)!r} is no regular file")
    return OpenFile(
        descriptor, state.st_size, file_etag(state.st_mtime_ns // 1_000_000, state.st_size), state.st_mtime
    )


def is_unchanged(folder: bytes, path: bytes, file: OpenFile) -> bool:
    """Whether the file at a path is still as it was opened. A network file system may say of an open file what it knew
    of it before, and asks its server when one is opened."""
    try:
        again = open_file(folder, path)
    except OSError:
        return False
    again.close()
    return again.etag == file.etag
