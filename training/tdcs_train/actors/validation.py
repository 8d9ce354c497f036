"""Refuses plans that could not run to their end."""

import math
from collections import deque
from fractions import Fraction

import networkx

from tdcs_train.actors.plan import ActorPlan
from tdcs_train.actors.task import Kind, Task
from tdcs_train.errors import InputError

MOST_ACTS = 200_000
"""Acts of one period that are tried; plans repeat a few times, not hundreds of thousands of times."""


def check(plan: ActorPlan) -> None:
    """Refuse a plan that is malformed, or that would come to a halt.

    The acts of one period (in which every register is made as often as it is used) are tried with counters alone. Which
    actor goes first changes nothing about whether they all can, so one try tells.

    Raises:
        InputError: Two actors or registers of one name, a register without producer, counts below 1, a cycle without
            credits, outputs that are made faster than used, or too few registers; it names actor and register.
    """
    _check_names(plan)
    _check_tasks(plan)
    _check_cycles(plan)
    acts = _acts_of_a_period(plan)
    _check_progress(plan, acts)


def _check_names(plan: ActorPlan) -> None:
    for kind, names in (
        ("actors", [task.name for task in plan.tasks]),
        ("registers", [spec.name for task in plan.tasks for spec in task.produces]),
    ):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise InputError(f"two {kind} have the name {min(twice)}; names must differ")
    for task in plan.tasks:
        for name in task.consumes:
            if name not in plan.registers:
                raise InputError(f"the actor {task.name} consumes {name}, which no actor produces")


def _check_tasks(plan: ActorPlan) -> None:
    for task in plan.tasks:
        if task.times < 1 or (task.times > 1 and task.kind in (Kind.NORMAL, Kind.INPUT_WISE)):
            raise InputError(
                f"the actor {task.name}: times is {task.times}, which {task.kind.value} does not allow"
            )
        if task.is_async and task.kind is not Kind.NORMAL:
            raise InputError(f"the actor {task.name}: an asynchronous kernel must be of kind normal")
        if task.kind is not Kind.NORMAL and not task.consumes:
            raise InputError(f"the actor {task.name} is of kind {task.kind.value} and consumes nothing")
        for spec in task.produces:
            if spec.count < 1 or spec.size < 0 or not 0 <= spec.initial <= spec.count:
                raise InputError(
                    f"the register {spec.name} of {task.name}: count must be 1 at least, the size not negative, and "
                    f"initial from 0 to count, not {spec.count}, {spec.size} and {spec.initial}"
                )
            if spec.lag < 0 or (spec.lag and (spec.initial or task.is_async)):
                raise InputError(
                    f"the register {spec.name} of {task.name}: lag is {spec.lag}; it must not be negative, and neither "
                    "initial registers nor an asynchronous kernel go with it"
                )


def _check_cycles(plan: ActorPlan) -> None:
    graph = networkx.DiGraph()
    for name, spec in plan.registers.items():
        if not spec.initial:
            graph.add_edges_from((plan.producers[name].name, task.name) for task in plan.consumers[name])
    try:
        cycle = networkx.find_cycle(graph)
    except networkx.NetworkXNoCycle:
        return
    names = " -> ".join([*(start for start, _ in cycle), cycle[0][0]])
    raise InputError(
        f"the actors {names} wait for each other: a cycle without credits; give one register an initial one"
    )


def _rates(task: Task) -> tuple[int, int]:
    """Registers that it takes of an input, and makes of an output, in `times` acts."""
    if task.kind in (Kind.REPEAT, Kind.UNPACK):
        return 1, task.times
    return (task.times, 1) if task.kind is Kind.ACCUMULATE else (1, 1)


def _acts_of_a_period(plan: ActorPlan) -> dict[str, int]:
    """The acts of each actor in one period; actors that take whichever input comes are bound to nobody."""
    rates: dict[str, Fraction] = {}
    for first in plan.tasks:
        if first.name in rates or first.kind is Kind.INPUT_WISE:
            continue
        group = {first.name: Fraction(1)}
        queue = deque([first])
        while queue:
            task = queue.popleft()
            for name in [*(spec.name for spec in task.produces), *task.consumes]:
                producer = plan.producers[name]
                for consumer in plan.consumers[name]:
                    if Kind.INPUT_WISE in (producer.kind, consumer.kind):
                        continue
                    ratio = Fraction(_rates(producer)[1], _rates(consumer)[0])
                    for counted, neighbour, factor in (
                        (producer, consumer, ratio),
                        (consumer, producer, 1 / ratio),
                    ):
                        if counted.name not in group:
                            continue
                        count = group[counted.name] * factor
                        if neighbour.name not in group:
                            group[neighbour.name] = count
                            queue.append(neighbour)
                        elif group[neighbour.name] != count:
                            raise InputError(
                                f"the register {name} is made by {producer.name} and used by {consumer.name} at "
                                "different rates, by another way between the two; check their times"
                            )
        scale = math.lcm(*(value.denominator for value in group.values()))
        rates.update({name: value * scale for name, value in group.items()})
    return {name: int(value) for name, value in rates.items()}


