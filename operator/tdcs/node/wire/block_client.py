"""Reads blocks of another agent: many blocks a request, and the next request before the answers came."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import xxhash

from tdcs.node.wire import frames
from tdcs.node.wire.channel import Channel, client_channel, receive, set_timeout
from tdcs.node.wire.frames import FrameError, News, Piece, Wanted
from tdcs.trust.roles import Role

CONNECT_SECONDS: Final = 5.0
BUFFER_BYTES: Final = 1 << 20

Sink = Callable[[memoryview, int], None]
"""Takes bytes of a piece and their offset in it."""


class WrongContentError(Exception):
    """The bytes that came have another hash than the giver said, or the block another size than the manifest says."""


class BlockClient:
    """A connection to the block service of another agent. For one thread.

    Args:
        address: `host:port`.
        journal: of the blocks; the giver refuses another one.
        answer_seconds: a giver that sends nothing for so long is taken for dead.
        tls: of this process: the giver must show an agent's certificate then. None: plain TCP.

    Raises:
        OSError: Nothing answers there, or its certificate is refused, or this one's.
        FrameError: What answers is no block service, or one of another journal.
    """

    def __init__(
        self, *, address: str, journal: str, answer_seconds: float, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS)
        self._connection: Final = connection
        self._buffer: Final = memoryview(bytearray(BUFFER_BYTES))
        try:
            connection.settimeout(None)
            set_timeout(connection, seconds=answer_seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._channel: Final[Channel] = client_channel(
                connection, tls, host=Role.AGENT.host, seconds=answer_seconds
            )
            self._channel.send(frames.greeting(journal=journal))
            version, status, length = frames.parse_greeting(receive(self._channel, frames.GREETING.size))
            theirs = receive(self._channel, length).decode("utf-8", "replace")
            if status != frames.ACCEPTED:
                raise FrameError(
                    frames.refusal(status=status, version=version, journal=theirs, address=address)
                )
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def feed(self, *, mount: str, instance: int, place: int, wait_seconds: float) -> News:
        """Blocks that became readable at the giver after a place of its list; see `frames`."""
        request = frames.feed_request(
            mount=mount, instance=instance, place=place, wait_ms=int(wait_seconds * 1000)
        )
        self._channel.send(request)
        instance, place, count = frames.NEWS.unpack(receive(self._channel, frames.NEWS.size))
        if count > frames.MOST_FEED:
            raise FrameError(f"a list of {count} blocks")
        blocks: npt.NDArray[np.int64] = np.frombuffer(receive(self._channel, 8 * count), dtype="<i8")
        return News(instance, place, blocks)  # type: ignore[arg-type]

    def ask(self, wanted: Sequence[Wanted]) -> None:
        """Send a request; `pieces` reads its answers later."""
        self._channel.send(frames.read_request(wanted))

    def pieces(self, wanted: Sequence[Wanted]) -> Iterator[Piece]:
        """Headers of the answers to a request, in order. After each that has bytes `take` must be called."""
        size = frames.PIECE.size
        for each in wanted:
            head = self._buffer[:size]
            if self._channel.receive_into(head) < size:
                raise FrameError("the connection ended in the middle of an answer")
            yield frames.parse_piece(head, wanted=each)

    def take(self, piece: Piece, sink: Sink) -> None:
        """Pass the bytes of a piece to `sink` as they come, and check them.

        Raises:
            WrongContentError: They are not what the giver's hash says. All have been taken; the connection goes on.
            FrameError: The connection ended.
        """
        done, length = 0, piece.length
        if length <= BUFFER_BYTES:
            data = self._receive(length)
            if xxhash.xxh3_64_intdigest(data) != piece.hash:
                raise WrongContentError(f"the bytes of block {piece.block} that came are damaged")
            sink(data, 0)
            return
        state = xxhash.xxh3_64()
        while done < length:
            data = self._receive(min(BUFFER_BYTES, length - done))
            state.update(data)
            sink(data, done)
            done += len(data)
        if state.intdigest() != piece.hash:
            raise WrongContentError(f"the bytes of block {piece.block} that came are damaged")

    def skip(self, piece: Piece) -> None:
        """Take the bytes of a piece that is not wanted any more."""
        left = piece.length
        while left > 0:
            left -= len(self._receive(min(BUFFER_BYTES, left)))

    def _receive(self, length: int) -> memoryview:
        view = self._buffer[:length]
        if self._channel.receive_into(view) < length:
            raise FrameError("the connection ended in the middle of a block")
        return view
