"""What to do about a job that waits for its data, from how long its reads waited and for what."""

from dataclasses import dataclass
from typing import Literal

Advice = Literal["ComputeBound", "CacheMore", "Replicate", "FasterDisk"]

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
    """

    seconds: float
    peer: float = 0.0
    source: float = 0.0
    disk: float | None = None

    @property
    def waited(self) -> float:
        """Seconds in which some read waited."""
        return self.peer + self.source + (self.disk or 0.0)

    @property
    def share(self) -> float:
        """Of the pods' time, how much some read of theirs waited: 0 to 1."""
        return min(self.waited / self.seconds, 1.0) if self.seconds > 0 else 0.0


def advice_of(stall: Stall) -> Advice:
    """What would shorten the waits most."""
    if stall.share < COMPUTE_BOUND_SHARE or stall.waited < TOO_LITTLE_SECONDS:
        return "ComputeBound"
    waits: dict[Advice, float] = {
        "CacheMore": stall.source,
        "Replicate": stall.peer,
        "FasterDisk": stall.disk or 0.0,
    }
    return max(waits, key=lambda advice: waits[advice])


def explained(advice: Advice, *, replicated: bool = False) -> str:
    """The advice as a sentence. `replicated`: whether the job's datasets have whole copies on nodes already."""
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
    }[advice]
