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
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import xxhash

from tdcs.agent.disk.part_hashes import PartHashes
from tdcs.agent.disk.tier import Disk, content_hash
from tdcs.agent.peers import frames
from tdcs.agent.peers.channel import Channel, receive, server_channel, set_timeout
from tdcs.agent.peers.frames import FrameError, News, SourceWanted, Wanted
from tdcs.agent.source.reader import SourceFailureError
from tdcs.trust.rights import BLOCK_CALLERS, may_ask

_log: Final = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 256
IDLE_SECONDS: Final = 60
"""After so long without a request, or without a byte taken, a connection is closed."""
HANDSHAKE_SECONDS: Final = 10
MOST_WAIT_MS: Final = 20_000

_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SCARCE_PAUSE_SECONDS: Final = 0.05
"""The pause after a connection that could not be taken for want of descriptors or memory."""

Feed = Callable[[str, int, int, float], News]
"""Mount, instance, place, and seconds to wait: what became readable after that place."""


ReadSource = Callable[[SourceWanted], bytes]
"""Reads a piece of a file from its source; raises SourceFailureError."""

_CHANGES: Final = frozenset({"Changed", "Missing"})


class BlockService:
    """Serves the blocks of one disk.

    Args:
        disk: where they lie.
        journal: that the blocks belong to; callers of another one are refused.
        feed: answers requests for what became readable; may block for as long as it is asked to wait.
        read_source: reads what is nowhere in the cache, for readers; None refuses.
        tls: gives the context of the time; every caller must show a certificate with a role then. None: plain TCP, and
            every caller is answered.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        journal: str,
        feed: Feed,
        read_source: ReadSource | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._disk: Final = disk
        self._journal: Final = journal
        self._feed: Final = feed
        self._read_source: Final = read_source
        self._tls: Final = tls
        self._parts: Final = PartHashes()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.sent_bytes = 0

    def start(self, *, host: str, port: int) -> int:
        """Listen; the port, which is another one for 0."""
        listener = socket.create_server((host, port), backlog=256)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="block-service", daemon=True).start()
        return int(listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more, and end all connections."""
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
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno in _SCARCE:
                    time.sleep(_SCARCE_PAUSE_SECONDS)
                elif error.errno != errno.ECONNABORTED:
                    return
                continue
            with self._lock:
                full = len(self._connections) >= MOST_CONNECTIONS
                if not full:
                    self._connections.add(connection)
            if full:
                if self._tls is None:
                    with suppress(OSError):
                        connection.send(frames.greeting(journal=self._journal, status=frames.BUSY))
                connection.close()
                continue
            reader = threading.Thread(
                target=self._serve, args=(connection,), name="block-reader", daemon=True
            )
            try:
                reader.start()
            except RuntimeError as error:  # the process may have no more threads
                _log.warning("a connection of a reader of blocks is closed: %s", error)
                self._end(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_timeout(connection, seconds=HANDSHAKE_SECONDS)
            channel = server_channel(
                connection, self._tls() if self._tls is not None else None, seconds=HANDSHAKE_SECONDS
            )
            set_timeout(connection, seconds=IDLE_SECONDS)
            if self._greet(channel):
                while self._answer(channel):
                    pass
        except (FrameError, OSError, struct.error, UnicodeDecodeError) as error:
            _log.debug("a connection of a reader of blocks ended: %s", error)
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.close()

    def _greet(self, channel: Channel) -> bool:
        version, _, length = frames.parse_greeting(receive(channel, frames.GREETING.size))
        journal = receive(channel, length).decode()
        status = frames.ACCEPTED
        if channel.caller is not None and channel.caller.role not in BLOCK_CALLERS:
            status = frames.FORBIDDEN
            _log.warning(
                "a caller with the role %s is refused: it may ask for no blocks", channel.caller.role
            )
        elif version != frames.VERSION:
            status = frames.OTHER_VERSION
        elif journal != self._journal:
            status = frames.OTHER_JOURNAL
        channel.send(frames.greeting(journal=self._journal, status=status))
        return status == frames.ACCEPTED

    def _answer(self, channel: Channel) -> bool:
        head = memoryview(bytearray(frames.REQUEST.size))
        if channel.receive_into(head) < frames.REQUEST.size:
            return False
        kind, _, count = frames.REQUEST.unpack(head)
        caller = channel.caller
        if caller is not None and not may_ask(caller.role_at(time.time()), kind):
            _log.warning(
                "a caller with the role %s is refused: it may not ask for kind %d", caller.role, kind
            )
            raise FrameError("the caller's role may not ask for this, or its certificate has ended")
        if kind == frames.READ and count <= frames.MOST_READS:
            body = receive(channel, count * frames.ASKED.size)
            for wanted in frames.parse_wanted(body):
                self._send(channel, wanted)
        elif kind == frames.SOURCE and count <= frames.LONGEST_SOURCE:
            self._relay(channel, frames.parse_source_wanted(receive(channel, count)))
        elif kind == frames.FEED and count <= frames.LONGEST_NAME:
            body = receive(channel, frames.PLACE.size + count)
            instance, place, wait_ms = frames.PLACE.unpack(body[: frames.PLACE.size])
            mount = body[frames.PLACE.size :].decode()
            found = self._feed(mount, instance, place, min(wait_ms, MOST_WAIT_MS) / 1000)
            channel.send(frames.news(instance=found.instance, place=found.place, blocks=found.blocks))
        else:
            raise FrameError(f"a request of kind {kind} for {count}")
        return True

    def _relay(self, channel: Channel, wanted: SourceWanted) -> None:
        try:
            if self._read_source is None:
                raise SourceFailureError("SourceAway", "this agent reads no sources for others")
            data = self._read_source(wanted)
        except SourceFailureError as error:
            code = frames.CHANGED if error.code in _CHANGES else frames.UNREADABLE
            reason = str(error).encode("utf-8", "replace")
            channel.send(frames.PIECE.pack(wanted.block, frames.REFUSED, len(reason), code) + reason)
            return
        found = xxhash.xxh3_64_intdigest(data)
        channel.send(frames.PIECE.pack(wanted.block, len(data), len(data), found), more=True)
        channel.send(data)
        self.sent_bytes += len(data)

    def _send(self, channel: Channel, wanted: Wanted) -> None:
        file = self._disk.open(wanted.block)
        if file is None:
            channel.send(frames.PIECE.pack(wanted.block, -1, -1, 0))
            return
        try:
            status = os.fstat(file)
            size = status.st_size
            length = max(0, size - wanted.offset)
            if wanted.length != frames.WHOLE:
                length = min(length, wanted.length)
            if length == size:
                found = content_hash(file, size=size)
            else:
                found = self._parts.get(file, status=status, offset=wanted.offset, length=length)
            channel.send(frames.PIECE.pack(wanted.block, length, size, found), more=length > 0)
            if channel.send_file(file, offset=wanted.offset, length=length) < length:
                raise FrameError(f"block {wanted.block} became shorter while it was sent")
            self.sent_bytes += length
        finally:
            os.close(file)
