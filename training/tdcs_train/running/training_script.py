"""What a training script offers to `tdcs-train run`, by name."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader

from tdcs_train.errors import InputError
from tdcs_train.model.script import Script
from tdcs_train.pipeline.stage import Loss


@dataclass(frozen=True, kw_only=True)
class TrainingScript:
    """A model with its loss, its optimizer and its data. `dataset` and `evaluation` have a length and items (input,
    label), as datasets of PyTorch have; they are made where they are read."""

    model: nn.Module
    loss: Loss
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    dataset: Callable[[], Any]
    evaluation: Callable[[], Any] | None
    metric: Callable[[Any, Any], Any] | None
    schedule: Callable[[int], float] | None
    collate: Callable[[list[Any]], Any] | None


def training_script(script: Script, *, model: str) -> TrainingScript:
    """What the file has.

    `optimizer` is a function of a list of parameters. Beside it `loss` and `dataset` are needed; `evaluation`,
    `metric`, `schedule` and `collate` are used where they are there.

    Raises:
        ModelError: It lacks something, or that is no function.
    """

    def optional(name: str) -> Callable[..., Any] | None:
        return script.function(name, use=name) if script.has(name) else None

    return TrainingScript(
        model=script.module(model),
        loss=script.function("loss", use="the loss"),
        optimizer=script.function("optimizer", use="the optimizer of (parameters)"),
        dataset=script.function("dataset", use="the data: a function that returns a dataset of PyTorch"),
        evaluation=optional("evaluation"),
        metric=optional("metric"),
        schedule=optional("schedule"),
        collate=optional("collate"),
    )


def read(
    dataset: Any, indices: Iterator[list[int]], *, collate: Callable[[list[Any]], Any] | None, processes: int
) -> Iterator[tuple[Any, Any]]:
    """Mini-batches (inputs, labels) of these samples."""
    loader = DataLoader(dataset, batch_sampler=list(indices), collate_fn=collate, num_workers=processes)
    for batch in loader:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise InputError(
                "items of the dataset must be (input, label), where each is a tensor, a tuple or a mapping of them; or "
                "give a function collate that makes (inputs, labels) of a list of items"
            )
        inputs, labels = batch
        yield _plain(inputs), _plain(labels)


def _plain(value: Any) -> Any:
    """Tuples where PyTorch's loader makes lists."""
    return tuple(value) if isinstance(value, list) else value


def size_of(dataset: Any) -> int:
    """The number of its samples.

    Raises:
        InputError: It does not say.
    """
    try:
        return len(dataset)
    except TypeError as error:
        raise InputError(
            f"dataset() returned a {type(dataset).__name__} without a length; tdcs-train run goes on where it was by "
            "the numbers of samples, and needs __len__ and __getitem__"
        ) from error


def seed_all(*parts: int) -> None:
    """Seeds Python, NumPy and PyTorch alike for a part of the training."""
    seed = random.Random("/".join(map(str, parts))).getrandbits(31)  # noqa: S311
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
