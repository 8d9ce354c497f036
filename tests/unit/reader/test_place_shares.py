"""Places of the requests' memory: however many datasets take all that they can, another one has its part."""

from __future__ import annotations

from collections import Counter

import pytest

from tdcs.reader.serving.place_shares import PlaceShares

PLACES = 8192


@pytest.mark.parametrize(("greedy", "part"), [(0, 911), (1, 800), (10, 280), (30, 25)])
def test_a_dataset_has_its_part_beside_others_that_take_all_they_can(greedy: int, part: int) -> None:
    counts = Counter[int]()
    shares = PlaceShares(lambda: PLACES - 1 - counts.total())  # less the one of the read itself
    for version in range(greedy + 1):
        while shares.take(version):
            counts[version] += 1
    assert part <= counts[greedy] <= 911
    assert all(shares.taken(version) == count for version, count in counts.items())


def test_a_place_is_always_left_for_what_is_answered_at_once() -> None:
    free = 8192
    shares = PlaceShares(lambda: free)
    for version in range(10_000):
        free -= 1  # it is taken from the kernel
        if not shares.take(version):
            free += 1
        assert free > 0
    assert free == 1


def test_a_place_that_is_given_back_can_be_taken_again() -> None:
    shares = PlaceShares(lambda: 16)
    assert [shares.take(1) for _ in range(3)] == [True, True, False]
    shares.give_back(1)
    assert shares.take(1)
    shares.give_back(1)
    shares.give_back(1)
    assert shares.taken(1) == 0
