"""The plan of a pipeline as the runtime needs it, from what `tdcs-train plan --json` writes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tdcs_train.model.errors import PlanError
from tdcs_train.plan.graph import InputShape
from tdcs_train.plan.stage import MOST_AHEAD


@dataclass(frozen=True)
class StagePlan:
    """The layers (ids) and the replicas of each stage.

    `ahead` are the mini-batches that a worker has in flight beside the published number, for each stage behind it.
    """

    stages: tuple[tuple[str, ...], ...]
    replicas: tuple[int, ...]
    ahead: int = 0
    recomputing: frozenset[int] = frozenset()
    """Stages that compute their forward again before the backward, and keep only what arrives until then."""
    inputs: tuple[InputShape, ...] = ()
    """The model's inputs as they were profiled, by which a forward with branches on shapes is traced again."""

    @property
    def workers(self) -> int:
        return sum(self.replicas)

    @property
    def digest(self) -> str:
        """Equal plans have equal digests."""
        parts = [self.stages, self.replicas, *([self.ahead] if self.ahead else [])]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return "-".join(map(str, self.replicas))


def read_plan(path: Path, *, workers: int) -> StagePlan:
    """The plan in a file, for a job with that many workers.

    Raises PlanError with the file and the field for anything that is no plan, or a plan for other workers.
    """
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} cannot be read as a plan: {error}") from error
    plan = plan_of(document, source=str(path))
    if plan.workers != workers:
        raise PlanError(
            f"{path} is a plan for {plan.workers} workers ({plan}), the job has {workers} (WORLD_SIZE); plan "
            "again with "
            f"--workers {workers}"
        )
    return plan


def plan_of(document: Any, *, source: str) -> StagePlan:
    """The plan in a document."""
    stages = document.get("stages") if isinstance(document, Mapping) else None
    if not isinstance(stages, Sequence) or isinstance(stages, str) or not stages:
        raise PlanError(f"{source} has no list `stages`; write it with tdcs-train plan --json")
    nodes, replicas, recomputing = [], [], set()
    for number, stage in enumerate(stages):
        where = f"{source}, stages[{number}]"
        if not isinstance(stage, Mapping):
            raise PlanError(f"{where} is no object")
        names, count = stage.get("nodes"), stage.get("replicas")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise PlanError(f"{where}.nodes must be a list of layers, such as node2")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise PlanError(f"{where}.replicas is {count!r}; it must be a whole number from 1")
        recomputes = stage.get("recomputes", False)
        if not isinstance(recomputes, bool):
            raise PlanError(f"{where}.recomputes is {recomputes!r}; it must be true or false")
        if recomputes:
            recomputing.add(number)
        nodes.append(tuple(names))
        replicas.append(count)
    ahead = document.get("ahead", 0)
    if not isinstance(ahead, int) or isinstance(ahead, bool) or not 0 <= ahead <= MOST_AHEAD:
        raise PlanError(f"{source}, ahead is {ahead!r}; it must be a whole number from 0 to {MOST_AHEAD}")
    return StagePlan(
        tuple(nodes),
        tuple(replicas),
        ahead,
        recomputing=frozenset(recomputing),
        inputs=_inputs(document.get("inputs", []), source=source),
    )


def _inputs(value: Any, *, source: str) -> tuple[InputShape, ...]:
    shapes = []
    for number, entry in enumerate(value if isinstance(value, list) else [value]):
        name, dtype, shape = (
            entry.get(key) if isinstance(entry, Mapping) else None for key in ("name", "dtype", "shape")
        )
        good = isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list)
        if not good or not all(type(size) is int and size >= 0 for size in shape or ()):
            raise PlanError(f"{source}, inputs[{number}] must have name, dtype and shape; plan again")
        assert isinstance(name, str)
        assert isinstance(dtype, str)
        assert isinstance(shape, list)
        shapes.append(InputShape(name, dtype, tuple(shape)))
    return tuple(shapes)
