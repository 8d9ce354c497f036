"""What a forward could change beside its result."""

import random
from typing import Any

import numpy
import torch
from torch import nn


def random_state() -> object:
    """That of all generators which a forward may draw from."""
    return (
        random.getstate(),
        str(numpy.random.get_state(legacy=False)),
        torch.random.get_rng_state().numpy().tobytes(),
    )


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module itself; PyTorch's own tables are none."""
    tables = ("_parameters", "_buffers", "_modules", "training")
    return {
        name: value
        for name, value in vars(module).items()
        if name not in tables and not name.startswith("_tensor_constant")
    }


def copied(module: nn.Module) -> nn.Module:
    """A module that may set attributes of its own; what is inside is shared."""
    other = module.__class__.__new__(module.__class__)
    other.__dict__.update(module.__dict__)
    other._buffers = dict(module._buffers)
    return other
