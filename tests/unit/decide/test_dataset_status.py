"""Data, sizes and copies in the status of a Dataset."""

from typing import Any

import pytest
from tests.unit.decide.builders import placement_of

from tdcs.api.dataset import DatasetStatus
from tdcs.decide import dataset_status
from tdcs.decide.place.holdings import Holdings, WantProgress


def test_the_status_counts_bytes_once_and_by_copy() -> None:
    held = Holdings(
        total_bytes=100, total_files=10, cached_bytes=50, node_bytes={"a": 25, "b": 30, "other": 9}
    )
    progress = WantProgress(placed_bytes=55, wanted_bytes=200, source_rate=1000, copies=({"a": 20, "b": 25},))
    status = dataset_status.with_data(
        DatasetStatus(), held=held, placement=placement_of("b", "a"), progress=progress
    )
    assert (status.cached_bytes, status.physical_bytes, status.cached_ratio) == (50, 64, 0.5)
    assert (status.wanted_bytes, status.loaded_bytes, status.loaded_ratio) == (200, 55, 0.275)
    assert (status.loaded, status.rate) == ("27%", "1000 bytes/s")
    assert [(node.name, node.bytes) for node in status.copies[0].nodes] == [("a", 20), ("b", 25)]


def test_an_autoscaler_reads_how_many_of_the_copies_asked_for_have_data() -> None:
    held = Holdings(total_bytes=100, total_files=1, cached_bytes=50, node_bytes={"a": 50, "other": 9})

    def count(held: Holdings, **fields: Any) -> int:
        return dataset_status.with_data(DatasetStatus(), held=held, **fields).copy_count

    for bytes_by_node, copies in (({"a": 50}, 1), ({"a": 0}, 0)):
        progress = WantProgress(wanted_bytes=100, copies=(bytes_by_node,))
        assert count(held, placement=placement_of("a"), progress=progress) == copies
    # Nothing is preloaded: what reads brought is one copy, on however many nodes.
    assert count(held) == 1
    assert count(Holdings(total_bytes=100, total_files=1)) == 0


def test_only_all_of_it_is_a_ratio_of_one() -> None:
    assert dataset_status.ratio(999_999_999, 1_000_000_000) < 1
    assert dataset_status.ratio(10, 10) == dataset_status.ratio(0, 0) == 1


@pytest.mark.parametrize(
    ("cached", "percentage"), [(0, "0%"), (949_999, "94%"), (999_999, "99%"), (1_000_000, "100%")]
)
def test_people_see_a_percentage_and_a_size(cached: int, percentage: str) -> None:
    held = Holdings(total_bytes=1_000_000, total_files=3, cached_bytes=cached)
    status = dataset_status.with_data(DatasetStatus(), held=held)
    assert (status.cached, status.size) == (percentage, "977 KiB")


def test_nothing_is_shown_before_anything_is_known() -> None:
    status = dataset_status.with_data(DatasetStatus(), held=Holdings())
    assert (status.cached, status.size) == (None, None)
