"""Reads files of a folder that this node sees; time and length are compared before and after."""

from __future__ import annotations

import errno
import os
from typing import Final

from tdcs.engine.confined_path import open_beneath, open_plain_folder
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, Write, changed, listed_time

_CHUNK: Final = 1 << 20
_NAMES_REFUSED: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})
_AWAY: Final = frozenset({errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENXIO})


class FolderReader:
    """A folder that this node sees under its own path. No link leads out of it, and none to it."""

    lanes = 4

    def __init__(self, folder: str) -> None:
        self._folder: Final = os.fsencode(folder.rstrip("/") or "/")

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of a file that has the listed length and time, before and after."""
        try:
            file = self._open(extent.path)
            try:
                _compare(os.fstat(file), extent)
                left, at = extent.length, extent.offset
                while left:
                    data = os.pread(file, min(left, _CHUNK), at)
                    if not data:
                        raise SourceFailureError("Changed", "the file became shorter while it was read")
                    write(memoryview(data))
                    left -= len(data)
                    at += len(data)
                _compare(os.fstat(file), extent)
            finally:
                os.close(file)
        except OSError as error:
            raise self._failure(error) from error

    def _open(self, path: bytes) -> int:
        folder = open_plain_folder(self._folder)
        try:
            return open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK, links=True)
        finally:
            os.close(folder)

    def _failure(self, error: OSError) -> SourceFailureError:
        reason = error.strerror or type(error).__name__
        if error.errno in (errno.ELOOP, errno.EXDEV):
            return SourceFailureError("Denied", "it is a symbolic link that leads out of the source's folder")
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            if not os.path.isdir(self._folder):
                return SourceFailureError(
                    "SourceAway", "the source's folder is away on this node", common=True
                )
            return SourceFailureError("Missing", "the file is not at the source any more")
        if error.errno in (errno.EACCES, errno.EPERM):
            return SourceFailureError(
                "Denied",
                f"the source refuses to give the file to user {os.geteuid()}: {reason}; see spec.folderAccess of the "
                "CacheCluster",
            )
        if error.errno in _NAMES_REFUSED:
            return SourceFailureError("BadName", f"the source refuses the file's name: {reason}")
        if error.errno in _AWAY:
            return SourceFailureError("SourceAway", f"the source does not answer: {reason}", common=True)
        return SourceFailureError("Unreadable", f"the file cannot be read: {reason}")


def _compare(found: os.stat_result, extent: Extent) -> None:
    if found.st_size != extent.size:
        raise changed(f"it has {found.st_size} bytes, and had {extent.size}")
    listed = listed_time(extent.tag)
    if listed is not None and found.st_mtime_ns // 1_000_000 != listed:
        raise changed("its time is another one")
