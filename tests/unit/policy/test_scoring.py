"""Scores of nodes and the locality that a job's status reports."""

from hypothesis import given
from hypothesis import strategies as st

from tdcs.policy.scoring import (
    MAX_SCORE,
    CopyOnNodes,
    bytes_on_node,
    closeness,
    local_share,
    locality,
    node_scores,
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


@given(node_bytes=held, extra=st.integers(min_value=1, max_value=10**12))
def test_more_bytes_never_make_a_node_worse(node_bytes: dict[str, int], extra: int) -> None:
    before = closeness(node="n1", copies=[copy(10**15, **node_bytes)])
    more = dict(node_bytes, n1=node_bytes.get("n1", 0) + extra)
    assert closeness(node="n1", copies=[copy(10**15, **more)]) >= before - 1e-12
