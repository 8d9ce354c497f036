"""The steps of a chaos run are drawn from its seed."""

import itertools
from collections import Counter

from tests.support.chaos import PossibleFault, Step, steps

SOME = [
    PossibleFault(kind=kind, part=part, seconds=(1, 2), places=3, alone=part == "d")
    for part in "abcd"
    for kind in ("kill", "pause")
]


def first(count: int, *, seed: int) -> list[Step]:
    return list(itertools.islice(steps(seed=seed, possible=SOME, changes=["add", "remove"]), count))


def test_a_seed_gives_the_same_run_again_and_another_one_another() -> None:
    assert first(50, seed=1) == first(50, seed=1) != first(50, seed=2)


def test_each_part_fails_soon_and_each_fault_happens_before_any_happens_again() -> None:
    for seed in range(20):
        faults = [fault for step in first(40, seed=seed) for fault in step.faults]
        assert {fault.part for fault in faults[:4]} == set("abcd")
        counts = Counter((fault.kind, fault.part) for fault in faults[: 5 * len(SOME)])
        assert set(counts.values()) == {5}


def test_what_happens_alone_is_alone_and_no_part_fails_twice_at_once() -> None:
    for step in itertools.chain.from_iterable(first(100, seed=seed) for seed in range(5)):
        parts = [fault.part for fault in step.faults]
        assert 1 <= len(parts) == len(set(parts)) <= 2
        assert len(parts) == 1 or "d" not in parts
        assert all(1 <= fault.seconds <= 2 and 0 <= fault.place < 3 for fault in step.faults)
