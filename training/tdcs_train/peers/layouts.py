"""How a value lies in a frame: what is written beside its tensors and whole numbers.

A layout is JSON: ["tensor", type, shape, needs a gradient], ["number"], ["plain", JSON], or "dict", "list" and "tuple"
with the layouts of their parts. Packets between two stages look alike, so both ends keep the layouts that they have
seen: such a packet costs a look into a table and not the making and reading of JSON.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tdcs_train.peers.errors import PeerError

ALIGNED = 64
"""Tensors begin at multiples of this many bytes: vector instructions read them fastest there."""
KEPT = 64
"""Layouts that an end keeps of each kind; models of which every packet looks different gain nothing by them."""
MOST_NUMBERS = 0xFFFF
_PLAIN = (int, float, bool, str, type(None))
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Described:
    """A value taken apart."""

    layout: bytes
    tensors: Sequence[torch.Tensor]
    numbers: Sequence[int]


class Layout(Protocol):
    """A layout that was read."""

    def value(self, payload: memoryview, numbers: Sequence[int]) -> Any:
        """The value; its tensors lie in the payload."""


class Layouts:
    """The layouts that one end of a connection has seen; thread-safe."""

    def __init__(self) -> None:
        self._texts: dict[Any, bytes] = {}
        self._read: dict[bytes, Layout] = {}

    def described(self, value: Any) -> Described:
        """Takes a value apart. Raises PeerError for one that cannot travel."""
        tensors: list[torch.Tensor] = []
        numbers: list[int] = []
        signature = _signature(value, tensors, numbers)
        text = self._texts.get(signature)
        if text is None:
            text = json.dumps(signature, default=_type_name).encode()
            if len(self._texts) >= KEPT:
                self._texts.clear()
            self._texts[signature] = text
        return Described(text, tensors, numbers)

    def layout(self, text: bytes) -> Layout:
        """A layout that came. Raises ValueError, TypeError, AttributeError or RuntimeError for what is none."""
        layout = self._read.get(text)
        if layout is None:
            layout = _Reader().layout(json.loads(text))
            if len(self._read) >= KEPT:
                self._read.clear()
            self._read[text] = layout
        return layout


def _signature(value: Any, tensors: list[torch.Tensor], numbers: list[int]) -> tuple[Any, ...]:
    """The layout of a value, to be looked up; equal ones have equal JSON."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ("tensor", value.dtype, value.shape, value.requires_grad)
    if isinstance(value, dict):
        parts = [(str(name), _signature(part, tensors, numbers)) for name, part in value.items()]
        return ("dict", *parts)
    if isinstance(value, tuple | list):
        kind = "list" if isinstance(value, list) else "tuple"
        return (kind, *[_signature(part, tensors, numbers) for part in value])
    if type(value) is int and _LEAST <= value <= _MOST and len(numbers) < MOST_NUMBERS:
        numbers.append(value)
        return ("number",)
    if isinstance(value, _PLAIN):
        return ("plain", json.dumps(value))  # as JSON, because 1, 1.0 and True are equal
    raise PeerError(f"a {type(value).__name__} cannot travel between stages; cut the model elsewhere")


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class _Tensor:
    dtype: torch.dtype
    shape: tuple[int, ...]
    needs_gradient: bool
    count: int
    offset: int

    def value(self, payload: memoryview, numbers: Sequence[int]) -> Any:
        if self.count:
            tensor = torch.frombuffer(payload, dtype=self.dtype, count=self.count, offset=self.offset)
            if len(self.shape) != 1:
                tensor = tensor.view(self.shape)
        else:
            tensor = torch.empty(self.shape, dtype=self.dtype)
        return tensor.requires_grad_() if self.needs_gradient else tensor


@dataclass(frozen=True)
class _Number:
    index: int

    def value(self, payload: memoryview, numbers: Sequence[int]) -> Any:
        return numbers[self.index]


@dataclass(frozen=True)
class _Plain:
    content: Any

    def value(self, payload: memoryview, numbers: Sequence[int]) -> Any:
        return self.content


@dataclass(frozen=True)
class _Dict:
    parts: Sequence[tuple[str, Layout]]

    def value(self, payload: memoryview, numbers: Sequence[int]) -> Any:
        return {name: part.value(payload, numbers) for name, part in self.parts}


@dataclass(frozen=True)
class _List:
    parts: Sequence[Layout]
    kind: type

    def value(self, payload: memoryview, numbers: Sequence[int]) -> Any:
        return self.kind([part.value(payload, numbers) for part in self.parts])


class _Reader:
    """Reads a layout, and counts at which place of the payload and of the numbers its parts are."""

    def __init__(self) -> None:
        self._size = self._numbers = 0

    def layout(self, described: Any) -> Layout:
        kind, *parts = described
        if kind == "tensor":
            return self._tensor(*parts)
        if kind == "number":
            self._numbers += 1
            return _Number(self._numbers - 1)
        if kind == "plain":
            (text,) = parts
            return _Plain(json.loads(text))
        if kind == "dict":
            return _Dict([(str(name), self.layout(part)) for name, part in parts])
        if kind in ("list", "tuple"):
            return _List([self.layout(part) for part in parts], list if kind == "list" else tuple)
        raise ValueError(f"{kind!r} is no kind of value")

    def _tensor(self, name: str, shape: Sequence[int], needs_gradient: bool) -> Layout:
        dtype = getattr(torch, name)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"{name} is no type of a tensor")
        if any(length < 0 for length in shape):
            raise ValueError(f"the shape {shape} cannot be")
        count = math.prod(shape)
        offset = self._size + -self._size % ALIGNED
        self._size = offset + count * dtype.itemsize
        return _Tensor(dtype, tuple(shape), bool(needs_gradient), count, offset)
