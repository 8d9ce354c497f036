"""How much waiting pods want each node."""

import asyncio
import json
import random
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pytest
from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi, UnavailableError, error

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_score import combined
from tdcs.kube.api import ObjectList, WatchEvent
from tdcs_scheduler.demand import Demand, selector, waiting_pod
from tdcs_scheduler.serving import waiting_pods
from tdcs_scheduler.view import DatasetView

BytesByNode = Mapping[str, Mapping[str, int]]


def dataset(copies: BytesByNode) -> dict[str, Any]:
    """A Dataset with these copies, given as bytes by node."""
    listed = [
        {"id": copy, "nodes": [{"name": node, "bytes": held} for node, held in nodes.items()]}
        for copy, nodes in copies.items()
    ]
    return {"status": {"totalBytes": 100, "copies": listed}}


def pod(*datasets: str, annotation: str | None = None, **status: Any) -> dict[str, Any]:
    """A pod that reads these datasets of namespace team, each given as `name` or `name:copy`, as it is kept."""
    references = [
        {"dataset": f"team/{name.partition(':')[0]}", "copy": name.partition(":")[2] or None}
        for name in datasets
    ]
    text = json.dumps(references) if annotation is None else annotation
    return waiting_pod(
        {
            "metadata": {"namespace": "team", "name": "p", "annotations": {"tdcs.io/datasets": text}},
            "status": status,
        }
    )


class World:
    """A view and the demand that looks at it, as the extender ties them together."""

    def __init__(self, **datasets: BytesByNode) -> None:
        self.view = DatasetView()
        self.demand = Demand(view=self.view)
        for name, copies in datasets.items():
            self.put(name, copies)

    def put(self, name: str, copies: BytesByNode | None) -> None:
        self.view.on_change(("team", name), None if copies is None else dataset(copies))
        self.demand.on_dataset(("team", name))

    def pod(self, name: str, reduced: dict[str, Any] | None) -> None:
        self.demand.on_pod(("team", name), reduced)

    def awaited(self, *apart_from: str, nodes: Iterable[str] = "abcd") -> dict[str, float]:
        return self.demand.awaited(nodes=nodes, apart_from={f"team/{name}" for name in apart_from})


IMAGES: BytesByNode = {"0": {"a": 5, "b": 5}}


def test_a_waiting_pod_wants_the_nodes_of_its_data_until_it_has_one_of_its_own() -> None:
    world = World(images=IMAGES)
    world.pod("p", pod("images"))

    assert world.awaited() == {"a": 0.5, "b": 0.5}
    assert world.awaited(nodes="bc") == {"b": 0.5}

    world.pod("p", None)
    assert world.awaited() == {}
    world.pod("p", None)
    assert world.awaited() == {}


def test_a_pod_whose_turn_it_is_waits_no_more() -> None:
    world = World(images=IMAGES)
    world.pod("p", pod("images"))
    world.pod("q", pod("images"))

    world.demand.on_scored(("team", "p"))
    assert world.awaited() == {"a": 0.5, "b": 0.5}
    world.demand.on_scored(("team", "q"))
    assert world.awaited() == {}
    world.pod("q", pod("images"))  # somebody has labelled it meanwhile
    assert world.awaited() == {}
    world.pod("q", None)
    world.pod("q", pod("images"))  # another one of this name
    assert world.awaited() == {"a": 0.5, "b": 0.5}


def test_a_pod_that_is_asked_about_before_it_is_heard_of_waits_no_more_either() -> None:
    world = World(images=IMAGES)

    world.demand.on_scored(("team", "p"))
    world.pod("p", pod("images"))
    assert world.awaited() == {}
    # It found no room: from now on it waits for that.
    world.pod("p", pod("images", conditions=[{"type": "PodScheduled", "status": "False"}]))
    world.pod("p", pod("images"))
    assert world.awaited() == {"a": 0.5, "b": 0.5}


def test_of_pods_that_were_asked_about_only_so_many_are_remembered() -> None:
    world = World(images=IMAGES)
    for number in range(5000):
        world.demand.on_scored(("team", str(number)))
    world.pod("0", pod("images"))
    world.pod("4999", pod("images"))
    assert world.awaited() == {"a": 0.5, "b": 0.5}


