"""A chaos run on a cluster has every fault that the cluster can have, in time."""

import pytest
from e2e.chaos.faults import MODES, PLACES, SECRETS
from e2e.chaos.plan import (
    AUTHORITY_SECONDS,
    JUMPS,
    RECOVERY_SECONDS,
    Change,
    Features,
    Happened,
    Kind,
    Part,
    lines,
    longest_read,
    plan,
    possible,
)
from tests.support.chaos import Fault

ALL = Features(nodes=3, trust=True, disks=True, clocks=True)
LEAST = Features(nodes=3, trust=False, disks=False, clocks=False)


def test_a_seed_gives_the_same_plan_again() -> None:
    assert plan(seed=1, seconds=900, features=ALL) == plan(seed=1, seconds=900, features=ALL)


def test_a_long_run_has_every_fault_that_the_cluster_can_have_and_every_change() -> None:
    planned = plan(seed=1, seconds=3600, features=ALL)
    done = {(fault.kind, fault.part) for one in planned for fault in one.step.faults}
    assert done == {(one.kind, one.part) for one in possible(ALL)}
    assert {change for one in planned for change in one.step.changes} == set(Change)
    assert not [line for line in lines(planned, seed=1, features=ALL) if line.startswith("not in")]
    assert [one.at for one in planned] == sorted(one.at for one in planned)
    assert planned[-1].at < 3600


def test_a_short_run_has_no_fault_that_takes_most_of_it_and_says_so() -> None:
    planned = plan(seed=1, seconds=60, features=ALL)
    kinds = {fault.kind for one in planned for fault in one.step.faults}
    assert not kinds & {Kind.REBOOT, Kind.STOP, Kind.UPGRADE}
    assert Part.AUTHORITY not in {fault.part for one in planned for fault in one.step.faults}
    (rest,) = [line for line in lines(planned, seed=1, features=ALL) if line.startswith("not in")]
    assert "stop API server" in rest


def happened(part: Part, *, begin: float, end: float) -> Happened:
    return Happened(fault=Fault(kind=Kind.KILL, part=part, seconds=1.0), begin=begin, end=end)


def test_a_read_may_take_as_long_as_the_longest_fault_of_its_time_and_half_a_minute() -> None:
    faults = [happened(Part.WORKER, begin=100, end=110), happened(Part.NODE, begin=500, end=580)]
    assert longest_read((), since=0, until=9999) == 30
    assert longest_read(faults, since=105, until=140) == 10 + 30
    assert longest_read(faults, since=105, until=501) == 80 + 30
    assert longest_read(faults, since=580 + RECOVERY_SECONDS + 1, until=9999) == 30
    assert longest_read(faults, since=580 + RECOVERY_SECONDS - 1, until=9999) == 80 + 30
    assert longest_read(faults, since=0, until=99) == 30


def test_the_loss_of_the_authority_excuses_a_slow_read_only_until_all_have_new_files() -> None:
    lost = [happened(Part.AUTHORITY, begin=100, end=105)]
    over = 105 + AUTHORITY_SECONDS + RECOVERY_SECONDS
    assert longest_read(lost, since=over - 1, until=9999) == 5 + AUTHORITY_SECONDS + 30
    assert longest_read(lost, since=over + 1, until=9999) == 30


def test_a_cluster_without_a_feature_has_none_of_its_faults() -> None:
    parts = {one.part for one in possible(LEAST)}
    assert parts == set(Part) - {Part.CERTIFICATE, Part.AUTHORITY, Part.CLOCK}
    assert Kind.FILL not in {one.kind for one in possible(LEAST)}


@pytest.mark.parametrize("features", [ALL, LEAST])
def test_of_every_fault_it_is_known_where_it_happens(features: Features) -> None:
    for one in possible(features):
        kind, part = Kind(one.kind), Part(one.part)
        match kind:
            case Kind.KILL | Kind.PAUSE | Kind.DELETE:
                assert part in PLACES
            case Kind.REPLACE:
                assert part in SECRETS
            case Kind.REBOOT | Kind.FILL:
                assert part is Part.NODE
            case Kind.DELAY | Kind.TRUNCATE | Kind.REFUSE | Kind.SHORTEN | Kind.FALSIFY:
                assert kind in MODES
            case Kind.STOP:
                assert part is Part.API_SERVER
            case Kind.ADVANCE | Kind.TURN_BACK:
                assert part is Part.CLOCK
                assert one.places == features.nodes * len(JUMPS)
            case Kind.UPGRADE:
                assert part is Part.RELEASE
