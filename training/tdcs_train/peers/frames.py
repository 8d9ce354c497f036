"""Frames: what travels over a connection between two workers.

A frame is a fixed head (magic, kind, lengths), a JSON header and the bytes of tensors, one after another. A value is
described in the header: {"tensor": index}, {"tuple": [...]}, {"list": [...]} or {"plain": value}.
"""

import json
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

from tdcs_train.peers.errors import PeerError

PROTOCOL = 1
"""Changes with anything that a peer of another version would misread."""
MAGIC = b"TDCT"
_HEAD = struct.Struct("!4sBII")
_MOST_HEADER = 16 << 20
_PLAIN = (int, float, bool, str, type(None))


class Kind(IntEnum):
    """What a frame is for."""

    DATA = 1
    CREDIT = 2
    ABORT = 3
    HELLO = 4


@dataclass(frozen=True)
class Frame:
    """A frame with the value that it carries; `header` holds plain fields."""

    kind: Kind
    header: dict[str, Any]
    value: Any = None


def write(connection: socket.socket, frame: Frame) -> int:
    """Sends a frame; returns the bytes of its tensors."""
    tensors: list[torch.Tensor] = []
    described = _described(frame.value, tensors)
    listed = [[str(t.dtype).removeprefix("torch."), list(t.shape), t.requires_grad] for t in tensors]
    header = json.dumps({**frame.header, "value": described, "tensors": listed}).encode()
    connection.sendall(_HEAD.pack(MAGIC, frame.kind, PROTOCOL, len(header)) + header)
    for tensor in tensors:
        connection.sendall(_bytes_of(tensor))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def read(connection: socket.socket, *, peer: str) -> Frame:
    """The next frame. Raises PeerError for bytes that are no frame of this version, and OSError when it ends."""
    head = bytearray(_HEAD.size)
    _fill(connection, memoryview(head))
    magic, kind, protocol, length = _HEAD.unpack(head)
    if magic != MAGIC:
        raise PeerError(f"{peer} does not speak the protocol of tdcs-train (it began with {bytes(magic)!r})")
    if protocol != PROTOCOL:
        raise PeerError(
            f"{peer} speaks version {protocol} of the protocol, this worker version {PROTOCOL}; use the same "
            "tdcs-train "
            "for all workers"
        )
    if length > _MOST_HEADER or kind not in list(Kind):
        raise PeerError(
            f"{peer} sent a frame of kind {kind} with a header of {length} bytes, which means nothing"
        )
    raw = bytearray(length)
    _fill(connection, memoryview(raw))
    try:
        header = json.loads(raw)
        tensors = [_received(connection, *entry) for entry in header.pop("tensors")]
        value = _value(header.pop("value"), tensors)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise PeerError(f"{peer} sent a header that cannot be read: {error}") from error
    return Frame(Kind(kind), header, value)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy())


def _received(
    connection: socket.socket, dtype: str, shape: list[int], requires_gradient: bool
) -> torch.Tensor:
    kind = getattr(torch, dtype)
    size = torch.Size(shape).numel() * torch.empty((), dtype=kind).element_size()
    memory = torch.empty(size, dtype=torch.uint8)
    _fill(connection, memoryview(memory.numpy()))
    tensor = memory.view(kind).reshape(shape)
    return tensor.requires_grad_(requires_gradient)


def _fill(connection: socket.socket, memory: memoryview) -> None:
    while memory:
        count = connection.recv_into(memory)
        if not count:
            raise ConnectionResetError("the connection was closed")
        memory = memory[count:]


def _described(value: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, dict):
        return {"dict": {str(name): _described(part, tensors) for name, part in value.items()}}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_described(part, tensors) for part in value]}
    if isinstance(value, _PLAIN):
        return {"plain": value}
    raise PeerError(f"a {type(value).__name__} cannot travel between stages; cut the model elsewhere")


def _value(described: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    ((kind, content),) = described.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {name: _value(part, tensors) for name, part in content.items()}
    if kind in ("tuple", "list", "Size"):
        parts = [_value(part, tensors) for part in content]
        return parts if kind == "list" else tuple(parts)
    return content
