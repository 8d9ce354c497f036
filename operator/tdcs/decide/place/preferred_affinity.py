"""Mode Affinity: preferred node affinity to the data, for whichever scheduler places the pods."""

from collections.abc import Mapping, Sequence

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NO_PLACES, NodePlaces
from tdcs.decide.place.node_score import MAX_SCORE, node_scores
from tdcs.decide.place.pod_affinity import near_terms
from tdcs.model.kube_objects import Object

HOSTNAME = "kubernetes.io/hostname"

MAX_WEIGHT = 100
"""The largest weight of a preferred term."""

NODES_PER_TERM = 500
"""Nodes that one term names; a larger copy is written as several terms of one weight."""


def preferred_terms(
    *, copies: Sequence[CopyOnNodes], hostnames: Mapping[str, str], places: NodePlaces = NO_PLACES
) -> list[Object]:
    """Terms that rank nodes as the extender would: one weight for each of its scores, and for nodes without data one
    for each rack, zone or region that has some.

    Args:
        copies: the copies that the job reads.
        hostnames: the label kubernetes.io/hostname of each node, which may differ from its name.
        places: where the nodes are.
    """
    by_score: dict[int, list[str]] = {}
    for node, score in node_scores(copies).items():
        if node in hostnames:
            by_score.setdefault(score, []).append(hostnames[node])
    return [
        {
            "weight": score * MAX_WEIGHT // MAX_SCORE,
            "preference": {
                "matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": part}],
            },
        }
        for score, named in sorted(by_score.items(), reverse=True)
        for part in _parts(sorted(named))
    ] + near_terms(copies, places=places)


def _parts(nodes: Sequence[str]) -> list[list[str]]:
    return [list(nodes[start : start + NODES_PER_TERM]) for start in range(0, len(nodes), NODES_PER_TERM)]
