"""The controller of AdmissionChecks on an API server in memory: what it writes, and what not."""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.unit.control.kueue.world import World, hold_soon, reserved
from tests.unit.decide.job.test_data_verdict import at, workload
from tests.unit.kube.fake import error

from tdcs.api.dataset import Dataset
from tdcs.control.kueue import datacheck_controller
from tdcs.decide.job.data_verdict import STALLED_SECONDS
from tdcs.kube.errors import ForbiddenError, InvalidError, KubeError, NotFoundError, UnavailableError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import (
    ADMISSION_CHECKS,
    DATA_CHECKS,
    PRELOADS,
    WORKLOADS,
    Resource,
)


def test_a_warm_job_is_ready_while_a_cold_one_before_it_waits_without_quota() -> None:
    world = World()
    world.dataset("cold", 10)
    world.dataset("warm", 100)
    hold_soon(world)
    first = workload("first", "cold")
    first["status"]["admission"] = {"clusterQueue": "gpu"}
    checks = first["status"]["admissionChecks"]
    checks.append({"name": "machines", "state": "Ready", "podSetUpdates": [{"name": "main"}]})
    world.put(WORKLOADS, first)
    world.put(WORKLOADS, workload("second", "warm"))
    world.look()

    assert world.state("first")["state"] == "Retry"
    assert "requeueAfterSeconds" not in world.state("first")
    assert (reserved(world, "first")["status"], reserved(world, "first")["reason"]) == ("False", "OnHold")
    status = world.server.store(WORKLOADS)["n", "first"]["status"]
    assert "admission" not in status
    assert status["admissionChecks"][1]["state"] == "Pending"
    assert "podSetUpdates" not in status["admissionChecks"][1]
    assert world.state("second")["state"] == "Ready"
    assert world.active()["status"] == "True"
    # Without quota its data is loaded, as of any that waits.
    world.look()
    assert ("n", "ahead-cold") in world.server.store(PRELOADS)
    assert world.look() == []

    world.dataset("cold", 100)
    world.look()
    assert world.state("first")["state"] == "Pending"
    assert (reserved(world, "first")["status"], reserved(world, "first")["reason"]) == ("False", "Pending")
    assert world.look() == []


def test_without_its_check_a_held_workload_is_queued_again_and_holds_of_kueue_stay() -> None:
    world = World()
    world.dataset("cold", 10)
    for name in ("ours", "kueues"):
        world.put(WORKLOADS, workload(name, "cold", reserved=None, state="Retry", held=True))
        world.server.store(WORKLOADS)["n", name]["status"]["admissionChecks"] = []
    reserved(world, "kueues")["message"] = "StatefulSet scaled to zero; workload on hold"
    world.look()
    assert reserved(world, "ours")["reason"] == "Pending"
    assert reserved(world, "kueues")["reason"] == "OnHold"


def test_what_kueue_has_written_meanwhile_is_not_overwritten_by_a_hold() -> None:
    world = World()
    world.dataset("cold", 10)
    hold_soon(world)
    world.put(WORKLOADS, workload("first", "cold"))
    stale = dict(world.server.store(WORKLOADS))
    world.put(WORKLOADS, workload("first", "cold", true=("Finished",)))
    world.server.store(WORKLOADS)["n", "first"]["metadata"]["resourceVersion"] = "2"
    world.checks._workloads.store = stale
    world.look()
    assert world.state("first")["state"] == "Pending"
    assert reserved(world, "first")["status"] == "True"


