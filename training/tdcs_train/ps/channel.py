"""A connection between a worker and a parameter server on which urgent tensors overtake others.

Each priority class has a TCP connection of its own with its own mark (DSCP), so that a network that honours it keeps
the order between different workers. Tensors leave in slices of 256 KiB, the most urgent first, with little unsent data
in the kernel; so an urgent tensor waits for a slice, not for the tensors before it.

Source: Jiang et al., "Fine-grained scheduling by parameter priority in distributed CNN" (2022), section 4.
"""

import contextlib
import heapq
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.classes import CLASSES, CONTROL, prepare
from tdcs_train.ps.transmissions import Transmission

PROTOCOL = 2
MAGIC = b"TDPS"
SLICE_BYTES = 256 << 10
TRACED = 10_000
"""Transmissions that a channel remembers."""
LAST_WORDS_SECONDS = 2.0
"""How long a peer that has closed one of its connections may still say why."""
_HEAD = struct.Struct("!4sBBIQI")
_MOST_HELLO = 64 << 10


class Kind(IntEnum):
    """What a frame carries."""

    HELLO = 1
    SLICE = 2
    BYE = 3
    """The sender has all that it wanted."""
    ABORT = 4
    ABSENT = 5
    """To a server: a step gave this parameter no gradient. To a worker: no worker had one, the parameter stays."""


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """The tensors of both directions by number: where a slice that arrives belongs, what to do when all is there, and
    what when the peer says that there is none."""

    place: Callable[[int], memoryview]
    complete: Callable[[int], None]
    absent: Callable[[int], None]


