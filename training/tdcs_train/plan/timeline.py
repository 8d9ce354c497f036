"""How fast a full pipeline runs when each worker has no more mini-batches in flight than its versions of weights.

The published bottleneck is the time of the slowest stage: transfers are taken to overlap with computation. A worker has
warm-up + 1 mini-batches in flight, though (PipeDream, SOSP'19, section 3.2). Where a mini-batch needs longer for its
way through the stages behind and back than the worker computes for the others, the worker waits, however fast each
stage is. So the acts of all workers are played here in the order of 1F1B-RR, with what travels between them.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tdcs_train.plan.stage import Stage

ROUNDS = 24
"""Mini-batches of each worker of the largest stage beside those that fill and empty the pipeline."""
Worker = tuple[int, int]
"""Stage and replica."""
Act = tuple[int, int, bool]
"""Stage, mini-batch, and whether it is the forward."""


def steady_seconds(stages: Sequence[Stage]) -> float:
    """Seconds a mini-batch while the pipeline is full.

    A worker computes one act at a time, and sends and receives one tensor at a time; averaging gradients takes no part
    of the links here, it is counted by its seconds alone.
    """
    if len(stages) == 1:
        return (stages[0].compute_seconds + stages[0].sync_seconds) / stages[0].replicas
    workers = sum(stage.replicas for stage in stages)
    group = stages[0].replicas * (stages[0].warmup + 1)
    rounds = max(ROUNDS * max(stage.replicas for stage in stages), group)  # one group at least is counted
    count = rounds + 2 * (workers + group)
    ends = sorted(_Play(stages, count).ends)
    # What is in flight may end in groups, so whole groups are counted, after the first and before the last ones.
    first = workers + group
    several = (count - first - max(workers, group)) // group * group
    return (ends[first + several] - ends[first]) / several


@dataclass
class _Worker:
    """What a worker does next, and until when its link is taken."""

    acts: list[Act]
    done: int = 0
    busy: bool = False
    sends_until: float = 0.0
    receives_until: float = 0.0


@dataclass
class _Play:
    """All acts of `count` mini-batches, one after another in time."""

    stages: Sequence[Stage]
    count: int
    ends: list[float] = field(default_factory=list)
    """When the backwards of the input stage ended."""

    def __post_init__(self) -> None:
        self._workers = {
            (number, replica): _Worker(
                _order(number, range(replica, self.count, stage.replicas), warmup=stage.warmup)
            )
            for number, stage in enumerate(self.stages)
            for replica in range(stage.replicas)
        }
        self._there: set[Act] = {(0, batch, True) for batch in range(self.count)}
        self._averaging: dict[tuple[int, int], int] = {}
        self._events: list[tuple[float, int, str, Act]] = []
        self._number = 0
        for worker in self._workers:
            self._try(worker, 0.0)
        while self._events:
            now, _, kind, act = heapq.heappop(self._events)
            if kind == "end":
                self._end(act, now)
            elif kind == "free":
                self._workers[self._worker_of(act)].busy = False
            else:
                self._there.add(act)
            self._try(self._worker_of(act), now)

    def _worker_of(self, act: Act) -> Worker:
        return act[0], act[1] % self.stages[act[0]].replicas

    def _at(self, moment: float, what: str, act: Act) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, what, act))

    def _try(self, worker: Worker, now: float) -> None:
        """Begins the worker's next act if it is idle and has what the act needs."""
        state = self._workers[worker]
        if state.busy or state.done == len(state.acts) or state.acts[state.done] not in self._there:
            return
        act = state.acts[state.done]
        state.busy = True
        state.done += 1
        stage = self.stages[act[0]]
        backward = stage.compute_seconds - stage.forward_seconds
        self._at(now + (stage.forward_seconds if act[2] else backward), "end", act)

    def _end(self, act: Act, now: float) -> None:
        number, batch, forward = act
        last = len(self.stages) - 1
        if forward and number == last:
            self._there.add((number, batch, False))
        elif forward:
            self._travel(act, (number + 1, batch, True), now, self.stages[number + 1].arriving_seconds)
        elif number > 0:
            self._travel(act, (number - 1, batch, False), now, self.stages[number].arriving_seconds)
        else:
            self.ends.append(now)
        stage = self.stages[number]
        if forward or stage.replicas == 1 or not stage.sync_seconds:
            self._workers[self._worker_of(act)].busy = False
            return
        first = batch - batch % stage.replicas
        group_size = min(stage.replicas, self.count - first)
        arrived = self._averaging[number, first] = self._averaging.get((number, first), 0) + 1
        if arrived == group_size:
            for replica_batch in range(first, first + group_size):
                self._at(now + stage.sync_seconds, "free", (number, replica_batch, False))

    def _travel(self, act: Act, to: Act, now: float, seconds: float) -> None:
        sender, receiver = self._workers[self._worker_of(act)], self._workers[self._worker_of(to)]
        until = max(now, sender.sends_until, receiver.receives_until) + seconds
        sender.sends_until = receiver.receives_until = until
        self._at(until, "arrival", to)


def _order(stage: int, batches: Sequence[int], *, warmup: int) -> list[Act]:
    """The warm-up's forwards, a forward and a backward in turn, the warm-up's backwards."""
    acts: list[Act] = [(stage, batch, True) for batch in batches[:warmup]]
    for place, batch in enumerate(batches):
        if place + warmup < len(batches):
            acts.append((stage, batches[place + warmup], True))
        acts.append((stage, batch, False))
    return acts
