"""What happens in a run and when, from its seed. Pure.

    python -m e2e.chaos.plan --seed 7 --seconds 600

prints a run without a cluster. The times are those of an idle machine: a step begins when the one before it has ended.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.support.chaos import Fault, PossibleFault, Step, steps

LARGEST_SHARE = 1 / 3
"""A fault that takes a larger part of the whole run is left out of it."""
CHANGE_SECONDS = 1.0
"""What a change of an object takes."""
AWAY_SECONDS = 60.0
"""The API server is away for so long."""

AUTHORITY_SECONDS = 120.0
"""For so long after the loss of their authority processes may refuse each other, until all have new files."""
SPARE_SECONDS = 30.0
"""A read on a busy machine may take so much longer than the longest fault."""
RECOVERY_SECONDS = 60.0
"""For so long after a fault a read may still wait for what comes back."""


class Kind(StrEnum):
    """What happens to a part."""

    KILL = "kill"
    PAUSE = "pause"
    DELETE = "delete the pod of"
    REBOOT = "cut the power of"
    FILL = "fill the disk of"
    DELAY = "slow down"
    TRUNCATE = "cut off the answers of"
    REFUSE = "answer 503 for"
    SHORTEN = "send half of each object, as if it were all, for"
    FALSIFY = "send other bytes and another ETag for"
    STOP = "stop"
    REPLACE = "delete the Secret of"
    UPGRADE = "change a value of"
    ADVANCE = "set forward"
    TURN_BACK = "set back"


class Part(StrEnum):
    """What fails."""

    OPERATOR = "operator"
    SCHEDULER = "scheduler"
    EXTENDER = "extender"
    MASTER = "master"
    WORKER = "worker"
    AGENT = "agent"
    PLUGIN = "node plugin"
    READER = "remote-read client"
    HOLDER = "holder of the remote-read client"
    STORE = "store"
    SOURCE = "source"
    NODE = "node"
    API_SERVER = "API server"
    CERTIFICATE = "certificate"
    AUTHORITY = "authority of the certificates"
    RELEASE = "the release"
    CLOCK = "clock of a node"


class Change(StrEnum):
    """What users do meanwhile."""

    SOURCE = "replace the files of a source"
    DATASET = "change the placement of a Dataset"
    TOGGLE_DATASET = "create or delete a Dataset"
    CREATE_JOB = "create a TrainingJob"
    DELETE_JOB = "delete a TrainingJob"
    CREATE_PRELOAD = "create a Preload"
    DELETE_PRELOAD = "delete a Preload"


CHANGES = (*Change, Change.CREATE_JOB, Change.CREATE_JOB)
"""Jobs are created more often than anything else is done."""

SYSTEM = (Part.OPERATOR, Part.SCHEDULER, Part.EXTENDER, Part.MASTER)
"""Of these there is one."""
ON_EACH_NODE = (Part.WORKER, Part.AGENT, Part.PLUGIN, Part.READER, Part.HOLDER)
REPLACED = (Part.OPERATOR, Part.SCHEDULER, Part.MASTER, Part.WORKER, Part.PLUGIN)
"""Parts with a pod of their own. The holder's is not deleted: its DaemonSet replaces it on demand only."""

OF_SOURCE = (Kind.DELAY, Kind.TRUNCATE, Kind.REFUSE, Kind.SHORTEN, Kind.FALSIFY)
"""What the answers of a source can be."""

OWN_SECONDS = {Kind.REBOOT: 45.0, Kind.STOP: 50.0, Kind.UPGRADE: 90.0}
"""What a fault takes on top of the time that it lasts until all that it waits for answers again; others one second."""


