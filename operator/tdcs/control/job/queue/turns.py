"""What the queue knows of each job, in memory: ahead of the statuses by what is about to be written to them."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from tdcs.api.durations import time_after
from tdcs.decide.queue.job_turn import JobTurn, changed, known_turn
from tdcs.decide.queue.node_requests import pause_after
from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object

NEW = JobTurn()


class Turns:
    """The turns of jobs, by uid.

    Args:
        clock: in whose seconds pauses are counted.
        now: the time.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, now: Callable[[], str] = utc_now
    ) -> None:
        self.clock = clock
        self.now = now
        self._turns: dict[str, JobTurn] = {}

    def of(self, uid: str) -> JobTurn:
        return self._turns.get(uid, NEW)

    def __iter__(self) -> Iterator[tuple[str, JobTurn]]:
        return iter(list(self._turns.items()))

    def change(self, uid: str, **fields: Any) -> JobTurn:
        """Replace some fields; gives the new value."""
        turn = self._turns[uid] = replace(self.of(uid), **fields)
        return turn

    def put(self, uid: str, turn: JobTurn) -> None:
        self._turns[uid] = turn

    def learn(self, uid: str, job: Object) -> JobTurn:
        """The turn of a job; of one that is met for the first time, what its status says of it."""
        if uid not in self._turns:
            self._turns[uid] = known_turn(job, now=self.now(), clock=self.clock())
        return self._turns[uid]

    def pause_left(self, uid: str) -> float | None:
        """Seconds until a job is tried again; None when it does not pause."""
        seconds_left = self.of(uid).until - self.clock()
        return seconds_left if seconds_left > 0 else None

    def rest_from_asking(self, uid: str, *, reason: str, message: str) -> None:
        """The job got no nodes, for this reason, and asks for some again after a pause."""
        tries = self.of(uid).nodes_tries + 1
        pause = pause_after(tries)
        again = time_after(self.now(), seconds=pause)
        self.change(
            uid,
            nodes_since="",
            nodes_came="",
            nodes_tries=tries,
            nodes_until=self.clock() + pause,
            nodes_next=again,
            nodes_reason=reason,
            nodes_message=f"{message}; it asks again at {again}, and starts before if room comes",
        )

    def asking_left(self, uid: str) -> float | None:
        """Seconds until a job that got no nodes asks again; None when it asks, or never has."""
        until = self.of(uid).nodes_until
        return max(until - self.clock(), 0.0) if until else None

    def copy(self) -> "Turns":
        """The same, for a pass that goes on in a thread."""
        turns = Turns(clock=self.clock, now=self.now)
        turns._turns = dict(self._turns)
        return turns

    def take_in(self, *, before: "Turns", after: "Turns") -> None:
        """Take in what a pass has changed, next to what has changed here meanwhile."""
        for uid, turn in after:
            self._turns[uid] = changed(self.of(uid), before=before.of(uid), after=turn)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all jobs but these."""
        self._turns = {uid: turn for uid, turn in self._turns.items() if uid in uids}
