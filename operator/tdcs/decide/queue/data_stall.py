"""What to do about a job that waits for its data, from how long its reads waited and for what."""

from dataclasses import dataclass
from typing import Literal

Advice = Literal["ComputeBound", "CacheMore", "Replicate", "FasterDisk", "FasterLoader"]

COMPUTE_BOUND_SHARE = 0.05
"""Reads that wait for less of the time than this slow a job by no more than that, if its program reads in no other
time than it works; most read ahead, and lose less."""

TOO_LITTLE_SECONDS = 10.0
"""Waits of fewer seconds in all are no ground for advice, whatever share of the reading they are: a job that reads two
seconds long, and waits for all of them, would gain these two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """How long the reads of a job's pods waited, summed over the pods.

    Attributes:
        seconds: in which the pods were observed.
        peer, source: in which some read waited for another node, and for the source.
        disk: in which some process waited for files of the node itself; None where that is not known.
        loop_seconds: in which training loops were watched, summed over processes; None where none was.
        loop_waited: of these, in which they waited for their next batch, whatever kept it.
    """

    seconds: float
    peer: float = 0.0
    source: float = 0.0
    disk: float | None = None
    loop_seconds: float | None = None
    loop_waited: float = 0.0

    @property
    def waited(self) -> float:
        """Seconds in which some read waited."""
        return self.peer + self.source + (self.disk or 0.0)

    @property
    def share(self) -> float:
        """Of the pods' time, how much some read of theirs waited: 0 to 1."""
        return min(self.waited / self.seconds, 1.0) if self.seconds > 0 else 0.0

    @property
    def loop_share(self) -> float | None:
        """Of their time, how much the training loops stood still for a batch: 0 to 1; None where none was watched."""
        return min(self.loop_waited / self.loop_seconds, 1.0) if self.loop_seconds else None


def advice_of(stall: Stall) -> Advice:
    """What would shorten the waits most.

    A watched loop says whether training waits at all: reads that wait ahead of it cost nothing. And reads can have made
    it wait for no more of the time than some of them waited; where that is less than half, the loader's own work did.
    """
    if stall.loop_share is not None:
        if stall.loop_share < COMPUTE_BOUND_SHARE or stall.loop_waited < TOO_LITTLE_SECONDS:
            return "ComputeBound"
        if stall.share < stall.loop_share / 2:
            return "FasterLoader"
    elif stall.share < COMPUTE_BOUND_SHARE or stall.waited < TOO_LITTLE_SECONDS:
        return "ComputeBound"
    waits: dict[Advice, float] = {
        "CacheMore": stall.source,
        "Replicate": stall.peer,
        "FasterDisk": stall.disk or 0.0,
    }
    return max(waits, key=lambda advice: waits[advice])


def explained(advice: Advice, *, replicated: bool = False, watched: bool = False) -> str:
    """The advice as a sentence.

    Args:
        replicated: whether the job's datasets have whole copies on nodes already.
        watched: whether its training loop is, so that its reads are not all that is known.
    """
    if advice == "ComputeBound" and watched:
        return "its training loop hardly waits for batches: neither more cache nor a faster loader would speed it up"
    if advice == "Replicate" and replicated:
        return (
            "it waits for other nodes, which have whole copies: have copies on more nodes (placement.nodeCount, "
            "copies), or run it on the nodes that have them"
        )
    return {
        "ComputeBound": "its reads hardly wait: more cache would not make it faster",
        "CacheMore": "it waits for the source: cache more of its datasets (spec.preload, room in the cache, "
        "readiness in the job)",
        "Replicate": "it waits for other nodes: have whole copies on its nodes (placement.mode Replicate), or run "
        "it on fewer nodes",
        "FasterDisk": "it waits for files of its own nodes: a faster tier (SSD, MEM), or more memory for what was "
        "read",
        "FasterLoader": "its training loop waits for batches while its reads do not: the loader's own work is too slow "
        "(more loader workers and CPUs, cheaper decoding and augmentation)",
    }[advice]
