"""Workloads that the API server lets nobody put on hold: a webhook refuses it, or another version of Kueue."""

from typing import Any

import pytest
from tests.unit.control.kueue.world import World, hold_soon, reserved
from tests.unit.decide.job.test_data_verdict import ahead, at, checked, known_dataset, verdict_of, workload

from tdcs.decide.job.data_verdict import DataState
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import WORKLOADS

REFUSAL = 'admission webhook "guard.example.com" denied the request: no holds here'


@pytest.fixture
def world() -> World:
    """A Dataset of which little is there, and a webhook that refuses all holds."""
    world = World()
    world.dataset("cold", 10)
    hold_soon(world)
    world.server.holds_refused = REFUSAL
    return world


def status(world: World, name: str = "w") -> Object:
    status: Object = world.server.store(WORKLOADS)["n", name]["status"]
    return status


def requeued(world: World) -> Object:
    """The condition of the Workload that has Kueue look at it again."""
    condition: Object = next(
        condition for condition in status(world)["conditions"] if condition["type"] == "Requeued"
    )
    return condition


def lost_hold(**more: Any) -> Object:
    """A Workload that has no quota, and that Kueue passes over for the state of its check."""
    return workload("w", "cold", reserved=None, state="Retry", **more)


def test_where_a_hold_is_refused_kueue_takes_the_quota_back_and_the_check_says_why(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    obj = workload("w", "cold")
    checks = obj["status"]["admissionChecks"]
    checks.append({"name": "machines", "state": "Ready"})
    world.put(WORKLOADS, obj)
    world.dataset("warm", 100)
    world.put(WORKLOADS, workload("warm", "warm"))
    world.look()

    assert world.state()["state"] == "Retry"
    assert world.state()["requeueAfterSeconds"] == 10
    assert world.state()["lastTransitionTime"] == at(110)
    assert REFUSAL in world.state()["message"]
    assert "10 s" in world.state()["message"]
    assert reserved(world, "w")["status"] == "True"
    assert world.state("warm")["state"] == "Ready"
    assert caplog.text.count(REFUSAL) == 1
    assert world.look() == ["create Preload n/ahead-cold"]
    assert world.look() == []


def test_after_kueue_has_taken_the_quota_back_a_hold_is_tried_again(world: World) -> None:
    world.put(WORKLOADS, workload("w", "cold"))
    world.look()
    # Kueue evicts it, which resets its checks, and gives it quota again.
    world.put(WORKLOADS, workload("w", "cold", reserved=130))
    world.second = 136
    world.look()
    assert world.state()["state"] == "Retry"
    world.put(WORKLOADS, workload("w", "cold", reserved=150))
    world.second, world.server.holds_refused = 156, ""
    world.look()
    assert reserved(world, "w")["reason"] == "OnHold"
    assert "requeueAfterSeconds" not in world.state()


def test_data_that_comes_before_kueue_has_taken_the_quota_back_lets_the_workload_start(world: World) -> None:
    world.put(WORKLOADS, workload("w", "cold"))
    world.look()
    world.dataset("cold", 100)
    world.look()
    assert world.state()["state"] == "Ready"
    assert world.look() == []


def test_one_that_kueue_has_written_to_meanwhile_is_judged_again(world: World) -> None:
    world.put(WORKLOADS, workload("w", "cold"))
    stale = dict(world.server.store(WORKLOADS))
    world.put(WORKLOADS, workload("w", "cold", true=("Finished",)))
    world.server.store(WORKLOADS)["n", "w"]["metadata"]["resourceVersion"] = "2"
    world.checks._workloads.store = stale
    world.look()
    assert world.state()["state"] == "Pending"


def test_one_without_quota_that_cannot_be_held_is_queued_again_once_its_data_is_there(world: World) -> None:
    world.put(WORKLOADS, lost_hold())
    status(world)["requeueState"] = {"count": 1, "requeueAt": at(600)}
    world.look()
    assert world.state()["state"] == "Retry"
    world.dataset("cold", 100)
    world.look()
    assert world.state()["state"] == "Pending"
    assert (requeued(world)["status"], requeued(world)["lastTransitionTime"]) == ("True", at(110))
    assert "requeueAt" not in status(world)["requeueState"]
    assert world.look() == []
    # Kueue looks at it again only when this condition has changed.
    status(world)["admissionChecks"] = lost_hold()["status"]["admissionChecks"]
    world.second = 170
    world.look()
    assert requeued(world)["lastTransitionTime"] == at(170)


def test_a_workload_on_hold_stays_when_its_message_is_refused_and_leaves_with_its_data(
    world: World,
) -> None:
    world.put(WORKLOADS, workload("w", "cold", reserved=None, state="Retry", held=True))
    world.seconds = 20.0
    world.look()
    assert reserved(world, "w")["reason"] == "OnHold"
    assert world.state()["state"] == "Retry"
    world.dataset("cold", 100)
    world.look()
    assert reserved(world, "w")["reason"] == "Pending"
    assert world.state()["state"] == "Pending"


@pytest.mark.parametrize(
    ("rate", "hold", "seconds"),
    [(0, "0s", 10), (0, "30s", 30), (0, "5m", 60), (10, "0s", 6), (1, "0s", 10)],
    ids=["at-least-ten", "hold-quota", "at-most-a-minute", "sooner-there", "later-there"],
)
def test_kueue_is_to_take_the_quota_back_after_hold_quota_within_bounds(
    rate: int, hold: str, seconds: int
) -> None:
    late = 100 + 300
    verdict = verdict_of(
        workload("w", "pictures"),
        {"pictures": known_dataset(40, rate=rate)},
        now=late,
        holdQuota=hold,
        refusal=REFUSAL,
    )
    assert verdict is not None
    assert (verdict.state, verdict.requeue_after_seconds) == (DataState.RETRY, seconds)


def test_a_workload_that_is_to_be_tried_again_by_kueue_is_left_alone_until_its_data_is_there() -> None:
    for owner in ("Job", "StatefulSet"):
        obj = workload("w", "pictures", state="Retry", owner=owner)
        assert checked(obj).reserved_since is not None
        assert verdict_of(obj, {"pictures": known_dataset(40)}) is None
        assert getattr(verdict_of(obj, {"pictures": known_dataset(100)}), "state", None) is DataState.READY


def test_missing_data_is_loaded_while_the_workload_keeps_its_quota_until_kueue_takes_it_back() -> None:
    waiting = [
        workload("retries", "pictures", state="Retry", created=1),
        workload("pending", "films", created=2),
        workload("queued", "sounds", reserved=None, created=3),
    ]
    datasets = {("n", name): known_dataset(0) for name in ("pictures", "films", "sounds")}
    assert ahead(waiting, datasets) == [("retries", "pictures"), ("queued", "sounds")]