def test_pods_of_the_same_data_do_not_keep_each_other_away() -> None:
    world = World(images=IMAGES, text={"0": {"b": 5}})
    for name in ("p", "q"):
        world.pod(name, pod("images"))
    world.pod("r", pod("text"))

    assert world.awaited("images") == {"b": 1}
    assert world.awaited("text") == {"a": 1, "b": 1}
    assert world.awaited("text", "images") == {}


def test_a_pod_whose_event_repeats_counts_once() -> None:
    world = World(images=IMAGES, text={"0": {"c": 5}})
    for reduced in (pod("images"), pod("images"), pod("text")):
        world.pod("p", reduced)

    assert world.awaited() == {"c": 1}


def test_each_copy_has_its_own_holders_and_other_copies_are_some_too() -> None:
    world = World(images={"0": {"a": 4}, "1": {"b": 4}})
    world.pod("p", pod("images:0"))
    world.pod("q", pod("images:1"))
    world.pod("r", pod("images"))

    assert world.awaited() == {"a": 1.5, "b": 1.5}


def test_what_a_node_holds_nothing_of_is_not_wanted_there() -> None:
    world = World(images={"0": {"a": 5, "b": 0}})
    world.pod("p", pod("images", "unknown"))

    assert world.awaited() == {"a": 1}


def test_data_that_moves_takes_the_demand_with_it() -> None:
    world = World()
    world.pod("p", pod("images"))
    assert world.awaited() == {}

    world.put("images", IMAGES)
    assert world.awaited() == {"a": 0.5, "b": 0.5}
    world.put("images", {"0": {"c": 1}})
    assert world.awaited() == {"c": 1}
    world.put("images", None)
    assert world.awaited() == {}
    world.put("other", IMAGES)
    assert world.awaited() == {}


def test_data_that_moves_while_nobody_waits_for_it_is_found_where_it_is() -> None:
    world = World(images=IMAGES)
    world.pod("p", pod("images"))
    assert world.awaited() == {"a": 0.5, "b": 0.5}

    world.pod("p", None)
    world.put("images", {"0": {"c": 1}})
    world.pod("p", pod("images"))
    assert world.awaited() == {"c": 1}


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
def test_for_a_pod_that_cannot_be_placed_nothing_is_kept_free(reason: str) -> None:
    world = World(images=IMAGES)
    refused = {"type": "PodScheduled", "status": "False", "reason": reason}
    world.pod("p", pod("images"))
    world.pod("p", pod("images", conditions=[refused]))
    world.pod(
        "q", pod("images", conditions=[{"type": "Ready", "status": "False"}, {**refused, "status": "True"}])
    )

    assert world.awaited() == {"a": 0.5, "b": 0.5}


