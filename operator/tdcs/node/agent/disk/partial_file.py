"""A file that is being written, and the error of a disk that does not take it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self


class DiskError(Exception):
    """A block cannot be written to this disk; the text says why."""


class BusyError(DiskError):
    """Its file is being changed: it can be written in a moment."""


class PartialFile:
    """A block that is being written. It becomes readable by `Disk.keep` or `Disk.keep_later` alone.

    Args:
        base: where the block begins in the file.
        given_up: called instead of the file's removal when the block is not kept.
        note: takes the hash and the era of a block in a file of several ones that is on the disk; raises OSError. None:
            it has the file for itself.

    Attributes:
        handed_over: whether somebody else names or removes it from now on.
    """

    def __init__(
        self,
        *,
        path: str,
        fd: int,
        base: int = 0,
        given_up: Callable[[], None] | None = None,
        note: Callable[[int, int], None] | None = None,
    ) -> None:
        self.path: Final = path
        self.fd: Final = fd
        self.base: Final = base
        self.note: Final = note
        self._given_up: Final = given_up
        self.handed_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.handed_over:
            with suppress(OSError):  # whoever syncs it hears of it
                os.close(self.fd)
            return
        os.close(self.fd)
        self.discard()

    def discard(self) -> None:
        """Remove what was written. Raises OSError."""
        if self._given_up is not None:
            self._given_up()
            return
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def write(self, data: memoryview, *, offset: int) -> None:
        """Write all of `data` at `offset` of the block; raises DiskError."""
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self.fd, data[done:], self.base + offset + done)
        except OSError as error:
            raise disk_error(error) from error


def disk_error(error: OSError) -> DiskError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DiskError("the disk is full" if full else f"the disk does not take the block: {error.strerror}")
