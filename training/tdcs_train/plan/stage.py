"""Plans: a model cut into stages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Block:
    """Neighbouring layers on some machines of one level of the network."""

    nodes: tuple[str, ...]
    """Names of layers in topological order."""
    replicas: int
    """Machines of this level that each run all the layers and share the mini-batches."""
    inner: tuple["Block", ...] = ()
    """How the layers are divided inside one of these machines; empty on the lowest level."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a pipeline: layers that a number of workers each hold."""

    nodes: tuple[str, ...]
    replicas: int
    compute_seconds: float
    """Forward and backward of one mini-batch on one worker."""
    forward_seconds: float
    """The forward of it alone."""
    arriving_seconds: float
    """The way of a mini-batch's tensors from the stage before over one link, and of their gradients back."""
    sync_seconds: float
    """What averaging gradients adds to it: (compute + sync) / replicas is the stage's time a mini-batch."""
    transfer_seconds: float
    """Tensors between it and its neighbours for one mini-batch, by the links of its own replicas. The published formula
    gives the first stage none: its cut is counted at the stage behind it."""
    warmup: int
    """Forwards before the first backward."""
    versions: int
    """Versions of its weights that are held at a time at most."""
    memory_bytes: float
    """Activations and parameters for the mini-batches in flight, by the published formula, of one at least."""
    recomputes: bool = False
    """It keeps what arrives alone, and computes its forward again before the backward; `compute_seconds` has both."""

    @property
    def seconds(self) -> float:
        """A mini-batch of it."""
        return max((self.compute_seconds + self.sync_seconds) / self.replicas, self.transfer_seconds)


MOST_AHEAD = 64
"""Mini-batches in flight beside the published number, for each stage behind a worker. Each costs a version of the
weights."""


def warmup_counts(replicas: Sequence[int], *, ahead: int = 0) -> list[int]:
    """Forwards that a worker of each stage does before its first backward.

    Source: PipeDream (SOSP'19, section 3.3): (W - 1 - workers before) // replicas, as its runtime counts them. That is
    just enough for transfers that take no time. To hide them there are `ahead` more for each worker and each stage
    behind it: the way to every one of them has transfers. What a stage may have in flight never grows from stage to
    stage; else a replicated stage would wait for mini-batches that the one before may not send yet, for ever.
    """
    workers, last = sum(replicas), len(replicas) - 1
    more = [
        ahead * sum(max(replicas[cut], replicas[cut + 1]) for cut in range(index, last))
        for index in range(last + 1)
    ]
    return [
        (workers - 1 - sum(replicas[:index]) + more[index]) // count for index, count in enumerate(replicas)
    ]


def in_flight_bound(replicas: Sequence[int]) -> int:
    """Mini-batches that the input stage lets in for each of its workers: NOAM, ceil(W / replicas of it)."""
    return math.ceil(sum(replicas) / replicas[0])
