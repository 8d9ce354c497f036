"""What a Preload says it was asked for, where there are too few nodes for it."""

from dataclasses import replace

import pytest
from tests.unit.decide.builders import placement_of

from tdcs.api.preload import PreloadStatus
from tdcs.decide.place.copy_nodes import Mode
from tdcs.decide.place.holdings import WantProgress
from tdcs.decide.preload_status import PreloadView, conclude, status_of


@pytest.mark.parametrize(
    ("mode", "copies", "node_count", "total"),
    [
        (Mode.PARTITION, 9, 1, 90),  # nine copies, one of which has nodes
        (Mode.REPLICATE, 1, 4, 40),  # four nodes with all of it
        (Mode.PARTITION, 1, 4, 10),  # one copy, whatever number of nodes it is spread over
    ],
)
def test_copies_without_nodes_count_among_what_was_asked_for(
    mode: Mode, copies: int, node_count: int, total: int
) -> None:
    placement = placement_of("a", copies=copies, node_count=node_count, eligible=1)
    placement = replace(placement, copies=tuple(replace(copy, mode=mode) for copy in placement.copies))
    progress = WantProgress(placed_bytes=10, wanted_bytes=10, copies=({"a": 10},))
    view = PreloadView(known=PreloadStatus(), placement=placement, progress=progress, assigned=True)
    conclusion = conclude(view)
    assert (conclusion.state, conclusion.reason) == ("Failed", "TooFewNodes")
    status = status_of(view, conclusion=conclusion, now="2030-01-01T00:00:00Z")
    assert (status.bytes_done, status.bytes_total) == (10, total)
