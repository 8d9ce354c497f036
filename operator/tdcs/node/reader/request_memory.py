"""Shared memory for the requests in work: whoever serves the session next finds what the one before did not answer.

A request is read from the kernel *into* its place, so it cannot get lost between the two. Its first four bytes, the
length, are zero while the place is free.

Each process that serves has a region of its own, and takes over the requests of one that serves no more by copying them
into it. A process can hang for as long as it likes, a disk's say, and no signal ends it while it does: so a region is
held by a lease. Its process says again and again that it is alive (`beat`); of one that has not, or has ended, the
region is taken over. Nothing that such a process still does harms anyone: it answers what is answered already, and
frees and takes places of a region that is looked through for what it may have taken (`strays`) for as long as it lives.

A request must be taken from the kernel to know which version it is of. All but reads are answered at once, and reads
wait in their places. So there are many places, and each has room for a read, or for the longest name of a file. What is
longer is not kept to its end: it is a name that no file has, or says what the kernel forgets. Places are used from the
first one on, and have memory once they are used.
"""

import fcntl
import functools
import heapq
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, NamedTuple

from tdcs.node.reader.fuse_protocol import MOST_WAITING, REQUEST, REQUEST_BYTES

PLACES: Final = MOST_WAITING
PLACE_BYTES: Final = 512
REGIONS: Final = 8
"""Processes that can have requests in work at a time: one that serves, and others that hang."""
LEASE_SECONDS: Final = 6.0
"""A process that has said nothing for so long serves no more."""

_PAGE: Final = mmap.PAGESIZE
_REGION_BYTES: Final = _PAGE + PLACES * PLACE_BYTES
_MEMORY_BYTES: Final = REGIONS * _REGION_BYTES
_LENGTH_BYTES: Final = 4
_FREE: Final = bytes(_LENGTH_BYTES)
_FORMAT: Final = 0x7464_6373_0002
_AWAITED_SECONDS: Final = 1.0
_STEP: Final = 128
"""So many places get their memory at a time."""


class _Word(IntEnum):
    """What the words of a region's first page are."""

    FORMAT = 0
    STATE = 1
    BEAT = 2
    PROCESS = 3
    STARTED = 4
    NAMESPACE = 5
    USED = 6
    IN_HAND = 7
    TRIES = 8
    AWAITED = 9
    """Of the first region alone: when a reader's process last said that it waits for its turn."""


class _State(IntEnum):
    FREE = 0
    SERVES = 1
    LEFT = 2
    """Its process has ended its turn."""
    TAKEN_OVER = 3
    """Its requests are in another region as well."""


class Left(NamedTuple):
    """A request of another process.

    Attributes:
        place: that it is in now.
        tries: how many processes have hung while they had it in hand.
    """

    place: int
    tries: int


def make_memory() -> int:
    memory = os.memfd_create("tdcs-requests", os.MFD_CLOEXEC)
    os.ftruncate(memory, _MEMORY_BYTES)
    return memory


class _Region:
    """One region as this process sees it."""

    def __init__(self, memory: int, number: int) -> None:
        self._map: Final = mmap.mmap(
            memory, _REGION_BYTES, flags=mmap.MAP_SHARED, offset=number * _REGION_BYTES
        )
        self.words: Final = memoryview(self._map)[:_PAGE].cast("q")
        self.places: Final = memoryview(self._map)[_PAGE:]

    def place(self, number: int) -> memoryview:
        return self.places[number * PLACE_BYTES : (number + 1) * PLACE_BYTES]

    def used(self) -> Iterator[int]:
        """Places with requests."""
        for number in range(min(self.words[_Word.USED], PLACES)):
            if self.places[number * PLACE_BYTES : number * PLACE_BYTES + _LENGTH_BYTES] != _FREE:
                yield number

    def clear(self) -> None:
        for number in self.used():
            self.place(number)[:_LENGTH_BYTES] = _FREE

    def is_held(self, now: int) -> bool:
        """Whether its process serves, and is alive."""
        return bool(
            self.words[_Word.STATE] == _State.SERVES
            and now - self.words[_Word.BEAT] < LEASE_SECONDS * 1e9
            and not self.has_ended()
        )

    def has_ended(self) -> bool:
        """Whether its process has ended, or its main thread has: others may wait in the kernel forever. False where
        that cannot be seen."""
        words = self.words
        return (
            words[_Word.NAMESPACE] == _namespace() and started(words[_Word.PROCESS]) != words[_Word.STARTED]
        )


