"""Stories of places: gangs that lose theirs, jobs that were passed before a restart, copies with and without room."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec
from tests.unit.control.jobs import Jobs

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.job.queue.gang_requeue import Requeues
from tdcs.decide.job.observed_job import JobView, Observed
from tdcs.decide.job.unplaced_pods import Short, short_of
from tdcs.model.job_pods import PodProblem, PodView, Unmade
from tdcs.model.kube_resources import DATASETS, PODS

PATIENCE = 0.2
LONGER = 1.5
"""Seconds in which all pods of a gang are made, on a loaded machine, too."""
REFUSED = PodProblem(reason="Unschedulable", message="0/2 nodes are available")


async def half_placed(jobs: Jobs, name: str = "train") -> None:
    """A job of six workers of which four have a node: a stranger took the rest between admission and binding."""
    await jobs.create(name, workers=6)
    # Let in, and its pods not there yet.
    await jobs.until(lambda: jobs.condition("Admitted", name).get("status") == "True", play=False)
    await jobs.stranger("stranger", node="b", gpus=4)


async def test_a_gang_whose_room_was_taken_gives_back_what_it_has_and_queues_again() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=PATIENCE) as jobs:
        await half_placed(jobs)
        await jobs.until(lambda: jobs.bound("train") == 4)
        await jobs.until(lambda: jobs.status().get("state") == "Queued" and not jobs.pods("train"))
        assert jobs.job("train-worker")["spec"]["suspend"] is True
        assert "NotAllPodsPlaced" in jobs.events()
        # The room that it gave back is for others, and it hears what it waits for.
        await jobs.until(lambda: jobs.condition("Queued").get("reason") == "NotEnoughRoom")
        await jobs.until(lambda: not jobs.status().get("placement"))
        await jobs.create("small", workers=4)
        await jobs.until(lambda: jobs.bound("small") == 4)
        await jobs.run("small")
        for pod in jobs.pods("small"):
            await jobs.end(pod)
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.bound("train") == 6)
        await jobs.until_running()
        for pod in jobs.pods("train"):
            await jobs.end(pod)
        await jobs.until_state("Succeeded")


async def test_the_words_of_the_scheduler_say_why_a_gang_gave_its_places_back() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=LONGER) as jobs:
        await half_placed(jobs)
        await jobs.until(lambda: jobs.condition("Admitted").get("reason") == "NotAllPodsPlaced")
        message = jobs.status()["message"]
        assert "2 of its 6 pods found no place within 1.5 s (0 nodes fit)" in message
        assert "the other 4 gave theirs back" in message
        await jobs.until(lambda: jobs.status().get("state") == "Queued" and not jobs.pods("train"))
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until(lambda: jobs.status().get("state") == "Starting")
        assert jobs.status()["reason"] == "NotAllPodsPlaced"
        assert "it is tried again: 2 of its 6 pods found no place within 1.5 s" in jobs.status()["message"]


async def test_a_gang_that_does_not_run_again_in_time_queues_again_and_ends_its_work() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=PATIENCE) as jobs:
        await jobs.create(workers=6, runPolicy={"recoveryTimeoutSeconds": 1})
        await jobs.until(lambda: jobs.bound("train") == 6)
        await jobs.until_running()
        # A worker has ended well: its index is done, whatever becomes of the others.
        await jobs.end(next(pod for pod in jobs.pods("train") if pod["spec"]["nodeName"] == "a"))
        lost = [pod for pod in jobs.pods("train") if pod["spec"]["nodeName"] == "b"]
        await jobs.stranger("stranger", node="b", gpus=4)
        for pod in lost:
            await jobs.server.delete(PODS, name=pod["metadata"]["name"], namespace="n")
        await jobs.until(lambda: jobs.condition("Queued").get("status") == "True")
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.until_state("Succeeded", kubelet=True)


async def test_a_new_operator_goes_on_with_a_gang_that_is_half_placed() -> None:
    jobs = Jobs(gpus={"a": 4, "b": 4}, patience=PATIENCE)
    async with jobs:
        await half_placed(jobs)
        await jobs.until(lambda: jobs.bound("train") == 4)
    async with jobs:
        await jobs.until(lambda: jobs.status().get("state") == "Queued" and not jobs.pods("train"))


async def test_without_gang_a_job_keeps_what_it_has() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=PATIENCE) as jobs:
        await jobs.create(workers=12, scheduling={"gang": False})
        await jobs.until(lambda: jobs.bound("train") == 8)
        await jobs.until(lambda: jobs.status().get("reason") == "Unschedulable")
        assert jobs.gangs.requeues.left("any", short=None) is None
        assert jobs.job("train-worker")["spec"]["suspend"] is False


def observed_of(*pods: PodView, replicas: int = 3, **more: object) -> Observed:
    workers = {"replicas": replicas, "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}
    spec = job_spec(**{"framework": "PyTorch", "roles": {"Worker": workers}, **more})
    job = JobView(exists=True, start_time=NOW)
    return Observed(spec=spec, status=TrainingJobStatus(), jobs={"Worker": job}, pods=pods, workers=replicas)


def pod(index: int, *, node: str = "", phase: str = "Pending", refused: bool = False) -> PodView:
    waiting = REFUSED if refused else None
    return PodView(
        name=f"p{index}",
        index=str(index),
        node=node,
        phase=phase,
        waiting=waiting,
        created=NOW,
        uid=str(index),
    )


HOLDS = (pod(0, node="a"), pod(1, node="a"))
UNMADE = Unmade(
    role="Worker", count=3, problem=PodProblem(reason="FailedCreate", message="violates PodSecurity")
)
SHORT: dict[str, tuple[Observed, int]] = {
    "a pod that the scheduler refused": (observed_of(*HOLDS, pod(2, refused=True)), 1),
    "a pod that was never made": (observed_of(*HOLDS), 1),
    "a pod that no scheduler has looked at": (observed_of(*HOLDS, pod(2)), 1),
    "a pod that failed, and is about to be made again": (
        observed_of(*HOLDS, pod(2, node="a", phase="Failed")),
        0,
    ),
    "a pod that has succeeded": (observed_of(*HOLDS, pod(2, node="a", phase="Succeeded")), 0),
    "none could be made, and the queue keeps room for them": (replace(observed_of(), unmade=UNMADE), 3),
    "none is made": (observed_of(), 3),
    "all refused: room is kept for them": (observed_of(*(pod(i, refused=True) for i in range(3))), 3),
    "one that is being deleted": (observed_of(*HOLDS, replace(pod(2), going=True)), 0),
    "an elastic job with its smallest number": (
        observed_of(*HOLDS, pod(2, refused=True), elastic={"minReplicas": 2, "maxReplicas": 3}),
        0,
    ),
    "an elastic job below its smallest number": (
        observed_of(
            HOLDS[0], pod(1, refused=True), pod(2, refused=True), elastic={"minReplicas": 2, "maxReplicas": 3}
        ),
        2,
    ),
}


@pytest.mark.parametrize("name", SHORT)
def test_which_pods_a_gang_is_short_of(name: str) -> None:
    observed, missing = SHORT[name]
    shortage = short_of(observed)
    assert (shortage.missing if shortage else 0) == missing


@pytest.mark.failure_mode("gang-does-not-fit-scheduler")
def test_a_gang_that_fails_to_be_placed_again_and_again_pauses_longer_and_longer() -> None:
    now = [100.0]
    requeues = Requeues(patience=60, clock=lambda: now[0])
    short = Short(missing=1, total=3, holding=2, since="", why="a volume is elsewhere")
    rests = []
    for _ in range(12):
        assert requeues.left("u", short=short) == 60
        now[0] += 61
        assert requeues.left("u", short=short) == 0
        message = requeues.requeue("u", short=short)
        pause = requeues.pause_left("u")
        assert pause is not None
        assert (admission := requeues.admission("u")) is not None
        assert admission.message == message
        rests.append(pause)
        now[0] += pause
        assert requeues.admission("u") is None
    assert 15 <= rests[0] <= 30
    assert 900 <= rests[-1] <= 1800
    assert "for the 12th time" in message
    requeues.settled("u")
    assert "time" not in requeues.requeue("u", short=short)


def test_a_gang_with_pods_of_an_earlier_run_has_its_whole_patience_again() -> None:
    """Right after a new admission the newest time of its pods is that of a worker that ended well, long ago."""
    now = [100.0]
    requeues = Requeues(patience=60, clock=lambda: now[0])
    old = Short(missing=5, total=6, holding=0, since="2020-01-01T00:00:00Z", why="no pod could be made")
    assert requeues.left("u", short=old) == 60
    now[0] += 61
    requeues.requeue("u", short=old)
    now[0] += requeues.pause_left("u") or 0
    assert requeues.left("u", short=old) == 60
    now[0] += 20
    assert requeues.left("u", short=old) == 40


def test_a_large_gang_has_its_whole_patience_again_with_each_pod_that_is_made_or_gets_a_node() -> None:
    now = [100.0]
    requeues = Requeues(patience=60, clock=lambda: now[0])
    observed = observed_of(pod(0), replicas=1000)
    for number in range(1, 20):
        assert requeues.left("u", short=short_of(observed)) == 60
        now[0] += 59
        new_pod = replace(pod(number), created=f"2026-01-02T03:{number:02}:05Z")
        observed = replace(observed, pods=(*observed.pods, new_pod))
    assert requeues.left("u", short=short_of(observed)) == 60
    now[0] += 61
    assert requeues.left("u", short=short_of(observed)) == 0


@pytest.mark.failure_mode("operator-restarts-while-job-passed")
async def test_how_often_a_job_was_passed_outlives_the_operator() -> None:
    jobs = Jobs(gpus={"a": 4, "b": 4}, max_passes=2)
    async with jobs:
        await jobs.create("long", workers=2, gpus=2)
        await jobs.until(lambda: jobs.bound("long") == 2)
        await jobs.create("large", workers=2, gpus=4)
        await jobs.until_state("Queued", "large")
        await jobs.create("small-0", workers=1)
        await jobs.until(lambda: jobs.bound("small-0") == 1)
        await jobs.until(lambda: jobs.status("large").get("passed") == 1)
    async with jobs:
        await jobs.create("small-1", workers=1)
        await jobs.until(lambda: jobs.bound("small-1") == 1)
        await jobs.create("small-2", workers=1)
        await jobs.until_state("Queued", "small-2")
        assert "set aside for n/large" in jobs.status("small-2")["message"]
    # A third one finds the nodes still set aside, although nobody was passed in its own time.
    async with jobs:
        await jobs.create("small-3", workers=1)
        await jobs.until_state("Queued", "small-3")
        assert not jobs.pods("small-3")
        for name in ("long", "small-0", "small-1"):
            await jobs.run(name)
            for running in jobs.pods(name):
                await jobs.end(running)
        await jobs.until(lambda: jobs.bound("large") == 2)
        assert "passed" not in jobs.status("large")


async def pictures(jobs: Jobs, *copies: Mapping[str, int], brought: Mapping[str, int] | None = None) -> None:
    """A Dataset with these copies, and what Preloads brought, as bytes by node."""
    mounted = {"type": "Mounted", "status": "True", "reason": "Mounted", "lastTransitionTime": NOW}
    listed = [
        {"id": number, "nodes": [{"name": node, "bytes": size} for node, size in copy.items()]}
        for number, copy in [*((str(n), copy) for n, copy in enumerate(copies)), ("preloads", brought or {})]
    ]
    await jobs.server.create(
        DATASETS,
        obj={
            "apiVersion": "tdcs.io/v1alpha2",
            "kind": "Dataset",
            "metadata": {"name": "pictures", "namespace": "n"},
            "spec": {"source": {"uri": "s3://bucket/prefix"}},
            "status": {"totalBytes": 100, "claimName": "pictures", "conditions": [mounted], "copies": listed},
        },
    )


def annotated(jobs: Jobs, name: str) -> object:
    """The copy that the pods of a job ask the extender for."""
    annotations = jobs.job(f"{name}-worker")["spec"]["template"]["metadata"]["annotations"]
    return json.loads(annotations["tdcs.io/datasets"])[0]["copy"]


READS: dict[str, Any] = {"datasets": [{"name": "pictures", "mountPath": "/data"}]}


async def test_no_job_is_dealt_out_to_what_preloads_brought_but_it_counts_as_near() -> None:
    async with Jobs(gpus={"a": 1, "b": 1, "c": 4}) as jobs:
        await pictures(jobs, {"a": 100}, {"b": 100}, brought={"c": 100})
        await jobs.stranger("one", node="a", gpus=1)
        await jobs.stranger("two", node="b", gpus=1)
        await jobs.create("first", workers=2, **READS)
        await jobs.until(lambda: jobs.bound("first") == 2)
        assert annotated(jobs, "first") in ("0", "1")
        await jobs.until(lambda: jobs.status("first").get("locality") == 1.0)


def copies_read(jobs: Jobs, name: str) -> dict[str, str]:
    return {use["dataset"]: use["copy"] for use in jobs.status(name)["copies"]}


async def test_jobs_are_dealt_out_to_the_copies_that_have_room_and_then_fewest_readers() -> None:
    async with Jobs(gpus={"a": 4, "b": 4, "c": 4, "d": 4}) as jobs:
        await pictures(jobs, {"a": 50, "b": 50}, {"c": 50, "d": 50})
        await jobs.stranger("stranger", node="a", gpus=4)
        await jobs.create("first", workers=6, **READS)
        await jobs.until(lambda: jobs.bound("first") == 6)
        # Near copy 0 there is room for four pods only.
        assert copies_read(jobs, "first") == {"pictures": "1"}
        assert annotated(jobs, "first") == "1"
        await jobs.create("second", workers=1, **READS)
        await jobs.until(lambda: jobs.bound("second") == 1)
        # The scheduler, which knows nothing of data here, has filled the nodes of copy 0.
        assert annotated(jobs, "second") == "1"
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.create("third", workers=1, **READS)
        await jobs.until(lambda: jobs.bound("third") == 1)
        assert annotated(jobs, "third") == "0"


async def test_a_job_that_waits_reads_no_copy_yet_and_one_that_goes_on_keeps_its_own() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}) as jobs:
        await pictures(jobs, {"a": 100}, {"b": 100})
        await jobs.stranger("stranger", node="a", gpus=4)
        await jobs.create("waits", workers=6, **READS)
        await jobs.until_state("Queued", "waits")
        assert not jobs.status("waits").get("copies")
        await jobs.create("runs", workers=2, **READS)
        await jobs.until(lambda: jobs.bound("runs") == 2)
        assert annotated(jobs, "runs") == "1"
        await jobs.server.delete(PODS, name="stranger", namespace="else")
        await jobs.change("runs", runPolicy={"suspend": True})
        await jobs.until(lambda: not jobs.pods("runs"))
        await jobs.change("runs", runPolicy={"suspend": False})
        await jobs.until(lambda: jobs.bound("runs") == 2)
        assert copies_read(jobs, "runs") == {"pictures": "1"}
        assert annotated(jobs, "runs") == "1"
