"""What is on a worker that leaves counts while a version that was just listed is not known to all agents."""

from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.decide.builders import totals_of

from tdcs.control.dataset.mount.mount_report import MountDecision, MountReport
from tdcs.decide.leaving_workers import ScaleInInput, is_drained
from tdcs.listing.result import Listed
from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS, MountState

OLD, NEW = "0" * 32, "1" * 32
SIZES = [100, 200]
ALL = slots.bitmap([0, 1])


def holding(version: str, held: bytes = ALL) -> MountState:
    size = slots.bytes_in(held, totals_of(SIZES).sizes)
    return MountState(mount="/m", version=1, manifest=version, held_bytes=size, complete=held, present=held)


def report(**states: MountState) -> MountReport:
    """A pass by the new version, in which the worker of node a leaves."""
    decision = SimpleNamespace(mount="/m", draining=frozenset("a"), live=frozenset(states))
    return MountReport(
        decision=cast(MountDecision, decision),
        listed=Listed(digest=NEW, totals=totals_of(SIZES)),
        states=states,
    )


@pytest.mark.parametrize(
    ("states", "alone", "goes"),
    [
        ({"a": holding(OLD), "b": holding(OLD, NO_SLOTS)}, 300, False),
        ({"a": holding(OLD), "b": holding(OLD)}, 0, False),  # what of it the new version has is not known
        ({"a": holding(OLD), "b": holding(NEW)}, 300, False),
        ({"a": holding(NEW), "b": holding(OLD)}, 300, True),  # no room: nothing is busy, and all are there
        ({"a": holding(NEW), "b": holding(NEW, NO_SLOTS)}, 300, True),
        ({"a": holding(NEW), "b": holding(NEW)}, 0, True),
        ({"a": holding(OLD, NO_SLOTS), "b": holding(OLD)}, 0, True),  # nothing is on the one that leaves
    ],
    ids=["nobody follows", "copies of before", "one follows", "leaver first", "no room", "moved", "empty"],
)
def test_no_worker_goes_with_what_it_counts_by_the_version_before(
    states: dict[str, MountState], alone: int, goes: bool
) -> None:
    ledger = report(**states).ledger((), moving=False)
    assert ledger is not None
    assert ledger.last_copies(node="a", draining=frozenset("a")) == alone
    holdings = ScaleInInput(draining=frozenset("a"), mounts=(ledger,))
    assert is_drained(node="a", draining=frozenset("a"), staying=frozenset("b"), holdings=holdings) is goes
