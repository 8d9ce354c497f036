"""Why training waited for data in an epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRAIN = "train"
STAGES = ("read", "decode", "batch")
"""The stages that training can wait for."""


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """One epoch of one worker."""

    epoch: int
    samples: int
    seconds: float
    waited_seconds: float
    """Time that the training loop spent waiting for its next batch."""
    seconds_by_stage: Mapping[str, float]
    """The epoch's length by the stage that determined it: the chain of acts, each waiting for the one before, that led
    to the last batch. They add up to the length, training included."""
    busy_seconds: Mapping[str, float]
    """Time in which each stage worked, on whatever number of threads."""

    @property
    def stall_share(self) -> float:
        """The part of the epoch in which training waited."""
        return self.waited_seconds / self.seconds if self.seconds else 0.0

    @property
    def stall_by_cause(self) -> dict[str, float]:
        """The parts of the epoch in which training waited for each stage."""
        return {
            name: self.seconds_by_stage.get(name, 0.0) / self.seconds if self.seconds else 0.0
            for name in STAGES
        }

    @property
    def bottleneck(self) -> str:
        """The stage that determined most of the epoch; `train` if that is training itself."""
        return max((*STAGES, TRAIN), key=lambda name: self.seconds_by_stage.get(name, 0.0))

    def fields(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {
            "epoch": self.epoch,
            "samples": self.samples,
            "seconds": round(self.seconds, 3),
            "stall_share": round(self.stall_share, 3),
            "stall_by_cause": {name: round(share, 3) for name, share in self.stall_by_cause.items()},
            "bottleneck": self.bottleneck,
        }
