"""Modules that repeat what a graph of operators alone would lose: contexts, recomputation, the mode of the model.

A traced forward is a list of calls. `with torch.autocast(...)`, `with torch.no_grad()` and checkpoints are none, and
`self.training` was read when the forward was traced. Each of these modules stands for a call in its place.
"""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Context:
    """What of PyTorch's state a call depends on."""

    gradients: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    """The device types with autocast, and to what they cast."""

    @classmethod
    def now(cls) -> "Context":
        """The one of this moment."""
        casts = [
            (device, torch.get_autocast_dtype(device))
            for device in DEVICES
            if torch.is_autocast_enabled(device)
        ]
        return cls(torch.is_grad_enabled() and not torch.is_inference_mode_enabled(), tuple(casts))

    @contextlib.contextmanager
    def entered(self, outside: "Context") -> Iterator[None]:
        """The same again, where `outside` is what tracing began with. A no_grad around the whole call stays."""
        with contextlib.ExitStack() as stack:
            if self.gradients != outside.gradients:
                stack.enter_context(torch.set_grad_enabled(self.gradients))
            for device in DEVICES:
                inner, outer = dict(self.autocast).get(device), dict(outside.autocast).get(device)
                if inner != outer:
                    stack.enter_context(torch.autocast(device, dtype=inner, enabled=inner is not None))
            yield


@functools.cache
def applied(function: Any) -> Callable[..., Any]:
    """The call of a function with a backward of its own (torch.autograd.Function), as a graph can hold it."""

    def apply(*arguments: Any, **named: Any) -> Any:
        return function.apply(*arguments, **named)

    apply.__name__ = function.__name__.lower()
    return apply


@functools.cache
def scripted(function: Any) -> Callable[..., Any]:
    """The call of a function of TorchScript, as a graph can hold it; `written` is what it was made from, if known."""

    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    call.__name__ = function.name
    call.written = getattr(function, "_torchdynamo_inline", None)  # type: ignore[attr-defined]
    return call


class Kept(nn.Module):
    """A call with more to it than its operator; `title` describes the operator."""

    title = ""


class InContext(Kept):
    """A module, function or method that is called in a context of its own."""

    def __init__(
        self, target: nn.Module | Callable[..., Any] | str, context: Context, outside: Context, *, title: str
    ) -> None:
        super().__init__()
        self.target, self.context, self.outside, self.title = target, context, outside, title

    def forward(self, *arguments: Any, **named: Any) -> Any:
        with self.context.entered(self.outside):
            if isinstance(self.target, str):
                return getattr(arguments[0], self.target)(*arguments[1:], **named)
            return self.target(*arguments, **named)


class Recomputed(Kept):
    """A part that computes its forward again when its gradients are needed (torch.utils.checkpoint).

    The reentrant kind cannot be used under `torch.autograd.grad`. What it computes is the same, but for one thing that
    is kept: where no argument has a gradient, its parameters get none either.
    """

    def __init__(self, inner: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant
        self.title = "checkpoint"

    def forward(self, *arguments: Any) -> Any:
        if self.reentrant and not any(
            isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments
        ):
            with torch.no_grad():
                return self.inner(*arguments)
        return checkpoint(self.inner, *arguments, use_reentrant=False)


class ByMode(Kept):
    """A function or method with other constants in training than in evaluation, such as dropout."""

    def __init__(
        self,
        target: Callable[..., Any] | str,
        places: Sequence[int],
        names: Sequence[str],
        training: Sequence[Any],
        evaluation: Sequence[Any],
        *,
        title: str,
    ) -> None:
        super().__init__()
        self.target, self.places, self.names, self.title = target, tuple(places), tuple(names), title
        self.constants = {True: tuple(training), False: tuple(evaluation)}

    def forward(self, *arguments: Any, **named: Any) -> Any:
        whole, constants = list(arguments), self.constants[self.training]
        for place, value in zip(self.places, constants, strict=False):
            whole[place] = value
        named.update(zip(self.names, constants[len(self.places) :], strict=True))
        if isinstance(self.target, str):
            return getattr(whole[0], self.target)(*whole[1:], **named)
        return self.target(*whole, **named)


class Shared(Kept):
    """Parameters that several layers use: a layer of its own, so that they can travel to those in later stages."""

    def __init__(self, names: Sequence[str], parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.held = nn.ParameterList(parameters)
        self.title = f"Shared({', '.join(names)})"

    def forward(self) -> Any:
        values = tuple(self.held)
        return values if len(values) > 1 else values[0]


class Borrowing(Kept):
    """A module of which some parameters come as arguments, behind its own; the module that it is given stays whole."""

    def __init__(self, inner: nn.Module, names: Sequence[Sequence[str]], *, title: str) -> None:
        super().__init__()
        self.inner = _shell(inner)
        self.names = tuple(tuple(group) for group in names)
        self.title = title
        for owner, last in self._places():
            owner._parameters[last] = None

    def forward(self, *arguments: Any, **named: Any) -> Any:
        inner_arguments, groups = arguments[: -len(self.names)], arguments[-len(self.names) :]
        values = [
            tensor for group in groups for tensor in (group if isinstance(group, (tuple, list)) else (group,))
        ]
        places = self._places()
        try:
            for (owner, last), value in zip(places, values, strict=True):
                owner._parameters.pop(last, None)
                owner.__dict__[last] = value
            for owner in {id(owner): owner for owner, _ in places}.values():
                if isinstance(owner, nn.RNNBase):
                    owner.__dict__["_flat_weights"] = [
                        getattr(owner, name) for name in owner._flat_weights_names
                    ]
            return self.inner(*inner_arguments, **named)
        finally:
            for owner, last in places:
                owner.__dict__.pop(last, None)
                owner._parameters[last] = None

    def _places(self) -> list[tuple[nn.Module, str]]:
        places = []
        for name in (name for group in self.names for name in group):
            owner, _, last = name.rpartition(".")
            places.append((self.inner.get_submodule(owner), last))
        return places


def _shell(module: nn.Module) -> nn.Module:
    """A module of its own with the same tensors."""
    shell = copy.copy(module)
    shell.__dict__ = dict(module.__dict__)
    shell._parameters = dict(module._parameters)
    shell._buffers = dict(module._buffers)
    shell._modules = {
        name: None if child is None else _shell(child) for name, child in module._modules.items()
    }
    return shell
