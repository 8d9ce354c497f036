"""What a training script offers for measuring: a model, mini-batches and a loss, by name."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tdcs_train.model.errors import ModelError
from tdcs_train.model.measuring import Subject


def subject_of(target: str, *, batch: int, batch_name: str = "batch", loss_name: str = "loss") -> Subject:
    """The model that `FILE.py:NAME` names, with the file's functions for mini-batches and the loss.

    NAME is a module or a function that makes one. `batch_name` is a function of the number of samples that returns
    (inputs, labels); `loss_name` one of (output, labels). The file is run with `__name__` set to "profile", so that
    what only training does belongs below `if __name__ == "__main__":`.

    Raises ModelError that names the file and what it lacks.
    """
    file, colon, name = target.rpartition(":")
    if not (colon and file and name):
        raise ModelError(f"{target!r} is not FILE.py:NAME, such as train.py:model")
    path = Path(file)
    if not path.is_file():
        raise ModelError(f"{file} is no file; give the training script")
    try:
        content = runpy.run_path(str(path), run_name="profile")
    except Exception as error:  # a script raises anything
        raise ModelError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    made = _attribute(content, name, file)
    model = made if isinstance(made, nn.Module) else made() if callable(made) else made
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{file}: {name} is a {type(model).__name__}; it must be a module, or a function that makes one"
        )
    batches = _function(content, batch_name, file, use="mini-batches (--batches NAME)")
    return Subject(
        model=model,
        batch=lambda: _pair(batches(batch), f"{file}: {batch_name}"),
        loss=_function(content, loss_name, file, use="the loss (--loss NAME)"),
    )


def _attribute(content: dict[str, Any], name: str, file: str, use: str = "the model") -> Any:
    if name not in content:
        offered = ", ".join(sorted(key for key in content if not key.startswith("_")))
        raise ModelError(f"{file} has no {name!r} for {use}; it has {offered or 'nothing'}")
    return content[name]


def _function(content: dict[str, Any], name: str, file: str, *, use: str) -> Callable[..., Any]:
    found = _attribute(content, name, file, use)
    if not callable(found):
        raise ModelError(f"{file}: {name} is a {type(found).__name__}; it must be a function")
    function: Callable[..., Any] = found
    return function


def _pair(made: Any, source: str) -> tuple[Any, Any]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise ModelError(f"{source} must return (inputs, labels); each is a tensor or a tuple of tensors")
    inputs, labels = made
    if not all(
        isinstance(part, torch.Tensor) for part in (inputs if isinstance(inputs, tuple) else (inputs,))
    ):
        raise ModelError(f"{source}: inputs must be a tensor or a tuple of tensors")
    return inputs, labels
