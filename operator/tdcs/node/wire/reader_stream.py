"""The bytes of a connection that never blocks: as they are, or by TLS."""

import errno
import socket
from typing import Final, Protocol

from tdcs.trust.stream import RECORD_BYTES, SecureStream

_RAW_BYTES: Final = 256 << 10


class Wire(Protocol):
    """Carries what is said over a socket. Methods raise OSError when the connection breaks."""

    @property
    def slack(self) -> int:
        """Bytes of what is still to come that may be in this process already."""
        ...

    @property
    def unsent(self) -> bool:
        """Whether something waits for room to be sent."""
        ...

    def send(self, out: bytearray) -> None:
        """Send as much as goes, and remove that from `out`."""
        ...

    def receive_into(self, view: memoryview) -> int:
        """Put what has come into `view`; 0 at the end. Raises BlockingIOError when nothing has come."""
        ...


class PlainWire:
    """Without TLS."""

    slack: Final = 0

    def __init__(self, connection: socket.socket) -> None:
        self._socket: Final = connection
        self.unsent = False

    def send(self, out: bytearray) -> None:
        """See `Wire`."""
        if out:
            _send(self._socket, out)
        self.unsent = bool(out)

    def receive_into(self, view: memoryview) -> int:
        """See `Wire`."""
        return self._socket.recv_into(view, len(view))


class SecureWire:
    """By TLS.

    Args:
        connection: that is being made.
        stream: the client's side, before the handshake.
    """

    slack: Final = RECORD_BYTES

    def __init__(self, connection: socket.socket, stream: SecureStream) -> None:
        self._socket: Final = connection
        self._stream: Final = stream
        self._raw: Final = memoryview(bytearray(_RAW_BYTES))
        self._cipher: Final = bytearray()

    @property
    def unsent(self) -> bool:
        """See `Wire`."""
        return bool(self._cipher)

    def send(self, out: bytearray) -> None:
        """See `Wire`. What cannot be said before the handshake is done stays in `out`."""
        if self._stream.handshake() and out:
            self._stream.write(out)
            out.clear()
        self._cipher.extend(self._stream.outgoing())
        if self._cipher:
            _send(self._socket, self._cipher)

    def receive_into(self, view: memoryview) -> int:
        """See `Wire`."""
        have, drained = 0, False
        while True:
            if self._stream.established:
                have += self._stream.read_into(view[have:])
                if have == len(view) or (have and drained):
                    return have
            try:
                count = self._socket.recv_into(self._raw)
            except (BlockingIOError, InterruptedError):
                if have:
                    return have
                raise
            if not count:
                return have
            drained = count < _RAW_BYTES  # the owner is told when more comes
            self._stream.feed(self._raw[:count])
            if not self._stream.established:
                self._stream.handshake()


def _send(connection: socket.socket, out: bytearray) -> None:
    try:
        sent = connection.send(out)
    except (BlockingIOError, InterruptedError):
        return
    except OSError as error:
        if error.errno == errno.ENOTCONN:  # still connecting
            return
        raise
    del out[:sent]
