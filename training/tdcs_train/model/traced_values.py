"""What a value of a forward says of itself while the forward is traced: its type, its length, and branches on it."""

import dis
import operator
import sys
import types
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

import torch
from torch import fx
from torch.fx.proxy import Attribute

UNKNOWN = object()
"""What a node computes, where that is not known."""


_OF_TYPE = frozenset({"dtype", "ndim", "layout", "is_cuda", "is_sparse", "is_quantized"})
"""Properties of a tensor that its type and rank decide, and no input of the same kind changes."""


class Untraceable(Exception):
    """Why a forward, or a module in it, cannot be traced."""


def with_item(values: torch.Tensor, key: Any, item: Any) -> torch.Tensor:
    """The tensor with an item set, as `values[key] = item` leaves it."""
    values = values.clone()
    values[key] = item
    return values


class Refusing(Protocol):
    """What a traced value asks of its `Tracer`, whose module imports this one."""

    def refuse(self, reason: str) -> NoReturn: ...
    def specialised(self, node: fx.Node, what: str) -> Any: ...
    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any: ...


class TracedValue:
    """What a proxy can say of itself while a forward is traced."""

    tracer: Refusing
    node: fx.Node

    @property
    def known(self) -> Any:
        return self.node.meta.get("value", UNKNOWN)

    def concrete(self, what: str) -> Any:
        """The value, which the graph from now on depends on. Raises Untraceable."""
        return self.tracer.specialised(self.node, what)

    def __bool__(self) -> bool:
        return bool(self.concrete("a branch on"))

    def __int__(self) -> int:
        return int(self.concrete("a number made of"))

    def __index__(self) -> int:
        return operator.index(self.concrete("a number made of"))

    def __float__(self) -> float:
        return float(self.concrete("a number made of"))

    def __len__(self) -> int:
        value = self.known
        if value is UNKNOWN or not hasattr(value, "__len__"):
            self.tracer.refuse(f"the length of {self.node.name} is needed")
        if isinstance(value, torch.Tensor):
            return int(self.tracer.create_proxy("call_method", "size", (self, 0), {}))
        return len(value)

    def __iter__(self) -> Iterator[Any]:
        value = self.known
        if value is UNKNOWN or not hasattr(value, "__len__"):
            count = _unpacked(sys._getframe(1))
            if count is None:
                self.tracer.refuse(f"a loop over {spoken(self.node)} depends on the data")
            return iter([self[number] for number in range(count)])  # type: ignore[index]
        return iter([self[number] for number in range(len(self))])  # type: ignore[index]

    def __contains__(self, other: Any) -> bool:
        return other in self.concrete("a look into")

    def become(self, proxy: fx.Proxy) -> Any:
        """Stands for another node from now on, for all who hold this value: what an operator in place amounts to."""
        self.__dict__["_node" if isinstance(self, Attribute) else "node"] = proxy.node
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.become(self.tracer.create_proxy("call_function", with_item, (self, key, value), {}))


class ValueProxy(TracedValue, fx.Proxy):
    """A value while a forward is traced."""

    def __getattr__(self, name: str) -> Any:
        if name in _OF_TYPE and isinstance(self.known, torch.Tensor):
            return getattr(self.known, name)
        if name == "requires_grad":
            self.tracer.refuse(
                f"whether {spoken(self.node)} needs a gradient is asked, which only a run knows"
            )
        if name == "_is_param":  # what isinstance(x, nn.Parameter) asks for
            return False
        value = self.known
        if value is not UNKNOWN and not isinstance(value, torch.Tensor) and not hasattr(value, name):
            raise AttributeError(name)
        return ValueAttribute(self, name)


for _name, _operator in {
    "__iadd__": operator.add,
    "__isub__": operator.sub,
    "__imul__": operator.mul,
    "__itruediv__": operator.truediv,
}.items():
    setattr(ValueProxy, _name, lambda self, other, _operator=_operator: self.become(_operator(self, other)))


class ValueAttribute(TracedValue, Attribute):
    """An attribute of one, which may be a method."""

    def __getattr__(self, name: str) -> Any:
        if self.attr == "device" and name in ("type", "index"):
            return getattr(self.concrete("a choice by"), name)
        return ValueAttribute(self, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        example = self.root.known
        plain = self.attr.removesuffix("_")
        if (
            self.attr.endswith("_")
            and not self.attr.endswith("__")
            and callable(getattr(torch.Tensor, plain, None))  # requires_grad is a property
        ):
            # the graph has no operators in place: a later stage may still need what was there before
            return self.root.become(
                self.tracer.create_proxy("call_method", plain, (self.root, *arguments), named)
            )
        if self.attr in ("dim", "ndimension", "is_floating_point", "is_complex") and isinstance(
            example, torch.Tensor
        ):
            return getattr(example, self.attr)()
        return super().__call__(*arguments, **named)


def _unpacked(frame: types.FrameType) -> int | None:
    """How many names the line of a frame unpacks a value into, as `a, b = value` does."""
    instruction = next(
        instruction
        for instruction in dis.get_instructions(frame.f_code)
        if instruction.offset == frame.f_lasti
    )
    return instruction.argval if instruction.opname == "UNPACK_SEQUENCE" else None


def spoken(node: fx.Node, depth: int = 0) -> str:
    """A node as a person would write it."""
    parts = [
        spoken(argument, depth + 1) if isinstance(argument, fx.Node) else str(argument)
        for argument in node.args
    ]
    signs = {
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
        "eq": "==",
        "ne": "!=",
        "mod": "%",
        "add": "+",
        "sub": "-",
    }
    name = getattr(node.target, "__name__", str(node.target))
    if depth > 3 or node.op in ("placeholder", "get_attr", "call_module"):
        return str(node.target) if node.op != "call_module" else node.name
    if name in signs and len(parts) == 2:
        return f"{parts[0]} {signs[name]} {parts[1]}"
    if name == "getitem":
        return f"{parts[0]}[{parts[1]}]"
    if name == "getattr":
        return f"{parts[0]}.{parts[1]}"
    if node.op == "call_method":
        return f"{parts[0]}.{name}({', '.join(parts[1:])})"
    return f"{name}({', '.join(parts)})"