def on_first_hold(world: World, change: Callable[[], None]) -> None:
    """Something changes, and is seen, while the write that puts the first Workload on hold is under way."""
    real, changes_left = world.server.merge_status, [change]

    async def merge_status(
        resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        if changes_left:
            changes_left.pop()()
        return await real(resource, name=name, namespace=namespace, patch=patch)

    world.server.merge_status = merge_status  # type: ignore[method-assign]


def test_a_workload_that_kueue_admits_during_a_pass_keeps_its_quota() -> None:
    world = World()
    world.dataset("cold", 10)
    hold_soon(world)
    for name in ("first", "second"):
        world.put(WORKLOADS, workload(name, "cold"))

    def admit() -> None:
        """Its check is out of the ClusterQueue."""
        obj = workload("second", "cold", true=("Admitted",))
        obj["metadata"]["resourceVersion"] = "2"
        obj["status"] |= {"admission": {"clusterQueue": "gpu"}, "admissionChecks": []}
        world.put(WORKLOADS, obj)

    on_first_hold(world, admit)
    world.look()
    assert reserved(world, "first")["reason"] == "OnHold"
    assert reserved(world, "second")["status"] == "True"
    assert "admission" in world.server.store(WORKLOADS)["n", "second"]["status"]


def test_a_workload_made_again_during_a_pass_is_not_held_for_the_data_of_the_old_one() -> None:
    world = World()
    world.dataset("cold", 10)
    world.dataset("warm", 100)
    hold_soon(world)
    for name in ("first", "second"):
        world.put(WORKLOADS, workload(name, "cold"))

    def make_again() -> None:
        obj = workload("second", "warm")
        obj["metadata"] |= {"uid": "new", "resourceVersion": "2"}
        world.put(WORKLOADS, obj)

    on_first_hold(world, make_again)
    world.look()
    assert reserved(world, "first")["reason"] == "OnHold"
    assert reserved(world, "second")["status"] == "True"
    world.look()
    assert world.state("second")["state"] == "Ready"


def test_without_its_data_check_a_held_workload_says_so_and_is_queued_again_when_it_is_back() -> None:
    world = World()
    world.dataset("cold", 10)
    hold_soon(world)
    world.put(WORKLOADS, workload("first", "cold"))
    world.look()
    parameters = world.server.store(DATA_CHECKS).pop(("", "soon"))
    world.dataset("cold", 100)
    world.seconds = 20.0
    world.look()
    assert reserved(world, "first")["reason"] == "OnHold"
    assert "there is no DataCheck soon" in world.state("first")["message"]
    assert "there is no DataCheck soon" in reserved(world, "first")["message"]
    assert world.look() == []
    world.put(DATA_CHECKS, parameters)
    world.look()
    assert reserved(world, "first")["reason"] == "Pending"


def test_a_failed_preload_leaves_its_place_to_the_next_that_waits() -> None:
    world = World()
    world.put(DATA_CHECKS, {"metadata": {"name": "one"}, "spec": {"lookAhead": 1}})
    parameters = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": "one"}
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["parameters"] = parameters
    for second, name in enumerate(("broken", "fine")):
        world.dataset(name, 0)
        world.put(WORKLOADS, workload(name, name, reserved=None, created=second))
    world.look()
    assert set(world.server.store(PRELOADS)) == {("n", "ahead-broken")}
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    world.server.store(PRELOADS)["n", "ahead-broken"]["status"] = failed
    world.look()
    assert set(world.server.store(PRELOADS)) == {("n", "ahead-broken"), ("n", "ahead-fine")}


def test_a_pass_over_answered_checks_writes_nothing_and_sentences_seldom() -> None:
    world = World()
    world.dataset("pictures", 40)
    world.put(WORKLOADS, workload("w", "pictures", state=""))
    assert world.look()
    entered = world.state()["lastTransitionTime"]
    assert world.look() == []
    world.dataset("pictures", 50)
    assert world.look() == []
    world.seconds, world.second = 20.0, 130
    assert len(world.look()) == 1
    assert "50%" in world.state()["message"]
    assert world.state()["lastTransitionTime"] == entered
    world.dataset("pictures", 100)
    world.look()
    assert (world.state()["state"], world.state()["lastTransitionTime"]) == ("Ready", at(130))
    assert world.look() == []


def test_what_the_first_that_waits_lacks_is_preloaded_once_and_goes_with_it() -> None:
    world = World()
    world.dataset("pictures", 40)
    world.put(WORKLOADS, workload("w", "pictures", reserved=None))
    world.look()

    (preload,) = world.server.store(PRELOADS).values()
    assert preload["metadata"]["name"] == "ahead-pictures"
    assert preload["spec"] == {"datasetRef": {"name": "pictures"}, "ttlSecondsAfterFinished": 600}
    (owner,) = preload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Workload", "w", "uid-w")
    assert world.look() == []


def test_each_dataset_with_a_long_name_has_a_preload_of_its_own_with_a_valid_name() -> None:
    world = World()
    long = [f"{'x' * 60}a", f"{'x' * 60}b", f"{'y' * 56}.b", f"{'z' * 246}.com"]
    world.put(DATA_CHECKS, {"metadata": {"name": "all"}, "spec": {"lookAhead": len(long)}})
    parameters = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": "all"}
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["parameters"] = parameters
    for number, name in enumerate(long):
        world.dataset(name, 40)
        world.put(WORKLOADS, workload(f"w-{number}", name, reserved=None))
    world.look()

    preloads = world.server.store(PRELOADS)
    assert sorted(preload["spec"]["datasetRef"]["name"] for preload in preloads.values()) == sorted(long)
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for _, name in preloads)
    assert world.look() == []


