"""A plan of actors: who produces and consumes which registers, on which machine and thread; all before the run.

Source: OneFlow (arXiv 2110.15032), sections 4 and 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tdcs_train.actors.register import aligned
from tdcs_train.actors.task import RegisterSpec, Task
from tdcs_train.errors import InputError

MACHINE_BITS, THREAD_BITS, STREAM_BITS, TASK_BITS = 10, 11, 21, 21


def task_id(*, machine: int, thread: int, stream: int, task: int) -> int:
    """The number of an actor: machine 10 bits, thread 11, stream 21, task 21.

    Raises:
        InputError: One of them needs more bits.
    """
    found = 0
    parts = (("machine", machine, MACHINE_BITS), ("thread", thread, THREAD_BITS), ("stream", stream, STREAM_BITS),
             ("task", task, TASK_BITS))  # fmt: skip
    for name, value, bits in parts:
        if not 0 <= value < 1 << bits:
            raise InputError(f"the {name} number {value} is not between 0 and {(1 << bits) - 1}")
        found = found << bits | value
    return found


@dataclass(frozen=True)
class ActorPlan:
    """The actors of a run on all machines."""

    tasks: tuple[Task, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Task]:
        """The actors by name."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def registers(self) -> Mapping[str, RegisterSpec]:
        """The register descriptors by name."""
        return {spec.name: spec for task in self.tasks for spec in task.produces}

    @cached_property
    def producers(self) -> Mapping[str, Task]:
        """Who writes a register."""
        return {spec.name: task for task in self.tasks for spec in task.produces}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Task, ...]]:
        """Who reads a register."""
        return {name: tuple(task for task in self.tasks if name in task.consumes) for name in self.registers}

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The number of each actor; each thread has one stream."""
        return {
            task.name: task_id(machine=task.machine, thread=task.thread, stream=0, task=number)
            for number, task in enumerate(self.tasks)
        }

    @property
    def machines(self) -> tuple[int, ...]:
        """The machines that have actors."""
        return tuple(sorted({task.machine for task in self.tasks}))

    def pulled(self, machine: int) -> tuple[RegisterSpec, ...]:
        """Registers of other machines that actors of this one read: it holds copies of them."""
        return tuple(
            spec
            for name, spec in self.registers.items()
            if self.producers[name].machine != machine
            and any(task.machine == machine for task in self.consumers[name])
        )

    def held(self, machine: int) -> list[tuple[str, int, int]]:
        """The registers of a machine as (name, count, bytes of each), copies of others' registers included."""
        own = [
            (spec.name, spec.count, spec.size)
            for task in self.tasks
            if task.machine == machine
            for spec in task.produces
        ]
        return own + [(spec.name, spec.pull_count, spec.size) for spec in self.pulled(machine)]

    def memory_bytes(self, machine: int) -> int:
        """Bytes of all registers of a machine: they are allocated at the start, and nothing is added later."""
        return sum(count * aligned(size) for _, count, size in self.held(machine))
