"""Whether a traced graph computes what the model computes, on one mini-batch: outputs, gradients and buffers."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tdcs_train.model.errors import ModelError
from tdcs_train.model.tracing import TracedModel

RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""The same operators in the same order differ by rounding at most."""


def verify(
    model: nn.Module,
    traced: TracedModel,
    *,
    positional: Sequence[Any],
    named: Mapping[str, Any],
    loss: Callable[[Any], torch.Tensor],
) -> None:
    """Raises ModelError that says what differs. The model's buffers and random numbers are as before afterwards."""
    with _restored(model):
        expected = _outcome(lambda: model(*positional, **named), model, loss)
    with _restored(model):
        arguments = [*positional, *(named[name] for name in traced.inputs if name in named)]
        outcome = _outcome(lambda: traced.rebuild(traced.graph_module(*arguments)), model, loss)
    for quantity, expected_value in expected.items():
        graph_value = outcome.get(quantity)
        if not _agree(expected_value, graph_value):
            raise ModelError(
                f"the graph of {type(model).__name__} does not compute what the model computes: {quantity} differs "
                f"({_spoken(expected_value)}, in the graph {_spoken(graph_value)}). A forward that changes "
                f"views in place, or asks what its inputs are, is traced wrongly; {_remedy(model)}"
            )


def _remedy(model: nn.Module) -> str:
    """What to do, by whether there is a module that could be left whole."""
    names = [
        name
        for name, module in model.named_modules()
        if name and not type(module).__module__.startswith("torch.nn.")
    ]
    if not names:
        return (
            "it is the model's own forward: move what does so into a module of its own, and leave that whole "
            "(--leaf NAME)"
        )
    more = ", ..." if len(names) > 5 else ""
    return f"leave the module whole that does so (--leaf NAME, of {', '.join(names[:5])}{more})"


def _outcome(
    run: Callable[[], Any], model: nn.Module, loss: Callable[[Any], torch.Tensor]
) -> dict[str, torch.Tensor | None]:
    output = run()
    leaves = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    outcome: dict[str, torch.Tensor | None] = {
        f"output {number}": leaf.detach().clone() for number, leaf in enumerate(leaves)
    }
    outcome["the number of outputs"] = torch.tensor(len(leaves))
    value = loss(output)
    outcome["the loss"] = value.detach().clone()
    if value.requires_grad:
        value.backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        outcome[f"the gradient of {name}"] = None if gradient is None else _dense(gradient).clone()
        parameter.grad = None
    for name, buffer in model.named_buffers():
        outcome[f"the buffer {name}"] = buffer.detach().clone()
    return outcome


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_dense() if gradient.layout != torch.strided else gradient


def _agree(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point() and not one.is_complex():
        return bool(torch.equal(one, other))
    scale = float(one.abs().max()) if one.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=RELATIVE, atol=max(ABSOLUTE, 1e-4 * scale), equal_nan=True))


def _spoken(value: torch.Tensor | None) -> str:
    if value is None:
        return "none"
    text = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return (
        f"{text} of mean {float(value.double().mean()):.6g}"
        if value.numel() and not value.is_complex()
        else text
    )


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """The same random numbers and buffers for each run, and as before afterwards."""
    states = random.getstate(), numpy.random.get_state(), torch.random.get_rng_state()
    buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = None
    torch.manual_seed(0)
    try:
        yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.random.set_rng_state(states[2])
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