@pytest.mark.threat("look-ahead")
def test_data_that_does_not_come_gives_its_place_up_after_a_time_and_is_loaded_all_the_same() -> None:
    world = World()
    world.put(DATA_CHECKS, {"metadata": {"name": "one"}, "spec": {"lookAhead": 1}})
    parameters = {"apiGroup": "tdcs.io", "kind": "DataCheck", "name": "one"}
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["parameters"] = parameters
    for number, name in enumerate(("stuck", "next")):
        world.dataset(name, 0)
        world.put(WORKLOADS, workload(f"w-{number}", name, reserved=None, created=number))
    for second, expected in (
        (0, []),
        (STALLED_SECONDS - 1, []),
        (STALLED_SECONDS, [("n", "ahead-next")]),
        (STALLED_SECONDS + 2, [("n", "ahead-next")]),
    ):
        world.seconds = second
        world.look()
        assert set(world.server.store(PRELOADS)) == {("n", "ahead-stuck"), *expected}


@pytest.mark.parametrize(("reserved", "loaded"), [(None, True), (100, False)])
def test_one_without_quota_is_loaded_for_though_it_still_says_evicted(
    reserved: int | None, loaded: bool
) -> None:
    world = World()
    world.dataset("pictures", 40)
    world.put(WORKLOADS, workload("w", "pictures", reserved=reserved, true=("Evicted",)))
    world.look()
    assert (("n", "ahead-pictures") in world.server.store(PRELOADS)) is loaded


@pytest.mark.parametrize(
    ("parameters", "spec", "message"),
    [
        ({"apiGroup": "tdcs.io", "kind": "DataCheck", "name": "none"}, None, "there is no DataCheck none"),
        ({"apiGroup": "other", "kind": "DataCheck", "name": "x"}, None, "names a DataCheck of other"),
        ({"apiGroup": "tdcs.io", "kind": "DataCheck", "name": "bad"}, {"percent": 300}, "spec.percent"),
    ],
)
def test_bad_parameters_stop_the_check_and_say_why(
    parameters: dict[str, str], spec: Object | None, message: str
) -> None:
    world = World()
    if spec is not None:
        world.put(DATA_CHECKS, {"metadata": {"name": "bad"}, "spec": spec})
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["parameters"] = parameters
    world.put(WORKLOADS, workload("w", state=""))
    world.look()

    assert world.active()["status"] == "False"
    assert message.removeprefix("spec.") in world.active()["message"]
    assert world.state()["state"] == ""
    assert world.look() == []


def test_checks_of_other_controllers_are_left_alone() -> None:
    world = World()
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["controllerName"] = "kueue.x-k8s.io/multikueue"
    world.put(WORKLOADS, workload("w", state=""))
    assert world.look() == []


