"""Shared memory for the requests in work: whoever serves the session next finds what the one before did not answer.

A request is read from the kernel *into* its place, so it cannot get lost between the two. Its first four bytes, the
length, are zero while the place is free.

A request must be taken from the kernel to know which version it is of. All but reads are answered at once, and reads
wait in their places, where the next process finds them. So there are many places, of which reads of one version may
have a part (`PlaceShares`), and each has room for a read, or for the longest name of a file. What is longer is not kept
to its end: it is a name that no file has, or says what the kernel forgets.
"""

import heapq
import mmap
import os
from typing import Final

from tdcs.node.reader.fuse_protocol import MOST_WAITING, REQUEST_BYTES

PLACES: Final = MOST_WAITING
PLACE_BYTES: Final = 512
_MEMORY_BYTES: Final = PLACES * PLACE_BYTES
_LENGTH_BYTES: Final = 4
_FREE: Final = bytes(_LENGTH_BYTES)


def make_memory() -> int:
    memory = os.memfd_create("tdcs-requests", os.MFD_CLOEXEC)
    os.ftruncate(memory, _MEMORY_BYTES)
    return memory


class RequestMemory:
    """The places. One process at a time uses them.

    Args:
        memory: descriptor of `make_memory`.
    """

    def __init__(self, memory: int) -> None:
        # All of it at once: a process that is killed, or has no memory left, while the kernel copies a request into a
        # page that is not there yet would lose the request.
        whole = memoryview(mmap.mmap(memory, _MEMORY_BYTES, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE))
        self.places: Final = [whole[at : at + PLACE_BYTES] for at in range(0, _MEMORY_BYTES, PLACE_BYTES)]
        own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self._rest: Final = memoryview(mmap.mmap(-1, REQUEST_BYTES - PLACE_BYTES, flags=own))
        self.free: Final[list[int]] = []  # a heap

    def take_over(self) -> list[int]:
        """Places with requests that an earlier process has left; all others are free from now on."""
        left = [number for number, place in enumerate(self.places) if place[:_LENGTH_BYTES] != _FREE]
        self.free[:] = sorted(set(range(PLACES)) - set(left))
        return left

    def read(self, session: int) -> int:
        """Read a request from the kernel into the first free place; its number. Raises OSError."""
        place = heapq.heappop(self.free)
        try:
            os.readv(session, (self.places[place], self._rest))
        except OSError:
            heapq.heappush(self.free, place)
            raise
        return place

    def release(self, place: int) -> None:
        self.places[place][:_LENGTH_BYTES] = _FREE
        heapq.heappush(self.free, place)
