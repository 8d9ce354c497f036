"""Gives blocks to other agents and to readers, over TCP or TLS (`frames`), a thread for each connection."""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, NamedTuple, Protocol

import xxhash

from tdcs.listening import listen
from tdcs.node.agent.disk.large_files import OpenedBlock
from tdcs.node.agent.disk.part_hashes import SMALL_PART, PartHashes
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.source_pieces import SourceFailureError
from tdcs.node.file_facts import noted_hash
from tdcs.node.wire import frames
from tdcs.node.wire.channel import Channel, receive, set_timeout, waiting_channel
from tdcs.node.wire.connections import Connections
from tdcs.node.wire.frames import FrameError, News, SourceWanted, Wanted
from tdcs.trust.rights import BLOCK_CALLERS, may_ask

_log: Final = logging.getLogger(__name__)


_CHANGES: Final = frozenset({"Changed", "Missing"})
_RECEIVED_AT_ONCE: Final = 4096
"""Bytes: more than a hundred requests for a piece each."""


class BlockRequest(NamedTuple):
    """A request, with what follows its header."""

    kind: int
    flags: int
    body: bytes


class BlockRequests:
    """The requests that come over a connection, after its greeting. For one thread.

    Args:
        channel: nothing else receives from it any more.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel: Final = channel
        self._raw: Final = memoryview(bytearray(_RECEIVED_AT_ONCE))
        self._come: Final = bytearray()

    def wait(self) -> BlockRequest | None:
        """The next request; None when the connection has ended.

        Raises:
            FrameError: it is no request, or the connection ended in the middle of it.
            OSError: the connection broke.
        """
        if not self._receive(frames.REQUEST.size):
            return None
        length = self._length()
        if not self._receive(length):
            raise FrameError("the connection ended in the middle of a request")
        return self._take(length)

    def another_read(self) -> BlockRequest | None:
        """The next request, if all of it has come, and it is for blocks alone. Raises FrameError."""
        if len(self._come) < frames.REQUEST.size:
            return None
        length = self._length()
        kind, flags, _ = frames.REQUEST.unpack_from(self._come)
        if len(self._come) < length or kind != frames.READ or flags:
            return None
        return self._take(length)

    def _length(self) -> int:
        kind: int
        count: int
        kind, _, count = frames.REQUEST.unpack_from(self._come)
        if kind == frames.READ and count <= frames.MOST_READS:
            body = count * frames.ASKED.size
        elif kind == frames.SOURCE and count <= frames.LONGEST_SOURCE:
            body = count
        elif kind == frames.FEED and count <= frames.LONGEST_NAME:
            body = frames.PLACE.size + count
        else:
            raise FrameError(f"a request of kind {kind} for {count}")
        return frames.REQUEST.size + body

    def _receive(self, length: int) -> bool:
        """Wait until so many bytes have come; False when the connection ends before."""
        while len(self._come) < length:
            count = self._channel.receive_into(self._raw)
            if not count:
                return False
            self._come.extend(self._raw[:count])
        return True

    def _take(self, length: int) -> BlockRequest:
        kind, flags, _ = frames.REQUEST.unpack_from(self._come)
        body = bytes(memoryview(self._come)[frames.REQUEST.size : length])
        del self._come[:length]
        return BlockRequest(kind, flags, body)


MOST_CONNECTIONS: Final = 256
"""Each has a thread of its own. See `Connections` for what happens to the next one."""
IDLE_SECONDS: Final = 60
"""After so long without a request, or without a byte taken, a connection is closed."""
HANDSHAKE_SECONDS: Final = 10
MOST_WAIT_MS: Final = 20_000
_OPEN_AHEAD: Final = 8
"""Blocks that are opened, and read from the disk, while those before them are sent."""
_DISK_AHEAD_BYTES: Final = 128 << 10
"""So much of whole blocks, and of pieces up to this size, is read ahead. In longer pieces the kernel reads ahead by
itself, and keeps them in larger pages then."""

_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SCARCE_PAUSE_SECONDS: Final = 0.05
"""The pause after a connection that could not be taken for want of descriptors or memory."""

Feed = Callable[[str, int, int, float], News]
"""Mount, instance, place, and seconds to wait: what became readable after that place."""


class ReadSource(Protocol):
    """Reads a piece of a file from its source."""

    def __call__(
        self, piece: SourceWanted, *, waiting: Callable[[], None]
    ) -> AbstractContextManager[memoryview]:
        """The piece, while it is sent; calls `waiting` now and then while it has to wait. Raises SourceFailureError."""
        ...


class BlockService:
    """Serves the blocks of one disk.

    Args:
        disk: where they are.
        feed: answers requests for what became readable; may block for as long as it is asked to wait.
        read_source: reads what is nowhere in the cache, for readers; None refuses.
        read_on: is told of blocks (their ids) that pods of this node have elsewhere and read on from.
        tls: gives the context of the time; every caller must show a certificate with a role then. None: plain TCP, and
            every caller is answered.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        feed: Feed,
        read_source: ReadSource | None = None,
        read_on: Callable[[int], None] = lambda block: None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._disk: Final = disk
        self._feed: Final = feed
        self._read_source: Final = read_source
        self._read_on: Final = read_on
        self._tls: Final = tls
        self._parts: Final = PartHashes()
        self._connections: Final = Connections[socket.socket](MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.sent_bytes = 0

    def start(self, *, host: str, port: int) -> int:
        """Listen; the port, which is another one for 0."""
        listener = listen(host=host, port=port, backlog=256)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="block-service", daemon=True).start()
        return int(listener.getsockname()[1])

    def close(self) -> None:
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, address = listener.accept()
            except OSError as error:
                if error.errno in _SCARCE:
                    time.sleep(_SCARCE_PAUSE_SECONDS)
                elif error.errno != errno.ECONNABORTED:
                    return
                continue
            if not self._admit(connection, host=address[0]):
                continue
            reader = threading.Thread(
                target=self._serve, args=(connection,), name="block-reader", daemon=True
            )
            try:
                reader.start()
            except RuntimeError as error:  # the process may have no more threads
                _log.warning("a connection of a reader of blocks is closed: %s", error)
                self._end(connection)

    def _admit(self, connection: socket.socket, *, host: str) -> bool:
        with self._lock:
            admitted, ended = self._connections.admit(connection, host=host, now=time.monotonic())
            if ended is not None:
                with suppress(OSError):  # it has ended by itself
                    ended.shutdown(socket.SHUT_RDWR)
        if not admitted:
            _log.warning(
                "a connection from %s is refused: %d others are being answered", host, MOST_CONNECTIONS
            )
            with suppress(OSError):
                if self._tls is None:
                    connection.send(frames.greeting(status=frames.BUSY))
            connection.close()
        return admitted

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_timeout(connection, seconds=HANDSHAKE_SECONDS)
            channel = waiting_channel(
                connection, self._tls() if self._tls is not None else None, seconds=HANDSHAKE_SECONDS
            )
            set_timeout(connection, seconds=IDLE_SECONDS)
            if self._greet(channel):
                requests = BlockRequests(channel)
                while (request := requests.wait()) is not None:
                    with self._lock:
                        self._connections.answering(connection)
                    self._answer(channel, request, requests)
                    with self._lock:
                        self._connections.idle(connection, now=time.monotonic())
        except (FrameError, OSError, struct.error, UnicodeDecodeError) as error:
            _log.debug("a connection of a reader of blocks ended: %s", error)
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.remove(connection)
            connection.close()

    def _greet(self, channel: Channel) -> bool:
        version, _ = frames.parse_greeting(receive(channel, frames.GREETING.size))
        status = frames.ACCEPTED
        if channel.caller is not None and channel.caller.role not in BLOCK_CALLERS:
            status = frames.FORBIDDEN
            _log.warning(
                "a caller with the role %s is refused: it may ask for no blocks", channel.caller.role
            )
        elif version != frames.VERSION:
            status = frames.OTHER_VERSION
        channel.send(frames.greeting(status=status))
        return status == frames.ACCEPTED

    def _answer(self, channel: Channel, request: BlockRequest, requests: BlockRequests) -> None:
        caller = channel.caller
        if caller is not None and not may_ask(caller.role_at(time.time()), request.kind):
            _log.warning(
                "a caller with the role %s is refused: it may not ask for kind %d", caller.role, request.kind
            )
            raise FrameError("the caller's role may not ask for this, or its certificate has ended")
        if request.kind == frames.READ:
            pieces = frames.parse_wanted(request.body)
            if request.flags & frames.READ_ON:
                for block, _, _ in pieces:
                    self._read_on(block)
                    channel.send(frames.PIECE.pack(block, -1, -1, 0))
                return
            while len(pieces) < frames.MOST_READS and (next_read := requests.another_read()) is not None:
                pieces += frames.parse_wanted(next_read.body)
            self._give(channel, pieces)
        elif request.kind == frames.SOURCE:
            piece = frames.parse_source_wanted(request.body)
            self._relay(channel, piece, patient=bool(request.flags & frames.PATIENT))
        else:
            instance, place, wait_ms = frames.PLACE.unpack_from(request.body)
            mount = request.body[frames.PLACE.size :].decode()
            news = self._feed(mount, instance, place, min(wait_ms, MOST_WAIT_MS) / 1000)
            channel.send(frames.news(instance=news.instance, place=news.place, blocks=news.blocks))

    def _relay(self, channel: Channel, piece: SourceWanted, *, patient: bool) -> None:
        said_at = time.monotonic()

        def waiting() -> None:
            nonlocal said_at
            now = time.monotonic()
            if patient and now - said_at >= frames.WAITING_SECONDS:
                said_at = now
                channel.send(frames.PIECE.pack(piece.block, frames.WAITING, 0, 0))

        try:
            if self._read_source is None:
                raise SourceFailureError("SourceAway", "this agent reads no sources for others")
            with self._read_source(piece, waiting=waiting) as data:
                content_hash = xxhash.xxh3_64_intdigest(data)
                channel.send(frames.PIECE.pack(piece.block, len(data), len(data), content_hash), more=True)
                channel.send(data)
                self.sent_bytes += len(data)
        except SourceFailureError as error:
            code = frames.CHANGED if error.code in _CHANGES else frames.UNREADABLE
            reason = str(error).encode("utf-8", "replace")
            channel.send(frames.PIECE.pack(piece.block, frames.REFUSED, len(reason), code) + reason)

    def _give(self, channel: Channel, pieces: Sequence[Wanted]) -> None:
        """Send pieces of blocks in their order, with the next ones open already: so the disk reads many at a time."""
        opened: deque[OpenedBlock | None] = deque()
        many = len(pieces) > 1
        try:
            for place, piece in enumerate(pieces):
                if not opened:
                    opened.append(self._open(piece, ahead=many))
                with suppress(OSError):  # for want of descriptors, say: each is opened again in its turn
                    for following in pieces[place + len(opened) : place + _OPEN_AHEAD]:
                        opened.append(self._open(following, ahead=many))
                file = opened[0]
                if file is None:
                    channel.send(frames.PIECE.pack(piece.block, -1, -1, 0))
                else:
                    self._send(channel, piece, file)
                opened.popleft()
                if file is not None:
                    os.close(file.fd)
        finally:
            for file in opened:
                if file is not None:
                    os.close(file.fd)

    def _open(self, piece: Wanted, *, ahead: bool) -> OpenedBlock | None:
        file = self._disk.open(piece.block)
        if ahead and file is not None and piece.length <= _DISK_AHEAD_BYTES:
            with suppress(OSError):  # it is advice
                os.posix_fadvise(file.fd, file.base + piece.offset, _DISK_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        return file

    def _send(self, channel: Channel, piece: Wanted, file: OpenedBlock) -> None:
        size, offset = file.length, file.base + piece.offset
        length = max(0, size - piece.offset)
        if piece.length != frames.WHOLE:
            length = min(length, piece.length)
        content_hash = file.content_hash if length == size else None
        if content_hash is None and length == size:
            content_hash = noted_hash(file.fd, size=size)
        if content_hash is None and length < SMALL_PART:
            self._send_small(channel, piece, file, length=length)
            return
        if content_hash is None:
            content_hash = self._parts.get(file.fd, status=os.fstat(file.fd), offset=offset, length=length)
        if not file.is_here():  # what was hashed may be nothing
            channel.send(frames.PIECE.pack(piece.block, -1, -1, 0))
            return
        channel.send(frames.PIECE.pack(piece.block, length, size, content_hash), more=length > 0)
        if channel.send_file(file.fd, offset=offset, length=length) < length:
            raise FrameError(f"block {piece.block} became shorter while it was sent")
        if not file.is_here():
            raise FrameError(f"block {piece.block} went while it was sent")
        self.sent_bytes += length

    def _send_small(self, channel: Channel, piece: Wanted, file: OpenedBlock, *, length: int) -> None:
        """Send what was hashed, of a piece of which no hash is kept: it is read once."""
        content = os.pread(file.fd, length, file.base + piece.offset)
        if len(content) < length:
            raise FrameError(f"block {piece.block} became shorter while it was read")
        if not file.is_here():
            channel.send(frames.PIECE.pack(piece.block, -1, -1, 0))
            return
        content_hash = xxhash.xxh3_64_intdigest(content)
        channel.send(frames.PIECE.pack(piece.block, length, file.length, content_hash) + content)
        self.sent_bytes += length
