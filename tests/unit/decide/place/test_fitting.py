"""Whether the pods of a job fit at once, over any resources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs.decide.place.gang_fit import (
    Amounts,
    PodGroup,
    empty_nodes,
    most_that_fit,
    nodes_to_leave,
    place,
    place_most,
    room_for,
)

NODES = st.lists(
    st.fixed_dictionaries({"gpu": st.integers(0, 8), "cpu": st.integers(0, 16)}), min_size=0, max_size=6
).map(lambda nodes: {f"n{number}": node for number, node in enumerate(nodes)})
GROUPS = st.lists(
    st.builds(
        PodGroup,
        count=st.integers(1, 5),
        request=st.fixed_dictionaries({"gpu": st.integers(0, 4), "cpu": st.integers(0, 6)}),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150)
@given(nodes=NODES, groups=GROUPS)
def test_what_is_placed_is_taken_once_and_no_node_is_overfull(
    nodes: dict[str, dict[str, int]], groups: Sequence[PodGroup]
) -> None:
    before = {name: dict(node) for name, node in nodes.items()}
    left = place(groups=groups, free=nodes, scarce="gpu")
    assert nodes == before
    if left is None:
        return
    assert all(value >= 0 for node in left.values() for value in node.values())
    for resource in ("gpu", "cpu"):
        taken = sum(before[name][resource] - left[name][resource] for name in nodes)
        assert taken == sum(group.count * group.request[resource] for group in groups)


@settings(max_examples=150)
@given(nodes=NODES, count=st.integers(1, 8), gpus=st.integers(0, 4), cpus=st.integers(0, 6))
def test_for_equal_pods_the_answer_is_exact(
    nodes: dict[str, dict[str, int]], count: int, gpus: int, cpus: int
) -> None:
    group = PodGroup(count=count, request={"gpu": gpus, "cpu": cpus})
    room = sum(min(room_for(request=group.request, free=node), count) for node in nodes.values())
    assert (place(groups=[group], free=nodes, scarce="gpu") is not None) == (room >= count)
    assert most_that_fit(group=group, free=nodes) == min(room, count)


def test_what_finds_no_room_takes_nothing_and_the_rest_is_placed() -> None:
    free: dict[str, Amounts] = {"a": {"gpu": 4}, "b": {"gpu": 1}}
    groups = [PodGroup(count=2, request={"gpu": 4}), PodGroup(count=1, request={"gpu": 1})]
    place_most(groups=groups, free=free, scarce="gpu")
    assert free == {"a": {"gpu": 0}, "b": {"gpu": 0}}


def test_the_fullest_node_that_has_room_is_filled_first() -> None:
    free = {"a": {"gpu": 8}, "b": {"gpu": 2}}
    left = place(groups=[PodGroup(count=1, request={"gpu": 2})], free=free, scarce="gpu")
    assert left == {"a": {"gpu": 8}, "b": {"gpu": 0}}


def test_nodes_that_a_group_may_not_use_are_left_alone() -> None:
    group = PodGroup(count=1, request={"gpu": 1}, nodes=frozenset({"b"}))
    assert place(groups=[group], free={"a": {"gpu": 1}}) is None
    assert most_that_fit(group=group, free={"a": {"gpu": 1}, "b": {"gpu": 3}}) == 1


@dataclass(frozen=True)
class Job:
    """A job in a queue."""

    groups: Sequence[PodGroup]
    priority: int = 0
    ready: bool = True


def pods(count: int, gpus: int, *, nodes: frozenset[str] | None = None) -> PodGroup:
    return PodGroup(count=count, request={"gpu": gpus}, nodes=nodes)


SMALL, WHOLE = Job([pods(1, 2)]), Job([pods(3, 8)])
SIZES = {"empty": 8, "also empty": 8, "half": 8}
FREE = {"empty": 8, "also empty": 8, "half": 4}
EMPTY = frozenset({"empty", "also empty"})


def left(
    job: Job,
    *others: Job,
    free: Mapping[str, int] = FREE,
    sizes: Mapping[str, int] = SIZES,
) -> dict[int, frozenset[str]]:
    return nodes_to_leave(job=job, others=others, empty=empty_nodes(free=free, sizes=sizes), scarce="gpu")


def test_a_small_pod_leaves_empty_nodes_to_pods_of_whole_nodes() -> None:
    assert left(SMALL, WHOLE) == {2: EMPTY}
    assert left(SMALL, SMALL, WHOLE) == {2: EMPTY}


@pytest.mark.parametrize(
    ("job", "others"),
    [
        pytest.param(SMALL, [], id="there is no other job"),
        pytest.param(SMALL, [SMALL], id="the job itself is still in the queue"),
        pytest.param(SMALL, [Job([pods(9, 6)])], id="the others fit on a node beside it"),
        pytest.param(SMALL, [Job([pods(9, 16)])], id="no node holds the others"),
        pytest.param(
            SMALL, [Job([pods(3, 8)], ready=False)], id="the other one waits for something else than room"
        ),
        pytest.param(Job([pods(1, 2)], priority=1), [WHOLE], id="the other one has a lower priority"),
        pytest.param(SMALL, [Job([pods(1, 8)])], id="there are enough empty nodes for both"),
        pytest.param(Job([pods(1, 8)]), [WHOLE], id="the job takes whole nodes itself"),
        pytest.param(Job([pods(4, 0)]), [WHOLE], id="the job takes no GPU"),
        pytest.param(
            SMALL, [Job([pods(3, 8, nodes=frozenset({"half"}))])], id="the others run on other nodes"
        ),
    ],
)
def test_no_node_is_left_where_nothing_is_gained(job: Job, others: Sequence[Job]) -> None:
    assert left(job, *others) == {}


def test_nodes_are_left_by_the_size_of_the_pod_and_of_the_node() -> None:
    job = Job([pods(1, 8), pods(2, 2), pods(1, 1)])
    assert left(job, Job([pods(4, 7)])) == {2: EMPTY}  # beside one GPU a pod of seven has room
    sizes = {"large": 8, "small": 4}
    assert left(SMALL, Job([pods(2, 4)]), free=sizes, sizes=sizes) == {2: frozenset({"small"})}
    assert left(SMALL, WHOLE, free=sizes, sizes=sizes) == {2: frozenset({"large"})}
    only = Job([pods(2, 8, nodes=frozenset({"empty"}))])
    assert left(SMALL, only) == {2: frozenset({"empty"})}
    # A node that is not among the free ones is set aside, or away.
    assert left(SMALL, WHOLE, free={"empty": 8, "half": 4}) == {2: frozenset({"empty"})}
