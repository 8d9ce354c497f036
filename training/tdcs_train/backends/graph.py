"""What a back end sees of a model: matches to judge and regions to make code for, as frozen values without TVM.

Shapes are in elements, None stands for a dimension that is known only at run time. A `Step` is one operator of the
model, a `Node` is one match of a table's row (one or more steps), a `Region` is a convex set of neighbouring nodes that
one back end computes in one call.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Attribute = int | float | str | tuple[int, ...] | None


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor; `shape` is None when not even the number of dimensions is known."""

    shape: tuple[int | None, ...] | None
    dtype: str

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of a tensor that is known to be static.

        Raises:
            ValueError: a dimension is not known; a table's check must refuse such a match.
        """
        if self.shape is None or None in self.shape:
            raise ValueError(f"the shape {self.shape} is not static")
        return tuple(size for size in self.shape if size is not None)

    @property
    def static(self) -> bool:
        """Whether every dimension is known."""
        return self.shape is not None and None not in self.shape

    @property
    def elements(self) -> int:
        """How many elements the tensor has; static shapes only."""
        return math.prod(self.dims)


@dataclass(frozen=True)
class Step:
    """One operator of the model, as TVM names it without the prefix `relax.`.

    `sources` says where each input comes from: the number of an earlier step of the same match or node, or None for a
    value from outside it.
    """

    op: str
    inputs: tuple[TensorType, ...]
    output: TensorType
    sources: tuple[int | None, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: MappingProxyType({}))

    def attribute_ints(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of integers.

        Raises:
            ValueError: the attribute is absent or something else.
        """
        value = self.attributes.get(name)
        if isinstance(value, int):
            return (value,)
        if not isinstance(value, tuple):
            raise ValueError(f"{self.op} has no list of integers {name}")
        return value


@dataclass(frozen=True)
class Match:
    """What a row's pattern has matched, in execution order; the last step is the one that others see."""

    steps: tuple[Step, ...]

    def find(self, op: str) -> Step | None:
        """The first step with this operator."""
        return next((step for step in self.steps if step.op == op), None)


@dataclass(frozen=True)
class Input:
    """A tensor that enters a region; a weight is the same at every call and is bound once when the model is loaded."""

    id: int
    type: TensorType
    weight: bool = False


@dataclass(frozen=True)
class Node:
    """One match inside a region.

    `kind` is the row's name, `inputs` the ids of the tensors that the steps take from outside the node, in the order in
    which the steps take them. The node's own id is that of its output.
    """

    id: int
    kind: str
    inputs: tuple[int, ...]
    output: TensorType
    steps: tuple[Step, ...]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True)
class Region:
    """A convex part of the model that one back end computes.

    Ids are dense: first the inputs, then the nodes in execution order. `outputs` are the ids of the tensors that the
    rest of the model reads, in the order of the caller's last arguments.
    """

    symbol: str
    backend: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def type_of(self, tensor: int) -> TensorType:
        """Shape and element type of the tensor with this id."""
        if tensor < len(self.inputs):
            return self.inputs[tensor].type
        return self.nodes[tensor - len(self.inputs)].output
