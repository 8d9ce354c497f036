"""Stages that keep only what arrives at them, and compute their forward again when the backward comes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline.values import tensors_of


def computed_again(compute: Callable[..., Any], module: nn.Module, arguments: Sequence[Any]) -> Any:
    """What `compute` makes of the arguments. For the backward it is called again, with the same random numbers.

    Buffers of the module, such as running statistics, are as if it had been called once.

    Raises:
        PlanError: It changes what arrives in place.
    """
    first = True
    arrived = [(tensor, tensor._version) for argument in arguments for tensor in tensors_of(argument)]

    def computed(*given: Any) -> Any:
        nonlocal first
        if first:
            first = False
            return compute(*given)
        before = [(buffer, buffer.clone()) for buffer in module.buffers()]
        try:
            return compute(*given)
        finally:
            with torch.no_grad():
                for buffer, value in before:
                    buffer.copy_(value)

    output = checkpoint(computed, *arguments, use_reentrant=False)
    if any(tensor._version != version for tensor, version in arrived):
        raise PlanError(
            "a stage changes what arrives at it in place, so its forward cannot be computed again from that; plan "
            "without --recompute, or copy the input in the model first"
        )
    return output
