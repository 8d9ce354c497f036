"""Stories of the queue: jobs that cannot be read, gangs that are refused whole, reservations, elastic growth."""

import json
from typing import Any

import pytest
from tests.unit.control.job.queue.test_job_requeue import READS, pictures
from tests.unit.control.jobs import GPU, Jobs, role

from tdcs.api.durations import seconds_between
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PODS, PRIORITY_CLASSES, TRAINING_JOBS, Resource

NO_KEY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"operator": "Exists"}]}]
        }
    }
}

UNREADABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "resources: lots": ({}, {"resources": "lots"}),
    "limits: [1]": ({}, {"resources": {"limits": [1]}}),
    "nodeSelector: [gpu]": ({"nodeSelector": ["gpu"]}, {}),
    "a matchExpression without key": ({"affinity": NO_KEY}, {}),
    "affinity: near": ({"affinity": "near"}, {}),
    "tolerations: all": ({"tolerations": "all"}, {}),
    "a toleration that is a word": ({"tolerations": ["all"]}, {}),
    "a runtimeClassName that is a list": ({"runtimeClassName": ["kata"]}, {}),
    "a priorityClassName that is a number": ({"priorityClassName": 7}, {}),
}


def messages_of(jobs: Jobs, name: str) -> list[str]:
    """All that the status of a job and its conditions say from now on, also what they say for a moment only."""
    messages: list[str] = []
    before = jobs.server.on_change

    def note(resource: Resource, obj: Object, deleted: bool) -> None:
        if resource is TRAINING_JOBS and obj["metadata"]["name"] == name:
            status = obj.get("status") or {}
            messages.extend(part.get("message", "") for part in (status, *(status.get("conditions") or ())))
        before(resource, obj, deleted)

    jobs.server.on_change = note
    return messages


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.failure_mode("job-not-understood")
async def test_one_job_that_cannot_be_read_stops_no_other(name: str) -> None:
    pod, container = UNREADABLE[name]
    bad = role(1, gpus=1)
    bad["template"]["spec"] |= pod
    bad["template"]["spec"]["containers"][0] |= container
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("bad", roles={"Worker": bad})
        await jobs.create("good", workers=2)
        await jobs.until(lambda: jobs.bound("good") == 2)
        await jobs.until(lambda: jobs.condition("Admitted", "bad").get("reason") == "InvalidSpec")
        assert not jobs.pods("bad")


@pytest.mark.failure_mode("gang-does-not-fit-scheduler")
async def test_a_gang_that_the_scheduler_refuses_whole_gives_its_room_back() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=0.2) as jobs:
        jobs.refuses = lambda pod: pod["metadata"]["name"].startswith("zoned")
        await jobs.create("zoned", workers=8)
        await jobs.until(lambda: len(jobs.pods("zoned")) == 8)
        await jobs.create("other", workers=8)
        await jobs.until(lambda: jobs.bound("other") == 8)
        assert "NotAllPodsPlaced" in jobs.events()


@pytest.mark.failure_mode("gang-does-not-fit-scheduler")
async def test_a_gang_for_a_scheduler_that_does_not_exist_gives_its_room_back() -> None:
    mistyped = role(8, gpus=1)
    mistyped["template"]["spec"]["schedulerName"] = "tdcs-schedular"
    async with Jobs(gpus={"a": 4, "b": 4}, patience=0.2) as jobs:
        await jobs.create("mistyped", roles={"Worker": mistyped})
        await jobs.until(lambda: len(jobs.pods("mistyped")) == 8)
        await jobs.create("other", workers=8)
        await jobs.until(lambda: jobs.bound("other") == 8)
        assert "tdcs-schedular" in next(
            condition["message"]
            for condition in jobs.status("mistyped")["conditions"]
            if condition["reason"] == "NotAllPodsPlaced"
        )


