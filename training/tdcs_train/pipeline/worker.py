"""A worker of a pipeline: what its acts do, the update of its weights, and what it waited for."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline import clipping, credits
from tdcs_train.pipeline.links import Link, Reducer
from tdcs_train.pipeline.order import Act, Place, check_counts, share, warm_up
from tdcs_train.pipeline.stage import StageCompute
from tdcs_train.pipeline.values import Packet, tensors_of

T = TypeVar("T")
Mode = Literal["stash", "flush"]
Batches = Iterator[tuple[Any, Any]]
"""(inputs, labels) of the mini-batches of this worker, each a tensor or a tuple of tensors."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a pipeline updates its weights.

    In mode `stash` each mini-batch (on each replica) is a step and uses old weights; with `vertical_sync` all stages
    use the version that its mini-batch has seen at the input stage. In mode `flush` a step is made of `micro_batches`
    micro-batches; all of them use the same weights, so it computes what one process computes on the whole mini-batch.
    """

    mode: Mode = "stash"
    vertical_sync: bool = False
    micro_batches: int = 8
    clip_norm: float | None = None
    """Largest norm of the gradients of all stages together, as `torch.nn.utils.clip_grad_norm_` has it (mode flush)."""

    def __post_init__(self) -> None:
        if self.clip_norm is None:
            return
        if self.mode == "stash":
            raise PlanError(
                f"clip_norm is {self.clip_norm:g} in mode stash, in which each stage updates its weights at another "
                "time: the gradients of the whole model are never there together. Use mode flush, or clip those of "
                "each stage in its optimizer"
            )
        if not self.clip_norm > 0:
            raise PlanError(f"clip_norm is {self.clip_norm:g}; give a norm of more than 0, or None")


@dataclass
class Spent:
    """Seconds of a worker by what it did or waited for."""

    compute: float = 0.0
    inputs: float = 0.0
    """Waiting for values of the stage before; at the input stage, for data."""
    gradients: float = 0.0
    sync: float = 0.0
    """Averaging gradients with the other replicas."""


@dataclass(frozen=True)
class Event:
    """An act with the moments at which its computation began and ended (time.monotonic)."""

    act: Act
    begin: float
    end: float


@dataclass
class Worker:
    """One replica of one stage. `optimizer` updates the parameters of `compute`; None for a stage without any."""

    place: Place
    compute: StageCompute
    settings: Settings
    link: Link
    reducer: Reducer
    optimizer: torch.optim.Optimizer | None
    ahead: int = 0
    """Mini-batches in flight beside the published number, for each stage behind this one."""
    schedule: Callable[[int], float] | None = None
    """Factor of the learning rate of an update, by the mini-batches of the whole pipeline before it."""
    spent: Spent = field(default_factory=Spent)
    events: list[Event] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """At the last stage: of each of its mini-batches, or micro-batches in mode flush."""
    done: int = 0
    """Mini-batches that the pipeline has worked on."""
    _before: int = 0
    """Of these, before this worker was started. Mini-batches are numbered from there: their number before may be none
    that the replicas of a stage share evenly."""
    _rates: list[float] = field(default_factory=list)
    """The learning rate of each group of the optimizer, before the schedule."""
    _samples: int | None = None
    """Of a mini-batch, or micro-batch in mode flush."""

    def __post_init__(self) -> None:
        self._rates = (
            [group["lr"] for group in self.optimizer.param_groups] if self.optimizer is not None else []
        )

    @property
    def depth(self) -> int:
        """Registers for mini-batches in flight."""
        return self.warm_up + 1

    @property
    def warm_up(self) -> int:
        """Forwards before the first backward."""
        return warm_up(self.place.replicas, self.place.stage, ahead=self.ahead)

    def run(self, batches: Batches | None, *, count: int) -> None:
        """Trains with `count` mini-batches of the whole pipeline and leaves it empty.

        `batches` is read by the first stage only, and gives this worker's share: in mode `flush` each item is a
        micro-batch. Raises PlanError when the replicas of a stage cannot share the batches evenly, or when the data
        ends before.
        """
        if self.settings.mode == "flush":
            check_counts(self.place.replicas, self.settings.micro_batches)
            for _ in range(count):
                self._flush(batches)
        else:
            check_counts(self.place.replicas, count)
            self._stash(batches, count=count)

    def resume(self, done: int) -> None:
        """Goes on after `done` mini-batches, with parameters that were changed from outside."""
        self.done = self._before = done
        self.compute.weights.reset(0)

    def _stash(self, batches: Batches | None, *, count: int) -> None:
        first = self.done - self._before
        coming: int | None = None

        def forward(batch: int) -> None:
            nonlocal coming
            packet = self._packet(batch, batches)
            self._forward(packet, version=self._version(packet), share_of_loss=1.0)
            coming = batch + self.place.own

        def backward(batch: int) -> None:
            gradients = self._backward(batch)
            self._summed(gradients, divisor=self.place.own)
            self._step(gradients, needed_from=self._needed_from(coming, first=first, end=first + count))

        numbers = share(self.place, first=first, count=count)
        credits.run(numbers, warm_up=self.warm_up, forward=forward, backward=backward)
        self.done += count

    def _flush(self, batches: Batches | None) -> None:
        micro = self.settings.micro_batches
        total: list[torch.Tensor | None] = [None] * len(self.compute.parameters)
        self._samples = None

        def forward(batch: int) -> None:
            packet = self._packet(batch, batches)
            self._forward(packet, version=self.compute.weights.newest, share_of_loss=1 / micro)

        def backward(batch: int) -> None:
            nonlocal total
            total = [
                old if new is None else new if old is None else old.add_(new)
                for old, new in zip(total, self._backward(batch), strict=True)
            ]

        numbers = share(self.place, first=(self.done - self._before) * micro, count=micro)
        credits.run(numbers, warm_up=self.warm_up, forward=forward, backward=backward)
        self._summed(total, divisor=1)
        if self.settings.clip_norm is not None:
            begin = time.monotonic()
            clipping.clip(total, self.settings.clip_norm, place=self.place, link=self.link)
            self.spent.sync += time.monotonic() - begin
        self._step(total, needed_from=self.compute.weights.newest + 1)
        self.done += 1

    def _packet(self, batch: int, batches: Batches | None) -> Packet:
        begin = time.monotonic()
        if not self.place.is_first:
            packet = self.link.arriving(batch)
        else:
            assert batches is not None, "the input stage reads data"
            try:
                inputs, labels = next(batches)
            except StopIteration:
                raise PlanError(
                    f"the data of {self.place} ended before mini-batch {batch}; give as many batches as are "
                    "trained with"
                ) from None
            packet = self.compute.enter(batch, inputs, labels)
            self._check_size(packet)
            packet = Packet(batch, packet.values, self.compute.weights.newest * self.place.own)
        self.spent.inputs += time.monotonic() - begin
        return packet

    def _check_size(self, packet: Packet) -> None:
        """Refuses a mini-batch of another size where an update averages several, each with the same weight."""
        first = next(iter(tensors_of(packet.values)), None)
        if first is None or not first.dim():
            return
        expected, self._samples = self._samples or len(first), len(first)
        if self._samples != expected and (self.settings.mode == "flush" or max(self.place.replicas) > 1):
            kind = "micro-batch" if self.settings.mode == "flush" else "mini-batch"
            raise PlanError(
                f"{kind} {packet.batch} has {self._samples} samples, the one before it {expected}: an update averages "
                "several with the same weight. Leave the uneven last one out (drop_last=True of a DataLoader)"
            )

    def _forward(self, packet: Packet, *, version: int, share_of_loss: float) -> None:
        act = Act("forward", packet.batch)
        answer = self._timed(
            act, lambda: self.compute.forward(packet, version=version, share_of_loss=share_of_loss)
        )
        if self.place.is_last:
            self.losses.append(answer.values["loss"] / share_of_loss)
        else:
            self.link.pass_on(answer)

    def _backward(self, batch: int) -> list[torch.Tensor | None]:
        begin = time.monotonic()
        gradients = Packet(batch, {}) if self.place.is_last else self.link.returning(batch)
        self.spent.gradients += time.monotonic() - begin
        back, parameter_gradients = self._timed(
            Act("backward", batch), lambda: self.compute.backward(gradients)
        )
        if not self.place.is_first:
            self.link.pass_back(back)
        return parameter_gradients

    def _timed(self, act: Act, work: Callable[[], T]) -> T:
        begin = time.monotonic()
        result = work()
        end = time.monotonic()
        self.spent.compute += end - begin
        self.events.append(Event(act, begin, end))
        return result

    def _summed(self, gradients: list[torch.Tensor | None], *, divisor: int) -> None:
        """Adds up the gradients of all replicas. Without a gradient here a replica adds zeros, as another has one."""
        if self.place.own == 1:
            return
        begin = time.monotonic()
        for index, parameter in enumerate(self.compute.parameters.values()):
            if gradients[index] is None and parameter.requires_grad:
                gradients[index] = torch.zeros_like(parameter)
        tensors = [gradient for gradient in gradients if gradient is not None]
        self.reducer.sum(tensors)
        for tensor in tensors:
            tensor.div_(divisor)
        self.spent.sync += time.monotonic() - begin

    def _step(self, gradients: Sequence[torch.Tensor | None], *, needed_from: int) -> None:
        def update() -> None:
            if self.optimizer is not None:
                self._scale_rates(self.optimizer)
                for parameter, gradient in zip(self.compute.parameters.values(), gradients, strict=True):
                    parameter.grad = gradient
                self.optimizer.step()
                for parameter in self.compute.parameters.values():
                    parameter.grad = None

        begin = time.monotonic()
        self.compute.weights.advance(update, needed_from=needed_from)
        self.spent.compute += time.monotonic() - begin

    def _scale_rates(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rates for the next update, which `weights.newest` updates were before."""
        if self.schedule is None:
            return
        replicas = self.place.own if self.settings.mode == "stash" else 1
        factor = self.schedule(self._before + self.compute.weights.newest * replicas)
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor

    def _version(self, packet: Packet) -> int:
        return (
            packet.version // self.place.own if self.settings.vertical_sync else self.compute.weights.newest
        )

    def _needed_from(self, coming: int | None, *, first: int, end: int) -> int:
        """The oldest version that is still used after the next step."""
        needed = self.compute.weights.newest + 1
        if self.settings.vertical_sync and coming is not None and coming < end:
            replicas = self.place.replicas[0]
            in_flight = warm_up(self.place.replicas, 0, ahead=self.ahead)
            batches_applied = max(0, (coming - first) // replicas - in_flight) * replicas + first
            needed = min(needed, batches_applied // self.place.own)
        oldest = self.compute.oldest_version_needed()
        return needed if oldest is None else min(needed, oldest)
