"""The bytes of a connection of the block service: plain, or by TLS.

Agents give and bring blocks over sockets that block, and the kernel ends what gets nowhere; readers' never block. On a
plain connection the kernel sends blocks from their files. By TLS they pass through this process.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import time
from typing import Final

from tdcs.node.wire.frames import FrameError
from tdcs.trust.roles import Caller
from tdcs.trust.stream import RECORD_BYTES, SecureStream

PIECE_BYTES: Final = 256 << 10
"""How much is encrypted or decrypted at a time: it stays in the processor's cache."""

Data = bytes | bytearray | memoryview


class PlainChannel:
    """Without TLS. All methods raise OSError when the connection breaks.

    Attributes:
        caller: who is at the other end; None: callers show no certificates here.
        slack: bytes of what is still to come that may be in this process already.
        unsent: whether something waits for room to be sent, after `push`.
    """

    caller: Final[Caller | None] = None
    slack: Final = 0

    def __init__(self, connection: socket.socket) -> None:
        self._socket: Final = connection
        self.unsent = False

    def receive_into(self, view: memoryview, *, whole: bool = False) -> int:
        """Put what has come into `view`, as far as it fits; how much that was, 0 at the end. Waits for something, with
        `whole` for as much as fits; raises BlockingIOError where the socket does not wait."""
        return self._socket.recv_into(view, len(view), socket.MSG_WAITALL if whole else 0)

    def send(self, data: Data, *, more: bool = False) -> None:
        """Send all of it; with `more` it may wait for what follows."""
        if more:
            self._socket.send(data, socket.MSG_MORE)  # a few bytes: the kernel takes them whole
        else:
            self._socket.sendall(data)

    def send_file(self, file: int, *, offset: int, length: int) -> int:
        """Send a part of a file; how much of it there was."""
        done = 0
        while done < length:
            sent = os.sendfile(self._socket.fileno(), file, offset + done, length - done)
            if not sent:
                break
            done += sent
        return done

    def push(self, out: bytearray) -> None:
        """Send as much as goes without waiting, and remove that from `out`."""
        if out:
            _push(self._socket, out)
        self.unsent = bool(out)


class SecureChannel:
    """By TLS. Methods as those of `PlainChannel`.

    Args:
        stream: this side of the connection, before the handshake.
    """

    slack: Final = RECORD_BYTES

    def __init__(self, connection: socket.socket, stream: SecureStream) -> None:
        self._socket: Final = connection
        self._stream: Final = stream
        self._raw: Final = memoryview(bytearray(PIECE_BYTES))
        self._begun: Final = bytearray()  # waits for what follows, to be in one record with it
        self._cipher: Final = bytearray()
        self.caller: Caller | None = None

    @property
    def unsent(self) -> bool:
        return bool(self._cipher)

    def shake_hands(self, *, seconds: float) -> None:
        """Wait until each side knows the other one, at most for so long."""
        until = time.monotonic() + seconds
        try:
            while not self._stream.handshake():
                if time.monotonic() > until:
                    raise TimeoutError(f"the handshake was not done after {seconds:g} s")
                self._flush()
                if not self._more():
                    raise ConnectionResetError("the other side ended the connection before it said who it is")
        finally:
            self._flush()  # a refusal, too, says why
        self.caller = self._stream.caller

    def receive_into(self, view: memoryview, *, whole: bool = False) -> int:
        have, drained = 0, False
        while True:
            if self._stream.established:
                have += self._stream.read_into(view[have:])
                if have == len(view) or (have and drained and not whole):
                    return have
            try:
                count = self._more()
            except (BlockingIOError, InterruptedError):
                if have:
                    return have
                raise
            if not count:
                return have
            drained = count < PIECE_BYTES  # the owner is told when more comes
            self._stream.handshake()

    def send(self, data: Data, *, more: bool = False) -> None:
        if more:
            self._begun.extend(data)
            return
        whole = memoryview(b"".join((self._begun, data)))
        self._begun.clear()
        for begin in range(0, len(whole), PIECE_BYTES):
            self._say(whole[begin : begin + PIECE_BYTES])

    def send_file(self, file: int, *, offset: int, length: int) -> int:
        head = len(self._begun)
        self._raw[:head] = self._begun
        self._begun.clear()
        done = 0
        while done < length:
            piece = self._raw[head : min(PIECE_BYTES, head + length - done)]
            count = os.preadv(file, [piece], offset + done)
            if not count:
                break
            self._say(self._raw[: head + count])
            done += count
            head = 0
        return done

    def push(self, out: bytearray) -> None:
        """See `PlainChannel`. What cannot be said before the handshake is done stays in `out`."""
        if self._stream.handshake() and out:
            self._stream.write(out)
            out.clear()
        self._cipher.extend(self._stream.outgoing())
        if self._cipher:
            _push(self._socket, self._cipher)

    def _say(self, data: memoryview) -> None:
        self._stream.write(data)
        self._flush()

    def _more(self) -> int:
        """Take bytes that came; how many, 0 at the end."""
        count = self._socket.recv_into(self._raw)
        self._stream.feed(self._raw[:count])
        return count

    def _flush(self) -> None:
        if data := self._stream.outgoing():
            self._socket.sendall(data)


Channel = PlainChannel | SecureChannel


def channel_of(
    connection: socket.socket, context: ssl.SSLContext | None, *, host: str | None = None
) -> Channel:
    """One side of a connection, before its handshake.

    Args:
        context: of this process; None: plain.
        host: of a client: the name that the server's certificate must have. None: this is the server's side.
    """
    return (
        PlainChannel(connection)
        if context is None
        else SecureChannel(connection, SecureStream(context, host=host))
    )


def waiting_channel(
    connection: socket.socket, context: ssl.SSLContext | None, *, seconds: float, host: str | None = None
) -> Channel:
    """As `channel_of`, of a socket that blocks, with the handshake done. Raises OSError."""
    channel = channel_of(connection, context, host=host)
    if isinstance(channel, SecureChannel):
        channel.shake_hands(seconds=seconds)
    return channel


def receive(channel: Channel, length: int) -> bytes:
    """Exactly so many bytes; raises FrameError when the connection ends before."""
    data = bytearray(length)
    if data and channel.receive_into(memoryview(data), whole=True) < length:
        raise FrameError("the connection ended in the middle of a frame")
    return bytes(data)


def set_timeout(connection: socket.socket, *, seconds: float) -> None:
    """Let the kernel end a send or a receive that gets nowhere: Python's own timeouts cost a poll for each call."""
    value = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def _push(connection: socket.socket, out: bytearray) -> None:
    try:
        sent = connection.send(out)
    except (BlockingIOError, InterruptedError):
        return
    except OSError as error:
        if error.errno == errno.ENOTCONN:  # still connecting
            return
        raise
    del out[:sent]
