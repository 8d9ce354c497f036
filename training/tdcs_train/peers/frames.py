"""Frames: what travels over a connection between two workers.

A frame is a fixed head (magic, kind, protocol, credits, lengths), whole numbers of 8 bytes each, the layout of its
content (:mod:`tdcs_train.peers.layouts`) and, as payload, the bytes of tensors, each at a multiple of 64. Who takes a
frame decodes it: a thread that only receives does not touch torch, so it takes little time from the thread that
computes.
"""

import functools
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy
import torch

from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.layouts import ALIGNED, Layouts

PROTOCOL = 3
"""Changes with anything that a peer of another version would misread."""
MAGIC = b"TDCT"
_HEAD = struct.Struct("!4sBIBHIQ")
_MOST_LAYOUT = 16 << 20
_TOGETHER = 64 << 10
"""Bytes of tensors that leave in one piece with their header: each piece wakes the receiver."""
_CLOSED = "the connection was closed"


class Kind(IntEnum):
    """What a frame is for."""

    DATA = 1
    CREDIT = 2
    ABORT = 3
    HELLO = 4


_KINDS = frozenset(Kind)


@dataclass(frozen=True)
class Frame:
    """A frame with the value that it carries; `header` holds plain fields.

    `credits` are registers that the receiver of this frame may use again.
    """

    kind: Kind
    header: dict[str, Any]
    value: Any = None
    credits: int = 0


@dataclass(frozen=True)
class Encoded:
    """A frame ready to be sent, but for its credits. The bytes of tensors are those of the tensors themselves."""

    kind: Kind
    numbers: bytes
    layout: bytes
    parts: Sequence[memoryview | bytes]
    size: int
    """Bytes of the payload."""


@dataclass(frozen=True)
class Arrived:
    """A frame as it came, not decoded."""

    kind: Kind
    credits: int
    numbers: Sequence[int]
    layout: bytes
    payload: memoryview


def encode(frame: Frame, *, layouts: Layouts | None = None) -> Encoded:
    """Puts a frame into bytes. Raises PeerError for a value that cannot travel.

    `layouts` are those that were sent before; they make it faster.
    """
    description = (layouts or Layouts()).described((frame.header, frame.value))
    parts: list[memoryview | bytes] = []
    size = 0
    for tensor in description.tensors:
        if gap := -size % ALIGNED:
            parts.append(bytes(gap))
        parts.append(_bytes_of(tensor))
        size += gap + len(parts[-1])
    return Encoded(frame.kind, _packed(description.numbers), description.layout, parts, size)


def write(connection: socket.socket, frame: Frame) -> int:
    """Sends a frame; returns the bytes of its payload."""
    return send(connection, encode(frame), credits=frame.credits)


def send(connection: socket.socket, encoded: Encoded, *, credits: int) -> int:
    """Sends a frame that is encoded; returns the bytes of its payload."""
    head = _head(encoded, credits)
    if encoded.size <= _TOGETHER:
        connection.sendall(b"".join((head, *encoded.parts)))
        return encoded.size
    connection.sendall(head)
    for part in encoded.parts:
        connection.sendall(part)
    return encoded.size


