"""The requests of one caller of a block service: those that have come are known before the first one is answered."""

from __future__ import annotations

from typing import Final, NamedTuple

from tdcs.node.wire import frames
from tdcs.node.wire.channel import Channel
from tdcs.node.wire.frames import FrameError

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
        """The next request, if all of it has come, and it is for blocks. Raises FrameError."""
        if len(self._come) < frames.REQUEST.size:
            return None
        length = self._length()
        if len(self._come) < length or frames.REQUEST.unpack_from(self._come)[0] != frames.READ:
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
