"""Counts of versions, of which a node shows new ones for as long as it runs."""

from __future__ import annotations

from tdcs.node.reader.counters import ROWS, Count, Counters


def test_versions_are_counted_apart_whatever_their_numbers() -> None:
    counters = Counters()
    numbers = [1, 2, 1 + ROWS, 500_000, (1 << 24) - 1]
    for number in numbers:
        counters.add(number, Count.ERRORS, number)
        counters.answered(number, Count.PEER_READS, size=number, nanoseconds=1)
    assert [counters.get(number, Count.ERRORS) for number in numbers] == numbers
    assert [counters.get(number, Count.PEER_BYTES) for number in numbers] == numbers
    assert counters.get(3, Count.ERRORS) == 0


def test_a_version_that_comes_counts_from_nothing_in_the_row_of_one_that_is_gone() -> None:
    counters = Counters()
    for number in range(1, ROWS + 10):
        counters.add(number, Count.STALE, number)
    last = ROWS + 9
    assert counters.get(last, Count.STALE) == 0, "it found no row"

    counters.keep({1, last})
    counters.add(last, Count.STALE)
    counters.add(2, Count.STALE)
    assert [counters.get(number, Count.STALE) for number in (1, 2, last)] == [1, 1, 1]