def _check_progress(plan: ActorPlan, periods: dict[str, int]) -> None:
    """Try one period; where it halts, add registers until it does not, and say where they are missing.

    Producers may act as many periods more as registers lag.
    """
    targets = {name: count * plan.by_name[name].times for name, count in periods.items()}
    lag = sum(spec.lag for spec in plan.registers.values())
    most = {name: count * (1 + lag) for name, count in targets.items()}
    if sum(most.values()) > MOST_ACTS:
        raise InputError(
            f"a period of the plan has {sum(most.values())} acts, more than {MOST_ACTS}; repeat less"
        )
    counts = {name: spec.count for name, spec in plan.registers.items()}
    trial = _Trial(plan, counts)
    while not trial.run(targets, most=most):
        blocked = trial.blocked(most)
        if not blocked:
            stuck = min(name for name in targets if trial.acts[name] < targets[name])
            raise InputError(
                f"the actor {stuck} never gets its inputs; a cycle of the plan has too few initial credits"
            )
        for name in blocked:
            counts[name] += 1
        trial = _Trial(plan, counts)
    missing = [
        f"{name} of {plan.producers[name].name} has {spec.count} and needs {counts[name]}"
        for name, spec in plan.registers.items()
        if counts[name] > spec.count
    ]
    if missing:
        raise InputError(f"the plan comes to a halt with too few registers: {'; '.join(missing)}")


class _Trial:
    """Counters in the place of registers."""

    def __init__(self, plan: ActorPlan, counts: dict[str, int]) -> None:
        self.plan = plan
        self.acts = {task.name: 0 for task in plan.tasks}
        self.readable = {
            (name, task.name): spec.initial
            for name, spec in plan.registers.items()
            for task in plan.consumers[name]
        }
        self.free = {name: counts[name] - spec.initial for name, spec in plan.registers.items()}
        self.holders: dict[str, deque[int]] = {
            name: deque([len(plan.consumers[name])] * spec.initial) for name, spec in plan.registers.items()
        }
        self.taken = dict.fromkeys(self.readable, 0)
        self.lag = {name: spec.lag for name, spec in plan.registers.items()}

    def run(self, wanted: dict[str, int], *, most: dict[str, int]) -> bool:
        """Act while anybody can and has not acted `most` times; whether every actor has done what is wanted of it."""
        has_moved = True
        while has_moved:
            has_moved = False
            for task in self.plan.tasks:
                while self.acts[task.name] < most.get(task.name, MOST_ACTS) and self._act(task):
                    has_moved = True
        return all(self.acts[name] >= count for name, count in wanted.items())

    def blocked(self, wanted: dict[str, int]) -> list[str]:
        """Registers of which none is free though their producers have all inputs."""
        return [
            spec.name
            for task in self.plan.tasks
            if self.acts[task.name] < wanted.get(task.name, 0) and self._inputs(task)
            for spec in task.produces
            if not self.free[spec.name] and self.plan.consumers[spec.name]
        ]

    def _inputs(self, task: Task) -> list[str]:
        """The inputs of the next act, or none if it cannot be."""
        ready = [name for name in task.consumes if self.readable[name, task.name]]
        if task.kind is Kind.INPUT_WISE:
            return ready[:1]
        return [*ready, ""] if len(ready) == len(task.consumes) else []

    def _act(self, task: Task) -> bool:
        inputs = self._inputs(task)
        if not inputs or not all(self.free[spec.name] for spec in task.produces):
            return False
        self.acts[task.name] += 1
        last = self.acts[task.name] % task.times == 0
        if last or task.kind is not Kind.ACCUMULATE:
            for spec in task.produces:
                consumers = self.plan.consumers[spec.name]
                if consumers and self.lag[spec.name]:
                    self.lag[spec.name] -= 1
                    continue
                for consumer in consumers:
                    self.readable[spec.name, consumer.name] += 1
                if consumers:
                    self.free[spec.name] -= 1
                    self.holders[spec.name].append(len(consumers))
        if last or task.kind not in (Kind.REPEAT, Kind.UNPACK):
            for name in filter(None, inputs):
                self.readable[name, task.name] -= 1
                self._give_back(name, task)
        return True

    def _give_back(self, name: str, task: Task) -> None:
        place = self.taken[name, task.name] - (
            min(self.taken[name, consumer.name] for consumer in self.plan.consumers[name])
        )
        self.taken[name, task.name] += 1
        self.holders[name][place] -= 1
        if not self.holders[name][0]:
            self.holders[name].popleft()
            self.free[name] += 1
