"""PyTorch's own pipeline schedule (torch.distributed.pipelining) for the stages of a plan, where it does the same.

It is synchronous, wants as many replicas in each stage, and does not carry labels: the last stage must have them. With
gloo, `_batch_p2p` of PyTorch 2.6 waits for the last of several transfers only and drops the others, so a schedule can
hang (pytorch issue 132644, mended by pull request 152938); it is refused there unless :func:`mended` is used.
"""

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, schedules

from tdcs_train.model.errors import PlanError
from tdcs_train.model.splitting import SplitModel
from tdcs_train.pipeline.order import Place
from tdcs_train.pipeline.stage import Loss


class StageModule(nn.Module):
    """A stage of a split model as PyTorch wants it: tensors in by position, tensors out by position."""

    def __init__(self, model: SplitModel, number: int) -> None:
        super().__init__()
        self.part = model.parts[number]
        self.module = self.part.module

    def forward(self, *arrived: torch.Tensor) -> Any:
        """The values that leave the stage."""
        values = dict(zip(self.part.arriving, arrived, strict=True))
        made = self.module(*(values[name] for name in self.part.takes))
        values.update(zip(self.part.gives, made if len(self.part.gives) > 1 else (made,), strict=True))
        leaving = tuple(values[name] for name in self.part.leaving)
        return leaving if len(leaving) > 1 else leaving[0]


def schedule(model: SplitModel, place: Place, *, loss: Loss, micro_batches: int) -> Schedule1F1B:
    """PyTorch's 1F1B schedule of this worker's stage, in the default process group.

    Raises PlanError for a plan with more than one replica in some stage, and for gloo with the defect above.
    """
    if set(place.replicas) != {1}:
        raise PlanError(
            f"the plan {'-'.join(map(str, place.replicas))} has replicas; the schedules of "
            "torch.distributed.pipelining are "
            "for straight plans here: plan with --straight, or use tdcs_train's own"
        )
    if distributed.get_backend() == "gloo" and drops_transfers():
        raise PlanError(
            f"PyTorch {torch.__version__} drops pending transfers with gloo (pytorch issue 132644) and can hang; "
            "use NCCL, "
            "a newer PyTorch, or tdcs_train's own pipeline in mode flush"
        )
    stage = PipelineStage(
        StageModule(model, place.stage), place.stage, len(place.replicas), torch.device("cpu")
    )
    if "scale_grads" in inspect.signature(Schedule1F1B).parameters:
        return Schedule1F1B(stage, n_microbatches=micro_batches, loss_fn=loss, scale_grads=True)
    # PyTorch 2.6 adds the gradients of the micro-batches up; the mean is what the whole mini-batch gives
    mean = lambda output, labels: loss(output, labels) / micro_batches  # noqa: E731
    return Schedule1F1B(stage, n_microbatches=micro_batches, loss_fn=mean)


def drops_transfers() -> bool:
    """Whether this PyTorch waits for one of several transfers only."""
    return ".pop()" in inspect.getsource(schedules._batch_p2p)


@dataclass(frozen=True)
class _All:
    """All transfers of a batch."""

    works: Sequence[Any]

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """PyTorch with the defect mended: a batch of transfers is awaited as a whole."""
    original = schedules._batch_p2p

    def batch_p2p(operations: Sequence[Any], desc: str | None = None) -> _All | None:
        return _All(distributed.batch_isend_irecv(list(operations))) if operations else None

    schedules._batch_p2p = batch_p2p
    try:
        yield
    finally:
        schedules._batch_p2p = original
