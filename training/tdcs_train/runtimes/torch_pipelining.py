"""The stages of a plan in torch.distributed.pipelining.

Its schedules are synchronous: a step gives what one process computes on the whole mini-batch. Stages may have replicas
where all have as many; their gradients are averaged after the schedule, in one all-reduce a stage.

With gloo, `_batch_p2p` of PyTorch 2.6 waits for the last of several transfers only and drops the others, so a schedule
can hang (pytorch issue 132644, mended by pull request 152938). There a step runs with the defect mended.
"""

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, schedules
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tdcs_train.model.splitting import split
from tdcs_train.pipeline.order import Place, place_of
from tdcs_train.pipeline.plan_file import StagePlan
from tdcs_train.pipeline.runtime import Recipe, traced_by
from tdcs_train.runtimes.inputs import check_recipe, check_replicas, label_tensors, positional, sliced
from tdcs_train.runtimes.stage_module import StageModule, carried, kinds_of, loss_of_leaving

Kind = Literal["1f1b", "gpipe"]
_KINDS = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class TorchPipeline:
    """This worker's stage, in the default process group: NCCL with a GPU for each worker, or gloo.

    All workers make the same calls with the same mini-batch; what a stage does not need it does not look at. `inputs`
    is a mini-batch as it will come: later ones must have its shapes. The recipe's learning rate is used as it is.

    Raises:
        PlanError: Stages have different numbers of replicas, the recipe has a setting that the runtime has not, or the
            mini-batch cannot be divided.
        ModelError: What passes between stages cannot be known before.
    """

    def __init__(self, recipe: Recipe, plan: StagePlan, *, inputs: Any, kind: Kind = "1f1b") -> None:
        check_replicas(plan, runtime="torch.distributed.pipelining")
        check_recipe(recipe, runtime="torch.distributed.pipelining")
        self.place: Place = place_of(distributed.get_rank(), plan.replicas)
        self.device = device_here()
        micro = recipe.settings.micro_batches
        model = split(traced_by(recipe, plan), plan.stages)
        example = sliced(
            positional(model, inputs), replica=self.place.replica, replicas=self.place.own * micro
        )
        kinds = kinds_of(model, example)
        recomputes = self.place.stage in plan.recomputing
        self.stage = StageModule(model, self.place.stage, kinds, recomputes=recomputes).to(self.device)
        self._model = model
        self._marks: tuple[torch.Tensor, ...] = ()
        loss = loss_of_leaving(model, kinds, recipe.loss)
        groups = _groups(plan)
        stage = PipelineStage(
            self.stage,
            self.place.stage,
            len(plan.stages),
            self.device,
            input_args=tuple(example) if self.place.is_first else carried(kinds, self.stage.arriving),
            output_args=_output_args(self.stage, kinds, self.place),
            group=groups.pipeline[self.place.replica],
        )
        self._averaging = groups.stage[self.place.stage]
        # The schedule divides tensors only, and one of labels: it is given the numbers of the samples.
        self._schedule = _schedule(
            kind, stage, micro_batches=micro, loss=lambda leaving, rows: loss(leaving, self._labels_at(rows))
        )
        parameters = [parameter for parameter in self.stage.parameters() if parameter.requires_grad]
        self.optimizer = recipe.optimizer(parameters, recipe.learning_rate) if parameters else None
        self._parameters = parameters

    def step(self, inputs: Any, labels: Any) -> float:
        """Trains with a mini-batch of all workers; its loss, which all workers are given."""
        place = self.place
        tensors = sliced(positional(self._model, inputs), replica=place.replica, replicas=place.own)
        count = len(tensors[0])
        marks = sliced(label_tensors(labels), replica=place.replica, replicas=place.own)
        self._marks = tuple(mark.to(self.device) for mark in marks)
        losses: list[torch.Tensor] = []
        with mended() if drops_transfers() else contextlib.nullcontext():
            if place.is_first:
                arguments = [tensor.to(self.device) for tensor in tensors]
                last = {"target": torch.arange(count), "losses": losses} if place.is_last else {}
                self._schedule.step(*arguments, **last)
            elif place.is_last:
                self._schedule.step(target=torch.arange(count), losses=losses)
            else:
                self._schedule.step()
        self._average()
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return self._mean(losses)

    def _labels_at(self, rows: torch.Tensor) -> Any:
        marks = tuple(mark[rows] for mark in self._marks)
        return marks if len(marks) > 1 else marks[0] if marks else None

    def _average(self) -> None:
        if self.place.own == 1 or not self._parameters:
            return
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        flat = parameters_to_vector(gradients)
        distributed.all_reduce(flat, group=self._averaging)
        vector_to_parameters(flat / self.place.own, gradients)

    def _mean(self, losses: Sequence[torch.Tensor]) -> float:
        """The mean over the micro-batches and the replicas of the last stage."""
        total = torch.zeros(2, device=self.device, dtype=torch.float64)
        if losses:
            total += torch.tensor([float(sum(losses)), len(losses)], device=self.device)
        distributed.all_reduce(total)
        return float(total[0] / total[1])


def device_here() -> torch.device:
    """The device of this worker: its GPU with NCCL, else the processor."""
    if distributed.get_backend() != "nccl":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def drops_transfers() -> bool:
    """Whether this PyTorch waits for one of several transfers only."""
    return distributed.get_backend() == "gloo" and ".pop()" in inspect.getsource(schedules._batch_p2p)


@dataclass(frozen=True)
class _Groups:
    pipeline: list[Any]
    """Of each replica: its worker in every stage."""
    stage: list[Any]
    """Of each stage: its replicas."""


def _groups(plan: StagePlan) -> _Groups:
    """Groups of the workers; all workers make all of them."""
    replicas, stages = plan.replicas[0], len(plan.stages)
    return _Groups(
        [distributed.new_group([s * replicas + r for s in range(stages)]) for r in range(replicas)],
        [distributed.new_group([s * replicas + r for r in range(replicas)]) for s in range(stages)],
    )


def _output_args(stage: StageModule, kinds: Any, place: Place) -> tuple[torch.Tensor, ...]:
    if not place.is_last:
        return carried(kinds, stage.leaving)
    return tuple(
        torch.empty(kinds.tensors[name][1] or (1,), dtype=kinds.tensors[name][0], device="meta")
        for name in stage.leaving
    )


def _schedule(kind: Kind, stage: PipelineStage, *, micro_batches: int, loss: Any) -> Any:
    make = _KINDS[kind]
    if "scale_grads" in inspect.signature(make).parameters:
        return make(stage, n_microbatches=micro_batches, loss_fn=loss, scale_grads=True)
    # PyTorch 2.6 adds the gradients of the micro-batches up; the mean is what the whole mini-batch gives
    return _Scaled(make, stage, micro_batches, loss)


class _Scaled:
    """A schedule whose loss is divided by the micro-batches, and whose losses are told undivided."""

    def __init__(self, make: Any, stage: PipelineStage, micro_batches: int, loss: Any) -> None:
        self._micro = micro_batches
        self._inner = make(
            stage, n_microbatches=micro_batches, loss_fn=lambda made, rows: loss(made, rows) / micro_batches
        )

    def step(self, *arguments: Any, losses: list[torch.Tensor] | None = None, **others: Any) -> Any:
        answer = self._inner.step(*arguments, losses=losses, **others)
        if losses is not None:
            losses[:] = [loss.detach() * self._micro for loss in losses]
        return answer


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
