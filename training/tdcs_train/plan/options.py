"""What a pipeline is planned for."""

import math
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy
from numpy.typing import NDArray

from tdcs_train.errors import InputError
from tdcs_train.plan.stage import MOST_AHEAD

Sync = Literal["ring", "ps"]
Number = TypeVar("Number", float, NDArray[numpy.float64])

MOST_MACHINES = 1024
"""On one level. The time of a plan grows faster than this number; many machines are planned sooner in levels."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level of the network: `machines` of them are joined by links of `bandwidth` bytes a second each."""

    machines: int
    bandwidth: float
    latency: float = 0.0
    """Seconds that the first byte takes from one machine to another."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Workers, links and limits of a plan."""

    levels: tuple[Level, ...]
    """The innermost level first: two GPUs in each of two machines are two levels of 2."""
    sync: Sync = "ring"
    """How replicas of a stage average their gradients: ring all-reduce, or parameter servers."""
    memory_bytes: float | None = None
    recompute: bool = False
    """A stage that would not fit in the memory keeps what arrives at it alone, and computes its forward again before
    the backward."""
    straight: bool = False
    """Every stage has one worker."""
    fewer: bool = False
    """Workers may be left out where that is faster."""
    activation_ratio: float = 1.0
    """By how much tensors between stages are compressed; infinite: their transfer is ignored."""
    ahead: int | None = None
    """Mini-batches that a worker has in flight beside the published number, for each stage behind it; None: as many as
    a pipeline needs to be the best answer, up to MOST_CHOSEN."""
    published: bool = False
    """Advise by the published bottleneck, which takes transfers to be hidden, and not by what is expected."""
    together: tuple[tuple[str, ...], ...] = ()
    """Groups of layers that stay in one stage."""

    @property
    def workers(self) -> int:
        """The workers of all levels together."""
        return math.prod(level.machines for level in self.levels)


def check_options(options: Options) -> None:
    """Refuse options that mean nothing.

    Raises:
        InputError: It names the option.
    """
    if not options.levels:
        raise InputError("--levels: there must be one level at least")
    for level in options.levels:
        if level.machines < 1:
            raise InputError(f"--workers or --levels: {level.machines} machines; there must be 1 at least")
        if level.machines > MOST_MACHINES:
            raise InputError(
                f"--workers or --levels: {level.machines} machines on one level, above {MOST_MACHINES}; divide them "
                "into levels"
            )
        if not (math.isfinite(level.bandwidth) and level.bandwidth > 0):
            raise InputError(f"--bandwidth: {level.bandwidth}; it must be finite and more than 0")
        if not (math.isfinite(level.latency) and level.latency >= 0):
            raise InputError(f"--latency: {level.latency}; it must be finite and 0 at least")
    if options.memory_bytes is not None and not options.memory_bytes > 0:
        raise InputError(f"--memory: {options.memory_bytes}; it must be more than 0")
    if options.recompute and options.memory_bytes is None:
        raise InputError(
            "--recompute without --memory: stages compute again where they would not fit; give --memory"
        )
    if options.recompute and len(options.levels) > 1:
        raise InputError(
            "--recompute with several levels is not planned; give one level, with its slowest link"
        )
    if not options.activation_ratio > 0:
        raise InputError(f"--activation-ratio: {options.activation_ratio}; it must be more than 0")
    if options.ahead is not None and not 0 <= options.ahead <= MOST_AHEAD:
        raise InputError(f"--ahead: {options.ahead}; it must be from 0 to {MOST_AHEAD}")


def averaging_latency(sync: Sync, level: Level, replicas: int) -> float:
    """Seconds of latency of one averaging of gradients: the steps of a ring one after another, or there and back."""
    if replicas == 1:
        return 0.0
    return level.latency * (2 if sync == "ps" else 2 * (replicas - 1))


def synchronisation(sync: Sync, replicas: Number) -> Number:
    """How many times its parameters a replica sends and receives to average gradients with the others."""
    factor = 4 if sync == "ps" else 2
    return factor * (replicas - 1) / replicas
