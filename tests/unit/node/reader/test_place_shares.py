"""Places of the requests' memory: what datasets, pods and threads that take all they can leave to others."""

from __future__ import annotations

import pytest

from tdcs.node.reader.request_memory import PLACES
from tdcs.node.reader.serving.place_shares import Asker, PlaceShares, Share


class Memory:
    """Places that reads take; nothing is answered."""

    def __init__(self) -> None:
        self.taken = 0
        self.shares = PlaceShares(lambda: PLACES - 1 - self.taken)  # less the one of the read itself

    def read(self, asker: Asker) -> Share:
        self.taken += 1
        return self.shares.take(asker)

    def ask_ahead(self, asker: Asker) -> int:
        """Reads of a thread next to others of its own, until its pod has all that it may have for such; how many."""
        before = self.taken
        while not self.shares.is_crowded(asker):
            self.read(asker)
        return self.taken - before


def test_a_read_that_a_thread_stands_still_for_begins_however_many_wait() -> None:
    memory = Memory()
    begun = [memory.read(Asker(1, "pod", thread)) for thread in range(1, PLACES)]
    assert set(begun) == {Share.BEGINS}


@pytest.mark.parametrize(("greedy", "part"), [(0, 3850), (1, 3400), (10, 1100), (30, 100)])
@pytest.mark.threat("slow-remote-reads")
def test_what_is_asked_for_ahead_of_a_dataset_leaves_room_for_that_of_others(greedy: int, part: int) -> None:
    memory = Memory()
    counts = [memory.ask_ahead(Asker(version, "pod", 1)) for version in range(greedy + 1)]
    assert part <= counts[greedy] <= 3856
    assert memory.read(Asker(99, "pod", 1)) is Share.BEGINS


@pytest.mark.parametrize(("greedy", "part"), [(0, 3850), (1, 1800), (2, 800)])
@pytest.mark.threat("reads-ahead")
def test_what_a_pod_asks_for_ahead_leaves_room_for_that_of_others_of_its_dataset(
    greedy: int, part: int
) -> None:
    memory = Memory()
    counts = [memory.ask_ahead(Asker(1, f"pod-{pod}", 1)) for pod in range(greedy + 1)]
    assert part <= counts[greedy] <= 3856


@pytest.mark.threat("reads-ahead")
def test_what_threads_ask_for_ahead_leaves_places_to_threads_that_stand_still() -> None:
    memory = Memory()
    for thread in range(1, 1001):
        begun = [memory.read(Asker(1, "pod", thread)) for _ in range(33)].count(Share.BEGINS)
        assert begun == 32 or memory.shares.is_crowded(Asker(1, "pod", thread))
        if memory.shares.is_crowded(Asker(1, "pod", thread)):
            break
    assert memory.taken < 4000
    assert memory.read(Asker(1, "pod", 5000)) is Share.BEGINS
    assert memory.read(Asker(2, "pod", 1)) is Share.BEGINS


@pytest.mark.threat("reads-ahead")
def test_reads_beyond_a_threads_limit_wait_until_one_of_them_has_its_answer() -> None:
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


def test_a_place_that_is_given_back_can_be_taken_again() -> None:
    memory = Memory()
    asker = Asker(1, "pod", 7)
    count = memory.ask_ahead(asker)
    for _ in range(count):
        memory.taken -= 1
        memory.shares.give_back(asker)
    assert memory.ask_ahead(asker) == count
