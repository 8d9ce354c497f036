"""A plan of actors: who produces and consumes which registers, on which thread; all before the run.

Source: OneFlow (arXiv 2110.15032), sections 4 and 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tdcs_train.actors.register import aligned
from tdcs_train.actors.task import RegisterSpec, Task


@dataclass(frozen=True)
class ActorPlan:
    """The actors of a run."""

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

    @property
    def held(self) -> list[tuple[str, int, int]]:
        """The registers as (name, count, bytes of each)."""
        return [(spec.name, spec.count, spec.size) for task in self.tasks for spec in task.produces]

    @property
    def memory_bytes(self) -> int:
        """Bytes of all registers: they are allocated at the start, and nothing is added later."""
        return sum(count * aligned(size) for _, count, size in self.held)
