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
from tdcs.node.wire.answers import AnswerStream, Chunk
from tdcs.node.wire.channel import Channel, receive, set_timeout, waiting_channel
from tdcs.node.wire.frames import FrameError, News, Piece, Wanted
from tdcs.trust.roles import Role

CONNECT_SECONDS: Final = 5.0

Sink = Callable[[memoryview, int], None]
"""Takes bytes of a piece and their offset in it."""


class WrongContentError(Exception):
    """The bytes that came have another hash than the giver said. Their number is compared by who asked for them."""


class BlockClient:
    """A connection to the block service of another agent. For one thread.

    Args:
        address: `host:port`.
        answer_seconds: a giver that sends nothing for so long is taken for dead.
        tls: of this process: the giver must show an agent's certificate then. None: plain TCP.

    Raises:
        OSError: Nothing answers there, or its certificate is refused, or this one's.
        FrameError: What answers is no block service, or one of another version of the protocol.
    """

    def __init__(self, *, address: str, answer_seconds: float, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS)
        self._connection: Final = connection
        self._answers: Final = AnswerStream[Wanted](address=address, lends=False)
        self._chunk: Chunk[Wanted]
        try:
            connection.settimeout(None)
            set_timeout(connection, seconds=answer_seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._channel: Final[Channel] = waiting_channel(
                connection, tls, host=Role.AGENT.host, seconds=answer_seconds
            )
            self._send()
            while not self._answers.greeted:
                self._receive()
                self._answers.next()
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
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

    def ask(self, requests: Sequence[Wanted]) -> None:
        """Send a request; `pieces` reads its answers later."""
        self._answers.ask(requests, frames.read_request(requests))
        self._send()

    def pieces(self, requests: Sequence[Wanted]) -> Iterator[Piece]:
        """Headers of the answers to a request, in order. After each that has bytes `take` or `skip` must be called."""
        for request in requests:
            self._chunk = self._next()
            frames.check_length(self._chunk.piece, request=request)
            yield self._chunk.piece

    def take(self, piece: Piece, sink: Sink) -> None:
        """Pass the bytes of a piece to `sink` as they come, and check them.

        Raises:
            WrongContentError: They are not what the giver's hash says. All have been taken; the connection goes on.
            FrameError: The connection ended.
        """
        if self._chunk.last:
            content_hash = xxhash.xxh3_64_intdigest(self._chunk.content)
            if content_hash == piece.hash:
                sink(self._chunk.content, 0)
        else:
            state = xxhash.xxh3_64()
            for chunk in self._chunks():
                state.update(chunk.content)
                sink(chunk.content, chunk.offset)
            content_hash = state.intdigest()
        if content_hash != piece.hash:
            raise WrongContentError(f"the bytes of block {piece.block} that came are damaged")

    def skip(self) -> None:
        """Take the bytes of a piece that is not wanted any more."""
        for _ in self._chunks():
            pass

    def _chunks(self) -> Iterator[Chunk[Wanted]]:
        yield self._chunk
        while not self._chunk.last:
            self._chunk = self._next()
            yield self._chunk

    def _next(self) -> Chunk[Wanted]:
        while (chunk := self._answers.next()) is None:
            self._receive()
        return chunk

    def _receive(self) -> None:
        # No more than what is sure to come: the connection would wait for the rest.
        space = self._answers.space(self._answers.certain())
        if self._channel.receive_into(space, whole=True) < len(space):
            raise FrameError("the connection ended in the middle of an answer")
        self._answers.received(len(space))

    def _send(self) -> None:
        self._channel.send(self._answers.out)
        self._answers.out.clear()
