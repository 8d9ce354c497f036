"""Whole stories of training jobs: queue, run, fail, restart, end, be cleaned up."""

import pytest
from tests.support.kube.objects import counts_of
from tests.unit.control.jobs import Jobs, index_of, phase_of, role

from tdcs.control.job.ended_job import is_settled
from tdcs.model.kube_resources import (
    DATASETS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    SERVICES,
    TRAINING_JOBS,
)


async def test_a_job_runs_to_its_end_and_tells_each_step_once() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        for pod in jobs.pods():
            await jobs.end(pod)
        await jobs.until_state("Succeeded")
        await jobs.until(lambda: "Completed" in jobs.events())  # it is written a moment after the status
        assert jobs.events() == ["AllPodsFit", "Completed", "DatasetsReady", "PodsReady"]
        assert jobs.status()["message"] == "all 2 workers succeeded"
        await jobs.until(lambda: is_settled(jobs.training_job("train"), stores=jobs.context.stores))
        written = len(jobs.server.writes)
        await jobs.server.merge(
            TRAINING_JOBS, name="train", namespace="n", patch={"metadata": {"labels": {"a": "b"}}}
        )
        await jobs.until(lambda: len(jobs.context.queue) == 0)
        assert jobs.server.writes[written + 1 :] == []


@pytest.mark.failure_mode("two-jobs-of-more-than-half")
async def test_two_jobs_that_each_need_more_than_half_never_hold_half_each() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        for name in ("first", "second"):
            await jobs.create(name, workers=6)
        await jobs.until(lambda: jobs.bound("first") + jobs.bound("second") == 6)
        holder, waits = ("first", "second") if jobs.bound("first") else ("second", "first")
        await jobs.until(lambda: jobs.status(waits).get("state") == "Queued")
        assert "needs 6 nvidia.com/gpu at once, 2 nvidia.com/gpu free" in jobs.status(waits)["message"]
        assert not jobs.pods(waits)
        await jobs.run(holder)
        for pod in jobs.pods(holder):
            await jobs.end(pod)
        await jobs.until(lambda: jobs.bound(waits) == 6)
        assert jobs.condition("Queued", waits)["status"] == "False"


async def test_many_jobs_fill_the_nodes_one_after_the_other_and_all_end() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        every = [f"job-{number}" for number in range(12)]
        for number, name in enumerate(every):
            await jobs.create(name, workers=1 + number % 3, gpus=1 + number % 2)

        def over() -> bool:
            assert all(jobs.usage.taken(node).get("nvidia.com/gpu", 0) <= 4 for node in "ab")
            for name in every:
                assert jobs.bound(name) in {0, len(jobs.pods(name))}  # all its pods have room, or none exists
            return all(jobs.status(name).get("state") == "Succeeded" for name in every)

        await jobs.until(over, kubelet=True)


KILLS = range(1, 15)


@pytest.mark.parametrize("write", KILLS)
@pytest.mark.failure_mode("operator-killed-at-job-write")
async def test_an_operator_killed_after_any_write_is_followed_by_one_that_ends_the_job(write: int) -> None:
    jobs = Jobs(gpus={"a": 4})
    await jobs.start(killed_after=write)
    await jobs.create()
    await jobs.until(lambda: jobs.operator.dead or jobs.status().get("state") == "Succeeded", kubelet=True)
    assert jobs.operator.dead or write > 10, "a job takes more writes than that"
    await jobs.stop()
    async with jobs:
        await jobs.until_state("Succeeded", kubelet=True)
        assert len(jobs.pods()) == 2
        assert jobs.job("train-worker")["status"]["succeeded"] == 2
        assert jobs.status()["placement"]


