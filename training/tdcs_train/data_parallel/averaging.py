"""DistributedDataParallel whose gradients travel by the first use of their parameters, and while the next forward runs.

DistributedDataParallel averages gradients as backward makes them, from the last layer to the first, and its step ends
with the last of them: the gradients of the first layers, which the next forward needs first, travel last. Here they go
in slices, those of earlier layers before others that wait, and the next forward begins at once: an operator waits for
its own parameters only (the rule of ByteScheduler, SOSP'19, and of Jiang et al., 2022).

On fast links slices can cost more than the order gains: both ways are tried in turns first, and the faster one stays.
"""

import dataclasses
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel

from tdcs_train.data_parallel.exchange import Exchange
from tdcs_train.data_parallel.trial import Trial
from tdcs_train.model.errors import ModelError
from tdcs_train.ps.use import UseOfParameters, refuse_compiled

SLICE_BYTES = 1 << 20
"""Of a slice: large enough that a round trip is little of it on links of up to some Gbit/s."""
LEAST_GAIN = 1.06
"""That a trial must find for gradients by priority: its plain iterations go through the hook, and take up to some
percent longer than those without one, which follow when it ends with plain ones."""
TRIAL_STEPS = 5
"""Iterations of a part of the trial, which has four such parts and a change before three of them."""


@dataclasses.dataclass
class _Group:
    """Parameters that travel together: neighbours in the order of their first use, or a large one alone."""

    numbers: tuple[int, ...]
    places: tuple[torch.Tensor, ...]
    """Where the gradient of each of them lies in the memory of the group."""
    slices: range
    missing: set[int]
    """Parameters whose gradients this backward has not made yet."""
    pending: bool = False
    """Whether an update of its parameters is still to be made."""


