"""What the scores are worth where several jobs want the same nodes, with a kube-scheduler of a few lines."""

import random
from collections.abc import Callable

import pytest
from tests.support.generators.random_clusters import (
    GROUP,
    NODES,
    Cluster,
    Tally,
    alike,
    off_data_alongside_room,
    place_in_turn,
    random_clusters,
)

CLUSTERS = 200


def as_drawn(cluster: Cluster) -> Cluster:
    return cluster


def tally(change: Callable[[Cluster], Cluster], *, ahead: int) -> Tally:
    """What becomes of the clusters when the extender knows so many pods behind the one that it is asked about."""
    totals = Tally()
    for first in range(0, CLUSTERS, GROUP):
        for drawn in random_clusters(first=first, nodes=[f"n{i:02}" for i in range(NODES)]):
            cluster = change(drawn)
            placed = place_in_turn(cluster, ahead=ahead, draw=random.Random(cluster.number))
            assert not off_data_alongside_room(cluster, placed), (cluster, placed)
            totals.add(cluster, placed)
    return totals


@pytest.mark.parametrize(("change", "optima"), [(as_drawn, 195), (alike, 200)])
def test_pods_that_know_of_each_other_leave_more_of_them_on_their_data_and_no_fewer_bytes(
    change: Callable[[Cluster], Cluster], optima: int
) -> None:
    alone, together = tally(change, ahead=0), tally(change, ahead=20)

    assert together.at_optimum >= optima, str(together)
    assert together.on_data >= 0.996 * together.possible, str(together)
    assert together.bytes_on_data > alone.bytes_on_data
    # What it is for: without it, one cluster of fourteen or so misses its optimum.
    assert alone.at_optimum <= 190
