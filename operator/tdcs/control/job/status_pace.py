"""How often the progress of a job is written to its status: a burst of pods that become ready is a few writes."""

import time
from collections.abc import Callable
from typing import Final

from tdcs.model.kube_objects import Key

PROGRESS: Final = frozenset(
    {
        "considered",
        "dataStall",
        "localShare",
        "locality",
        "localityPercent",
        "message",
        "placement",
        "placementDigest",
        "placementOmitted",
        "replicaStatuses",
    }
)
"""Fields that change as pods come and go one by one. What a job waits for, and how it ended, is no progress."""


class StatusPace:
    """When the status of each job was written last.

    Args:
        seconds: between two writes that tell of progress only.
    """

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._written: dict[Key, float] = {}

    def left(self, key: Key) -> float:
        """Seconds until progress may be written again; 0 when it may."""
        written = self._written.get(key)
        return 0.0 if written is None else max(self._seconds - (self._clock() - written), 0.0)

    def wrote(self, key: Key) -> None:
        self._written[key] = self._clock()

    def drop(self, key: Key) -> None:
        self._written.pop(key, None)
