"""Copies that AdmissionChecks hand out: which one, to which pods, and how readers of each are counted."""

import json
from copy import deepcopy

import pytest
from tests.unit.control.kueue.world import World
from tests.unit.decide.job.test_data_verdict import at, workload

from tdcs.control.kueue import copy_assignments
from tdcs.decide.kueue.kueue_workload import copies_read
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import DATASETS, TRAINING_JOBS, WORKLOADS

COPIES = [{"id": str(number), "nodes": [{"name": f"n{number}", "bytes": 100}]} for number in range(2)]


def copied(world: World, name: str) -> None:
    """A Dataset with two copies, all of which is there."""
    world.dataset(name, 100)
    world.server.store(DATASETS)["n", name]["status"]["copies"] = COPIES


def copies_of(world: World, name: str) -> list[tuple[str, list[Object]]]:
    """What a Workload's check has Kueue add to its pods, by pod set."""
    updates = world.state(name).get("podSetUpdates", [])
    return [(pod_set["name"], json.loads(pod_set["annotations"]["tdcs.io/datasets"])) for pod_set in updates]


def test_copies_are_handed_out_evenly_and_stay_whatever_the_view_shows() -> None:
    world = World()
    copied(world, "pictures")
    world.dataset("single", 100)
    stale = {}
    for name in ("a", "b", "c"):
        world.put(WORKLOADS, workload(name, "pictures", "single"))
        stale["n", name] = deepcopy(world.server.store(WORKLOADS)["n", name])
    world.checks._workloads.store = stale  # which lags behind: nothing is answered yet there
    world.look()

    def handed() -> list[str]:
        copies = [copies_of(world, name) for name in ("a", "b", "c")]
        assert all(
            sets == [("main", [{"dataset": "n/pictures", "copy": sets[0][1][0]["copy"]}])] for sets in copies
        )
        return [sets[0][1][0]["copy"] for sets in copies]

    assert handed() == ["0", "1", "0"]
    world.look()
    assert handed() == ["0", "1", "0"]
    world.checks._workloads.store = world.server.store(WORKLOADS)
    assert world.look() == []
    world.put(WORKLOADS, workload("d", "pictures"))
    world.look()
    assert copies_of(world, "d")[0][1][0]["copy"] == "1"


def test_ended_workloads_count_no_more_and_training_jobs_do() -> None:
    world = World()
    copied(world, "pictures")
    world.put(WORKLOADS, workload("ended", "pictures"))
    world.look()
    assert copies_of(world, "ended")[0][1][0]["copy"] == "0"
    done = {"type": "Finished", "status": "True", "lastTransitionTime": at(120)}
    world.server.store(WORKLOADS)["n", "ended"]["status"]["conditions"].append(done)
    admitted = {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": at(0)}
    world.put(
        TRAINING_JOBS,
        {
            "metadata": {"namespace": "n", "name": "train", "uid": "t"},
            "spec": {"datasets": [{"name": "pictures"}]},
            "status": {"conditions": [admitted], "copies": [{"dataset": "pictures", "copy": "0"}]},
        },
    )
    world.put(WORKLOADS, workload("next", "pictures"))
    world.look()
    assert copies_of(world, "next")[0][1][0]["copy"] == "1"


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"tdcs.io/datasets": "[]"}},
        {"labels": {"tdcs.io/place-by-data": "false"}},
    ],
    ids=["says-it-itself", "opted-out"],
)
def test_pods_that_do_not_go_by_their_claims_get_no_copy(metadata: Object) -> None:
    world = World()
    copied(world, "pictures")
    obj = workload("w", "pictures")
    obj["spec"]["podSets"][0]["template"]["metadata"] = metadata
    world.put(WORKLOADS, obj)
    world.look()
    assert world.state()["state"] == "Ready"
    assert not copies_of(world, "w")
    # Nor do they count as readers of one.
    world.put(WORKLOADS, workload("x", "pictures"))
    world.look()
    assert copies_of(world, "x")[0][1][0]["copy"] == "0"


def test_readers_of_copies_are_counted_once_a_pass_and_only_for_a_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def counted(obj: Object) -> dict[str, str]:
        read.append(obj["metadata"]["name"])
        return copies_read(obj)

    monkeypatch.setattr(copy_assignments, "copies_read", counted)
    world = World()
    world.dataset("single", 100)
    copied(world, "pictures")
    for name in ("a", "b"):
        world.put(WORKLOADS, workload(name, "single"))
    world.look()
    assert read == []
    for name in ("c", "d", "e"):
        world.put(WORKLOADS, workload(name, "pictures"))
    world.look()
    assert sorted(read) == ["a", "b", "c", "d", "e"]
    assert [copies_of(world, name)[0][1][0]["copy"] for name in "cde"] == ["0", "1", "0"]


def test_an_evicted_workload_gets_another_copy_when_its_first_one_is_gone() -> None:
    world = World()
    copied(world, "pictures")
    world.put(WORKLOADS, workload("w", "pictures"))
    world.look()
    assert copies_of(world, "w")[0][1][0]["copy"] == "0"
    world.look()  # the view shows the choice
    world.put(WORKLOADS, workload("w", "pictures"))
    more = {"id": "2", "nodes": [{"name": "n2", "bytes": 100}]}
    world.server.store(DATASETS)["n", "pictures"]["status"]["copies"] = [COPIES[1], more]
    world.look()
    assert copies_of(world, "w")[0][1][0]["copy"] == "1"