def send_now(connection: socket.socket, encoded: Encoded, *, credits: int) -> memoryview:
    """Sends what the kernel takes at once of a frame that is encoded; returns the rest. Meant for small ones."""
    whole = memoryview(b"".join((_head(encoded, credits), *encoded.parts)))
    try:
        return whole[connection.send(whole, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return whole


def _head(encoded: Encoded, credits: int) -> bytes:
    lengths = len(encoded.numbers) // 8, len(encoded.layout), encoded.size
    head = _HEAD.pack(MAGIC, encoded.kind, PROTOCOL, credits, *lengths)
    return b"".join((head, encoded.numbers, encoded.layout))


Fill = Callable[[memoryview], None]
"""Fills memory with the next bytes of a connection. Raises OSError when it ends before."""


class Inlet:
    """Reads ahead from a socket, so that a small frame takes one call of the kernel and not one for each of its parts.

    What is larger than the buffer goes straight to its place. The socket must have no other reader.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._memory = memoryview(bytearray(_TOGETHER))
        self._begin = self._end = 0

    def wait(self) -> None:
        """Returns when there is something to read. Raises OSError when nothing more comes, or as the socket does."""
        if self._begin == self._end:
            self._begin, self._end = 0, self._socket.recv_into(self._memory)
            if not self._end:
                raise ConnectionResetError(_CLOSED)

    def fill(self, memory: memoryview) -> None:
        """Fills memory with the next bytes."""
        while memory:
            if self._begin == self._end and len(memory) >= len(self._memory):
                _fill(self._socket, memory)
                return
            self.wait()
            count = min(len(memory), self._end - self._begin)
            memory[:count] = self._memory[self._begin : self._begin + count]
            memory = memory[count:]
            self._begin += count


def read(connection: socket.socket, *, peer: str) -> Frame:
    """The next frame, decoded, and nothing behind it. Raises as :func:`receive` and :func:`decode`."""
    return decode(receive(functools.partial(_fill, connection), peer=peer), peer=peer)


def receive(fill: Fill, *, peer: str) -> Arrived:
    """The next frame. Raises PeerError for bytes that are no frame of this version, and OSError when it ends."""
    head = bytearray(_HEAD.size)
    fill(memoryview(head))
    magic, kind, protocol, credits, count, length, size = _HEAD.unpack(head)
    if magic != MAGIC:
        raise PeerError(f"{peer} does not speak the protocol of tdcs-train (it began with {bytes(magic)!r})")
    if protocol != PROTOCOL:
        raise PeerError(
            f"{peer} speaks version {protocol} of the protocol, this worker version {PROTOCOL}; use the same "
            "tdcs-train for all workers"
        )
    if length > _MOST_LAYOUT or kind not in _KINDS:
        raise PeerError(
            f"{peer} sent a frame of kind {kind} with a layout of {length} bytes, which means nothing"
        )
    header = bytearray(8 * count + length)
    fill(memoryview(header))
    try:
        payload = (
            memoryview(bytearray(size)) if size <= _TOGETHER else numpy.empty(size, dtype=numpy.uint8).data
        )
    except (MemoryError, ValueError) as error:
        raise PeerError(f"{peer} sent a frame of {size} bytes, for which there is no memory") from error
    fill(payload)
    numbers = struct.unpack_from(f"!{count}q", header)
    return Arrived(Kind(kind), credits, numbers, bytes(header[8 * count :]), payload)


def decode(arrived: Arrived, *, peer: str, layouts: Layouts | None = None) -> Frame:
    """The fields and the value of a frame; its tensors lie in its payload. Raises PeerError if it cannot be read.

    `layouts` are those that came before; they make it faster.
    """
    try:
        layout = (layouts or Layouts()).layout(arrived.layout)
        header, value = layout.value(arrived.payload, arrived.numbers)
        if not isinstance(header, dict):
            raise TypeError(f"its fields are {header!r}")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        # RuntimeError is what torch raises for a shape or a size that cannot be
        raise PeerError(f"{peer} sent a layout that cannot be read: {error}") from error
    return Frame(arrived.kind, header, value, arrived.credits)


def _packed(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"!{len(numbers)}q", *numbers)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor; of a copy if that is not in one piece, or not the processor's."""
    plain = tensor.detach() if tensor.requires_grad else tensor
    if plain.dtype is torch.float32 and plain.is_cpu and plain.is_contiguous() and plain.numel():
        return memoryview(plain.numpy()).cast("B")
    return memoryview(plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def _fill(connection: socket.socket, memory: memoryview) -> None:
    while memory:
        count = connection.recv_into(memory)
        if not count:
            raise ConnectionResetError(_CLOSED)
        memory = memory[count:]
