"""The places of a pipeline's workers, and which mini-batches each works on.

The mini-batches go to the replicas of a stage in turn (1F1B-RR). In which order a worker computes its own follows from
its registers: :mod:`tdcs_train.pipeline.credits`.

Source: PipeDream (SOSP'19, section 3.2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tdcs_train.model.errors import PlanError
from tdcs_train.plan.stage import warmup_counts

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Act:
    """A worker's forward or backward of one mini-batch."""

    direction: Direction
    batch: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """A worker's place in a pipeline: replica `replica` of stage `stage`; `replicas` has the number of each stage."""

    replicas: tuple[int, ...]
    stage: int
    replica: int

    @property
    def own(self) -> int:
        """Replicas of its own stage."""
        return self.replicas[self.stage]

    @property
    def rank(self) -> int:
        """Its rank: stages in order, replicas in order within."""
        return sum(self.replicas[: self.stage]) + self.replica

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == len(self.replicas) - 1

    def __str__(self) -> str:
        replica = f" replica {self.replica}" if self.own > 1 else ""
        return f"rank {self.rank} (stage {self.stage}{replica})"


def place_of(rank: int, replicas: Sequence[int]) -> Place:
    """The place of a rank."""
    before = 0
    for stage, count in enumerate(replicas):
        if rank < before + count:
            return Place(replicas=tuple(replicas), stage=stage, replica=rank - before)
        before += count
    raise PlanError(
        f"rank {rank} has no place in a pipeline of {before} workers: its ranks are 0 to {before - 1}"
    )


def warm_up(replicas: Sequence[int], stage: int, *, ahead: int = 0) -> int:
    """Forwards of a worker of the stage before its first backward: (W - 1 - workers of earlier stages) // replicas.

    `ahead` more for each stage behind it.
    """
    return warmup_counts(replicas, ahead=ahead)[stage]


def share(place: Place, *, first: int, count: int) -> range:
    """The mini-batches of a worker, of `count` from number `first` on; `first` is a multiple of all replicas."""
    return range(first + place.replica, first + count, place.own)


def neighbours(place: Place, *, step: int) -> list[int]:
    """The replicas of the next (`step` 1) or previous (-1) stage that work on some of the same mini-batches."""
    neighbour = place.stage + step
    if not 0 <= neighbour < len(place.replicas):
        return []
    period = range(place.replica, place.own * place.replicas[neighbour], place.own)
    return sorted({batch % place.replicas[neighbour] for batch in period})


def check_counts(replicas: Sequence[int], count: int) -> None:
    """Refuses a number of mini-batches that the replicas of a stage cannot share evenly.

    Raises PlanError with the stage and the next smaller number that fits.
    """
    for stage, number in enumerate(replicas):
        if count % number or count < 1:
            fitting = count - count % math.lcm(*replicas)
            raise PlanError(
                f"{count} mini-batches cannot be shared by the {number} replicas of stage {stage}: give a multiple of "
                f"{math.lcm(*replicas)}" + (f", such as {fitting}" if fitting else "")
            )