class Channel:
    """All connections to one peer, one a class. Reads and writes by threads of its own; calls are thread-safe."""

    def __init__(self, sockets: Sequence[socket.socket], *, peer: str, tensors: Tensors) -> None:
        self.peer = peer
        self._transmissions: deque[Transmission] = deque(maxlen=TRACED)
        self._sockets, self._tensors = list(sockets), tensors
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int, int, int, memoryview | None, float]] = []
        self._sequence = 0
        self._error: PeerError | None = None
        self._peer_done = False
        self._closing = False
        for priority, connection in enumerate(self._sockets):
            prepare(connection, priority)
            connection.setblocking(True)
        self._threads = [threading.Thread(target=self._guarded, args=(self._write,), daemon=True)]
        for connection in self._sockets:
            read = threading.Thread(target=self._guarded, args=(self._read, connection), daemon=True)
            self._threads.append(read)
        for thread in self._threads:
            thread.start()

    @property
    def error(self) -> PeerError | None:
        """Why the peer is lost."""
        return self._error

    @property
    def peer_done(self) -> bool:
        """Whether the peer has said that it has all that it wanted."""
        return self._peer_done

    @property
    def transmissions(self) -> list[Transmission]:
        """The latest tensors in the order in which their first slice left."""
        with self._changed:
            return list(self._transmissions)

    def send(self, number: int, memory: memoryview | None, *, priority: int, priority_class: int) -> None:
        """Queues a tensor, or None for the word that there is none.

        A greater priority leaves first, equal ones in the order of the calls.
        """
        with self._changed:
            if self._error:
                raise self._error
            self._sequence += 1
            entry = (-priority, self._sequence, number, priority_class, memory, time.monotonic())
            heapq.heappush(self._waiting, entry)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], *, timeout: float, awaited: str) -> None:
        """Returns when a condition, which a complete tensor may make true, holds. Raises PeerError."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or self._error is not None, timeout):
                raise PeerError(
                    f"{self.peer} has sent nothing that was awaited ({awaited}) for {timeout:g} s; see its log"
                )
            if not condition() and self._error:
                raise self._error

    def close(self, *, reason: str = "") -> None:
        """Sends what is queued and says goodbye, or with a reason fails the peer with it."""
        with self._changed:
            if reason:
                self._waiting.clear()
            self._closing = True
            self._changed.notify_all()
        self._threads[0].join(5.0)
        with contextlib.suppress(OSError):
            body = reason.encode()[:_MOST_HELLO]
            kind = Kind.ABORT if reason else Kind.BYE
            self._sockets[CONTROL].sendall(_HEAD.pack(MAGIC, PROTOCOL, kind, 0, 0, len(body)) + body)
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def release(self) -> None:
        """Closes the sockets; what the peer still sends is lost."""
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except PeerError as error:
            self._fail(error)
        except OSError as error:
            with self._changed:  # the other connections may end before the one that says why
                self._changed.wait_for(lambda: self._peer_done or self._error is not None, LAST_WORDS_SECONDS)
            self._fail(PeerError(f"{self.peer} ended ({error.strerror or error}); see its log"))
        except Exception as error:  # an optimizer raises anything, and this thread is the only one that knows
            self._fail(
                PeerError(f"what {self.peer} sent could not be worked on: {type(error).__name__}: {error}")
            )

    def _fail(self, error: PeerError) -> None:
        with self._changed:
            if not (self._peer_done or self._closing):
                self._error = self._error or error
            self._changed.notify_all()

    def _write(self) -> None:
        offsets: dict[int, int] = {}
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing or self._error)
                if not self._waiting:
                    return
                priority, sequence, number, priority_class, memory, queued = self._waiting[0]
                offset = offsets.get(sequence, 0)
                if offset == 0:
                    self._transmissions.append(Transmission(number, -priority, queued, time.monotonic()))
                piece = b"" if memory is None else memory[offset : offset + SLICE_BYTES]
                offsets[sequence] = offset + len(piece)
                if memory is None or offsets[sequence] >= len(memory):
                    heapq.heappop(self._waiting)
                    del offsets[sequence]
            kind = Kind.ABSENT if memory is None else Kind.SLICE
            head = _HEAD.pack(MAGIC, PROTOCOL, kind, number, offset, len(piece))
            self._sockets[priority_class].sendall(head)
            self._sockets[priority_class].sendall(piece)

    def _read(self, connection: socket.socket) -> None:
        received: dict[int, int] = {}
        head = memoryview(bytearray(_HEAD.size))
        while True:
            fill(connection, head)
            kind, number, offset, length = parse(head, peer=self.peer)
            if kind is Kind.BYE:
                with self._changed:
                    self._peer_done = True
                    self._changed.notify_all()
                continue
            if kind is Kind.ABORT:
                body = memoryview(bytearray(min(length, _MOST_HELLO)))
                fill(connection, body)
                raise PeerError(f"{self.peer} ended: {bytes(body).decode(errors='replace')}")
            memory = self._tensors.place(number)
            if kind is Kind.ABSENT:
                self._arrived(self._tensors.absent, number)
                continue
            if offset + length > len(memory):
                raise PeerError(
                    f"{self.peer} sent {length} bytes at {offset} of tensor {number}, which has {len(memory)}"
                )
            fill(connection, memory[offset : offset + length])
            received[number] = received.get(number, 0) + length
            if received[number] >= len(memory):
                del received[number]
                self._arrived(self._tensors.complete, number)

    def _arrived(self, told: Callable[[int], None], number: int) -> None:
        told(number)  # without the lock: a server sends to all its workers then
        with self._changed:
            self._changed.notify_all()


def parse(head: memoryview, *, peer: str) -> tuple[Kind, int, int, int]:
    """Kind, number, offset and length of a frame. Raises PeerError for anything else."""
    magic, protocol, kind, number, offset, length = _HEAD.unpack(head)
    if magic != MAGIC:
        raise PeerError(
            f"{peer} does not speak the protocol of tdcs-train's parameter servers (it sent {magic!r})"
        )
    if protocol != PROTOCOL:
        raise PeerError(
            f"{peer} speaks version {protocol} of the protocol, this process version {PROTOCOL}; use the same "
            "tdcs-train "
            "for workers and servers"
        )
    try:
        return Kind(kind), number, offset, length
    except ValueError:
        raise PeerError(f"{peer} sent a frame of kind {kind}, which means nothing") from None


def greet(connection: socket.socket, content: Mapping[str, Any]) -> None:
    """Says who this is."""
    body = json.dumps(content).encode()
    connection.sendall(_HEAD.pack(MAGIC, PROTOCOL, Kind.HELLO, 0, 0, len(body)) + body)


def greeting(connection: socket.socket, *, peer: str) -> dict[str, Any]:
    """Who the other end says that it is."""
    head = memoryview(bytearray(_HEAD.size))
    fill(connection, head)
    kind, _, _, length = parse(head, peer=peer)
    if kind is not Kind.HELLO or length > _MOST_HELLO:
        raise PeerError(f"{peer} did not say who it is")
    body = memoryview(bytearray(length))
    fill(connection, body)
    try:
        content = json.loads(bytes(body))
    except ValueError as error:
        raise PeerError(f"{peer} sent a greeting that cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise PeerError(f"{peer} sent a greeting that is no object")
    return content


def fill(connection: socket.socket, memory: memoryview) -> None:
    """Reads until the memory is full."""
    while memory:
        count = connection.recv_into(memory)
        if not count:
            raise ConnectionResetError("the connection was closed")
        memory = memory[count:]


def class_of(place: int, count: int) -> int:
    """The class of the parameter at a place of the order: the first quarter has the most urgent one."""
    return CLASSES - 1 - min(CLASSES - 1, place * CLASSES // max(count, 1))