JUMPS = (90.0, 3600.0, 2 * 86400.0)
"""Seconds that a clock is set forward or back by: what NTP mends at leisure, a wrong summer time, a wrong date."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the cluster of a run has.

    Attributes:
        nodes: how many nodes with a cache.
        trust: whether there are certificates by role.
        disks: whether what TDCS keeps on a node has a disk of its own, which can be filled.
        clocks: whether what runs on a node has a clock of its own, which can be set.
    """

    nodes: int
    trust: bool
    disks: bool
    clocks: bool


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A step, and the seconds after the beginning at which it can begin."""

    at: float
    step: Step

    def __str__(self) -> str:
        return f"{self.at:6.0f} s  {self.step}"


def possible(features: Features) -> list[PossibleFault]:
    """Every fault that such a cluster can have."""

    def fault(kind: Kind, part: Part, least: float, most: float, *, alone: bool = False) -> PossibleFault:
        places = features.nodes if part in {*ON_EACH_NODE, Part.NODE} else 1
        places = 3 * features.nodes if part is Part.CERTIFICATE else places
        places = len(JUMPS) * features.nodes if part is Part.CLOCK else places
        return PossibleFault(kind=kind, part=part, seconds=(least, most), places=places, alone=alone)

    faults = [fault(Kind.KILL, part, 1, 8) for part in (*SYSTEM, *ON_EACH_NODE, Part.STORE)]
    faults += [fault(Kind.PAUSE, part, 2, 15) for part in (*SYSTEM, *ON_EACH_NODE, Part.STORE)]
    faults += [fault(Kind.DELETE, part, 1, 8) for part in REPLACED]
    faults += [fault(kind, Part.SOURCE, 4, 15) for kind in OF_SOURCE]
    faults.append(fault(Kind.REBOOT, Part.NODE, 1, 10))
    if features.disks:
        faults.append(fault(Kind.FILL, Part.NODE, 5, 20))
    if features.clocks:
        faults += [fault(kind, Part.CLOCK, 10, 40) for kind in (Kind.ADVANCE, Kind.TURN_BACK)]
    if features.trust:
        faults.append(fault(Kind.REPLACE, Part.CERTIFICATE, 1, 5))
        faults.append(fault(Kind.REPLACE, Part.AUTHORITY, 1, 5))
    # Other faults begin and end with a request to it.
    faults.append(fault(Kind.PAUSE, Part.API_SERVER, 5, 40, alone=True))
    faults.append(fault(Kind.STOP, Part.API_SERVER, AWAY_SECONDS, AWAY_SECONDS, alone=True))
    faults.append(fault(Kind.UPGRADE, Part.RELEASE, 1, 5, alone=True))
    return faults


def plan(*, seed: int, seconds: float, features: Features) -> tuple[PlannedStep, ...]:
    """The steps of a run of so many seconds."""
    short = [
        possible_fault
        for possible_fault in possible(features)
        if _longest(possible_fault) <= seconds * LARGEST_SHARE
    ]
    steps_planned, at = [], 0.0
    for step in steps(seed=seed, possible=short, changes=CHANGES):
        if at >= seconds:
            break
        steps_planned.append(PlannedStep(at=at, step=step))
        at += _length(step)
    return tuple(steps_planned)


@dataclass(frozen=True, kw_only=True)
class Happened:
    """A fault that was brought about, and when: in seconds since 1970, until it was undone and all answered again."""

    fault: Fault
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it lasted, until nothing was refused because of it."""
        return self.end - self.begin + _after_end(self.fault.part)


def longest_read(happened: Iterable[Happened], *, since: float, until: float) -> float:
    """The seconds that a read of data on the reader's node may take that was under way between two times: one that
    waits for longer waits for no fault of that time."""
    near = [
        event.seconds
        for event in happened
        if event.begin <= until and since <= event.begin + event.seconds + RECOVERY_SECONDS
    ]
    return max(near, default=0.0) + SPARE_SECONDS


def _longest(fault: PossibleFault) -> float:
    return fault.seconds[1] + _after(fault.kind, fault.part)


def _after(kind: str, part: str) -> float:
    """What a fault takes next to the time that it lasts, until nothing is refused because of it."""
    return OWN_SECONDS.get(Kind(kind), 1.0) + _after_end(part)


def _after_end(part: str) -> float:
    return AUTHORITY_SECONDS if part == Part.AUTHORITY else 0.0


def _length(step: Step) -> float:
    faults = max(fault.seconds + OWN_SECONDS.get(Kind(fault.kind), 1.0) for fault in step.faults)
    return faults + CHANGE_SECONDS * len(step.changes)


def lines(planned: Sequence[PlannedStep], *, seed: int, features: Features) -> Iterator[str]:
    """The run in words, with what it does not have."""
    done = {(fault.kind, fault.part) for step_planned in planned for fault in step_planned.step.faults}
    never_planned = [
        f"{possible_fault.kind} {possible_fault.part}"
        for possible_fault in possible(features)
        if (possible_fault.kind, possible_fault.part) not in done
    ]
    yield f"chaos, seed {seed}: {len(planned)} steps; {features}"
    yield from map(str, planned)
    if never_planned:
        yield f"not in this run: {'; '.join(never_planned)}"


def main() -> None:
    """Print a plan."""
    parser = argparse.ArgumentParser(description="prints a chaos run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--nodes", type=int, default=3)
    for name in ("trust", "disks", "clocks"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    features = Features(nodes=options.nodes, trust=options.trust, disks=options.disks, clocks=options.clocks)
    planned = plan(seed=options.seed, seconds=options.seconds, features=features)
    print("\n".join(lines(planned, seed=options.seed, features=features)))


if __name__ == "__main__":
    main()
