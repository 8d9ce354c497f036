"""Places of the requests' memory: what datasets, pods and threads that take all they can leave to others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tdcs.node.reader.serving.place_shares import Asker, PlaceShares, Share

PLACES = 8192


class Memory:
    """Places that reads take; nothing is answered."""

    def __init__(self) -> None:
        self.taken = 0
        self.shares = PlaceShares(lambda: PLACES - 1 - self.taken)  # less the one of the read itself

    def read(self, asker: Asker) -> Share:
        share = self.shares.take(asker)
        self.taken += share is not Share.REFUSED
        return share

    def fill(self, askers: Iterator[Asker]) -> int:
        """Reads until one is refused; how many were not."""
        before = self.taken
        while self.read(next(askers)) is not Share.REFUSED:
            pass
        return self.taken - before

    def fill_version(self, version: int) -> int:
        """The same, of threads of as many pods as there can be."""
        return self.fill(Asker(version, f"pod-{number}", number) for number in count(1))


def threads(version: int, pod: str) -> Iterator[Asker]:
    return (Asker(version, pod, number) for number in count(1))


@pytest.mark.parametrize(("greedy", "part"), [(0, 911), (1, 800), (10, 280), (30, 25)])
def test_a_dataset_has_its_part_beside_others_that_take_all_they_can(greedy: int, part: int) -> None:
    memory = Memory()
    counts = [memory.fill_version(version) for version in range(greedy + 1)]
    assert part <= counts[greedy] <= 911
    assert [memory.shares.taken(version) for version in range(greedy + 1)] == counts


@pytest.mark.parametrize(("greedy", "part"), [(0, 745), (1, 136), (2, 24)])
def test_a_pod_has_its_part_beside_others_that_read_the_same_dataset(greedy: int, part: int) -> None:
    memory = Memory()
    counts = [memory.fill(threads(1, f"pod-{pod}")) for pod in range(greedy + 1)]
    assert part <= counts[greedy] <= 745


def test_what_threads_ask_for_ahead_leaves_places_to_threads_that_stand_still() -> None:
    memory = Memory()
    for thread in range(1, 101):
        begun = [memory.read(Asker(1, "pod", thread)) for _ in range(33)].count(Share.BEGINS)
        assert begun == 32 or memory.shares.is_crowded(Asker(1, "pod", thread))
        if memory.shares.is_crowded(Asker(1, "pod", thread)):
            break
    assert memory.taken < 500
    assert memory.fill(threads(1, "other")) > 300
    assert memory.read(Asker(2, "pod", 1)) is Share.BEGINS


def test_reads_beyond_those_that_a_thread_may_have_fetched_wait_until_one_of_them_has_its_answer() -> None:
    memory = Memory()
    asker = Asker(1, "pod", 7)
    shares = [memory.read(asker) for _ in range(34)]
    assert shares == [Share.BEGINS] * 32 + [Share.WAITS_ITS_TURN] * 2
    assert memory.read(asker._replace(thread=8)) is Share.BEGINS
    memory.shares.give_back(asker)
    memory.shares.begin(asker)
    assert memory.read(asker) is Share.WAITS_ITS_TURN
    memory.shares.give_back(asker)
    assert memory.read(asker) is Share.BEGINS


def test_threads_that_cannot_be_seen_are_not_taken_for_one() -> None:
    memory = Memory()
    unseen = Asker(1, "", 0)
    assert [memory.read(unseen) for _ in range(700)] == [Share.BEGINS] * 700


def test_a_place_is_always_left_for_what_is_answered_at_once() -> None:
    free = PLACES
    shares = PlaceShares(lambda: free)
    for version in range(10_000):
        free -= 1  # it is taken from the kernel
        if shares.take(Asker(version, "", 1)) is Share.REFUSED:
            free += 1
        assert free > 0
    assert free == 1


def test_a_place_that_is_given_back_can_be_taken_again() -> None:
    shares = PlaceShares(lambda: 16)
    asker = Asker(1, "", 0)
    assert [shares.take(asker) for _ in range(3)] == [Share.BEGINS, Share.BEGINS, Share.REFUSED]
    shares.give_back(asker)
    assert shares.take(asker) is Share.BEGINS
    shares.give_back(asker)
    shares.give_back(asker)
    assert shares.taken(1) == 0
