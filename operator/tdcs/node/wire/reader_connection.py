"""One connection to an agent's block service that never blocks: many requests are under way, answers come in order."""

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from tdcs.node.wire import frames
from tdcs.node.wire.frames import FrameError, Piece
from tdcs.node.wire.reader_stream import PlainWire, SecureWire, Wire
from tdcs.trust.roles import Role
from tdcs.trust.stream import SecureStream

BUFFER_BYTES: Final = (1 << 20) + 65536
OWN_BYTES: Final = frames.PART_BYTES
"""Answers from this size on come in memory of their own, which nearly has their size."""
_MOST_AT_ONCE: Final = 256 << 10
_SOON_BYTES: Final = 64 << 10
"""So little comes before the kernel could be asked to wait for it."""
_HEAD: Final = frames.PIECE.size


class Asked(Protocol):
    """What is asked of an agent."""

    @property
    def block(self) -> int:
        """Id of the block."""
        ...

    @property
    def length(self) -> int:
        """Bytes that the answer has."""
        ...

    def request(self) -> bytes:
        """The request's frame."""
        ...


Deliver = Callable[["PeerConnection", Asked, Piece, memoryview], None]
"""Takes an answer. Its bytes are overwritten when it returns, unless they are `OWN_BYTES` or more: see `kept`."""


def kept(content: memoryview, *, part: memoryview | None = None) -> memoryview | bytes:
    """An answer, or a part of it, that will not be overwritten."""
    found = content if part is None else part
    return found if len(content) >= OWN_BYTES else bytes(found)


class PeerConnection:
    """A connection. Its owner polls `fd`, and calls `ready` when something can be read or written.

    Args:
        address: `host:port`, numeric.
        journal: of the blocks.
        deliver: takes each answer.
        tls: of this process: the other side must show an agent's certificate then. None: plain TCP.

    Raises:
        OSError: the address makes no sense, or no socket is to be had.
    """

    def __init__(
        self,
        *,
        address: str,
        journal: str,
        deliver: Deliver,
        now: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.address: Final = address
        self.expected: Final[deque[Asked]] = deque()
        self.progress_at = now
        self.used_at = now
        self.outstanding_bytes = 0
        self._deliver: Final = deliver
        self._socket: Final = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._wire: Final[Wire] = (
            PlainWire(self._socket)
            if tls is None
            else SecureWire(self._socket, SecureStream(tls, host=Role.AGENT.host))
        )
        self.fd: Final = self._socket.fileno()
        self._buffer = _memory()
        self._have = 0
        self._low = 1
        self._greeted = False
        self._out = bytearray(frames.greeting(journal=journal))
        self._held = bytearray()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            status = self._socket.connect_ex((host.strip("[]"), int(port)))
            if status not in (0, errno.EINPROGRESS):
                raise OSError(status, os.strerror(status), address)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    @property
    def unsent(self) -> bool:
        """Whether the owner must wait for room to write."""
        return self._wire.unsent

    def ask(self, asked: Asked, *, now: float) -> None:
        """Queue a request; `flush` sends it."""
        if not self.expected:
            self.progress_at = now
        self.used_at = now
        self.expected.append(asked)
        self.outstanding_bytes += asked.length
        (self._out if self._greeted else self._held).extend(asked.request())

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it. Raises OSError."""
        self._wire.send(self._out)

    def ready(self, *, now: float) -> None:
        """Read what has come, and deliver whole answers.

        Raises:
            OSError: the connection broke.
            FrameError: the peer speaks something else, or refuses.
        """
        self.flush()
        while True:
            wanted = self._missing()
            try:
                count = self._wire.receive_into(self._buffer[self._have : self._have + wanted])
            except (BlockingIOError, InterruptedError):
                self.flush()  # what a handshake wants to say
                self._wait()
                return
            if not count:
                raise FrameError("the peer closed the connection")
            self._have += count
            self.progress_at = now
            self._take()
            if count < wanted or (self._greeted and not self.expected):
                self._wait()
                return

    def _missing(self) -> int:
        """Bytes until the end of what comes next."""
        if not self._greeted:
            if self._have < frames.GREETING.size:
                return frames.GREETING.size - self._have
            _, _, length = frames.parse_greeting(bytes(self._buffer[: frames.GREETING.size]))
            return max(1, frames.GREETING.size + length - self._have)
        length = self.expected[0].length if self.expected else 0
        if self._have >= _HEAD:
            _, found, size, _ = frames.PIECE.unpack_from(self._buffer)
            length = _body(found, size)
            if length > BUFFER_BYTES - _HEAD:
                raise FrameError(f"an answer of {length} bytes")
        return max(1, _HEAD + length - self._have)

    def _take(self) -> None:
        if not self._greeted:
            self._take_greeting()
        while self._greeted and self._have >= _HEAD:
            if not self.expected:
                raise FrameError("an answer that was not asked for")
            piece = Piece(*frames.PIECE.unpack_from(self._buffer))
            asked = self.expected[0]
            if piece.block != asked.block or piece.length > asked.length:
                raise FrameError(
                    f"the answer is {piece.length} bytes of block {piece.block}, not of {asked.block}"
                )
            if piece.length == frames.WAITING:  # that it came is all that it says
                self._shift(self._buffer, _HEAD)
                continue
            end = _HEAD + _body(piece.length, piece.size)
            if self._have < end:
                return
            self.expected.popleft()
            self.outstanding_bytes -= asked.length
            come = self._buffer
            if end - _HEAD >= OWN_BYTES:
                self._buffer = _memory()
            self._deliver(self, asked, piece, come[_HEAD:end])
            self._shift(come, end)

    def _shift(self, come: memoryview, end: int) -> None:
        left = self._have - end
        if left:  # answers that follow one which was shorter than it could be
            self._buffer[:left] = bytes(come[end : self._have])
        self._have = left

    def _take_greeting(self) -> None:
        if self._have < frames.GREETING.size:
            return
        version, status, length = frames.parse_greeting(bytes(self._buffer[: frames.GREETING.size]))
        if self._have < frames.GREETING.size + length:
            return
        if version != frames.VERSION or status != frames.ACCEPTED:
            journal = bytes(self._buffer[frames.GREETING.size : self._have]).decode("utf-8", "replace")
            raise FrameError(
                frames.refusal(status=status, version=version, journal=journal, address=self.address)
            )
        self._have, self._greeted = 0, True
        self._out += self._held
        self._held.clear()
        self.flush()

    def _wait(self) -> None:
        """Be woken when all of an answer is there, not for each segment."""
        low = 1
        if self._have >= _HEAD and (missing := self._missing()) > _SOON_BYTES:
            low = max(1, min(missing, _MOST_AT_ONCE) - self._wire.slack)
        if low != self._low:
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)


def _memory() -> memoryview:
    """Memory for an answer, with anything in it."""
    return np.empty(BUFFER_BYTES, dtype=np.uint8).data


def _body(length: int, size: int) -> int:
    """Bytes behind a header: those of the block, or of a reason."""
    if length >= 0:
        return length
    return size if length == frames.REFUSED else 0