async def test_pods_of_an_earlier_job_of_the_name_do_not_count_as_the_new_ones() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        await jobs.create("train", workers=8)
        # Pods with the label of the job that are not its own: somebody else's, or an earlier incarnation's.
        for index in range(4):
            await jobs.server.create(
                PODS,
                obj={
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"old-{index}",
                        "namespace": "n",
                        "labels": {
                            "tdcs.io/training-job": "train",
                            "tdcs.io/role": "worker",
                            "job-name": "gone",
                        },
                        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                        "ownerReferences": [{"uid": "another", "controller": True}],
                    },
                    "spec": {
                        "nodeName": "a",
                        "containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}],
                    },
                    "status": {"phase": "Running"},
                },
            )
        await jobs.until(lambda: jobs.condition("Queued").get("reason") == "NotEnoughRoom")
        assert "needs 8 nvidia.com/gpu at once, 4 nvidia.com/gpu free" in jobs.status()["message"]


ELASTIC: dict[str, Any] = {"framework": "PyTorch", "elastic": {"minReplicas": 2, "maxReplicas": 8}}


@pytest.mark.failure_mode("elastic-job-lacks-room")
async def test_an_elastic_gang_enters_with_its_smallest_number_and_grows_as_room_comes() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        await jobs.create("first", workers=5)
        await jobs.until(lambda: jobs.bound("first") == 5)
        await jobs.create("train", workers=6, **ELASTIC)
        await jobs.until(lambda: jobs.bound("train") == 3)
        assert jobs.job("train-worker")["spec"]["parallelism"] == 3
        assert jobs.status("train")["replicas"] == 3
        await jobs.until_running("train")
        await jobs.until(lambda: "3 more workers wait for room" in jobs.status("train")["message"])
        await jobs.run("first")
        for pod in jobs.pods("first"):
            await jobs.end(pod)
        await jobs.until(lambda: jobs.bound("train") == 6)


async def test_growth_waits_behind_a_job_of_higher_priority_and_within_the_quota() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        for name, value in (("urgent", 10), ("later", 0)):
            await jobs.server.create(
                PRIORITY_CLASSES,
                obj={"kind": "PriorityClass", "metadata": {"name": name}, "value": value},
            )
        await jobs.create("train", workers=2, **ELASTIC)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.stranger("stranger", node="b", gpus=4)
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "urgent"})
        await jobs.until_state("Queued", "urgent")
        await jobs.change("train", workers=8)
        await jobs.until(lambda: jobs.bound("train") == 4)
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert jobs.job("train-worker")["spec"]["completions"] == 4
        await jobs.run("urgent")
        for pod in jobs.pods("urgent"):
            await jobs.end(pod)
        await jobs.until(lambda: jobs.bound("train") == 8)
        await jobs.change("train", workers=2)
        await jobs.until(lambda: len(jobs.pods("train")) == 2)


async def test_workers_that_get_no_node_in_time_are_given_back_and_asked_for_again() -> None:
    async with Jobs(gpus={"a": 4}, patience=0.6) as jobs:
        await jobs.create("train", workers=2, **ELASTIC)
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.until_running("train")
        runs = {pod["metadata"]["uid"] for pod in jobs.pods("train")}
        messages = messages_of(jobs, "train")
        # They are admitted, and others take their room before the scheduler looks at them.
        await jobs.change("train", workers=4)
        await jobs.until(lambda: jobs.job("train-worker")["spec"]["completions"] == 4, play=False)
        await jobs.stranger("stranger", node="a", gpus=2)
        await jobs.until(lambda: len(jobs.pods("train")) == 4)
        await jobs.until(lambda: len(jobs.pods("train")) == 2)
        assert {pod["metadata"]["uid"] for pod in jobs.pods("train")} == runs
        # While it pauses: then its condition says what it waits for.
        await jobs.until(lambda: any("2 of its 4 pods found no place" in text for text in messages))
        assert any("the job goes on with the others" in text for text in messages)
        assert jobs.status("train")["state"] == "Running"
        assert jobs.status("train")["replicas"] == 2
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("train") == 4)


