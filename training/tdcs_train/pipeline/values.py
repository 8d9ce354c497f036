"""What travels between stages for a mini-batch: tensors, tuples of them and plain numbers, by name."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

Gradients = list[torch.Tensor | None]
"""The gradient of each tensor of a value, in the order of :func:`tensors_of`."""


@dataclass(frozen=True)
class Packet:
    """The values of a mini-batch at a cut by their names in the model's graph; going back, their gradients.

    A tensor that needs a gradient has `requires_grad`. `version` is the number of mini-batches that the weights seen at
    the input stage include (vertical sync).
    """

    batch: int
    values: dict[str, Any]
    version: int = 0


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a value that may be a tuple, such as the state of an LSTM."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def detached(value: Any) -> Any:
    """A value without the graph that made it: what leaves a stage, and what another one begins with.

    What needs a gradient is a tensor of its own each time: one that came under two names would be given the gradient
    of both twice.
    """

    def leaf(part: Any) -> Any:
        if not isinstance(part, torch.Tensor) or not part.requires_grad:
            return part
        return part.detach().requires_grad_()

    return leaf(value) if isinstance(value, torch.Tensor) else pytree.tree_map(leaf, value)
