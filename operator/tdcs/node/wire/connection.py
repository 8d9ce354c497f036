"""One connection to an agent's block service that never blocks: many requests are under way, answers come in order."""

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from tdcs.node.wire.answers import CHUNK_BYTES, AnswerStream, Asked
from tdcs.node.wire.channel import Channel, channel_of
from tdcs.node.wire.frames import FrameError, Piece
from tdcs.trust.roles import Role

_MOST_AT_ONCE: Final = 256 << 10
_SOON_BYTES: Final = 64 << 10
"""So little comes before the kernel could be asked to wait for it."""


class Requested(Asked, Protocol):
    """What is asked of an agent by a request of its own: at most `CHUNK_BYTES`."""

    def request(self) -> bytes: ...


Q = TypeVar("Q", bound=Requested)


def kept(content: memoryview, *, part: memoryview | None = None) -> memoryview | bytes:
    """An answer, or a part of it, that will not be overwritten."""
    piece = content if part is None else part
    return piece if len(content) >= CHUNK_BYTES else bytes(piece)


class PeerConnection(Generic[Q]):
    """A connection. Its owner polls `fd`, and calls `ready` when something can be read or written.

    Args:
        address: `host:port`, numeric.
        deliver: takes each answer. Its bytes are overwritten when it returns, unless they are `kept`.
        tls: of this process: the other side must show an agent's certificate then. None: plain TCP.

    Raises:
        OSError: the address makes no sense, or no socket is to be had.
    """

    def __init__(
        self,
        *,
        address: str,
        deliver: "Callable[[PeerConnection[Q], Q, Piece, memoryview], None]",
        now: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.address: Final = address
        self.progress_at = now
        self.used_at = now
        self.outstanding_bytes = 0
        self._deliver: Final = deliver
        self._answers: Final = AnswerStream[Q](address=address, lends=True)
        self.expected: Final[deque[Q]] = self._answers.expected
        self._socket: Final = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._channel: Final[Channel] = channel_of(self._socket, tls, host=Role.AGENT.host)
        self.fd: Final = self._socket.fileno()
        self._low = 1
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            status = self._socket.connect_ex((host.strip("[]"), int(port)))
            if status not in (0, errno.EINPROGRESS):
                raise OSError(status, os.strerror(status), address)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    @property
    def unsent(self) -> bool:
        return self._channel.unsent

    def ask(self, question: Q, *, now: float) -> None:
        """Queue a request; `flush` sends it."""
        if not self.expected:
            self.progress_at = now
        self.used_at = now
        self.outstanding_bytes += question.length
        self._answers.ask((question,), question.request())

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it. Raises OSError."""
        self._channel.push(self._answers.out)

    def ready(self, *, now: float, has_error: bool = False) -> None:
        """Read what has come, and deliver whole answers.

        Args:
            has_error: the kernel reports an error of the connection.

        Raises:
            OSError: the connection broke. One with an error of which nothing can be read has broken, too: its owner
                would be woken forever by an error that no call takes away.
            FrameError: the peer speaks something else, or refuses.
        """
        self.flush()
        is_silent = True
        while True:
            hoped = self._answers.hoped()
            try:
                count = self._channel.receive_into(self._answers.space(hoped))
            except (BlockingIOError, InterruptedError):
                if has_error and is_silent:
                    number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    reason = (
                        os.strerror(number) if number else "the kernel reports an error and gives no bytes"
                    )
                    raise OSError(number or errno.EIO, reason) from None
                self.flush()  # what a handshake wants to say
                self._wait()
                return
            if not count:
                raise FrameError("the peer closed the connection")
            is_silent = False
            self._answers.received(count)
            self.progress_at = now
            greeted = self._answers.greeted
            while (chunk := self._answers.next()) is not None:
                self.outstanding_bytes -= chunk.question.length
                self._deliver(self, chunk.question, chunk.piece, chunk.content)
            if self._answers.greeted and not greeted:
                self.flush()  # what was held back
            if count < hoped or (self._answers.greeted and not self.expected):
                self._wait()
                return

    def _wait(self) -> None:
        """Be woken when all of an answer is there, not for each segment."""
        missing = self._answers.certain()
        low = max(1, min(missing, _MOST_AT_ONCE) - self._channel.slack) if missing > _SOON_BYTES else 1
        if low != self._low:
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
