"""Nodes that small pods leave to pods of whole nodes."""

from collections.abc import Mapping, Sequence

import pytest

from tdcs.api.names import GPU_RESOURCE
from tdcs.decide.place.gang_fit import (
    PodGroup,
)
from tdcs.decide.queue.kept_nodes import NodesLeft
from tdcs.decide.queue.queued_job import QueuedJob
from tdcs.decide.queue.room_table import RoomTable


def job(*groups: PodGroup, priority: int = 0, name: str = "job") -> QueuedJob:
    return QueuedJob(
        key=("team", name),
        uid=name,
        priority=priority,
        submitted=0,
        data_ready=True,
        passed=0,
        groups=groups,
    )


def pods(count: int, gpus: int, *, nodes: frozenset[str] | None = None) -> PodGroup:
    return PodGroup(count=count, request={GPU_RESOURCE: gpus}, nodes=nodes)


SMALL, WHOLE = job(pods(1, 2), name="small"), job(pods(3, 8), name="whole")
SIZES = {"empty": 8, "also empty": 8, "half": 8}
FREE = {"empty": 8, "also empty": 8, "half": 4}
EMPTY = frozenset({"empty", "also empty"})


def nodes_left(
    starting: QueuedJob,
    *queued: QueuedJob,
    free: Mapping[str, int] = FREE,
    sizes: Mapping[str, int] = SIZES,
) -> Mapping[int, frozenset[str]]:
    """What a job leaves that starts now, while others wait; it is the same while they run."""
    node_sets = [
        NodesLeft(
            room=RoomTable({node: {GPU_RESOURCE: gpus} for node, gpus in free.items()}),
            capacity={node: {GPU_RESOURCE: gpus} for node, gpus in sizes.items()},
            running=running,
            waiting=waiting,
        ).of(starting, aside=frozenset(), urgent=False)
        for running, waiting in (((), queued), ([scarce for scarce in queued if scarce is not starting], ()))
    ]
    assert node_sets[0] == node_sets[1]
    return node_sets[0]


def test_a_small_pod_leaves_empty_nodes_to_pods_of_whole_nodes() -> None:
    assert nodes_left(SMALL, WHOLE) == {2: EMPTY}
    assert nodes_left(SMALL, SMALL, WHOLE) == {2: EMPTY}


@pytest.mark.parametrize(
    ("starting", "queued"),
    [
        pytest.param(SMALL, [], id="there is no other job"),
        pytest.param(SMALL, [SMALL], id="the job itself is still in the queue"),
        pytest.param(SMALL, [job(pods(9, 6), name="o")], id="the others fit on a node next to it"),
        pytest.param(SMALL, [job(pods(9, 16), name="o")], id="no node holds the others"),
        pytest.param(job(pods(1, 2), priority=1), [WHOLE], id="the other one has a lower priority"),
        pytest.param(SMALL, [job(pods(1, 8), name="o")], id="there are enough empty nodes for both"),
        pytest.param(job(pods(1, 8)), [WHOLE], id="the job takes whole nodes itself"),
        pytest.param(job(pods(4, 0)), [WHOLE], id="the job takes no GPU"),
        pytest.param(
            SMALL, [job(pods(3, 8, nodes=frozenset({"half"})), name="o")], id="the others run on other nodes"
        ),
    ],
)
def test_no_node_is_left_where_nothing_is_gained(starting: QueuedJob, queued: Sequence[QueuedJob]) -> None:
    assert nodes_left(starting, *queued) == {}


def test_nodes_are_left_by_the_size_of_the_pod_and_of_the_node() -> None:
    starting = job(pods(1, 8), pods(2, 2), pods(1, 1))
    assert nodes_left(starting, job(pods(4, 7), name="o")) == {
        2: EMPTY
    }  # a pod of seven GPUs fits next to a pod of one
    sizes = {"large": 8, "small": 4}
    assert nodes_left(SMALL, job(pods(2, 4), name="o"), free=sizes, sizes=sizes) == {2: frozenset({"small"})}
    assert nodes_left(SMALL, WHOLE, free=sizes, sizes=sizes) == {2: frozenset({"large"})}
    only = job(pods(2, 8, nodes=frozenset({"empty"})), name="o")
    assert nodes_left(SMALL, only) == {2: frozenset({"empty"})}
    # A node that is not among the free ones is away.
    assert nodes_left(SMALL, WHOLE, free={"empty": 8, "half": 4}) == {2: frozenset({"empty"})}