class PriorityAveraging:
    """Takes over the averaging of gradients from a DistributedDataParallel model; a context manager.

    Inside of it call `step` in place of `optimizer.step()` and `zero_grad()`: an update happens when the next forward
    uses the parameter. The first step is a plain one, in which the order of use is seen. Then plain iterations and
    those by priority are measured in turns, `trial_steps` in each of four parts (none: all are by priority), and
    worker 0 decides for the faster way: `gain` says what it found. Updates, and so losses, are those of plain data
    parallel; learning rates count as they are at `step`. `wait` returns when all parameters are new; `state_dict` of
    the model waits by itself. Gradients cannot be read or clipped: after `step` they are on their way.

    Raises:
        ModelError: The model cannot be trained so; it says why.
        PeerError: Another worker is gone.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        optimizer: torch.optim.Optimizer,
        *,
        slice_bytes: int = SLICE_BYTES,
        trial_steps: int = TRIAL_STEPS,
        timeout: float = 300.0,
    ) -> None:
        refuse_compiled(model.module)
        _refuse(model)
        self.exchange: Exchange | None = None
        self.by_priority = False
        """Whether the next backward's gradients travel by priority."""
        self.gain: float | None = None
        """Seconds of a plain iteration over those of one by priority, as worker 0 found; None until it has."""
        self._trial = Trial(trial_steps)
        self._model, self._optimizer = model, optimizer
        self._slice_bytes, self._timeout = slice_bytes, timeout
        parameters = [(name, p) for name, p in model.module.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in parameters]
        self._values = [value for _, value in parameters]
        self._numbers = {id(value): number for number, value in enumerate(self._values)}
        self._used: dict[int, None] = {}
        """Parameters in the order of their first use."""
        self._groups: list[_Group] = []
        self._group_of: dict[int, _Group] = {}
        self._options: list[dict[str, Any]] = []
        """Of the optimizer's groups of parameters, when `step` was called."""
        self._stepped = True
        self._use = UseOfParameters(self._values, self._await)
        self._waits_of_state = model.module.register_state_dict_pre_hook(lambda *_: self.wait())
        model.register_comm_hook(None, self._hook)

    @property
    def groups(self) -> list[list[str]]:
        """Names of the parameters that travel together, the most urgent first; none before the first step."""
        return [[self._names[number] for number in group.numbers] for group in self._groups]

    def step(self) -> None:
        """The backward of a mini-batch is over: its updates happen as parameters are used, or in `wait`.

        Raises:
            ModelError: A parameter has no gradient.
        """
        if self.by_priority:
            self._step_by_priority()
        else:
            self._optimizer.step()
            self._optimizer.zero_grad()
        if self.exchange is None:
            self._plan()
            self._trial.begin()
        elif self.gain is None:
            self._trial.step()
        if self.gain is None:
            self._choose()

    def _choose(self) -> None:
        """How the next gradients travel."""
        by_priority = self._trial.by_priority
        if self._trial.ended:
            gain = torch.tensor([self._trial.gain], dtype=torch.float64)
            distributed.broadcast(gain, src=0)
            self.gain = float(gain)
            by_priority = self.gain >= LEAST_GAIN or not self._trial.has_measured
            if not by_priority:
                self.wait()
                _without_hook(self._model)
                self._use.idle = True
        if not by_priority:
            self.wait()
        self.by_priority = by_priority

    def _step_by_priority(self) -> None:
        if without := [self._names[number] for group in self._groups for number in sorted(group.missing)]:
            raise ModelError(
                f"{without[0]} has no gradient; every parameter must be part of every loss: call backward before each "
                "step, and freeze (requires_grad=False) or remove what is not used"
            )
        self._options = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self._optimizer.param_groups
        ]
        for group in self._groups:
            group.missing.update(group.numbers)
        with torch._C.DisableTorchFunction():  # this is no use of a parameter
            for value in self._values:
                value.grad = None
        self._stepped = True

    def wait(self) -> None:
        """Returns when all parameters are new, as before evaluating with another model or saving."""
        for group in self._groups:
            self._apply(group)

    def __enter__(self) -> Self:
        self._use.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._use.__exit__(kind, error, trace)
        self._waits_of_state.remove()
        if error is None and self.exchange is not None:
            self.wait()
            self.exchange.close()

    def _plan(self) -> None:
        """Groups and slices by the order of use that worker 0 has seen."""
        unused = [number for number in range(len(self._values)) if number not in self._used]
        order = [[*self._used, *unused]]
        distributed.broadcast_object_list(order, src=0)
        slices: list[torch.Tensor] = []
        for numbers in _together(order[0], self._values, self._slice_bytes):
            values = [self._values[number] for number in numbers]
            memory = torch.zeros(sum(value.numel() for value in values), dtype=values[0].dtype)
            parts = memory.split(max(1, self._slice_bytes // memory.element_size()))
            group = _Group(
                numbers=tuple(numbers),
                places=tuple(memory.split([value.numel() for value in values])),
                slices=range(len(slices), len(slices) + len(parts)),
                missing=set(numbers),
            )
            slices += parts
            self._groups.append(group)
            self._group_of.update(dict.fromkeys(numbers, group))
        self.exchange = Exchange(slices, timeout=self._timeout)

    def _hook(self, _: object, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """What DistributedDataParallel calls when the gradients of a bucket are there."""
        workers = distributed.get_world_size()
        if not self.by_priority:
            work = distributed.all_reduce(bucket.buffer().div_(workers), async_op=True)
            return work.get_future().then(lambda future: future.value()[0])
        assert self.exchange is not None
        for value, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            number = self._numbers[id(value)]
            group = self._group_of[number]
            self._apply(group)  # nothing in the forward used it
            place = group.places[group.numbers.index(number)]
            torch.div(gradient.reshape(-1), workers, out=place)
            group.missing.discard(number)
            if not group.missing:
                group.pending = True
                self._stepped = False
                self.exchange.offer(group.slices)
        reduction: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        reduction.set_result(bucket.buffer())
        return reduction

    def _await(self, number: int) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # a backward, perhaps one that computes a part of its forward again, works with the values it had
        if self.exchange is None:
            self._used.setdefault(number)
        else:
            self._apply(self._group_of[number])

    def _apply(self, group: _Group) -> None:
        """Update the parameters of a group with their averaged gradients, unless that was done."""
        if not group.pending:
            return
        if not self._stepped:
            raise ModelError(
                f"{self._names[group.numbers[0]]} is used between backward and step; call step after each backward, "
                "and one backward for each step (add losses up, or accumulate gradients inside of no_sync)"
            )
        assert self.exchange is not None
        self.exchange.wait(group.slices, what=self._names[group.numbers[0]])
        group.pending = False
        with torch._C.DisableTorchFunction(), torch.no_grad():
            gradients = [value.grad for value in self._values]
            for value in self._values:
                value.grad = None
            for number, place in zip(group.numbers, group.places, strict=True):
                self._values[number].grad = place.view_as(self._values[number])
            now = [dict(param_group) for param_group in self._optimizer.param_groups]
            for param_group, then in zip(self._optimizer.param_groups, self._options, strict=True):
                param_group.update(then)
            self._optimizer.step()
            for param_group, later in zip(self._optimizer.param_groups, now, strict=True):
                param_group.update(later)
            for value, gradient in zip(self._values, gradients, strict=True):
                value.grad = gradient


def _without_hook(model: DistributedDataParallel) -> None:
    """Let a model average as if it had never had a hook, which costs one more pass over the gradients; where this
    version of PyTorch cannot do that, its hook goes on."""
    try:
        parameters, sparse = model._build_params_for_reducer()
        names = model._build_debug_param_to_name_mapping(parameters)
        remove, begin = model.reducer._remove_autograd_hooks, model._ddp_init_helper
    except AttributeError:
        return
    remove()
    begin(parameters, sparse, names, model.static_graph)


def _together(order: Sequence[int], values: Sequence[torch.Tensor], size: int) -> list[list[int]]:
    """Neighbours of one type whose gradients fit into a slice, and larger ones alone."""
    buckets: list[list[int]] = []
    room, dtype = 0, None
    for number in order:
        value = values[number]
        nbytes = value.numel() * value.element_size()
        if buckets and nbytes <= room and value.dtype == dtype:
            buckets[-1].append(number)
            room -= nbytes
        else:
            buckets.append([number])
            room, dtype = size - nbytes, value.dtype
    return buckets


def _refuse(model: DistributedDataParallel) -> None:
    if model.find_unused_parameters:
        raise ModelError(
            "find_unused_parameters=True: gradients by priority need one of every parameter in every step; freeze or "
            "remove what is not used, and leave the option out"
        )
    if model.static_graph:
        raise ModelError(
            "static_graph=True: gradients by priority take each bucket as backward makes it, and a static graph keeps "
            "them back in its first iteration; leave the option out"
        )
    members, workers = distributed.get_world_size(model.process_group), distributed.get_world_size()
    if members != workers:
        raise ModelError(
            f"the model has a process group of {members} of {workers} workers: gradients by priority average over all "
            "workers; leave process_group out, or use DistributedDataParallel alone"
        )
    if off_cpu := [name for name, value in model.module.named_parameters() if value.device.type != "cpu"]:
        raise ModelError(
            f"{off_cpu[0]} is not on the processor: gradients by priority were never run on a GPU, and are refused "
            "there; use DistributedDataParallel alone"
        )