async def test_a_job_for_nodes_with_labels_that_none_has_names_them_until_one_has() -> None:
    workers = role(2, gpus=1)
    workers["template"]["spec"]["nodeSelector"] = {"pool": "mars"}
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(roles={"Worker": workers})
        await jobs.until(lambda: jobs.condition("Queued").get("reason") == "NoNodeMatches")
        assert jobs.status()["message"].startswith("no node has the label pool=mars that its pods ask for")
        await jobs.server.merge(NODES, name="a", patch={"metadata": {"labels": {"pool": "mars"}}})
        await jobs.until(lambda: jobs.bound("train") == 2)


@pytest.mark.failure_mode("priority-class-missing")
async def test_an_urgent_job_enters_before_older_ones() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("running", workers=4)
        await jobs.until(lambda: jobs.bound("running") == 4)
        await jobs.create("patient", workers=4)
        await jobs.until_state("Queued", "patient")
        await jobs.create("urgent", workers=4, scheduling={"priorityClassName": "high"})
        await jobs.until(lambda: jobs.condition("Queued", "urgent").get("reason") == "PriorityClassNotFound")
        await jobs.server.create(PRIORITY_CLASSES, obj={"metadata": {"name": "high"}, "value": 100})
        await jobs.until(lambda: jobs.condition("Queued", "urgent").get("reason") == "NotEnoughRoom")
        await jobs.run("running")
        for pod in jobs.pods("running"):
            await jobs.end(pod)
        await jobs.until(lambda: jobs.bound("urgent") == 4)
        assert not jobs.pods("patient")
        assert jobs.job("urgent-worker")["spec"]["template"]["spec"]["priorityClassName"] == "high"


@pytest.mark.failure_mode("large-job-passed")
async def test_small_jobs_pass_a_large_one_only_so_often() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, max_passes=2) as jobs:
        await jobs.create("long", workers=2, gpus=2)
        await jobs.until(lambda: jobs.bound("long") == 2)
        await jobs.create("large", workers=2, gpus=4)
        await jobs.until_state("Queued", "large")
        for number in range(4):
            await jobs.create(f"small-{number}", workers=1)
        await jobs.until(lambda: jobs.bound("small-0") + jobs.bound("small-1") == 2)
        await jobs.until_state("Queued", "small-3")
        assert "2 nodes are set aside for n/large" in jobs.status("small-3")["message"]
        assert not jobs.pods("small-2") + jobs.pods("small-3")
        # The nodes empty, and the large one has them before any of the small ones.
        for name in ("long", "small-0", "small-1"):
            await jobs.run(name)
            for pod in jobs.pods(name):
                await jobs.end(pod)
        await jobs.until(lambda: jobs.bound("large") == 2)
        assert not jobs.pods("small-2") + jobs.pods("small-3")
        await jobs.until(lambda: jobs.status("small-3").get("state") == "Succeeded", kubelet=True)


@pytest.mark.failure_mode("job-larger-than-any-node")
async def test_a_job_too_large_for_any_node_enters_when_one_comes() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("giant", workers=1, gpus=16)
        await jobs.until(lambda: jobs.condition("Queued", "giant").get("reason") == "NoNodeIsLargeEnough")
        await jobs.create("small")
        await jobs.until(lambda: jobs.bound("small") == 2)
        large = {"allocatable": {"nvidia.com/gpu": "16", "cpu": "96", "pods": "110"}}
        await jobs.server.create(NODES, obj={"metadata": {"name": "large"}, "status": large})
        await jobs.until(lambda: jobs.bound("giant") == 1)