class RequestMemory:
    """The memory, and this process's region of it once `take_over` was called.

    Args:
        memory: descriptor of `make_memory`.
    """

    def __init__(self, memory: int) -> None:
        self._memory: Final = memory
        if os.fstat(memory).st_size < _MEMORY_BYTES:
            os.ftruncate(memory, _MEMORY_BYTES)  # of a holder of another version
        self._regions: Final = [_Region(memory, number) for number in range(REGIONS)]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self._overflow: Final = memoryview(mmap.mmap(-1, REQUEST_BYTES - PLACE_BYTES, flags=flags))
        self._region: _Region | None = None
        self._released: Final[list[int]] = []  # a heap
        self._next = 0
        self._ready = 0
        self._taken_over: Final[set[int]] = set()
        self._copied: Final[set[int]] = set()
        self._left_requests: list[Left] | None = None
        with self._turn():
            for region in self._regions:
                if region.words[_Word.FORMAT] != _FORMAT:
                    region.words[:] = memoryview(bytes(_PAGE)).cast("q")
                    region.words[_Word.FORMAT] = _FORMAT

    @property
    def free(self) -> int:
        """How many places are free."""
        return len(self._released) + PLACES - self._next

    def is_served(self) -> bool:
        """Whether another process serves, and is alive."""
        now = time.monotonic_ns()
        return any(region.is_held(now) for region in self._regions if region is not self._region)

    def is_left(self) -> bool:
        """Whether a process serves no more that has served."""
        now = time.monotonic_ns()
        return any(
            region.words[_Word.STATE] in (_State.SERVES, _State.LEFT) and not region.is_held(now)
            for region in self._regions
        )

    def wait(self) -> None:
        """Say that this process waits for its turn. A few times a second."""
        self._regions[0].words[_Word.AWAITED] = time.monotonic_ns()

    def is_awaited(self) -> bool:
        """Whether a process waits for its turn."""
        return time.monotonic_ns() - self._regions[0].words[_Word.AWAITED] < _AWAITED_SECONDS * 1e9

    def take_turn(self) -> bool:
        """Have a region, if no other process serves. Raises OSError, as `take_over`."""
        with self._turn():
            if self.is_served():
                return False
            self._left_requests = self._take_region()
            return True

    def take_over(self) -> list[Left]:
        """The requests that others have left. They are in this process's region, which it has then.

        Raises:
            OSError: all regions are held, by processes that hang.
        """
        if self._region is None:
            with self._turn():
                self._left_requests = self._take_region()
        requests, self._left_requests = self._left_requests or [], None
        return requests

    def _take_region(self) -> list[Left]:
        now = time.monotonic_ns()
        self._region = self._acquire(now)
        return self._adopt(now)

    def beat(self) -> None:
        """Say that this process serves on. A few times a second."""
        if self._region is not None:
            self._region.words[_Word.BEAT] = time.monotonic_ns()

    def is_taken_over(self) -> bool:
        """Whether another process has taken this one for dead: it is to end."""
        return self._region is not None and self._region.words[_Word.STATE] == _State.TAKEN_OVER

    def leave(self) -> None:
        """End the turn: the next process takes over what is left."""
        if self._region is not None and self._region.words[_Word.STATE] == _State.SERVES:
            self._region.words[_Word.STATE] = _State.LEFT

    def strays(self) -> list[Left]:
        """Take over what processes that were taken for dead have taken from the kernel since. A few times a second."""
        requests = []
        for number in tuple(self._taken_over):
            region = self._regions[number]
            ended = region.has_ended() or region.words[_Word.STATE] != _State.TAKEN_OVER
            if region.words[_Word.STATE] == _State.TAKEN_OVER:
                requests += self._copy(number)
            if ended:
                self._taken_over.discard(number)
        if not self._taken_over:
            self._copied.clear()
        return requests

    def request(self, place: int) -> memoryview:
        assert self._region is not None
        return self._region.place(place)

    def take_in_hand(self, place: int, tries: int = 0) -> None:
        """A request is being worked on: if this process hangs now, it may be why."""
        assert self._region is not None
        self._region.words[_Word.TRIES] = tries
        self._region.words[_Word.IN_HAND] = place + 1

    def put_down(self) -> None:
        assert self._region is not None
        self._region.words[_Word.IN_HAND] = 0

    def read(self, session: int) -> int:
        """Read a request from the kernel into the first free place; its number. Raises OSError."""
        assert self._region is not None
        place = self._take()
        try:
            os.readv(session, (self._region.place(place), self._overflow))
        except OSError:
            heapq.heappush(self._released, place)
            raise
        return place

    def release(self, place: int) -> None:
        assert self._region is not None
        self._region.place(place)[:_LENGTH_BYTES] = _FREE
        heapq.heappush(self._released, place)

    def _take(self) -> int:
        """A free place, which has its memory: a process that is killed, or has no memory left, while the kernel copies
        a request into a page that is not there yet would lose the request."""
        assert self._region is not None
        if self._released:
            return heapq.heappop(self._released)
        if self._next >= self._ready:
            begin, end = self._next * PLACE_BYTES, min(self._next + _STEP, PLACES) * PLACE_BYTES
            for at in range(begin, end, _PAGE):
                self._region.places[at : at + _LENGTH_BYTES] = _FREE
            self._ready = end // PLACE_BYTES
            self._region.words[_Word.USED] = self._ready
        self._next += 1
        return self._next - 1

    def _acquire(self, now: int) -> _Region:
        for region in self._regions:
            state = region.words[_Word.STATE]
            if state == _State.FREE or (state == _State.TAKEN_OVER and region.has_ended()):
                region.clear()
                region.words[_Word.USED] = region.words[_Word.IN_HAND] = region.words[_Word.TRIES] = 0
                process = os.getpid()
                region.words[_Word.PROCESS], region.words[_Word.STARTED] = process, started(process)
                region.words[_Word.NAMESPACE], region.words[_Word.BEAT] = _namespace(), now
                region.words[_Word.STATE] = _State.SERVES
                return region
        raise OSError(f"{REGIONS} processes of the reader hang; see why in their logs, and reboot the node")

    def _adopt(self, now: int) -> list[Left]:
        requests = []
        # Those that were taken over before come last: what is theirs may be in one of the others, too.
        for number, region in sorted(
            enumerate(self._regions), key=lambda numbered: numbered[1].words[_Word.STATE] == _State.TAKEN_OVER
        ):
            state = region.words[_Word.STATE]
            if region is self._region or state == _State.FREE or region.is_held(now):
                continue
            if state == _State.TAKEN_OVER and region.has_ended():
                continue
            self._taken_over.add(number)
            requests += self._copy(number)
            # In this order: what dies in between leaves both, and the kernel takes one answer only.
            region.words[_Word.STATE] = _State.TAKEN_OVER
        return requests

    def _copy(self, number: int) -> list[Left]:
        """Copy the requests of a region that were not copied before."""
        region, requests = self._regions[number], []
        in_hand = region.words[_Word.IN_HAND] - 1
        for place in region.used():
            content = bytes(region.place(place))
            unique = REQUEST.unpack_from(content)[2]
            if unique in self._copied or not self.free:
                continue
            self._copied.add(unique)
            own_place = self._take()
            self.request(own_place)[:] = content
            requests.append(Left(own_place, region.words[_Word.TRIES] + 1 if place == in_hand else 0))
        return requests

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One process at a time: the lock is the process's, not that of who has the descriptor."""
        fcntl.lockf(self._memory, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._memory, fcntl.LOCK_UN)


@functools.cache
def _namespace() -> int:
    """In which processes have the numbers that this one knows."""
    return os.stat("/proc/self/ns/pid").st_ino


def started(process: int) -> int:
    """When a process began, in the kernel's ticks since it booted; 0 when its main thread has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