async def test_an_elastic_gang_that_runs_with_fewer_workers_says_no_more_that_it_found_no_place() -> None:
    async with Jobs(gpus={"a": 4}, patience=0.6) as jobs:
        await jobs.create(workers=4, **ELASTIC)
        await jobs.until(lambda: jobs.condition("Admitted").get("status") == "True", play=False)
        await jobs.stranger("stranger", node="a", gpus=3)
        await jobs.until(lambda: jobs.condition("Admitted").get("reason") == "NotAllPodsPlaced")
        await jobs.until(lambda: jobs.status().get("state") == "Queued" and not jobs.pods())
        await jobs.stranger("other", node="a", gpus=1)
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("train") == 3)
        await jobs.until_running()
        messages = messages_of(jobs, "train")
        await jobs.server.delete(PODS, name=jobs.pods()[-1]["metadata"]["name"], namespace="n")
        await jobs.until(lambda: any("2 of 3 pods run" in text for text in messages), play=False)
        assert not any("tried again" in text for text in messages)


@pytest.mark.failure_mode("elastic-job-lacks-room")
async def test_a_new_operator_keeps_the_number_of_workers_that_was_admitted() -> None:
    jobs = Jobs(gpus={"a": 4})
    async with jobs:
        await jobs.stranger("stranger", node="a", gpus=2)
        await jobs.create("train", workers=4, **ELASTIC)
        await jobs.until(lambda: jobs.bound("train") == 2)
    async with jobs:
        await jobs.create("probe", workers=1, gpus=4)
        await jobs.until_state("Queued", "probe")
        assert len(jobs.pods("train")) == 2
        assert jobs.job("train-worker")["spec"]["completions"] == 2


async def test_the_choice_of_a_copy_counts_admitted_jobs_whose_pods_have_no_node_yet() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        await pictures(jobs, {"a": 100}, {"b": 100})
        # The scheduler is away: the first job is admitted to copy 0, and none of its pods has a node.
        await jobs.create("first", workers=3, **READS)
        await jobs.until(lambda: jobs.condition("Admitted", "first").get("status") == "True", play=False)
        await jobs.stranger("stranger", node="b", gpus=1)
        await jobs.create("second", workers=3, **READS)
        await jobs.until(lambda: jobs.condition("Admitted", "second").get("status") == "True", play=False)
        first, second = (
            jobs.server.store(TRAINING_JOBS)["n", name]["status"]["copies"][0]["copy"]
            for name in ("first", "second")
        )
        assert (first, second) == ("0", "1")


@pytest.mark.failure_mode("dataset-loads-too-slowly")
async def test_suspended_time_does_not_count_for_a_readiness_timeout() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await pictures(jobs, {"a": 10})
        use = {**READS["datasets"][0], "readiness": {"percent": 100, "timeout": "2s"}}
        await jobs.create("train", workers=1, datasets=[use], runPolicy={"suspend": True})
        await jobs.until_state("Suspended")
        jobs.advance(3600)
        await jobs.change("train", runPolicy={"suspend": False})
        await jobs.until_state("Waiting")
        assert jobs.status()["reason"] == "DatasetLoading"
        jobs.advance(5)
        await jobs.until(lambda: jobs.bound("train") == 1)
        assert jobs.condition("Admitted")["reason"] in ("AllPodsFit", "ReadinessTimedOut")


async def test_pods_of_a_small_job_leave_empty_nodes_to_a_gang_that_waits_for_them() -> None:
    async with Jobs(gpus={"a": 8, "b": 8}) as jobs:
        await pictures(jobs, {"a": 50, "b": 50})
        await jobs.stranger("stranger", node="a", gpus=4)
        await jobs.create("large", workers=2, gpus=8)
        await jobs.until_state("Queued", "large")
        await jobs.create("small", workers=1, gpus=2, **READS)
        await jobs.until(lambda: jobs.bound("small") == 1)
        annotations = jobs.job("small-worker")["spec"]["template"]["metadata"]["annotations"]
        leave_nodes = json.loads(annotations["tdcs.io/leave-nodes"])
        assert leave_nodes["nodes"] == ["b"]
        assert 50 < seconds_between(jobs.now(), leave_nodes["until"]) <= 60
        # Of a job that has started nothing is kept: what its pods carry changes no more.
        await jobs.until(lambda: not jobs.gangs.nodes_to_leave(jobs.training_job("small"), "Worker"))
