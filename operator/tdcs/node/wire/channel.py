"""A connection of the block service: plain, or by TLS. Both block, and the kernel ends what gets nowhere.

On a plain connection the kernel sends blocks from their files. By TLS they pass through this process.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from typing import Final, Protocol

from tdcs.node.wire.frames import FrameError
from tdcs.trust.roles import Caller
from tdcs.trust.stream import SecureStream

PIECE_BYTES: Final = 256 << 10
"""How much is encrypted or decrypted at a time: it stays in the processor's cache."""

Data = bytes | bytearray | memoryview


class Channel(Protocol):
    """A connection. All methods raise OSError when it breaks."""

    @property
    def caller(self) -> Caller | None:
        """Who is at the other end; None: callers show no certificates here."""
        ...

    def receive_into(self, view: memoryview) -> int:
        """Fill `view`; fewer bytes only when the connection ends."""
        ...

    def receive_some(self, view: memoryview) -> int:
        """Put what has come into `view`, as far as it fits, or wait for something; 0 when the connection has ended."""
        ...

    def send(self, data: Data, *, more: bool = False) -> None:
        """Send all of it; with `more` it may wait for what follows."""
        ...

    def send_file(self, file: int, *, offset: int, length: int) -> int:
        """Send a part of a file; how much of it there was."""
        ...


class PlainChannel:
    """Without TLS."""

    caller: Final = None

    def __init__(self, connection: socket.socket) -> None:
        self._connection: Final = connection

    def receive_into(self, view: memoryview) -> int:
        """See `Channel`."""
        return self._connection.recv_into(view, len(view), socket.MSG_WAITALL) if view else 0

    def receive_some(self, view: memoryview) -> int:
        """See `Channel`."""
        return self._connection.recv_into(view)

    def send(self, data: Data, *, more: bool = False) -> None:
        """See `Channel`."""
        if more:
            self._connection.send(data, socket.MSG_MORE)  # a few bytes: the kernel takes them whole
        else:
            self._connection.sendall(data)

    def send_file(self, file: int, *, offset: int, length: int) -> int:
        """See `Channel`."""
        done = 0
        while done < length:
            sent = os.sendfile(self._connection.fileno(), file, offset + done, length - done)
            if not sent:
                break
            done += sent
        return done


class SecureChannel:
    """By TLS; the handshake is done when it is made.

    Args:
        connection: with the kernel's timeouts.
        stream: this side of it, before the handshake.
        seconds: for the handshake.

    Raises:
        OSError: It failed; an `ssl.SSLError` says why.
    """

    def __init__(self, connection: socket.socket, stream: SecureStream, *, seconds: float) -> None:
        self._connection: Final = connection
        self._stream: Final = stream
        self._raw: Final = memoryview(bytearray(PIECE_BYTES))
        self._begun: Final = bytearray()  # waits for what follows, to be in one record with it
        self._ended = False
        until = time.monotonic() + seconds
        try:
            while not stream.handshake():
                if time.monotonic() > until:
                    raise TimeoutError(f"the handshake was not done after {seconds:g} s")
                self._flush()
                if not self._more():
                    raise ConnectionResetError("the other side ended the connection before it said who it is")
        finally:
            self._flush()  # a refusal, too, says why
        self.caller: Final = stream.caller

    def receive_into(self, view: memoryview) -> int:
        """See `Channel`."""
        have = 0
        while True:
            have += self._stream.read_into(view[have:])
            if have == len(view) or not self._more():
                return have

    def receive_some(self, view: memoryview) -> int:
        """See `Channel`."""
        while True:
            have = self._stream.read_into(view)
            if have or not self._more():
                return have

    def send(self, data: Data, *, more: bool = False) -> None:
        """See `Channel`."""
        if more:
            self._begun.extend(data)
            return
        whole = memoryview(b"".join((self._begun, data)))
        self._begun.clear()
        for begin in range(0, len(whole), PIECE_BYTES):
            self._say(whole[begin : begin + PIECE_BYTES])

    def send_file(self, file: int, *, offset: int, length: int) -> int:
        """See `Channel`."""
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

    def _say(self, data: memoryview) -> None:
        self._stream.write(data)
        self._flush()

    def _more(self) -> bool:
        """Take bytes that came; whether the connection goes on."""
        if not self._ended:
            count = self._connection.recv_into(self._raw)
            self._ended = not count
            self._stream.feed(self._raw[:count])
        return not self._ended

    def _flush(self) -> None:
        data = self._stream.outgoing()
        if data:
            self._connection.sendall(data)


def server_channel(connection: socket.socket, context: ssl.SSLContext | None, *, seconds: float) -> Channel:
    """The server's side of a connection; plain without a context. Raises OSError."""
    if context is None:
        return PlainChannel(connection)
    return SecureChannel(connection, SecureStream(context), seconds=seconds)


def client_channel(
    connection: socket.socket, context: ssl.SSLContext | None, *, host: str, seconds: float
) -> Channel:
    """The client's side of a connection, to a server with this name in its certificate. Raises OSError."""
    if context is None:
        return PlainChannel(connection)
    return SecureChannel(connection, SecureStream(context, host=host), seconds=seconds)


def receive(channel: Channel, length: int) -> bytes:
    """Exactly so many bytes; raises FrameError when the connection ends before."""
    data = bytearray(length)
    if channel.receive_into(memoryview(data)) < length:
        raise FrameError("the connection ended in the middle of a frame")
    return bytes(data)


def set_timeout(connection: socket.socket, *, seconds: float) -> None:
    """Let the kernel end a send or a receive that gets nowhere: Python's own timeouts cost a poll for each call."""
    value = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
