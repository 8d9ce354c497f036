"""Which workers leave a cache, and what becomes of what they hold: the decisions alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.control.context import WorkKey
from tdcs.decide.cache.removal_cost import MountLedger, NodeHolding
from tdcs.decide.leaving_workers import (
    DrainStep,
    ScaleInInput,
    busy_nodes,
    choose_nodes,
    drain_step,
    farewell,
    forecast,
    goes_without_drain,
    is_drained,
    leavers,
    protected_nodes,
    readers_of,
    remaining,
)
from tdcs.decide.place.placement_input import draining_nodes, expected_paths
from tdcs.model import slots
from tdcs.model.kube_resources import DATASETS

A, B, C, AB, ABC = (frozenset(names) for names in ("a", "b", "c", "ab", "abc"))


def mount(
    path: str = "/m", *, held_by: Mapping[frozenset[str], int] | None = None, **changes: Any
) -> MountLedger[WorkKey]:
    """A mount of which each slot is on a set of nodes."""
    groups = list((held_by or {}).items())
    sizes = np.zeros(slots.SLOTS, dtype=np.int64)
    sizes[: len(groups)] = [size for _, size in groups]
    nodes = {}
    for name in frozenset[str]().union(*(names for names, _ in groups)):
        mine = [number for number, (names, _) in enumerate(groups) if name in names]
        held = slots.bitmap(mine)
        nodes[name] = NodeHolding(held_bytes=int(sizes[mine].sum()), complete=held, present=held)
    readers = frozenset({WorkKey(DATASETS, "n", path[1:])})
    return MountLedger(path=path, readers=readers, sizes=sizes, nodes=nodes, **changes)


def first(count: int = 1, **holdings: Any) -> set[str]:
    return leavers(nodes="abc", count=count, holdings=ScaleInInput(**holdings))


@pytest.mark.parametrize(
    ("holdings", "expected"),
    [
        ({"mounts": [mount(held_by={A: 5, B: 9, C: 7})]}, "a"),
        ({"mounts": [mount(held_by={A: 5, ABC: 50, B: 9})]}, "c"),  # what is elsewhere too costs nothing
        ({"mounts": [mount(held_by={A: 5, B: 9})], "busy": C}, "a"),  # nobody trains there
        ({"mounts": [mount(held_by={A: 5, B: 9, C: 7})], "draining": B}, "b"),  # it has begun
        ({"busy": ABC, "mounts": [mount(held_by={A: 5, B: 9, C: 7})]}, "a"),
    ],
)
def test_the_worker_whose_loss_costs_least_leaves(holdings: dict[str, Any], expected: str) -> None:
    assert first(**holdings) == {expected}


def test_what_jobs_read_is_worth_more_than_what_nobody_reads() -> None:
    mounts = [mount("/cold", held_by={A: 500}), mount("/hot", held_by={B: 5, C: 6})]
    assert first(mounts=mounts) == {"b"}
    assert first(mounts=mounts, readers={"/hot": 1}) == {"a"}


def test_two_that_hold_the_same_bytes_do_not_both_leave() -> None:
    mounts = [mount(held_by={AB: 90, C: 10})]
    assert first(2, mounts=mounts) == {"a", "c"}


ZONED = {"a": ("x",), "b": ("x",), "c": ("y",), "d": ("y",)}
EVERYWHERE = frozenset("abcd")


@pytest.mark.parametrize(
    ("nodes", "held_by", "zones", "order"),
    [
        # All hold all: c is the only one of its zone, so it goes last.
        ("abc", {ABC: 90}, {"a": ("x",), "b": ("x",), "c": ("y",)}, ["a", "b"]),
        ("abc", {ABC: 90}, {"a": ("y",), "b": ("x",), "c": ("x",)}, ["b", "a"]),
        # One of each zone goes before the last of either.
        ("abcd", {EVERYWHERE: 90}, ZONED, ["a", "c"]),
        # Who holds nothing, or what its zone has twice, goes before who holds the zone's only copy.
        ("abcd", {frozenset("abc"): 90}, ZONED, ["a", "d"]),
        # A last copy costs more than a zone's.
        ("abc", {AB: 50, C: 5}, {"a": ("x",), "b": ("y",), "c": ("y",)}, ["b", "c"]),
        # Nothing is held: the zone with the most workers gives one up.
        ("abc", {}, {"a": ("y",), "b": ("x",), "c": ("x",)}, ["b", "a"]),
        # Zones of nothing known, and one zone: as without them.
        ("abc", {ABC: 90}, {}, ["a", "b"]),
        ("abc", {ABC: 90}, dict.fromkeys("abc", ("x",)), ["a", "b"]),
    ],
)
def test_a_zone_keeps_its_copy_while_others_hold_two(
    nodes: str, held_by: Mapping[frozenset[str], int], zones: Mapping[str, tuple[str]], order: list[str]
) -> None:
    holdings = ScaleInInput(mounts=[mount(held_by=held_by)], zones=zones)
    for count in (1, 2):
        assert leavers(nodes=nodes, count=count, holdings=holdings) == set(order[:count])


def test_nobody_is_chosen_before_it_is_known_what_is_where_but_those_that_began_go_on() -> None:
    assert first(2, complete=False) == set()
    assert first(2, complete=False, draining=B) == {"b"}
    assert first(2, complete=False, overdue=True) == {"a", "b"}


def test_more_replicas_keep_a_worker_that_was_leaving_before_another_node_gets_one() -> None:
    nodes = {name: node(name) for name in "abcd"}
    held = ScaleInInput(draining=B)
    two = CacheClusterSpec(replicas=2)
    assert choose_nodes(spec=two, nodes=nodes, present="abc", holdings=held) == ["a", "c"]
    three = CacheClusterSpec(replicas=3)
    assert choose_nodes(spec=three, nodes=nodes, present="abc", holdings=held) == ["a", "b", "c"]
    # Of two that leave, the one that holds more stays.
    held = ScaleInInput(draining=AB, mounts=[mount(held_by={A: 9, B: 1, C: 5})])
    assert choose_nodes(spec=two, nodes=nodes, present="abc", holdings=held) == ["a", "c"]


def drained(*mounts: MountLedger[WorkKey], draining: frozenset[str] = A, complete: bool = True) -> bool:
    holdings = ScaleInInput(mounts=mounts, complete=complete)
    return is_drained(node="a", draining=draining, staying=ABC - draining, holdings=holdings)


def test_a_worker_is_drained_when_every_dataset_was_planned_without_it_and_nothing_moves() -> None:
    held: dict[str, Any] = {"held_by": {A: 5, B: 1}, "live": ABC}
    assert drained()
    assert not drained(complete=False)
    assert not drained(mount(**held))
    assert not drained(mount(**held, draining=A, busy=True))
    assert drained(mount(**held, draining=A))
    assert not drained(mount(**held, draining=A), draining=AB)
    assert not drained(mount(**held, draining=A, moving=True))
    # A load that has nothing to do with the worker does not hold it up.
    assert drained(mount(held_by={B: 1}, draining=A, busy=True))


def test_what_has_no_room_is_not_given_up_while_a_staying_worker_is_away() -> None:
    held: dict[str, Any] = {"held_by": {A: 5, B: 1}, "draining": A}
    assert not drained(mount(**held, live=AB))
    assert drained(mount(**held, live=ABC))
    assert drained(mount(held_by={B: 1}, draining=A, live=AB))  # nothing is to be given up


def test_the_forecast_says_how_much_moves_and_promises_no_node_that_may_not_be_chosen() -> None:
    holdings = ScaleInInput(mounts=[mount(held_by={A: 50, AB: 20})])
    text = forecast(node="a", draining=A, holdings=holdings)
    assert text.startswith("the worker of node a leaves: 50 bytes of cached data are on no staying worker")
    assert text.endswith("move to staying ones as far as these have room")
    assert forecast(node="b", draining=B, holdings=holdings).endswith("no data is there alone")
    assert remaining(node="a", draining=AB, mounts=holdings.mounts) == 70


def test_a_worker_that_goes_says_what_is_lost_and_why() -> None:
    assert "all that lay there alone has been moved" in farewell(node="a", lost=0, readers=1)
    assert "of 2 datasets: no other node had room" in farewell(node="a", lost=9, readers=2)
    assert "spec.scaling.drainTimeout (1h) is over" in farewell(node="a", lost=9, readers=1, timeout="1h")


def test_jobs_count_while_they_run() -> None:
    def job(*datasets: str, done: bool = False) -> Any:
        conditions = [{"type": "Succeeded", "status": str(done)}]
        return {
            "spec": {"datasets": [{"name": name} for name in datasets]},
            "status": {"conditions": conditions},
        }

    jobs = {("n", "x"): job("m"), ("n", "y"): job("m", done=True), ("other", "z"): job("m")}
    assert readers_of(mounts=[mount(), mount("/k")], jobs=jobs) == {"/m": 1, "/k": 0}
    pods = {
        ("n", str(number)): {"spec": {"nodeName": name}, "status": {"phase": phase}}
        for number, (name, phase) in enumerate((("a", "Running"), ("b", "Succeeded"), ("c", "Pending")))
    }
    assert busy_nodes(pods=pods) == {"a", "c"}
    assert busy_nodes(pods={("n", "unbound"): {"spec": {}}}) == frozenset()


def test_a_ledger_is_complete_when_every_mounted_dataset_of_the_cache_is_in_it() -> None:
    def dataset(
        path: str, *, mounted: str = "True", held: int = 0, cluster: str = "default", **metadata: str
    ) -> Any:
        conditions = [{"type": "Mounted", "status": mounted}]
        return {
            "metadata": metadata,
            "spec": {"cacheClusterRef": {"name": cluster}},
            "status": {"mountPath": path, "conditions": conditions, "physicalBytes": held},
        }

    datasets = {
        ("n", "a"): dataset("/a"),
        ("n", "b"): dataset("/b", mounted="False"),
        ("n", "c"): dataset("/c", cluster="other"),
        ("n", "d"): dataset("/d", deletionTimestamp="now"),
        ("n", "e"): {"metadata": {}, "spec": {}},
        ("n", "f"): dataset("/f", mounted="False", held=9),  # as when the master is away
    }
    invalid = dataset("/g", held=9)
    invalid["metadata"]["generation"] = 2
    invalid["status"]["conditions"] += [
        {"type": "Ready", "status": "False", "reason": "InvalidSpec", "observedGeneration": 2}
    ]
    datasets["n", "g"] = invalid
    assert expected_paths(datasets=datasets, cluster="default") == {"/a", "/f"}
    invalid["metadata"]["generation"] = 3  # somebody has changed it since, and it is looked at in a moment
    assert expected_paths(datasets=datasets, cluster="default") == {"/a", "/f", "/g"}


def test_who_leaves_is_read_from_the_status() -> None:
    workers = [{"node": "a", "state": "Draining"}, {"node": "b", "state": "Ready"}]
    cluster = {"status": {"workers": workers}}
    assert draining_nodes(cluster) == A
    assert draining_nodes(None) == frozenset()


@pytest.mark.parametrize(
    ("case", "goes"),
    [
        ({}, None),
        ({"is_ending": True}, True),
        ({"has_node": False}, True),
        ({"dead_for": 5.0}, False),  # it may be restarting
        ({"dead_for": 10.0}, True),
        ({"dead_for": 0.0, "is_ending": True}, True),
    ],
)
def test_a_worker_that_can_hand_nothing_over_goes_unless_it_may_be_back(
    case: dict[str, Any], goes: bool | None
) -> None:
    arguments = {"is_ending": False, "has_node": True, "dead_for": None, "return_seconds": 10.0, **case}
    assert goes_without_drain(**arguments) is goes


@pytest.mark.parametrize(
    ("began", "drained_for", "timeout", "step"),
    [
        ("", None, "1h", DrainStep.BEGIN),
        ("", 5.0, "1h", DrainStep.BEGIN),
        ("", 10.0, "1h", DrainStep.FINISH),
        ("", None, "0s", DrainStep.TIME_OUT),
        ("2026-01-01T00:30:00Z", None, "1h", DrainStep.WAIT),
        ("2026-01-01T00:30:00Z", 9.0, "1h", DrainStep.WAIT),
        ("2026-01-01T00:30:00Z", 10.0, "1h", DrainStep.FINISH),
        ("2026-01-01T00:00:00Z", None, "1h", DrainStep.TIME_OUT),
        ("2026-01-01T09:00:00Z", None, "1h", DrainStep.BEGIN),  # written by a clock that was wrong
    ],
)
def test_a_worker_drains_until_nothing_is_left_to_move_or_its_time_is_over(
    began: str, drained_for: float | None, timeout: str, step: DrainStep
) -> None:
    now = "2026-01-01T01:00:00Z"
    next_step = drain_step(
        began=began, timeout=timeout, drained_for=drained_for, handover_seconds=10.0, now=now
    )
    assert next_step is step


def test_who_may_not_be_evicted() -> None:
    nodes = {name: node(name) for name in "abcd"}
    cordoned: dict[str, Any] = {"spec": {"unschedulable": True}}
    goes = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]

    def protected(**changes: Any) -> set[str]:
        arguments = {
            "holders": AB,
            "before": C,
            "complete": True,
            "answering": ABC,
            "nodes": nodes,
            **changes,
        }
        return set(protected_nodes(**arguments))

    assert protected() == {"a", "b"}
    assert protected(complete=False) == {"a", "b", "c"}  # what c holds is not known of every mount
    assert protected(answering=A) == {"a", "b", "c"}  # c says nothing now, and held something
    assert protected(nodes={name: nodes[name] for name in "bcd"}) == {"b"}
    assert protected(nodes={**nodes, "a": {**nodes["a"], **cordoned}}) == {"b"}
    last = {**nodes["a"], "spec": {"unschedulable": True, "taints": goes}}
    assert protected(nodes={**nodes, "a": last}) == {"a", "b"}


NO_SCHEDULE = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}


def node(name: str, *, labels: dict[str, str] | None = None, taints: list[Any] | None = None) -> Any:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}}


def chosen(*nodes: Any, present: tuple[str, ...] = (), **spec: Any) -> list[str]:
    return choose_nodes(
        spec=CacheClusterSpec.model_validate(spec),
        nodes={node["metadata"]["name"]: node for node in nodes},
        present=present,
    )


def test_every_node_that_matches_gets_a_worker() -> None:
    gpu = {"gpu": "yes"}
    assert chosen(node("b", labels=gpu), node("a", labels=gpu), node("c"), nodeSelector=gpu) == ["a", "b"]


def test_tainted_nodes_need_a_toleration() -> None:
    tainted = node("t", taints=[NO_SCHEDULE])
    assert chosen(node("a"), tainted) == ["a"]
    assert chosen(node("a"), tainted, tolerations=[{"key": "dedicated", "operator": "Exists"}]) == ["a", "t"]
    assert chosen(node("a"), tainted, tolerations=[{"key": "dedicated", "value": "y"}]) == ["a"]
    assert chosen(node("a"), tainted, tolerations=[{"operator": "Exists"}]) == ["a", "t"]


def test_a_node_that_is_away_for_a_moment_keeps_its_worker_but_gets_no_new_one() -> None:
    away = node("b", taints=[NOT_READY])
    assert chosen(node("a"), away, present=("b",)) == ["a", "b"]
    assert chosen(node("a"), away) == ["a"]


def test_fewer_replicas_keep_workers_that_are_there() -> None:
    nodes = [node(name) for name in "abcd"]
    assert chosen(*nodes, present=("c", "d"), replicas=3) == ["a", "c", "d"]
    assert chosen(*nodes, present=("c", "d"), replicas=1) == ["d"]


def test_new_workers_go_where_gpus_are() -> None:
    nodes = {name: node(name) for name in "abcd"}
    nodes["d"]["status"] = {"allocatable": {"nvidia.com/gpu": "8"}}
    assert choose_nodes(spec=CacheClusterSpec(replicas=2), nodes=nodes, present=("a",)) == ["a", "d"]


def test_new_workers_go_to_the_zones_with_the_fewest() -> None:
    nodes = {name: node(name) for name in "abcdef"}
    zones = dict(zip("abcdef", [("x",), ("x",), ("x",), ("y",), ("y",), ("z",)], strict=True))
    nodes_by_count = {
        count: choose_nodes(
            spec=CacheClusterSpec(replicas=count),
            nodes=nodes,
            present=("a",),
            holdings=ScaleInInput(zones=zones),
        )
        for count in (2, 3, 4)
    }
    assert nodes_by_count == {2: ["a", "d"], 3: ["a", "d", "f"], 4: ["a", "b", "d", "f"]}
