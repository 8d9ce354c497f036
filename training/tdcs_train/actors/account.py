"""What an actor did with its time, and which act each of its acts had to wait for."""

import enum
from dataclasses import dataclass

from tdcs_train.actors.task import Cause


class State(enum.IntEnum):
    """What an actor does at a moment."""

    STARVED = 0
    """An input has nothing to read."""
    BLOCKED = 1
    """All inputs can be read, and no register of an output is free."""
    QUEUED = 2
    """It could act, and its thread runs another actor."""
    BUSY = 3


@dataclass(frozen=True, slots=True)
class ActRecord:
    """One act, in nanoseconds of the monotonic clock."""

    number: int
    started: int
    ended: int
    cause: Cause | None
    """The act that made this one possible last: of a producer, of a consumer that returned a register, or of its own
    thread or pool; none for the first of a run."""


class Account:
    """The states of one actor over time."""

    __slots__ = ("acts", "busy_ns", "records", "since", "state", "totals")

    def __init__(self, *, now: int, traced: bool) -> None:
        self.state = State.STARVED
        self.since = now
        self.totals = [0, 0, 0, 0]
        self.acts = 0
        self.records: list[ActRecord] | None = [] if traced else None

    def enter(self, state: State, when: int) -> None:
        """Change the state; `when` before the last change counts as that."""
        if when > self.since:
            self.totals[self.state] += when - self.since
            self.since = when
        self.state = state

    def seconds(self, state: State) -> float:
        """The time in a state so far."""
        return self.totals[state] / 1e9


@dataclass(frozen=True, kw_only=True)
class ActorTimes:
    """What one actor did in a run."""

    acts: int
    busy_seconds: float
    starved_seconds: float
    blocked_seconds: float
    queued_seconds: float


def times_of(account: Account) -> ActorTimes:
    """An account's seconds by state."""
    return ActorTimes(
        acts=account.acts,
        busy_seconds=account.seconds(State.BUSY),
        starved_seconds=account.seconds(State.STARVED),
        blocked_seconds=account.seconds(State.BLOCKED),
        queued_seconds=account.seconds(State.QUEUED),
    )