def test_a_pod_that_is_being_deleted_wants_nothing() -> None:
    world = World(images=IMAGES)
    annotations = {"tdcs.io/datasets": '[{"dataset": "team/images"}]'}
    world.pod("p", pod("images"))
    world.pod(
        "p",
        waiting_pod({"metadata": {"annotations": annotations, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    )

    assert world.awaited() == {}


async def test_pods_of_which_nothing_was_heard_for_long_have_no_weight_until_there_is_news() -> None:
    world, now = World(images=IMAGES), [0.0]
    bookmark = WatchEvent(type="BOOKMARK", object={"metadata": {"resourceVersion": "2"}})
    api = ScriptedApi(
        lists=[ObjectList(items=[pod("images")], resource_version="1")],
        watches=[[error(UnavailableError)], [bookmark]],
    )
    demand, informer = waiting_pods(
        api=api, view=world.view, scheduler_name="mine", stale_after_seconds=180, clock=lambda: now[0]
    )

    for now[0], watches in ((0.0, 1), (1000.0, 3)):
        following = asyncio.create_task(informer.run())
        await eventually_async(partial(watched, api, watches), deadline=60, interval=0.01)
        following.cancel()
        assert (len(demand), demand.awaited(nodes="ab", apart_from=set())) == (1, {"a": 0.5, "b": 0.5})
        now[0] += 181
        assert (len(demand), demand.awaited(nodes="ab", apart_from=set())) == (0, {})


def watched(api: ScriptedApi, times: int) -> bool:
    return len(api.watched_from) == times


@pytest.mark.parametrize("annotation", ["images", "[]", '[{"dataset": "x"}]', ""])
def test_a_pod_whose_annotation_says_nothing_wants_nothing(annotation: str) -> None:
    world = World(images=IMAGES)
    world.pod("p", pod("images"))
    world.pod("p", pod(annotation=annotation))

    assert world.awaited() == {}


def test_of_a_pod_without_annotations_little_is_kept() -> None:
    reduced = waiting_pod({"metadata": {"namespace": "n", "name": "p", "resourceVersion": "7"}, "spec": {}})

    metadata = {"namespace": "n", "name": "p", "resourceVersion": "7"}
    assert reduced == {"metadata": metadata, "references": None, "claims": (), "index": None}


def test_only_pods_of_its_own_scheduler_without_a_node_are_followed() -> None:
    assert selector(scheduler_name="mine") == "spec.nodeName=,status.phase=Pending,spec.schedulerName=mine"


BY_NODE = CopyOnNodes(total_bytes=7, node_bytes=dict.fromkeys("abcdefg", 1))


def test_what_is_wanted_of_nodes_that_hold_a_pods_data_is_found_in_one_step() -> None:
    world = World(images=IMAGES, text={"0": {"a": 1}})
    data = combined([BY_NODE], places=[0])
    assert world.demand.awaited_at(data, apart_from=set()) is None
    world.pod("p", pod("images", "text"))

    awaited = world.demand.awaited_at(data, apart_from={"team/images"})
    assert awaited is not None
    assert dict(zip(data.nodes, awaited.tolist(), strict=True)) == {**dict.fromkeys("abcdefg", 0.0), "a": 1.0}
    assert world.demand.awaited_at(data, apart_from={"team/images", "team/text"}) is None
    world.put("images", {"0": {"g": 1}})
    awaited = world.demand.awaited_at(data, apart_from={"team/text"})
    assert awaited is not None
    assert awaited.tolist() == [0.0] * 6 + [1.0]


def test_nodes_that_are_gone_are_forgotten_once_no_pod_waits() -> None:
    world = World(images={"0": {"old": 1}}, text={})
    data = combined([CopyOnNodes(total_bytes=1, node_bytes={"old": 1, "new": 1})], places=[0])
    world.pod("p", pod("images"))
    world.pod("q", pod("text"))
    awaited = world.demand.awaited_at(data, apart_from=set())
    assert awaited is not None
    assert awaited.tolist() == [1.0, 0.0]
    world.pod("p", None)
    assert world.demand.awaited_at(data, apart_from=set()) is None
    world.put("text", {"0": {"new": 1}})
    awaited = world.demand.awaited_at(data, apart_from=set())
    assert awaited is not None
    assert awaited.tolist() == [0.0, 1.0]
    assert world.awaited(nodes=["old", "new"]) == {"new": 1.0}


def test_after_thousands_of_changes_it_still_says_what_a_fresh_count_says() -> None:
    draw = random.Random(3)
    world = World()
    pods: dict[str, dict[str, Any]] = {}
    held: dict[str, BytesByNode] = {}
    for _ in range(3000):
        if draw.random() < 0.2:
            name = draw.choice("xyz")
            held[name] = {"0": dict.fromkeys(draw.sample("abcdefg", draw.randint(0, 7)), 1)}
            world.put(name, held[name])
        else:
            name = f"p{draw.randint(0, 9)}"
            pods.pop(name, None)
            if draw.random() < 0.6:
                pods[name] = pod(*draw.sample("xyz", draw.randint(1, 3)))
            world.pod(name, pods.get(name))
        if draw.random() < 0.3:
            fresh = World(**held)
            for name, reduced in pods.items():
                fresh.pod(name, reduced)
            own_dataset = draw.choice(["x", "y"])
            data = combined([BY_NODE], places=[0])
            awaited = world.demand.awaited_at(data, apart_from={f"team/{own_dataset}"})
            expected = [world.awaited(own_dataset, nodes="abcdefg").get(node, 0.0) for node in data.nodes]
            assert ([0.0] * 7 if awaited is None else awaited.tolist()) == expected
            assert world.awaited(own_dataset, nodes="abcdefg") == pytest.approx(
                fresh.awaited(own_dataset, nodes="abcdefg")
            )
