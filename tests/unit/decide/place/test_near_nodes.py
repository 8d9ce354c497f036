"""Nodes near the data of a pod come before those that are far: in scores, and in the affinity of other schedulers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NodePlaces, near_scores, nearer_first, nearness, shares_of
from tdcs.decide.place.node_score import combined, node_scores
from tdcs.decide.place.pod_affinity import NEAR_WEIGHT, PREFERRED, near_terms, with_data
from tdcs.model.nearness import Place

KEYS = ("example.com/rack", "topology.kubernetes.io/zone", "topology.kubernetes.io/region")

PLACES = st.tuples(
    st.sampled_from(["", "r1", "r2"]), st.sampled_from(["", "a", "b"]), st.sampled_from(["eu", "us"])
)


def where(**places: str) -> NodePlaces:
    """Nodes at places such as `rack/zone/region`."""
    return NodePlaces(keys=KEYS, of={node: tuple(place.split("/")) for node, place in places.items()})


def copy(total: int = 100, **held: int) -> CopyOnNodes:
    return CopyOnNodes(total_bytes=total, node_bytes=held)


def scored(copies: list[CopyOnNodes], places: NodePlaces, **awaited: float) -> dict[str, int]:
    return near_scores(copies, candidates=list(places.of), places=places, awaited=awaited)


def test_without_room_at_the_data_the_same_rack_comes_first_then_the_zone_then_the_region() -> None:
    places = where(rack="r1/a/eu", zone="r2/a/eu", region="r1/b/eu", far="r1/a/us", full="r1/a/eu")
    candidates = ["far", "region", "zone", "rack"]

    scores = near_scores([copy(full=100)], candidates=candidates, places=places, awaited={})

    assert scores == {"rack": 10, "zone": 7, "region": 4}


def test_the_zone_with_more_of_the_data_is_better() -> None:
    places = where(a="/a/eu", b="/b/eu", full1="/a/eu", full2="/b/eu")

    scores = near_scores([copy(full1=80, full2=20)], candidates=["a", "b"], places=places, awaited={})

    assert scores["a"] > scores.get("b", 0)


def test_nodes_that_others_wait_for_come_last_the_near_ones_of_them_first() -> None:
    places = where(near="/a/eu", wanted="/a/eu", far="/b/eu", farwanted="/b/eu", full="/a/eu")
    candidates = ["near", "wanted", "far", "farwanted"]

    scores = near_scores(
        [copy(full=100)], candidates=candidates, places=places, awaited={"wanted": 1.0, "farwanted": 1.0}
    )

    assert scores["near"] > scores["far"] > scores["wanted"] > scores.get("farwanted", 0)


def test_nothing_is_said_where_all_candidates_are_as_near_or_nodes_have_no_labels() -> None:
    places = where(a="/a/eu", b="/a/eu", full="/b/eu")

    assert near_scores([copy(full=100)], candidates=["a", "b"], places=places, awaited={}) == {}
    assert scored([copy(full=100)], NodePlaces()) == {}
    assert scored([copy()], where(a="/a/eu", b="/b/eu")) == {}


def test_of_nodes_with_as_many_bytes_the_one_in_the_zone_of_the_rest_is_better() -> None:
    places = where(a1="/a/eu", a2="/a/eu", a3="/a/eu", b1="/b/eu")
    copies = [copy(a1=25, a2=25, a3=25, b1=25)]

    data = nearer_first(combined(copies, places=[0]), copies, places=places)

    worth = dict(zip(data.nodes, data.worth.tolist(), strict=True))
    assert worth["a1"] == worth["a2"] == worth["a3"] == 1.0
    assert 0.8 <= worth["b1"] < 1.0


def steps_by_hand(place: Place, copies: list[CopyOnNodes], places: NodePlaces) -> float:
    """The mean over the levels of the share of data there, from the words of the module."""
    total = sum(copy.total_bytes for copy in copies if copy.ranked)
    nearness = 0.0
    for level in places.levels:
        for copy in copies:
            held = sum(
                size
                for node, size in copy.node_bytes.items()
                if places.of[node][level] and place[level] and places.of[node][level:] == place[level:]
            )
            nearness += min(held, copy.total_bytes) / total if total else 0.0
    return nearness / max(len(places.levels), 1)


@given(
    of=st.lists(PLACES, min_size=1, max_size=5),
    held=st.lists(st.lists(st.integers(0, 100), min_size=5, max_size=5), min_size=1, max_size=3),
)
def test_nearness_is_the_mean_share_of_the_data_over_the_levels(
    of: list[Place], held: list[list[int]]
) -> None:
    places = NodePlaces(keys=KEYS, of={f"n{number}": place for number, place in enumerate(of)})
    copies = [
        copy(**{node: size for node, size in zip(places.of, sizes, strict=False) if size}) for sizes in held
    ]

    shares = shares_of(copies, places=places)

    for place in of:
        assert nearness(place, shares=shares) == pytest.approx(steps_by_hand(place, copies, places))
    scores = scored(copies, places)
    for near_node, far_node in itertools.combinations(places.of, 2):
        near, far = (steps_by_hand(places.of[node], copies, places) for node in (near_node, far_node))
        if near > far + 1e-6:
            assert scores.get(near_node, 0) >= scores.get(far_node, 0)


@given(
    of=st.lists(PLACES, min_size=2, max_size=5),
    held=st.lists(st.integers(0, 100), min_size=5, max_size=5),
)
def test_the_affinity_of_other_schedulers_ranks_data_first_and_near_nodes_next(
    of: list[Place], held: list[int]
) -> None:
    places = NodePlaces(keys=KEYS, of={f"n{number}": place for number, place in enumerate(of)})
    copies = [copy(**{node: size for node, size in zip(places.of, held, strict=False) if size})]
    scores = node_scores(copies)
    pod_term = {
        "weight": 3,
        "preference": {"matchExpressions": [{"key": KEYS[1], "operator": "In", "values": ["b"]}]},
    }

    affinity = with_data(
        {"nodeAffinity": {PREFERRED: [pod_term]}},
        scores=scores,
        way="preferred",
        near=near_terms(copies, places=places),
    )
    again = with_data(affinity, scores=scores, way="preferred", near=near_terms(copies, places=places))
    assert again == affinity
    assert with_data(affinity, scores={}, way="preferred")["nodeAffinity"][PREFERRED] == [pod_term]

    terms = affinity["nodeAffinity"][PREFERRED][1:]
    weights = {
        node: sum(term["weight"] for term in terms if matches(term, node, place))
        for node, place in places.of.items()
    }
    shares = shares_of(copies, places=places)
    for node in places.of:
        assert weights[node] >= 10 if node in scores else weights[node] <= NEAR_WEIGHT
    without = [node for node in places.of if node not in scores]
    for first, second in itertools.permutations(without, 2):
        if all(
            shares[level].get(places.of[first][level:] if places.of[first][level] else (), 0)
            >= shares[level].get(places.of[second][level:] if places.of[second][level] else (), 0)
            for level in shares
        ):
            assert weights[first] >= weights[second]


def matches(term: dict[str, object], node: str, place: Place) -> bool:
    """Whether a preferred term is for a node, as a scheduler finds out."""
    preference = term["preference"]
    assert isinstance(preference, dict)
    labels = {key: value for key, value in zip(KEYS, place, strict=True) if value}
    return all(node in expression["values"] for expression in preference.get("matchFields", ())) and all(
        expression["key"] not in labels
        if expression["operator"] == "DoesNotExist"
        else labels.get(expression["key"]) in expression["values"]
        for expression in preference.get("matchExpressions", ())
    )
