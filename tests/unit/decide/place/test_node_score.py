"""Scores of nodes and the locality that a job's status reports."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.place.dataset_copies import CopyOnNodes, merged, preferring
from tdcs.decide.place.node_score import (
    MAX_SCORE,
    bytes_on_node,
    closeness,
    local_share,
    locality,
    node_scores,
    nodes_to_take,
    without_left_nodes,
)


def copy(total: int, **node_bytes: int) -> CopyOnNodes:
    return CopyOnNodes(total_bytes=total, node_bytes=node_bytes)


def test_the_node_with_the_most_bytes_gets_the_full_score_and_others_their_part() -> None:
    assert node_scores([copy(100, n1=60, n2=30, n3=0)]) == {"n1": 10, "n2": 5}


def test_a_node_with_a_single_byte_still_ranks_above_nodes_with_none() -> None:
    assert node_scores([copy(10**12, n1=10**12, n2=1)]) == {"n1": 10, "n2": 1}


def test_a_replicated_copy_makes_its_nodes_equal() -> None:
    assert node_scores([copy(100, n1=100, n2=100)]) == {"n1": 10, "n2": 10}


def test_several_datasets_weigh_by_their_size() -> None:
    scores = node_scores([copy(900, n1=900), copy(100, n2=100)])
    assert scores == {"n1": 9, "n2": 1}


def test_a_node_counts_less_the_more_pods_wait_for_other_data_there() -> None:
    copies = [copy(100, n1=100, n2=80)]
    assert node_scores(copies, awaited={"n1": 0.2}) == {"n1": 10, "n2": 9}
    assert node_scores(copies, awaited={"n1": 1.0}) == {"n1": 7, "n2": 10}
    assert node_scores(copies, awaited={"n1": 1.0, "n2": 1.0}) == node_scores(copies)
    assert node_scores(copies, awaited={"elsewhere": 9.0}) == node_scores(copies)
    assert node_scores([], awaited={"n1": 1.0}) == {}


def test_what_others_want_takes_no_more_from_a_node_than_the_best_is_worth() -> None:
    scores = node_scores([copy(100, n1=100, n2=50, n3=20)], awaited={"n1": 2.0, "n2": 500.0})
    assert scores == {"n1": 8, "n2": 3, "n3": 10}
    assert node_scores([copy(100, n1=100, n2=1)], awaited={"n2": 500.0}) == {"n1": 10, "n2": 1}


def test_a_pod_without_data_takes_the_nodes_that_others_want_least() -> None:
    assert nodes_to_take(candidates=["a", "b", "c"], awaited={"b": 0.1, "z": 3.0}) == {"a": 1, "c": 1}
    assert nodes_to_take(candidates=["a", "b"], awaited={"a": 2.0, "b": 1.0}) == {"b": 1}
    assert nodes_to_take(candidates=["a", "b", "c"], awaited={"a": 0.1 + 0.2, "b": 0.3, "c": 1.0}) == {
        "a": 1,
        "b": 1,
    }
    assert nodes_to_take(candidates=["a", "b"], awaited={}) == {}
    assert nodes_to_take(candidates=["a", "b"], awaited={"a": 1.0, "b": 1.0}) == {}
    assert nodes_to_take(candidates=[], awaited={"a": 1.0}) == {}


@given(
    held=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 100), min_size=1),
    awaited=st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 50)),
)
def test_whatever_others_want_every_node_with_data_has_a_score_and_one_the_full(
    held: dict[str, int], awaited: dict[str, float]
) -> None:
    scores = node_scores([CopyOnNodes(total_bytes=100, node_bytes=held)], awaited=awaited)
    assert scores.keys() == held.keys()
    assert max(scores.values()) == MAX_SCORE
    assert min(scores.values()) >= 1
    # More bytes and fewer who want them are never worse.
    for better in held:
        for worse in held:
            if held[better] >= held[worse] and awaited.get(better, 0) <= awaited.get(worse, 0):
                assert scores[better] >= scores[worse]


def test_a_job_that_starts_cold_goes_where_its_data_goes() -> None:
    cold = CopyOnNodes(total_bytes=100, node_bytes={}, arriving={"a": 100, "b": 100})
    assert node_scores([cold]) == {"a": 10, "b": 10}
    assert locality(pod_nodes=["a", "b"], copies=[cold]) == 1.0
    assert local_share(pod_nodes=["a", "b"], copies=[cold]) == 0.0


def test_bytes_that_are_there_count_more_than_bytes_on_their_way() -> None:
    half = CopyOnNodes(total_bytes=100, node_bytes={"a": 100, "b": 20}, arriving={"b": 80, "c": 100})
    assert node_scores([half]) == {"a": 10, "b": 6, "c": 5}
    second = CopyOnNodes(total_bytes=100, node_bytes={"d": 100}, arriving={"e": 100})
    assert node_scores([preferring(half, other_copies=[second])]) == {"a": 10, "b": 6, "c": 5, "d": 5, "e": 3}
    assert merged([half, second]) == CopyOnNodes(
        total_bytes=100, node_bytes={"a": 100, "b": 20, "d": 100}, arriving={"b": 80, "c": 100, "e": 100}
    )


def test_what_preloads_brought_counts_in_full_next_to_any_copy() -> None:
    mine, theirs = copy(100, a=100), copy(100, b=100)
    brought = CopyOnNodes(total_bytes=100, node_bytes={"b": 60, "c": 100}, arriving={"d": 40}, brought=True)
    near = preferring(mine, other_copies=[theirs, brought])
    assert node_scores([near]) == {"a": 10, "b": 6, "c": 10, "d": 2}
    assert not near.brought
    assert locality(pod_nodes=["c"], copies=[near]) == local_share(pod_nodes=["c"], copies=[near]) == 1.0


def test_without_datasets_there_are_no_scores() -> None:
    assert node_scores([]) == {}
    assert node_scores([copy(100)]) == {}


def test_locality_is_the_mean_over_pods_and_one_when_none_could_be_better() -> None:
    copies = [copy(100, n1=50, n2=50)]
    assert locality(pod_nodes=["n1", "n2"], copies=copies) == 1.0
    assert locality(pod_nodes=["n1", "n3"], copies=copies) == 0.5
    assert locality(pod_nodes=["n3", "n3"], copies=copies) == 0.0


def test_locality_is_unknown_without_pods_or_without_cached_bytes() -> None:
    assert locality(pod_nodes=[], copies=[copy(100, n1=1)]) is None
    assert locality(pod_nodes=["n1"], copies=[copy(100)]) is None


def test_the_local_share_of_a_partitioned_copy_is_one_over_its_nodes() -> None:
    assert local_share(pod_nodes=["n1", "n2"], copies=[copy(100, n1=50, n2=50)]) == 0.5
    assert local_share(pod_nodes=["n1"], copies=[copy(100, n1=100, n2=100)]) == 1.0
    assert local_share(pod_nodes=["n3"], copies=[copy(100, n1=100)]) == 0.0
    assert local_share(pod_nodes=["n1"], copies=[]) is None


def test_bytes_on_a_node_add_up_over_datasets() -> None:
    assert bytes_on_node(node="n1", copies=[copy(10, n1=3), copy(10, n1=4, n2=6)]) == 7


held = st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(min_value=0, max_value=10**15))


@given(
    st.lists(st.builds(CopyOnNodes, total_bytes=st.integers(min_value=0, max_value=10**15), node_bytes=held))
)
def test_scores_are_whole_bounded_and_only_for_nodes_with_data(copies: list[CopyOnNodes]) -> None:
    scores = node_scores(copies)
    holders = {name for c in copies for name, size in c.node_bytes.items() if size > 0}
    assert set(scores) == holders
    assert all(isinstance(score, int) and 1 <= score <= MAX_SCORE for score in scores.values())


some_nodes = st.sets(st.sampled_from(["n1", "n2", "n3", "n4"]))


@given(
    st.lists(st.builds(CopyOnNodes, total_bytes=st.integers(min_value=0, max_value=10**15), node_bytes=held)),
    some_nodes,
    st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.floats(min_value=0, max_value=100)),
)
def test_scores_are_bounded_whoever_may_be_chosen_and_whatever_is_awaited(
    copies: list[CopyOnNodes], candidates: set[str], awaited: dict[str, float]
) -> None:
    scores = node_scores(copies, candidates=candidates, awaited=awaited)
    holders = {name for c in copies for name, size in c.node_bytes.items() if size > 0}
    assert holders & candidates <= set(scores) <= holders
    assert all(isinstance(score, int) and 1 <= score <= MAX_SCORE for score in scores.values())
    if awaited and holders & candidates:
        assert max(scores[node] for node in holders & candidates) == MAX_SCORE


@given(node_bytes=held, extra=st.integers(min_value=1, max_value=10**12))
def test_more_bytes_never_make_a_node_worse(node_bytes: dict[str, int], extra: int) -> None:
    before = closeness(node="n1", copies=[copy(10**15, **node_bytes)])
    more = dict(node_bytes, n1=node_bytes.get("n1", 0) + extra)
    assert closeness(node="n1", copies=[copy(10**15, **more)]) >= before - 1e-12


copies_of_one_pod = st.lists(
    st.builds(CopyOnNodes, total_bytes=st.integers(min_value=0, max_value=10**15), node_bytes=held),
    max_size=4,
)


@given(copies_of_one_pod, st.randoms(use_true_random=False))
def test_the_order_of_the_datasets_does_not_matter(copies: list[CopyOnNodes], shuffle: random.Random) -> None:
    assert node_scores(shuffle.sample(copies, len(copies))) == node_scores(copies)


@given(copies_of_one_pod)
def test_a_node_that_is_closer_to_the_data_never_scores_less(copies: list[CopyOnNodes]) -> None:
    scores = node_scores(copies)
    near = {node: closeness(node=node, copies=copies) for node in scores}
    for first in scores:
        for second in scores:
            assert near[first] <= near[second] + 1e-9 or scores[first] >= scores[second]


@given(node_bytes=held, extra=st.integers(min_value=1, max_value=10**12))
def test_what_a_node_gains_makes_no_other_node_better(node_bytes: dict[str, int], extra: int) -> None:
    before = node_scores([copy(10**15, **node_bytes)])
    after = node_scores([copy(10**15, **dict(node_bytes, n1=node_bytes.get("n1", 0) + extra))])
    assert after["n1"] >= before.get("n1", 0)
    assert all(after[node] <= score for node, score in before.items() if node != "n1")


@given(node_bytes=held, factor=st.integers(min_value=1, max_value=1000))
def test_the_unit_of_the_bytes_does_not_matter(node_bytes: dict[str, int], factor: int) -> None:
    scaled = {node: size * factor for node, size in node_bytes.items()}
    assert node_scores([copy(10**15 * factor, **scaled)]) == node_scores([copy(10**15, **node_bytes)])


@given(copies_of_one_pod, st.lists(st.sampled_from(["n1", "n2", "n3", "elsewhere"]), max_size=6))
def test_locality_and_local_share_are_between_none_and_all(
    copies: list[CopyOnNodes], pods: list[str]
) -> None:
    for ratio in (locality(pod_nodes=pods, copies=copies), local_share(pod_nodes=pods, copies=copies)):
        assert ratio is None or 0 <= ratio <= 1 + 1e-9
    best = max(node_scores(copies), key=lambda node: closeness(node=node, copies=copies), default=None)
    if best is not None and pods:
        most = locality(pod_nodes=[best] * len(pods), copies=copies)
        mine = locality(pod_nodes=pods, copies=copies)
        assert most is not None
        assert mine is not None
        assert mine <= most + 1e-9


def test_nodes_that_are_left_come_behind_all_others_and_data_decides_among_those() -> None:
    scores = {"left": 10, "data": 1, "elsewhere": 9}
    ranked = without_left_nodes(scores, leave={"left"}, candidates=["left", "data", "none"])
    assert ranked == {"data": 2, "none": 1}
    assert without_left_nodes({}, leave={"left"}, candidates=["left", "none"]) == {"none": 1}


@pytest.mark.parametrize("candidates", [["left"], ["other"], ["left", "also"], []])
def test_with_one_kind_of_candidates_only_the_scores_stay(candidates: list[str]) -> None:
    assert without_left_nodes({"left": 4}, leave={"left", "also"}, candidates=candidates) == {"left": 4}
