"""A file that is being written, and the error of a disk that does not take it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final, Self


class DiskError(Exception):
    """A block cannot be written to this disk; the text says why."""


class PartialFile:
    """A block that is being written. It becomes readable by `Disk.keep` or `Disk.keep_later` alone.

    Attributes:
        handed_over: whether somebody else names or removes it from now on.
    """

    def __init__(self, *, path: str, fd: int) -> None:
        self.path: Final = path
        self.fd: Final = fd
        self.handed_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.handed_over:
            with suppress(OSError):  # whoever syncs it hears of it
                os.close(self.fd)
            return
        os.close(self.fd)
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def write(self, data: memoryview, *, offset: int) -> None:
        """Write all of `data` at `offset`; raises DiskError."""
        try:
            done = os.pwrite(self.fd, data, offset)
            while done < len(data):
                done += os.pwrite(self.fd, data[done:], offset + done)
        except OSError as error:
            raise disk_error(error) from error


def disk_error(error: OSError) -> DiskError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DiskError("the disk is full" if full else f"the disk does not take the block: {error.strerror}")
