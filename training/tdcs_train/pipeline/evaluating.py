"""Forwards alone through a pipeline: the loss, and a metric, of data that is not trained with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline.order import share
from tdcs_train.pipeline.values import Packet
from tdcs_train.pipeline.worker import Batches, Worker

Metric = Callable[[Any, Any], Any]
"""(output, labels) -> a number, the mean over the samples of a mini-batch."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Means over samples."""

    loss: float
    metric: float
    """0 without one."""
    samples: int
    """That this worker, or the whole pipeline, has seen the output of."""


def evaluate(worker: Worker, batches: Batches | None, *, count: int, metric: Metric | None) -> Evaluation:
    """What this worker sees of `count` mini-batches of the whole pipeline: something at the last stage alone."""
    loss = measured = 0.0
    samples = 0
    for batch in share(worker.place, first=0, count=count):
        answer = worker.compute.evaluate(_packet(worker, batch, batches))
        if isinstance(answer, Packet):
            worker.link.pass_on(answer)
            continue
        output, labels = answer
        size = _samples(labels)
        with torch.no_grad():
            loss += float(worker.compute.loss(output, labels)) * size
            measured += float(metric(output, labels)) * size if metric is not None else 0.0
        samples += size
    return Evaluation(loss=loss / max(samples, 1), metric=measured / max(samples, 1), samples=samples)


def _packet(worker: Worker, batch: int, batches: Batches | None) -> Packet:
    if not worker.place.is_first:
        return worker.link.arriving(batch)
    assert batches is not None, "the input stage reads data"
    try:
        return worker.compute.enter(batch, *next(batches))
    except StopIteration:
        raise PlanError(
            f"the data of {worker.place} ended before mini-batch {batch} of an evaluation"
        ) from None


def _samples(labels: Any) -> int:
    first = labels[0] if isinstance(labels, tuple) else labels
    return len(first) if isinstance(first, torch.Tensor) and first.dim() else 1
