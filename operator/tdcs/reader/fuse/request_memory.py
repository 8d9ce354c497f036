"""Shared memory for the requests in work: whoever serves the session next finds what the one before did not answer.

A request is read from the kernel *into* its place, so it cannot get lost between the two. Its first four bytes, the
length, are zero while the place is free.
"""

import mmap
import os
import struct
from typing import Final

from tdcs.reader.fuse.protocol import REQUEST_BYTES

PLACES: Final = 512
_LENGTH: Final = struct.Struct("<I")
_FREE: Final = bytes(_LENGTH.size)


def make_memory() -> int:
    """A descriptor of empty memory for all places."""
    memory = os.memfd_create("tdcs-requests", os.MFD_CLOEXEC)
    os.ftruncate(memory, PLACES * REQUEST_BYTES)
    return memory


class RequestMemory:
    """The places. One process at a time uses them.

    Args:
        memory: descriptor of `make_memory`.
    """

    def __init__(self, memory: int) -> None:
        # All of it at once: a process that is killed, or has no memory left, while the kernel copies a request into a
        # page that is not there yet would lose the request.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        whole = memoryview(mmap.mmap(memory, PLACES * REQUEST_BYTES, flags=flags))
        self.places: Final = [whole[at : at + REQUEST_BYTES] for at in range(0, len(whole), REQUEST_BYTES)]
        self.free: Final[list[int]] = []

    def take_over(self) -> list[int]:
        """Places with requests that an earlier process has left; all others are free from now on."""
        left = [number for number, place in enumerate(self.places) if _LENGTH.unpack_from(place)[0]]
        self.free[:] = sorted(set(range(PLACES)) - set(left), reverse=True)
        return left

    def length(self, place: int) -> int:
        """Bytes of the request in a place."""
        return int(_LENGTH.unpack_from(self.places[place])[0])

    def release(self, place: int) -> None:
        """Its request was answered."""
        self.places[place][: _LENGTH.size] = _FREE
        self.free.append(place)