async def test_what_a_runtime_class_adds_to_a_pod_counts_as_asked_for() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        sandbox = {"metadata": {"name": "sandbox"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10"}}}
        await jobs.server.create(RUNTIME_CLASSES, obj=sandbox)
        pods = role(1)
        pods["template"]["spec"]["runtimeClassName"] = "sandbox"
        pods["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "90"
        await jobs.create(roles={"Worker": pods})
        await jobs.until_state("Queued")
        assert "asks for 100 cpu, and the largest node that it may use has 96 cpu" in jobs.status()["message"]
        await jobs.server.delete(RUNTIME_CLASSES, name="sandbox")
        await jobs.until(lambda: jobs.bound("train") == 1)


@pytest.mark.failure_mode("gang-of-several-sizes")
async def test_the_largest_pods_of_a_gang_get_their_nodes_first() -> None:
    async with Jobs(gpus={"a": 5, "b": 4}) as jobs:
        # The scheduler takes the first node with room: servers that came first would take the worker's.
        await jobs.create(roles={"PS": role(4, gpus=1), "Worker": role(1, gpus=5)})
        await jobs.until(lambda: jobs.bound("train") == 5)
        placed = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in jobs.pods()}
        assert placed["train-worker-0-0"] == "a"
        await jobs.change(runPolicy={"suspend": True})
        await jobs.until(lambda: not jobs.pods())
        await jobs.change(runPolicy={"suspend": False})
        await jobs.until(lambda: jobs.bound("train") == 5)


@pytest.mark.failure_mode("operator-restarts-after-admission")
async def test_a_new_operator_keeps_what_the_old_one_let_in() -> None:
    jobs = Jobs(gpus={"a": 4, "b": 4})
    async with jobs:
        for name in ("first", "second"):
            await jobs.create(name, workers=6)
        # Let in, and before a single pod has a node: the new one must reserve for it.
        await jobs.until(
            lambda: (
                "True" in {jobs.condition("Admitted", name).get("status") for name in ("first", "second")}
            ),
            play=False,
        )
    holder = "first" if jobs.condition("Admitted", "first").get("status") == "True" else "second"
    waits = "second" if holder == "first" else "first"
    async with jobs:
        await jobs.until(lambda: jobs.status(waits).get("state") == "Queued", play=False)
        await jobs.until(lambda: jobs.bound(holder) == 6)
        assert not jobs.pods(waits)


async def test_the_chiefs_end_ends_servers_and_workers() -> None:
    roles = {"Chief": role(1), "Worker": role(2, gpus=1), "PS": role(1)}
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(framework="TensorFlow", roles=roles)
        await jobs.until(lambda: jobs.bound("train") == 4)
        await jobs.run()
        await jobs.until_state("Running")
        chief = next(pod for pod in jobs.pods() if "chief" in pod["metadata"]["name"])
        await jobs.end(chief)
        await jobs.until_state("Succeeded")
        await jobs.until(lambda: len(jobs.pods()) == 1)
        assert counts_of(jobs.status(), "PS") == {
            "active": 0,
            "ready": 0,
            "succeeded": 0,
            "failed": 0,
        }


POLICIES = {
    "Running": (3, []),
    "All": (0, []),
    "None": (3, ["train-ps-0", "train-worker-0", "train-worker-1"]),
}


@pytest.mark.parametrize("policy", POLICIES)
async def test_what_becomes_of_the_pods_is_the_policys_business(policy: str) -> None:
    jobs_left, running_left = POLICIES[policy]
    roles = {"Chief": role(1), "Worker": role(2, gpus=1), "PS": role(1)}
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(framework="TensorFlow", roles=roles, runPolicy={"cleanPodPolicy": policy})
        await jobs.until(lambda: jobs.bound("train") == 4)
        await jobs.run()
        await jobs.end(next(pod for pod in jobs.pods() if "chief" in pod["metadata"]["name"]))
        await jobs.until_state("Succeeded")
        await jobs.until(lambda: len(jobs.server.store(JOBS)) == jobs_left)

        def running() -> list[str]:
            pod_names = [
                pod["metadata"]["name"] for pod in jobs.pods() if pod["status"]["phase"] == "Running"
            ]
            return [name.rpartition("-")[0] for name in pod_names]

        if policy != "All":  # there the garbage collector takes the pods of the deleted Jobs
            await jobs.until(lambda: running() == running_left)


async def test_a_failed_pod_is_reported_while_its_replacement_starts() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.run()
        await jobs.until_state("Running")
        await jobs.end(jobs.pods()[0], code=3)
        await jobs.until_state("Restarting")
        assert (
            "train-worker-0-0 on node a failed: Error: container main ended with exit code 3"
            in (jobs.condition("Restarting")["message"])
        )
        await jobs.until(lambda: jobs.bound("train") == 3)
        await jobs.run()
        await jobs.until_state("Running")
        assert jobs.condition("Restarting")["status"] == "False"


@pytest.mark.failure_mode("job-fails")
async def test_a_job_that_has_failed_names_the_pod_its_exit_code_and_where_to_read_more() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(runPolicy={"backoffLimit": 2})
        for failures in range(3):
            await jobs.until(lambda count=failures: jobs.bound("train") == 2 + count)  # type: ignore[misc]
            await jobs.run()
            await jobs.end(
                next(pod for pod in jobs.pods() if phase_of(pod) == "Running" and index_of(pod)), code=7
            )
        await jobs.until_state("Failed")
        message = jobs.status()["message"]
        assert message == (
            "worker 1 (pod train-worker-1-2 on node a) failed with exit code 7 after 2 retries (no restart is left: "
            "spec.runPolicy.backoffLimit is 2); see kubectl logs -n n train-worker-1-2 -c main"
        )
        assert jobs.condition("Failed")["message"] == message


async def test_a_job_that_fails_before_a_pod_ran_does_not_say_that_it_runs_and_warns() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(workers=1, runPolicy={"backoffLimit": 0})
        await jobs.until(lambda: jobs.bound("train") == 1)
        await jobs.until_state("Starting")
        await jobs.end(jobs.pods()[0], code=128)
        # Before the Job controller has said that the Job failed.
        await jobs.until(lambda: jobs.condition("Restarting").get("reason") == "NoRetryLeft", play=False)
        assert (jobs.status()["state"], jobs.status()["reason"]) == ("Starting", "PodFailed")
        events = [event for event in jobs.server.store(EVENTS).values() if event["reason"] == "NoRetryLeft"]
        assert [event["type"] for event in events] == ["Warning"]
        await jobs.until_state("Failed")


async def test_a_suspended_job_gives_its_room_to_others_and_queues_again() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create("first", workers=4)
        await jobs.until(lambda: jobs.bound("first") == 4)
        await jobs.create("second", workers=4)
        await jobs.until_state("Queued", "second")
        await jobs.change("first", runPolicy={"suspend": True})
        await jobs.until_state("Suspended", "first")
        await jobs.until(lambda: jobs.bound("second") == 4)
        await jobs.change("first", runPolicy={"suspend": False})
        await jobs.until_state("Queued", "first")
        assert jobs.condition("Suspended", "first")["status"] == "False"
        assert not jobs.pods("first")


async def test_an_elastic_job_follows_its_number_of_workers() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(framework="PyTorch", elastic={"minReplicas": 1, "maxReplicas": 4})
        await jobs.until(lambda: jobs.bound("train") == 2)
        for count in (4, 1):
            await jobs.change(workers=count)
            await jobs.until(lambda count=count: jobs.bound("train") == len(jobs.pods()) == count)  # type: ignore[misc]
            await jobs.run()
            await jobs.until_state("Running")


@pytest.mark.failure_mode("job-dataset-missing")
async def test_a_dataset_that_is_missing_then_there_then_deleted_is_called_so() -> None:
    uses = [{"name": "pictures", "mountPath": "/data"}]
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create(datasets=uses)
        await jobs.until(lambda: jobs.status().get("reason") == "DatasetNotFound")
        assert jobs.status()["state"] == "Waiting"
        metadata = {"name": "pictures", "namespace": "n", "finalizers": ["x"]}
        await jobs.server.create(DATASETS, obj={"metadata": metadata, "spec": {}})
        await jobs.server.delete(DATASETS, name="pictures", namespace="n")
        await jobs.change(runPolicy={"backoffLimit": 1})
        await jobs.until(lambda: jobs.status().get("reason") == "DatasetBeingDeleted")
        assert "there is no" not in jobs.status()["message"]


async def test_a_strangers_job_is_left_alone_and_takes_no_turn() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        stranger = {
            "metadata": {"name": "train-worker", "namespace": "n"},
            "spec": {"suspend": True, "completions": 1},
        }
        await jobs.server.create(JOBS, obj=stranger)
        await jobs.create(workers=4)
        await jobs.until(lambda: jobs.status().get("reason") == "NameTaken", play=False)
        await jobs.create("other", workers=4)
        await jobs.until(lambda: jobs.condition("Admitted", "other").get("status") == "True", play=False)
        assert jobs.job("train-worker")["spec"] == stranger["spec"]


async def test_a_job_that_is_deleted_and_made_again_waits_for_its_own_remains_without_alarm() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until(lambda: jobs.bound("train") == 2)
        await jobs.server.delete(TRAINING_JOBS, name="train", namespace="n")
        await jobs.create()
        await jobs.until(lambda: jobs.status().get("reason") == "EarlierJobGoing", play=False)
        assert "of an earlier object of that name is being deleted" in jobs.status()["message"]
        for resource in (SERVICES, JOBS, PODS):  # the garbage collector
            for namespace, name in list(jobs.server.store(resource)):
                await jobs.server.delete(resource, name=name, namespace=namespace)
        await jobs.until(lambda: jobs.bound("train") == 2)
        warnings = [event for event in jobs.server.store(EVENTS).values() if event["type"] == "Warning"]
        assert not warnings


@pytest.mark.failure_mode("job-of-too-many-pods")
async def test_a_job_with_more_pods_than_a_variable_can_list_is_refused_until_it_is_changed() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        name = "a" * 50
        specs = {"Chief": role(1), "Worker": role(1000), "PS": role(1000)}
        await jobs.create(name, framework="TensorFlow", roles=specs)
        await jobs.until(lambda: jobs.status(name).get("reason") == "InvalidSpec")
        assert "TF_CONFIG" in jobs.status(name)["message"]
        assert not jobs.server.store(JOBS)


async def test_a_job_that_has_ended_is_seen_to_follow_a_change_of_its_spec() -> None:
    async with Jobs(gpus={"a": 4}) as jobs:
        await jobs.create()
        await jobs.until_state("Succeeded", kubelet=True)
        ended = jobs.condition("Succeeded")
        await jobs.change(runPolicy={"ttlSecondsAfterFinished": 3600})
        await jobs.until(lambda: jobs.status()["observedGeneration"] == 2)
        assert jobs.status()["state"] == "Succeeded"
        assert jobs.condition("Succeeded") == ended


async def test_five_hundred_jobs_at_once_all_get_their_place_in_the_queue_with_few_writes() -> None:
    async with Jobs(gpus={f"node-{number}": 8 for number in range(50)}) as jobs:
        every = [f"job-{number}" for number in range(500)]
        for number, name in enumerate(every):
            await jobs.create(name, workers=1 + number % 4, gpus=1 + number % 8)
        await jobs.until(
            lambda: all(jobs.status(name).get("state") for name in every), play=False, deadline=90
        )
        await jobs.until(lambda: len(jobs.context.queue) == 0, play=False)
        statuses = [jobs.status(name) for name in every]
        assert all(status["message"] for status in statuses if status["state"] == "Queued")
        # A Service, a Job and a status each; those let in one more of each of the latter; the head of the queue some.
        assert len(jobs.server.writes) < 6 * len(every)
        started = [number for number, status in enumerate(statuses) if status["state"] == "Starting"]
        assert sum((1 + number % 4) * (1 + number % 8) for number in started) <= 50 * 8, (
            "no GPU is given twice"
        )