def test_a_workload_that_is_gone_by_now_stops_nothing() -> None:
    world = World()
    world.put(WORKLOADS, workload("a", state=""))
    world.put(WORKLOADS, workload("b", state=""))
    workloads = dict(world.server.store(WORKLOADS))
    world.checks._workloads.store = workloads
    del world.server.store(WORKLOADS)["n", "a"]
    world.look()
    assert world.state("b")["state"] == "Ready"


@pytest.mark.parametrize("refusal", [ForbiddenError, InvalidError])
def test_a_refused_check_workload_or_preload_holds_up_no_other_and_is_logged_each_minute(
    refusal: type[KubeError], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.put(
        ADMISSION_CHECKS,
        {"metadata": {"name": "another", "uid": "x"}, "spec": {"controllerName": "tdcs.io/data"}},
    )
    for name in ("bad", "good"):
        world.dataset(name, 0)
        world.put(WORKLOADS, workload(f"{name}-ready", state=""))
        world.put(WORKLOADS, workload(f"{name}-waits", name, reserved=None))
    world.server.refused = {("", "another"), ("n", "bad-ready"), ("n", "ahead-bad")}
    world.server.refusal = refusal
    world.look()

    assert world.state("good-ready")["state"] == "Ready"
    assert world.state("bad-ready")["state"] == ""
    assert set(world.server.store(PRELOADS)) == {("n", "ahead-good")}
    refusals = [f"refused {name}" for name in ("another", "bad-ready", "ahead-bad")]
    assert [caplog.text.count(words) for words in refusals] == [1, 1, 1]

    world.look()
    assert [caplog.text.count(words) for words in refusals] == [1, 1, 1]
    world.seconds += 60
    world.look()
    assert [caplog.text.count(words) for words in refusals] == [2, 2, 2]
    world.server.refused.clear()
    world.look()
    assert world.state("bad-ready")["state"] == "Ready"
    assert ("n", "ahead-bad") in world.server.store(PRELOADS)


def test_a_pass_ends_when_the_api_server_gives_no_answer() -> None:
    world = World()
    world.put(WORKLOADS, workload("w", state=""))
    world.server.refused, world.server.refusal, world.server.code = {("", "data")}, UnavailableError, 0
    with pytest.raises(UnavailableError):
        asyncio.run(world.checks.look())


def test_only_datasets_that_unended_workloads_of_our_checks_mount_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    real = Dataset.model_validate

    def counted(obj: Object) -> Dataset:
        read.append(obj["metadata"]["name"])
        return real(obj)

    world = World()
    for name in ("pictures", "ended", "unread"):
        world.dataset(name, 0)
    monkeypatch.setattr(Dataset, "model_validate", counted)
    world.look()
    assert read == []
    world.put(WORKLOADS, workload("a", "pictures"))
    world.put(WORKLOADS, workload("b", "pictures", "no-dataset", reserved=None))
    world.put(WORKLOADS, workload("c", "ended", true=("Finished",)))
    world.look()
    assert read == ["pictures"]
    world.server.store(ADMISSION_CHECKS)["", "data"]["spec"]["controllerName"] = "kueue.x-k8s.io/multikueue"
    world.look()
    assert read == ["pictures"]


async def test_kueue_may_come_after_the_operator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    world = World()
    monkeypatch.setattr(datacheck_controller, "ABSENT_SECONDS", 0.01)
    is_installed = asyncio.Event()
    real = world.server.list

    async def list_when_installed(resource: Resource, **more: Any) -> Any:
        if not is_installed.is_set():
            raise error(NotFoundError)
        return await real(resource, **more)

    monkeypatch.setattr(world.server, "list", list_when_installed)
    waits = asyncio.create_task(world.checks._installed())
    await asyncio.sleep(0.05)
    assert not waits.done()
    is_installed.set()
    await asyncio.wait_for(waits, 5)
    assert caplog.text.count("there is no Kueue with kueue.x-k8s.io/v1beta2") == 1
