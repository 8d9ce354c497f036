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
import struct
from typing import Final

from tdcs.node.reader.fuse_protocol import MOST_WAITING, REQUEST, REQUEST_BYTES

PLACES: Final = MOST_WAITING
PLACE_BYTES: Final = 512
_FIRST: Final = 512
"""Earlier versions have so many places, `REQUEST_BYTES` long, and a holder may be of one. The first places of this
version begin where those do, and the others, which lie between, are used while the first ones are taken only: what is
there waits for a reader of this version."""
_MOST_OPCODES: Final = 256
"""Numbers of requests are below this one; in what the kernel forgets there are numbers of nodes, which are above it."""
_MEMORY_BYTES: Final = PLACES * PLACE_BYTES
_LENGTH: Final = struct.Struct("<I")
_FREE: Final = bytes(_LENGTH.size)


def make_memory() -> int:
    """A descriptor of empty memory for all places."""
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
        self.places: Final = [whole[at : at + PLACE_BYTES] for at in map(_begin, range(PLACES))]
        own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self._rest: Final = memoryview(mmap.mmap(-1, REQUEST_BYTES - PLACE_BYTES, flags=own))
        self.free: Final[list[int]] = []  # a heap

    def take_over(self) -> list[int]:
        """Places with requests that an earlier process has left; all others are free from now on."""
        left = []
        for number, place in enumerate(self.places):
            length, opcode, *_ = REQUEST.unpack_from(place)
            if REQUEST.size <= length <= REQUEST_BYTES and 0 < opcode < _MOST_OPCODES:
                left.append(number)
            else:  # it may be the end of a longer request that an earlier version has answered
                place[: _LENGTH.size] = _FREE
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
        """Its request was answered."""
        self.places[place][: _LENGTH.size] = _FREE
        heapq.heappush(self.free, place)


def _begin(place: int) -> int:
    return place % _FIRST * REQUEST_BYTES + place // _FIRST * PLACE_BYTES
