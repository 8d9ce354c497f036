"""A gang that was admitted and does not find its places: somebody took them, or a node vanished.

The pods that found one would hold it for nothing, as the queue does the room of those that could not be made, and two
such jobs could wait for each other forever. So after a while the job gives back what it has and queues again. Where
the queue's own count of free room says again and again that it fits, and the scheduler that it does not (a volume, a
port, a quota), the pauses between tries grow.
"""

import math
import random
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol

from tdcs.api.durations import time_after
from tdcs.control.job.queue.turns import Turns
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


class Requeues:
    """How long gangs have been short of places, and which of them pause before they are tried again.

    A restart forgets since when a gang is short: then a job waits once more for the whole patience.

    Args:
        patience: seconds that a gang has to find its places.
        turns: where what becomes of it is kept.
    """

    def __init__(
        self,
        *,
        patience: float = PLACEMENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        turns: Turns | None = None,
    ) -> None:
        self.patience = patience
        self._turns = turns or Turns(clock=clock)
        self._clock = self._turns.clock
        self._short_since: dict[str, tuple[str, float]] = {}

    def left(self, uid: str, *, short: Short | None) -> float | None:
        """Seconds until a gang gives its places back; None when it need not.

        The patience counts from when this operator saw the gang short, on its own clock: the times of Kubernetes are
        whole seconds, and right after an admission the newest of them is that of the run before.
        """
        if short is None:
            self._short_since.pop(uid, None)
            return None
        short_since, at = self._short_since.get(uid, ("", self._clock()))
        if short_since != short.since:
            at = self._clock()  # one more pod was made, or got a node
        self._short_since[uid] = (short.since, at)
        return max(self.patience - (self._clock() - at), 0.0)

    def requeue(self, uid: str, *, short: Lack) -> str:
        """The job gives its places back, and pauses; gives what to say of it. How often it was passed stays counted:
        that others took its places is no turn that it had."""
        attempts = self._turns.of(uid).attempts + 1
        # Jobs that took each other's places must not try again at the same moment.
        pause = min(self.patience / 4 * 2 ** min(attempts - 1, 32), LONGEST_PAUSE) * random.uniform(1, 2)  # noqa: S311
        again = "it asks for them again" if short.spare else "it queues again"
        message = f"{short.sentence(patience=self.patience)}; {again}"
        if attempts > 1:
            message += f", for the {_ordinal(attempts)} time, after a longer pause"
        self._short_since.pop(uid, None)
        turn = self._turns.of(uid) if short.spare else self._turns.of(uid).withdrawn()
        self._turns.put(
            uid,
            replace(
                turn,
                workers=None,
                attempts=attempts,
                until=self._clock() + pause,
                next_attempt=time_after(self._turns.now(), seconds=math.ceil(pause)),
                reason=short.reason,
                message=message,
                # A job that goes on without spare workers lacks nothing.
                lack="" if short.spare else short.shortage(patience=self.patience),
            ),
        )
        return message

    def placed(self, uid: str) -> None:
        """All pods that the job is to have now run, be they fewer than it asks for."""
        turn = self._turns.of(uid)
        if turn.lack or turn.passed or turn.preempted_by:
            self._turns.change(uid, lack="", passed=0, preempted_by="")
        if turn.nodes_since or turn.nodes_tries:
            self._turns.change(
                uid,
                nodes_since="",
                nodes_came="",
                nodes_tries=0,
                nodes_until=0.0,
                nodes_next="",
                nodes_reason="",
            )

    def settled(self, uid: str) -> None:
        """All pods that the job asks for run: how often it had to pause is forgotten."""
        turn = self._turns.of(uid)
        if self.pause_left(uid) is None and (turn.attempts or turn.passed or turn.data_wait):
            self._turns.change(
                uid, attempts=0, passed=0, until=0.0, next_attempt="", message="", lack="", data_wait=None
            )

    def pause_left(self, uid: str) -> float | None:
        """Seconds that the job still pauses; None when it does not."""
        return self._turns.pause_left(uid)

    def admission(self, uid: str) -> Admission | None:
        """The answer for a job that pauses; None when it does not."""
        if self.pause_left(uid) is None:
            return None
        turn = self._turns.of(uid)
        return Admission(admitted=False, data_ready=True, reason=turn.reason, message=turn.message)

    def drop_others(self, uids: Collection[str]) -> None:
        """Keep nothing of other jobs than these."""
        self._short_since = {uid: since for uid, since in self._short_since.items() if uid in uids}


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in {11, 12, 13} else 0, "th")
    return f"{number}{ending}"
