"""Preferred node affinity to the data of a job."""

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.preferred_affinity import preferred_terms


def test_affinity_ranks_nodes_as_the_extender_does() -> None:
    copy = CopyOnNodes(total_bytes=100, node_bytes={"a": 60, "b": 30, "c": 60, "gone": 10})
    terms = preferred_terms(copies=[copy], hostnames={"a": "a.local", "b": "b", "c": "c", "d": "d"})
    weighted_nodes = [(term["weight"], term["preference"]["matchExpressions"][0]["values"]) for term in terms]
    assert weighted_nodes == [(100, ["a.local", "c"]), (50, ["b"])]
