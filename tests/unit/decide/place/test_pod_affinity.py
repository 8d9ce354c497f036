"""Node affinity of a pod to its data."""

from typing import Any

import pytest

from tdcs.decide.place.pod_affinity import MOST_NODES, MOST_TERMS, PREFERRED, REQUIRED, named_node, with_data

ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
RACK = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}


def weights(affinity: dict[str, Any]) -> dict[str, int]:
    """What each node counts that a preferred term names."""
    terms = affinity["nodeAffinity"][PREFERRED]
    return {name: term["weight"] for term in terms for name in named_node(term["preference"])}


def by_name(operator: str, node: str) -> dict[str, Any]:
    """A term about one node."""
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]}


def required(affinity: dict[str, Any]) -> list[dict[str, Any]]:
    """The required terms."""
    terms: list[dict[str, Any]] = affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


def test_nodes_are_preferred_by_their_scores_behind_what_the_pod_prefers_itself() -> None:
    pod_term = {"weight": 7, "preference": ZONE}
    affinity = {
        "podAffinity": {},
        "nodeAffinity": {PREFERRED: [pod_term], REQUIRED: {"nodeSelectorTerms": [RACK]}},
    }

    merged = with_data(affinity, scores={"n1": 10, "n2": 4}, way="preferred")

    assert weights(merged) == {"n1": 100, "n2": 40}
    assert merged["nodeAffinity"][PREFERRED][0] == pod_term
    assert merged["nodeAffinity"][REQUIRED] == {"nodeSelectorTerms": [RACK]}
    assert merged["podAffinity"] == {}


def test_terms_of_an_earlier_call_are_replaced() -> None:
    pod_term = {"weight": 7, "preference": ZONE}
    before = with_data({"nodeAffinity": {PREFERRED: [pod_term]}}, scores={"n1": 10}, way="preferred")

    after = with_data(before, scores={"n2": 10}, way="preferred")

    assert weights(after) == {"n2": 100}
    assert after["nodeAffinity"][PREFERRED][0] == pod_term
    assert with_data(with_data({}, scores={"n1": 10}, way="preferred"), scores={}, way="preferred") == {}


def test_what_a_pod_says_itself_of_nodes_by_their_names_is_kept() -> None:
    named = {"weight": 77, "preference": by_name("In", "mine")}
    avoided = {"weight": 50, "preference": by_name("NotIn", "bad")}
    affinity = {"nodeAffinity": {PREFERRED: [named, avoided]}}

    assert with_data(affinity, scores={}, way="preferred") == affinity
    merged = with_data(affinity, scores={"n1": 10}, way="preferred")
    assert merged["nodeAffinity"][PREFERRED][:2] == [named, avoided]

    avoiding = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [by_name("NotIn", "n1")]}}}
    terms = required(with_data(avoiding, scores={"n1": 10, "n2": 9}, way="required"))
    assert [named_node(term) for term in terms] == [["n1"], ["n2"]], "for nodes with data alone"


@pytest.mark.parametrize("weight", [10, 50, 100])
@pytest.mark.parametrize("scores", [{}, {"n1": 10}], ids=["no data", "data"])
def test_a_preference_of_the_pod_for_a_node_stays_whatever_its_weight(
    weight: int, scores: dict[str, int]
) -> None:
    pod_terms = [
        {"weight": weight, "preference": by_name("In", "mine")},
        {"weight": weight, "preference": by_name("In", "n1")},
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": "tdcs.io/far", "operator": "Exists"}]},
        },
    ]
    affinity = {"nodeAffinity": {PREFERRED: pod_terms}}

    created = with_data(affinity, scores=scores, way="preferred")
    renewed = with_data(created, scores={"n2": 10}, way="preferred")

    assert created["nodeAffinity"][PREFERRED][: len(pod_terms)] == pod_terms
    assert renewed["nodeAffinity"][PREFERRED][: len(pod_terms)] == pod_terms
    assert [named_node(term["preference"]) for term in renewed["nodeAffinity"][PREFERRED][3:]] == [["n2"]]
    assert with_data(renewed, scores={}, way="preferred") == affinity


def test_required_terms_hold_next_to_those_of_the_pod() -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ZONE, RACK]}}}

    terms = with_data(affinity, scores={"n1": 10, "n2": 1}, way="required")["nodeAffinity"][REQUIRED]

    alternatives = [(term.get("matchExpressions"), named_node(term)) for term in terms["nodeSelectorTerms"]]
    assert alternatives == [
        (ZONE["matchExpressions"], ["n1"]),
        (ZONE["matchExpressions"], ["n2"]),
        (RACK["matchExpressions"], ["n1"]),
        (RACK["matchExpressions"], ["n2"]),
    ]


@pytest.mark.parametrize(
    "pod_terms", [[], [ZONE], [ZONE, RACK]], ids=["nothing", "a zone", "a zone or a rack"]
)
def test_required_terms_stay_as_they_are_when_the_webhook_is_called_again(
    pod_terms: list[dict[str, Any]],
) -> None:
    scores = {f"n{number:02}": 10 - number // 10 for number in range(60)}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": pod_terms}}} if pod_terms else {}

    once = with_data(affinity, scores=scores, way="required")

    assert {*map(len, map(named_node, required(once)))} == {1}
    assert with_data(once, scores=scores, way="required") == once


def test_a_term_that_another_webhook_adds_meanwhile_is_for_the_nodes_with_data_too() -> None:
    scores = {"n1": 10, "n2": 1}
    once = with_data({}, scores=scores, way="required")

    changed = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*required(once), ZONE]}}}
    again = required(with_data(changed, scores=scores, way="required"))

    assert again[:2] == required(once)
    assert [(term.get("matchExpressions"), named_node(term)) for term in again[2:]] == [
        (ZONE["matchExpressions"], ["n1"]),
        (ZONE["matchExpressions"], ["n2"]),
    ]


def test_a_term_that_matches_no_node_matches_none_afterwards() -> None:
    only: dict[str, Any] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}
    assert with_data(only, scores={"n1": 10}, way="required") == only

    alongside = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, ZONE]}}}
    (term,) = required(with_data(alongside, scores={"n1": 10}, way="required"))
    assert (term["matchExpressions"], named_node(term)) == (ZONE["matchExpressions"], ["n1"])


def test_without_data_a_pod_stays_as_it_is() -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ZONE]}}}

    assert with_data(affinity, scores={}, way="required") == affinity
    assert with_data(None, scores={}, way="preferred") == {}


def test_terms_are_bounded_and_the_best_nodes_stay() -> None:
    scores = {f"n{number:04}": 10 if number == 999 else 1 for number in range(1000)}

    preferred = weights(with_data({}, scores=scores, way="preferred"))
    assert (len(preferred), preferred["n0999"]) == (MOST_NODES, 100)
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ZONE] * 50}}}
    terms = with_data(affinity, scores=scores, way="required")["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert len(terms) <= MOST_TERMS
    assert named_node(terms[0]) == ["n0999"]
