"""A gang that was admitted and does not find its places: somebody took them, or a node vanished.

The pods that found one would hold it for nothing, as the queue does the room of those that could not be made, and two
such jobs could wait for each other for ever. So after a while the job gives back what it has and queues again. Where
the queue's own count of free room says again and again that it fits, and the scheduler that it does not (a volume, a
port, a quota), the pauses between tries grow.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tdcs.decide.job.unplaced_pods import Short
from tdcs.decide.queue.pod_admission import Admission, Reason


class Lack(Protocol):
    """What a gang lacks that gives its room back, or an elastic one that gives back workers."""

    @property
    def reason(self) -> Reason: ...

    @property
    def spare(self) -> bool:
        """Whether it gives back only workers that it can do without."""

    def sentence(self, *, patience: float) -> str:
        """What happened, for the job's owner; `patience`: seconds that pods have to find places."""

    def shortage(self, *, patience: float) -> str:
        """What it lacks."""


PLACEMENT_SECONDS = 45.0
"""Seconds without progress (a pod that is made, or gets a node) after which a gang gives its places back: so what is
reserved for a gang that is refused whole is free again within a minute."""

LONGEST_PAUSE = 900.0
"""Seconds that a job pauses at most before it is tried again."""


@dataclass(slots=True)
class _Pause:
    until: float
    tries: int
    reason: Reason
    message: str
    shortage: str


class Requeues:
    """How long gangs have been short of places, and which of them pause before they are tried again.

    A restart forgets it: then a job waits once more for the whole patience, and is tried again at once.

    Args:
        patience: seconds that a gang has to find its places.
    """

    def __init__(
        self, *, patience: float = PLACEMENT_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.patience = patience
        self._clock = clock
        self._short_since: dict[str, tuple[str, float]] = {}
        self._pauses: dict[str, _Pause] = {}

    def left(self, uid: str, *, short: Short | None) -> float | None:
        """Seconds until a gang gives its places back; None when it need not.

        The patience counts from when this operator saw the gang short, on its own clock: the times of Kubernetes are
        whole seconds, and right after an admission the newest of them is that of the run before.
        """
        if short is None:
            self._short_since.pop(uid, None)
            return None
        known, at = self._short_since.get(uid, ("", self._clock()))
        if known != short.since:
            at = self._clock()  # one more pod was made, or got a node
        self._short_since[uid] = (short.since, at)
        return max(self.patience - (self._clock() - at), 0.0)

    def requeue(self, uid: str, *, short: Lack) -> str:
        """The job gives its places back, and pauses; gives what to say of it."""
        tries = self._pauses[uid].tries + 1 if uid in self._pauses else 1
        # Jobs that took each other's places must not try again at the same moment.
        pause = min(self.patience / 4 * 2 ** min(tries - 1, 32), LONGEST_PAUSE) * random.uniform(1, 2)  # noqa: S311
        again = "it asks for them again" if short.spare else "it queues again"
        message = f"{short.sentence(patience=self.patience)}; {again}"
        if tries > 1:
            message += f", for the {_ordinal(tries)} time, after a longer pause"
        self._short_since.pop(uid, None)
        self._pauses[uid] = _Pause(
            until=self._clock() + pause,
            tries=tries,
            reason=short.reason,
            message=message,
            # A job that goes on without spare workers lacks nothing.
            shortage="" if short.spare else short.shortage(patience=self.patience),
        )
        return message

    def last_shortage(self, uid: str) -> str:
        """How many pods of a job found no place when it was tried last, and why; empty once all have found theirs."""
        return self._pauses[uid].shortage if uid in self._pauses else ""

    def placed(self, uid: str) -> None:
        """All pods that the job is to have now have their places, be they fewer than it asks for."""
        if uid in self._pauses:
            self._pauses[uid].shortage = ""

    def settled(self, uid: str) -> None:
        """All pods that the job asks for have their places: how often it had to pause is forgotten."""
        if self.pause_left(uid) is None:
            self._pauses.pop(uid, None)

    def pause_left(self, uid: str) -> float | None:
        """Seconds that the job still pauses; None when it does not."""
        rest = self._pauses.get(uid)
        left = 0.0 if rest is None else rest.until - self._clock()
        return left if left > 0 else None

    def admission(self, uid: str) -> Admission | None:
        """The answer for a job that pauses; None when it does not."""
        if self.pause_left(uid) is None:
            return None
        pause = self._pauses[uid]
        return Admission(admitted=False, data_ready=True, reason=pause.reason, message=pause.message)

    def forget_others(self, uids: set[str]) -> None:
        """Keep nothing of other jobs than these."""
        self._short_since = {uid: since for uid, since in self._short_since.items() if uid in uids}
        self._pauses = {uid: rest for uid, rest in self._pauses.items() if uid in uids}


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in {11, 12, 13} else 0, "th")
    return f"{number}{ending}"
