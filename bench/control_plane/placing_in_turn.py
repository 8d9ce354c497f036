"""How many pods miss their data because pods are placed one after another. Prints one JSON line.

Random clusters of up to 30 nodes in which up to three jobs want nodes at once, those of
`tests/controlplane/extender/test_extender_locality.py`. The extender's own scores place the pods, in the order of
their jobs; kube-scheduler is a few lines (`tests/support/generators/random_clusters.py`). Compared with the most pods
that can be on their data at once: for datasets of which nodes hold very different parts, and about the same parts, as
the placement policy lays them out; by how many of the pods that wait the extender knows, and by the price of a
waiting pod (`tdcs.decide.place.node_score.WAITING_POD`; 0 leaves only what pods do that find their data nowhere). From
the root of the checkout::

    PYTHONPATH=.:operator:scheduler_plugin python bench/control_plane/placing_in_turn.py
"""

import argparse
import json
import random
import sys
from collections.abc import Callable

from tests.support.generators.random_clusters import (
    GB,
    GROUP,
    NODES,
    Cluster,
    Tally,
    alike,
    off_data_alongside_room,
    place_in_turn,
    random_clusters,
)

from tdcs.decide.place import node_score

#: More than any queue has.
ALL = 1000
AHEAD = (0, 2, 5, 10, 20, ALL)
PRICES = (0.0, 0.25, 1.0, 2.0)


def tally(
    count: int, change: Callable[[Cluster], Cluster], *, ahead: int, price: float = node_score.WAITING_POD
) -> dict[str, float]:
    """What becomes of so many clusters."""
    usual, node_score.WAITING_POD = node_score.WAITING_POD, price
    total = Tally()
    for first in range(0, count, GROUP):
        for drawn in random_clusters(first=first, nodes=[f"n{i:02}" for i in range(NODES)]):
            cluster = change(drawn)
            draw = random.Random(cluster.number)  # noqa: S311  (an experiment, no secret)
            placed = place_in_turn(cluster, ahead=ahead, draw=draw)
            if off_data_alongside_room(cluster, placed):
                raise RuntimeError(f"a pod is off its data next to room on it: {cluster}")
            total.add(cluster, placed)
    node_score.WAITING_POD = usual
    return {
        "atOptimum": total.at_optimum,
        "podsOnData": total.on_data,
        "possible": total.possible,
        "gigabytes": round(total.bytes_on_data / GB),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clusters", type=int, default=2000)
    count = parser.parse_args().clusters
    figures: dict[str, object] = {"bench": "placing_in_turn", "clusters": count}
    kinds: dict[str, Callable[[Cluster], Cluster]] = {"different": lambda cluster: cluster, "alike": alike}
    for name, change in kinds.items():
        figures[name] = {
            "knownAhead": {
                "all" if ahead == ALL else str(ahead): tally(count, change, ahead=ahead) for ahead in AHEAD
            },
            "price": {str(price): tally(count, change, ahead=ALL, price=price) for price in PRICES},
        }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
