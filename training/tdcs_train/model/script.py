"""What a training script offers for measuring: a model, mini-batches and a loss, by name."""

import contextlib
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tdcs_train.model.clocks import CudaClock, ProcessorClock
from tdcs_train.model.errors import ModelError
from tdcs_train.model.measuring import Subject


@contextlib.contextmanager
def imports_of(target: str) -> Iterator[None]:
    """Lets the script of `FILE.py:NAME` import its neighbours, as Python does for a script that it runs."""
    folder = str(Path(target.rpartition(":")[0]).resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a script may have taken it out itself
            sys.path.remove(folder)


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a file defines, by name."""

    file: str
    content: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Whether it defines the name."""
        return name in self.content

    def function(self, name: str, *, use: str) -> Callable[..., Any]:
        """A function of the file; `use` says in errors what for."""
        attribute = self._attribute(name, use)
        if not callable(attribute):
            raise ModelError(f"{self.file}: {name} is a {type(attribute).__name__}; it must be a function")
        function: Callable[..., Any] = attribute
        return function

    def module(self, name: str) -> Any:
        """The model that the name is, or that its function makes; a program of torch.export is one, too."""
        attribute = self._attribute(name, "the model")
        model = attribute
        if (
            callable(attribute)
            and not isinstance(attribute, nn.Module)
            and not hasattr(attribute, "graph_signature")
        ):
            model = _called(attribute, where=f"{self.file}: {name}", form=f"{name}()")
        if not isinstance(model, nn.Module) and not hasattr(model, "graph_signature"):
            raise ModelError(
                f"{self.file}: {name} is a {type(model).__name__}; it must be a module, or a function that makes one"
            )
        return model

    def _attribute(self, name: str, use: str) -> Any:
        if name not in self.content:
            offered = ", ".join(sorted(key for key in self.content if not key.startswith("_")))
            raise ModelError(f"{self.file} has no {name!r} for {use}; it has {offered or 'nothing'}")
        return self.content[name]


def read_script(target: str) -> tuple[Script, str]:
    """The file of `FILE.py:NAME`, run with `__name__` set to "profile", and the name.

    Raises ModelError for a file that is none, or that cannot be run.
    """
    file, colon, name = target.rpartition(":")
    if not (colon and file and name):
        raise ModelError(f"{target!r} is not FILE.py:NAME, such as train.py:model")
    path = Path(file)
    if not path.is_file():
        raise ModelError(f"{file} is no file; give the training script")
    try:
        content = runpy.run_path(str(path), run_name="profile")
    except SystemExit as error:
        raise ModelError(
            f"{file} ends itself while it is read (SystemExit: {error.code}); put what only training does below "
            '`if __name__ == "__main__":`'
        ) from error
    except Exception as error:  # a script raises anything
        raise ModelError(f"{file} cannot be run: {_said(error)}") from error
    return Script(file=file, content=content), name


def subject_of(
    target: str,
    *,
    batch: int,
    batch_name: str = "batch",
    loss_name: str = "loss",
    optimizer_name: str = "",
    device: torch.device | None = None,
) -> Subject:
    """The model that `FILE.py:NAME` names, with the file's functions for mini-batches and the loss.

    NAME is a module or a function that makes one. `batch_name` is a function of the number of samples that returns
    (inputs, labels); `loss_name` one of (output, labels); `optimizer_name`, if any, one of a list of parameters. The
    file is run with `__name__` set to "profile", so that what only training does belongs below
    `if __name__ == "__main__":`.

    Raises ModelError that names the file and what it lacks.
    """
    script, name = read_script(target)
    model, file = script.module(name), script.file
    batches = script.function(batch_name, use="mini-batches (--batches NAME)")
    losses = script.function(loss_name, use="the loss (--loss NAME)")

    def pair() -> tuple[Any, Any]:
        where = f"{file}: {batch_name}"
        batch_pair = _pair(_called(batches, batch, where=where, form=f"{batch_name}({batch})"), where)
        return (
            batch_pair
            if device is None
            else pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), batch_pair)
        )

    def loss(output: Any, labels: Any) -> torch.Tensor:
        where = f"{file}: {loss_name}"
        value = _called(losses, output, labels, where=where, form=f"{loss_name}(output, labels)")
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            description = (
                f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            )
            raise ModelError(f"{where} returned a {description}; it must return a tensor of one number")
        return value

    return Subject(
        model=model if device is None else model.to(device),
        batch=pair,
        clock=CudaClock() if device is not None and device.type == "cuda" else ProcessorClock(),
        loss=loss,
        optimizer=_optimizer(script, optimizer_name) if optimizer_name else None,
    )


def _optimizer(script: Script, name: str) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    make, file = script.function(name, use="the optimizer (--optimizer NAME)"), script.file

    def checked(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = _called(make, parameters, where=f"{file}: {name}", form=f"{name}(parameters)")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ModelError(
                f"{file}: {name} made a {type(optimizer).__name__}; it must make an optimizer of torch"
            )
        return optimizer

    return checked


def _called(function: Callable[..., Any], *arguments: Any, where: str, form: str) -> Any:
    """What a function of the script returns; whatever it raises becomes a ModelError."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise ModelError(f"{where} fails when it is called as {form}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


def _pair(made: Any, source: str) -> tuple[Any, Any]:
    form = "a tensor, a tuple of tensors, or a mapping of names to tensors"
    if not isinstance(made, tuple) or len(made) != 2:
        raise ModelError(f"{source} must return (inputs, labels); inputs are {form}")
    inputs, labels = made
    if isinstance(inputs, Mapping):
        inputs = dict(inputs)  # as tokenizers make them
    parts = (
        inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
    )
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise ModelError(f"{source}: inputs must be {form}")
    return inputs, labels
