"""A client's side of a connection to a block service, without its socket: what it says, and what comes of that."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from tdcs.node.wire import frames
from tdcs.node.wire.frames import FrameError, Piece

CHUNK_BYTES: Final = frames.PART_BYTES
"""The content of larger answers comes in chunks of this size."""
_BUFFER_BYTES: Final = CHUNK_BYTES + 65536
_HEAD: Final = frames.PIECE.size


class Asked(Protocol):
    @property
    def block(self) -> int: ...

    @property
    def length(self) -> int:
        """The most bytes that the answer has; `frames.WHOLE`: as many as the block has."""
        ...


Q = TypeVar("Q", bound=Asked)


class Chunk(NamedTuple, Generic[Q]):
    """A part of an answer: its content from `offset` on. Of a block that is not there it is empty, and the last one."""

    question: Q
    piece: Piece
    content: memoryview
    offset: int
    last: bool


class AnswerStream(Generic[Q]):
    """Answers come in the order of the questions. Who has the connection sends `out`, receives into `space`, says so to
    `received`, and takes the chunks that are there.

    Args:
        address: of the agent.
        lends: whether the content of a whole chunk stays what it is: its memory is not used again. That of others does
            so until the next call.

    Attributes:
        out: bytes to be sent.
        expected: what was asked and is not answered.
        greeted: whether the agent has welcomed this client. What is asked before is held back.
    """

    def __init__(self, *, address: str, lends: bool) -> None:
        self._address: Final = address
        self._lends: Final = lends
        self.out: Final = bytearray(frames.greeting())
        self.expected: Final[deque[Q]] = deque()
        self.greeted = False
        self._held: Final = bytearray()
        self._buffer = _memory()
        self._have = 0
        self._consumed = 0
        # The answer of which content is coming: how long that is, from where on it comes, and where in the buffer.
        self._piece: Piece | None = None
        self._length = self._offset = self._begin = 0

    def ask(self, questions: Iterable[Q], request: bytes) -> None:
        """Queue a request, and expect an answer to each of these."""
        self.expected.extend(questions)
        (self.out if self.greeted else self._held).extend(request)

    def certain(self) -> int:
        """Bytes that come before it is known what follows."""
        self._drop_consumed()
        if not self.greeted:
            return frames.GREETING.size - self._have
        if self._piece is not None:
            return self._begin + min(CHUNK_BYTES, self._length - self._offset) - self._have
        return _HEAD - self._have

    def hoped(self) -> int:
        """As `certain`; where a header comes next, with the content that was asked for."""
        length = self.certain()
        if self.greeted and self._piece is None and self.expected:
            length += min(CHUNK_BYTES, max(0, self.expected[0].length))
        return max(1, length)

    def space(self, length: int) -> memoryview:
        return self._buffer[self._have : self._have + length]

    def received(self, length: int) -> None:
        self._have += length

    def next(self) -> Chunk[Q] | None:
        """The next chunk that is there as a whole; raises FrameError."""
        self._drop_consumed()
        if not self.greeted:
            self._take_greeting()
        while self.greeted and (self._piece is not None or self._have >= _HEAD):
            if self._piece is None:
                self._take_header()
                continue
            end = self._begin + min(CHUNK_BYTES, self._length - self._offset)
            if self._have < end:
                return None
            content, offset = self._buffer[self._begin : end], self._offset
            self._consumed, self._begin, self._offset = end, 0, offset + len(content)
            piece, last = self._piece, self._offset == self._length
            if not last:
                return Chunk(self.expected[0], piece, content, offset, last)
            self._piece = None
            return Chunk(self.expected.popleft(), piece, content, offset, last)
        return None

    def _take_greeting(self) -> None:
        if self._have < frames.GREETING.size:
            return
        frames.check_greeting(self._buffer[: frames.GREETING.size], address=self._address)
        self._have, self.greeted = 0, True
        self.out.extend(self._held)
        self._held.clear()

    def _take_header(self) -> None:
        if not self.expected:
            raise FrameError("an answer that was not asked for")
        piece, question = Piece(*frames.PIECE.unpack_from(self._buffer)), self.expected[0]
        if piece.block != question.block or piece.length > question.length != frames.WHOLE:
            raise FrameError(
                f"the answer is {piece.length} bytes of block {piece.block}, not of {question.block}"
            )
        if piece.length == frames.WAITING:  # that it came is all that it says
            self._consumed = _HEAD
            self._drop_consumed()
            return
        self._length = piece.size if piece.length == frames.REFUSED else max(0, piece.length)
        if piece.length < 0 and self._length > CHUNK_BYTES:
            raise FrameError(f"a reason of {self._length} bytes")
        self._piece, self._offset, self._begin = piece, 0, _HEAD

    def _drop_consumed(self) -> None:
        if not self._consumed:
            return
        come, remaining = self._buffer, self._have - self._consumed
        if self._lends and self._consumed >= CHUNK_BYTES:
            self._buffer = _memory()
        if remaining:  # answers that follow one which was shorter than it could be
            self._buffer[:remaining] = bytes(come[self._consumed : self._have])
        self._have, self._consumed = remaining, 0


def _memory() -> memoryview:
    return np.empty(_BUFFER_BYTES, dtype=np.uint8).data
