"""A gang that was let in and does not find its places: somebody took them, or a node vanished.

The pods that found one would hold it for nothing, as the queue does the room of those that could not be made, and two
such jobs could wait for each other for ever. So after a while the job gives back what it has and queues again. Where
the queue's own count of free room says again and again that it fits, and the scheduler that it does not (a volume, a
port, a quota), the pauses between tries grow.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tdcs.controllers.clock import seconds_between
from tdcs.controllers.trainingjob.plan import Observed
from tdcs.controllers.trainingjob.pods import UNSCHEDULABLE, VOLUME_NOT_BOUND, PodView, newest
from tdcs.policy.admission import Admission, Reason

PATIENCE = 60.0
"""Seconds that the pods of a gang have, from the first that finds no place, until the job gives its places back."""

LONGEST_REST = 900.0
"""Seconds that a job pauses at most before it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """Pods of a gang that have no place, while others of it hold theirs or the queue keeps room for all.

    Attributes:
        missing: how many have none.
        wanted: how many pods the job has.
        holding: how many have one.
        since: when the oldest of them was made; empty when none of them could be made.
        why: the scheduler's words about one of them.
    """

    missing: int
    wanted: int
    holding: int
    since: str
    why: str

    def sentence(self, *, patience: float) -> str:
        """What happened, for the job's owner."""
        why = f" ({self.why})" if self.why else ""
        given = (
            f"the other {self.holding} gave theirs"
            if self.holding
            else "the room that was kept for it was given"
        )
        return (
            f"{self.missing} of its {self.wanted} pods found no place within {patience:g} s{why}, so {given} back: "
            "a gang runs whole or not at all (scheduling.gang)"
        )


def short_of(seen: Observed) -> Short | None:
    """Which pods of a gang have no place; None when it may go on as it is, as one does whose pods are all refused.

    A pod counts that the scheduler refused, or that was never made. One that it has not looked at yet does not,
    nor does one that failed: the Job controller makes it anew. An elastic job needs its smallest number of workers.
    """
    refused: list[PodView] = []
    absent = holding = wanted = spare = 0
    for role, spec in seen.spec.replica_specs.by_role().items():
        job = seen.job(role)
        wanted += spec.replicas
        if role == "Worker" and seen.spec.elastic is not None:
            spare = max(spec.replicas - seen.spec.elastic.min_replicas, 0)
        if job.finished or not job.exists or job.suspended:
            continue
        pods = newest(pod for pod in seen.pods if pod.role == role)
        absent += seen.absent(role)
        holding += sum(bool(pod.node) and pod.phase in {"Pending", "Running"} for pod in pods)
        refused += [pod for pod in pods if not pod.node and pod.waiting is not None and _refused(pod)]
    missing = len(refused) + absent
    if missing <= spare or not (holding or seen.unmade is not None):
        return None
    return Short(
        missing=missing,
        wanted=wanted,
        holding=holding,
        since=min((pod.created for pod in refused if pod.created), default=""),
        why=next((pod.waiting.message for pod in refused if pod.waiting is not None), _why_unmade(seen)),
    )


def _why_unmade(seen: Observed) -> str:
    return "no pod could be made" if seen.unmade is None else str(seen.unmade.problem)


def all_placed(seen: Observed) -> bool:
    """Whether every pod of the job that is to run has a place."""
    roles = seen.spec.replica_specs.by_role()
    placed = {
        role: sum(bool(pod.node) for pod in newest(pod for pod in seen.pods if pod.role == role))
        for role in roles
    }
    return all(placed[role] >= spec.replicas for role, spec in roles.items())


def _refused(pod: PodView) -> bool:
    return pod.waiting is not None and pod.waiting.reason in {UNSCHEDULABLE, VOLUME_NOT_BOUND}


@dataclass(slots=True)
class _Rest:
    until: float
    tries: int
    message: str


class Releases:
    """How long gangs have been short of places, and which of them pause before they are tried again.

    A restart forgets it: then a job waits once more for the whole patience, and is tried again at once.

    Args:
        patience: seconds that a gang has to find its places.
        clock: seconds that only grow.
    """

    def __init__(self, *, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = patience
        self._clock = clock
        self._short_since: dict[str, float] = {}
        self._rests: dict[str, _Rest] = {}

    def left(self, uid: str, *, short: Short | None, now: str) -> float | None:
        """Seconds until a gang gives its places back; None when it need not."""
        if short is None:
            self._short_since.pop(uid, None)
            return None
        age = max(seconds_between(short.since, now), 0.0) if short.since else 0.0
        seen = self._clock() - self._short_since.setdefault(uid, self._clock())
        return max(self.patience - max(seen, age), 0.0)

    def release(self, uid: str, *, short: Short) -> str:
        """The job gives its places back, and pauses; gives what to say of it."""
        tries = self._rests[uid].tries + 1 if uid in self._rests else 1
        # Jobs that took each other's places must not try again at the same moment.
        pause = min(self.patience / 4 * 2 ** min(tries - 1, 32), LONGEST_REST) * random.uniform(1, 2)  # noqa: S311
        message = f"{short.sentence(patience=self.patience)}; it queues again"
        if tries > 1:
            message += f", for the {_ordinal(tries)} time, after a longer pause"
        self._short_since.pop(uid, None)
        self._rests[uid] = _Rest(until=self._clock() + pause, tries=tries, message=message)
        return message

    def settled(self, uid: str) -> None:
        """All pods of the job have their places: what was is forgotten."""
        self._rests.pop(uid, None)

    def rest_left(self, uid: str) -> float | None:
        """Seconds that the job still pauses; None when it does not."""
        rest = self._rests.get(uid)
        left = 0.0 if rest is None else rest.until - self._clock()
        return left if left > 0 else None

    def turn(self, uid: str) -> Admission | None:
        """What a job hears that pauses; None when it does not."""
        if self.rest_left(uid) is None:
            return None
        told = self._rests[uid].message
        return Admission(admitted=False, data_ready=True, reason=Reason.RELEASED, message=told)

    def forget_others(self, uids: set[str]) -> None:
        """Keep nothing of other jobs than these."""
        self._short_since = {uid: since for uid, since in self._short_since.items() if uid in uids}
        self._rests = {uid: rest for uid, rest in self._rests.items() if uid in uids}


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in {11, 12, 13} else 0, "th")
    return f"{number}{ending}"
