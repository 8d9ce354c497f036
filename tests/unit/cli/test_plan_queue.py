"""`tdcs plan` and `tdcs explain` ask the admitter: in Kueue, paused, aged, preempting, without a place or nodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.kube.api_stand_in import ApiStandIn
from tests.unit.cli.test_plan import (
    GB,
    NOW,
    PICTURES,
    SMALL,
    answer_of,
    cluster,
    dataset,
    job,
    node,
    operator,
    planned,
    pod,
)

from tdcs.cli.main import main
from tdcs.model.kube_objects import Object


def test_where_the_operator_does_not_follow_kueue_the_own_queue_decides_about_a_labelled_job(
    tmp_path: Path,
) -> None:
    labelled = job()
    labelled["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    answer = answer_of(planned(tmp_path, {**SMALL, "workloads": []}, labelled, "--json")[0])
    assert (answer["turn"]["yes"], answer["turn"]["reason"]) == (True, "AllPodsFit")


def known_job(
    name: str, *conditions: str, workers: int = 1, gpus: int = 4, created: str = NOW, **spec: Any
) -> Object:
    """A job that is there, with these conditions true."""
    obj = job(workers=workers, gpus=gpus, **spec)
    obj["metadata"] = {
        "name": name, "namespace": "team", "uid": name, "generation": 1, "creationTimestamp": created,
    }  # fmt: skip
    statuses = [
        {"type": kind, "status": "True", "reason": "x", "message": "", "lastTransitionTime": NOW}
        for kind in conditions
    ]
    return {**obj, "status": {"conditions": statuses}}


def running(name: str, *, on: str, gpus: int = 4, **spec: Any) -> tuple[Object, Object, Object]:
    """A job that runs with one pod: it, its Job and its pod."""
    train = known_job(name, "DataReady", "Admitted", gpus=gpus, **spec)
    owner = {"apiVersion": "tdcs.io/v1alpha2", "kind": "TrainingJob", "name": name, "uid": name}
    labels = {"tdcs.io/training-job": name, "tdcs.io/role": "worker"}
    child = {
        "metadata": {
            "name": f"{name}-worker", "namespace": "team", "uid": f"{name}-job", "labels": labels,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "status": {"startTime": NOW},
    }  # fmt: skip
    by = {"apiVersion": "batch/v1", "controller": True}
    its_pod = pod(f"{name}-worker-0", on=on, gpus=gpus)
    its_pod["metadata"] |= {
        "labels": labels,
        "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
        "ownerReferences": [{**by, "kind": "Job", "name": f"{name}-worker", "uid": f"{name}-job"}],
    }
    return train, child, its_pod


def priority_class(name: str, value: int) -> Object:
    return {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}


def test_a_job_of_a_paused_namespace_is_held_as_the_queue_holds_it(tmp_path: Path) -> None:
    paused = {"metadata": {"name": "team", "annotations": {"tdcs.io/queue-stop-policy": "Hold"}}}
    answer = answer_of(planned(tmp_path, {**SMALL, "namespaces": [paused]}, job(), "--json")[0])
    assert (answer["turn"]["yes"], answer["turn"]["reason"]) == (False, "QueueStopped")
    assert answer["starts_now"] is False


def test_a_suspended_job_says_so_as_the_operator_does(tmp_path: Path) -> None:
    answer = answer_of(planned(tmp_path, SMALL, job(runPolicy={"suspend": True}), "--json")[0])
    assert (answer["turn"]["yes"], answer["turn"]["reason"]) == (False, "SuspendedByUser")


@pytest.mark.parametrize("in_kueue", [False, True])
def test_a_dataset_without_a_place_for_another_job_holds_it_whoever_decides(
    tmp_path: Path, in_kueue: bool
) -> None:
    limited = dataset(
        "pictures", size=60 * GB, nodes={"a": 60 * GB}, access={"mode": "Shared", "maxConcurrentJobs": 1}
    )
    reads, child, its_pod = running("reads", on="b", gpus=1)
    objects = {
        **cluster(nodes=[node("a"), node("b")], datasets=[limited], pods=[its_pod]),
        "trainingjobs": [reads],
        "jobs": [child],
        "workloads": [],
        "deployments": [operator("--kueue")],
    }
    labelled = job()
    if in_kueue:
        labelled["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    answer = answer_of(planned(tmp_path, objects, labelled, "--json")[0])
    assert (answer["turn"]["yes"], answer["turn"]["reason"]) == (False, "DatasetAtLimit")
    assert "pictures" in answer["turn"]["message"]


def test_a_job_that_may_preempt_takes_a_place_only_where_the_operator_allows_it(tmp_path: Path) -> None:
    low, child, its_pod = running("low", on="a")
    objects = {
        **cluster(nodes=[node("a")], datasets=[PICTURES], pods=[its_pod]),
        "trainingjobs": [low],
        "jobs": [child],
        "priorityclasses": [priority_class("urgent", 100)],
    }
    urgent = job(workers=1, gpus=4, scheduling={"priorityClassName": "urgent"})
    without = answer_of(planned(tmp_path, objects, urgent, "--json")[0])["turn"]
    objects["deployments"] = [operator("--preemption")]
    having = answer_of(planned(tmp_path, objects, urgent, "--json")[0])["turn"]

    takes = "it takes the place of 1 job of lower priority"
    assert (without["yes"], having["yes"]) == (False, False)
    assert takes not in without["message"]
    assert takes in having["message"]


def test_a_job_of_higher_priority_stands_behind_one_that_has_waited_for_long(tmp_path: Path) -> None:
    old = known_job("old", "DataReady", gpus=4)
    middle = known_job("middle", "DataReady", gpus=4, created="2999-01-01T00:00:00Z")
    middle["spec"]["scheduling"] = {"priorityClassName": "middle"}
    objects = {
        **cluster(nodes=[node("a")], datasets=[PICTURES]),
        "trainingjobs": [old, middle],
        "priorityclasses": [priority_class("middle", 100)],
    }
    middle_job = job(workers=1, gpus=4, scheduling={"priorityClassName": "middle"})
    starts = {}
    for seconds in (0, 60):
        objects["deployments"] = [operator(f"--queue-aging-seconds={seconds}", "--queue-order=Priority")]
        starts[seconds] = answer_of(planned(tmp_path, objects, middle_job, "--json")[0])["turn"]["yes"]

    # The old one counts as of its priority, and is older.
    assert starts == {0: True, 60: False}


@pytest.mark.parametrize(
    ("way", "yes", "reason", "text"),
    [
        ("Off", False, "NoNodeIsLargeEnough", "even with all nodes empty"),
        ("Release", True, "AwaitsNodes", "so that nodes come for what has no room"),
        ("ProvisioningRequest", False, "NoNodeIsLargeEnough", "; nodes would be asked for"),
    ],
)
def test_a_gang_that_no_nodes_hold_asks_for_some_as_the_operator_would(
    tmp_path: Path, way: str, yes: bool, reason: str, text: str
) -> None:
    objects = {**SMALL, "deployments": [operator(f"--node-provisioning={way}")]}
    answer = answer_of(planned(tmp_path, objects, job(workers=4, gpus=4), "--json")[0])["turn"]
    assert (answer["yes"], answer["reason"]) == (yes, reason), answer
    assert text in answer["message"]


def test_what_the_operator_is_set_to_is_named_as_unknown_to_who_may_not_read_it(tmp_path: Path) -> None:
    answer = answer_of(planned(tmp_path, SMALL, job(), "--json", forbidden=frozenset({"deployments"}))[0])
    (line,) = answer["unknown"]
    assert "you may not list Deployments in namespace tdcs-system" in line


def explained(folder: Path, objects: dict[str, Any], name: str) -> tuple[str, list[str]]:
    """The headline of a job, and what is remarked."""
    with ApiStandIn(objects) as server:
        command = [
            "explain",
            "job",
            name,
            "-n",
            "team",
            f"--kubeconfig={server.kubeconfig(folder)}",
            "--json",
        ]
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    return answer["headline"], answer["remarks"]


def waiting(name: str, **spec: Any) -> Object:
    """A job whose status says an old place in the queue."""
    obj = known_job(name, "DataReady", **spec)
    obj["status"] |= {"state": "Queued", "reason": "NotEnoughRoom", "message": "position 7 in the queue"}
    return obj


def world_of(*jobs: Object, nodes: int = 1, **more: Any) -> dict[str, Any]:
    found_ = cluster(nodes=[node(f"n{number}") for number in range(nodes)], datasets=[PICTURES])
    return {**found_, "trainingjobs": list(jobs), **more}


def test_explain_says_that_a_job_may_start_whose_status_still_says_an_old_place(tmp_path: Path) -> None:
    headline, remarks = explained(tmp_path, world_of(waiting("train")), "train")
    assert headline == "It waits for its turn: position 7 in the queue"
    assert "As things are now, it may start (AllPodsFit): its pod fits." in remarks


def test_explain_says_that_a_namespace_is_paused_before_the_status_does(tmp_path: Path) -> None:
    paused = {"metadata": {"name": "team", "annotations": {"tdcs.io/queue-stop-policy": "Hold"}}}
    _, remarks = explained(tmp_path, world_of(waiting("train"), namespaces=[paused]), "train")
    assert any(remark.startswith("As things are now, it waits (QueueStopped)") for remark in remarks)


def test_explain_counts_a_long_wait_as_the_operator_is_set_to(tmp_path: Path) -> None:
    old = waiting("old", gpus=4)
    young = waiting("young", gpus=4, created="2999-01-01T00:00:00Z", scheduling={"priorityClassName": "high"})
    remarks = {}
    for seconds in (0, 60):
        by = operator(f"--queue-aging-seconds={seconds}", "--queue-order=Priority")
        objects = world_of(old, young, priorityclasses=[priority_class("high", 100)], deployments=[by])
        remarks[seconds] = explained(tmp_path, objects, "old")[1]

    assert any("it waits (NotEnoughRoom)" in remark for remark in remarks[0]), remarks
    assert any("it may start (AllPodsFit)" in remark for remark in remarks[60]), remarks


def test_explain_of_a_job_in_kueue_says_what_its_workload_and_its_datasets_say(tmp_path: Path) -> None:
    limited = dataset(
        "pictures", size=60 * GB, nodes={"a": 60 * GB}, access={"mode": "Shared", "maxConcurrentJobs": 1}
    )
    reads, child, its_pod = running("reads", on="b", gpus=1)
    train = waiting("train")
    train["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    condition = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "no quota for 4 GPUs",
    }
    workload = {
        "metadata": {"name": "trainingjob-train", "namespace": "team"},
        "spec": {},
        "status": {"conditions": [condition]},
    }
    objects = {
        **cluster(nodes=[node("a"), node("b")], datasets=[PICTURES], pods=[its_pod]),
        "trainingjobs": [reads, train],
        "jobs": [child],
        "workloads": [workload],
        "deployments": [operator("--kueue")],
    }
    _, remarks = explained(tmp_path, objects, "train")
    assert (
        "As things are now, it waits (WaitsInKueue): it waits in LocalQueue gpu: no quota for 4 GPUs."
        in remarks
    )
    _, remarks = explained(tmp_path, {**objects, "datasets": [limited]}, "train")
    assert any(remark.startswith("As things are now, it waits (DatasetAtLimit)") for remark in remarks)


def test_explain_of_a_job_that_takes_others_places_says_so(tmp_path: Path) -> None:
    low, child, its_pod = running("low", on="n0")
    urgent = waiting("urgent", scheduling={"priorityClassName": "urgent"})
    objects = world_of(
        low,
        urgent,
        jobs=[child],
        pods=[its_pod],
        priorityclasses=[priority_class("urgent", 100)],
        deployments=[operator("--preemption")],
    )
    _, remarks = explained(tmp_path, objects, "urgent")
    assert any("it takes the place of 1 job of lower priority" in remark for remark in remarks), remarks


def test_explain_of_a_job_whose_status_is_right_says_it_once(tmp_path: Path) -> None:
    train = waiting("train", workers=3)
    _, first = explained(tmp_path, world_of(train), "train")
    (message,) = [remark for remark in first if remark.startswith("As things are now")]
    train["status"]["message"] = message.partition("): ")[2].removesuffix(".")
    _, again = explained(tmp_path, world_of(train), "train")
    assert not [remark for remark in again if remark.startswith("As things are now")]
