"""Stories of gangs that hold GPUs and do not run: at their start, and after they have lost pods."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.job.queue.test_job_requeue import observed_of, pod
from tests.unit.control.jobs import Jobs, index_of

from tdcs.api import names
from tdcs.api.conditions import finding
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.job.start_timeout import held_up
from tdcs.decide.job.unplaced_pods import idle_workers, short_of
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import EVENTS, PODS, PRIORITY_CLASSES


async def hold_up(jobs: Jobs, pods: list[Object], *, reason: str, phase: str = "Pending") -> None:
    """The containers of these pods wait for this."""
    waits = {"name": "main", "state": {"waiting": {"reason": reason, "message": "Back-off"}}}
    for obj in pods:
        await jobs.server.merge(
            PODS,
            name=obj["metadata"]["name"],
            namespace="n",
            patch={"status": {"phase": phase, "containerStatuses": [waits]}},
        )


def event_message(jobs: Jobs, reason: str) -> str:
    """What the event with this reason says; empty when there is none."""
    events = jobs.server.store(EVENTS).values()
    return next((str(event["message"]) for event in events if event["reason"] == reason), "")


@pytest.mark.parametrize(
    ("reason", "phase"), [("ImagePullBackOff", "Pending"), ("CrashLoopBackOff", "Running")]
)
@pytest.mark.failure_mode("gang-pod-does-not-start")
async def test_a_pod_that_does_not_start_does_not_hold_the_gpus_of_its_gang_forever(
    reason: str, phase: str
) -> None:
    async with Jobs(gpus={"a": 8}, patience=2.0) as jobs:
        await jobs.create(workers=8)
        await jobs.until(lambda: jobs.bound("train") == 8)
        await hold_up(jobs, jobs.pods("train")[3:4], reason=reason, phase=phase)
        await jobs.create("other")
        jobs.advance(590)
        await jobs.until(lambda: jobs.condition("Queued", "other").get("status") == "True")
        assert jobs.bound("train") == 8
        jobs.advance(11)
        await jobs.change(runPolicy={"backoffLimit": 5})  # wakes it, as its timer runs on the machine's clock
        await jobs.until(lambda: jobs.bound("other") == 2)
        message = event_message(jobs, "StartTimeout")
        assert "did not run within 600 s (runPolicy.startTimeoutSeconds)" in message
        assert f"train-worker-3-0 on node a: {reason}: Back-off" in message
        assert jobs.status()["state"] == "Queued"
        # It comes back, and says what it tries again.
        for other_pod in jobs.pods("other"):
            await jobs.run("other")
            await jobs.end(other_pod)
        await jobs.until(lambda: jobs.bound("train") == 8)
        assert "it is tried again: it did not run within 600 s" in jobs.status()["message"]
        await jobs.until_running()


@pytest.mark.failure_mode("gang-pod-does-not-start")
async def test_a_gang_that_is_held_up_again_pauses_longer() -> None:
    async with Jobs(gpus={"a": 2}, patience=0.4) as jobs:
        await jobs.create(runPolicy={"startTimeoutSeconds": 1})
        await jobs.until(
            lambda: "for the 2nd time, after a longer pause" in jobs.condition("Admitted").get("message", "")
        )
        assert event_message(jobs, "StartTimeout")


@pytest.mark.failure_mode("gang-loses-node")
async def test_independent_workers_are_not_ended_because_one_waits_for_its_node() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=0.2) as jobs:
        jobs.server.store(PRIORITY_CLASSES)["", "high"] = {"metadata": {"name": "high"}, "value": 1000}
        await jobs.create(workers=8)
        await jobs.until(lambda: jobs.bound("train") == 8)
        await jobs.until_running()
        before = {obj["metadata"]["uid"] for obj in jobs.pods("train")}
        await jobs.create("urgent", workers=1, scheduling={"gang": False, "priorityClassName": "high"})
        await jobs.until(lambda: len(jobs.pods("urgent")) == 1)
        victim = jobs.pods("train")[5]
        # The scheduler preempts one pod for the other job.
        await jobs.server.delete(PODS, name=victim["metadata"]["name"], namespace="n")
        await jobs._merge(PODS, jobs.pods("urgent")[0], {"spec": {"nodeName": victim["spec"]["nodeName"]}})
        await jobs.until(lambda: jobs.condition("Running").get("reason") == "Unschedulable")
        jobs.advance(100_000)
        await jobs.change(runPolicy={"backoffLimit": 5})
        for _ in range(20):
            await jobs.play()
        await jobs.until(lambda: jobs.condition("Running").get("observedGeneration", 0) > 1)
        assert len(before & {obj["metadata"]["uid"] for obj in jobs.pods("train")}) == 7


@pytest.mark.failure_mode("gang-loses-node")
async def test_a_gang_that_lost_a_node_keeps_its_room_until_the_time_to_recover_is_over() -> None:
    async with Jobs(gpus={"a": 4, "b": 4}, patience=0.2) as jobs:
        await jobs.create(framework="PyTorch", workers=8)
        await jobs.until(lambda: jobs.bound("train") == 8)
        await jobs.until_running()
        await jobs.stranger("stranger", node="b", gpus=1)
        lost = next(obj for obj in jobs.pods("train") if obj["spec"]["nodeName"] == "b")
        await jobs.server.delete(PODS, name=lost["metadata"]["name"], namespace="n")
        await jobs.until(lambda: jobs.status().get("restarts") == 1)
        await jobs.until(lambda: jobs.condition("Running").get("reason") == "Unschedulable")
        await jobs.create("other", workers=4)
        await jobs.until(lambda: jobs.condition("Queued", "other").get("status") == "True")
        assert jobs.bound("train") == 7
        jobs.advance(1801)
        await jobs.change(runPolicy={"backoffLimit": 5})
        await jobs.until(lambda: jobs.bound("other") == 4)
        message = event_message(jobs, "RecoveryTimeout")
        assert "did not run again within 1800 s (runPolicy.recoveryTimeoutSeconds)" in message


@pytest.mark.failure_mode("elastic-gang-loses-first-worker")
async def test_an_elastic_gang_that_loses_worker_0_and_its_node_goes_on_with_fewer() -> None:
    async with Jobs(gpus={f"n{i}": 1 for i in range(4)}, patience=0.2) as jobs:
        bounds = {"minReplicas": 2, "maxReplicas": 4}
        await jobs.create(framework="PyTorch", workers=4, elastic=bounds)
        await jobs.until(lambda: jobs.bound("train") == 4)
        await jobs.until_running()
        first = next(obj for obj in jobs.pods("train") if index_of(obj) == 0)
        await jobs.stranger("stranger", node=first["spec"]["nodeName"], gpus=1)
        await jobs.server.delete(PODS, name=first["metadata"]["name"], namespace="n")
        # The scheduler looks at worker 0 last: the others take all nodes that are left.
        jobs.refuses = lambda obj: index_of(obj) == 0
        await jobs.until(lambda: jobs.status().get("restarts") == 1)
        await jobs.until(lambda: jobs.bound("train") == 3)
        jobs.refuses = lambda obj: False
        await jobs.until(lambda: {index_of(obj) for obj in jobs.pods("train")} == {0, 1, 2})
        await jobs.until(lambda: jobs.bound("train") == 3)
        await jobs.until_running()
        assert jobs.status()["admittedWorkers"] == 3


def test_an_elastic_gang_without_its_meeting_point_is_short_and_does_with_fewer_workers() -> None:
    bounds = {"minReplicas": 2, "maxReplicas": 4}
    running = [pod(index, node="a", phase="Running") for index in range(1, 4)]
    lost = observed_of(pod(0, refused=True), *running, replicas=4, elastic=bounds)
    assert short_of(lost) is not None
    assert idle_workers(lost) == 1
    spare = observed_of(pod(0, node="a"), *running[:2], pod(3, refused=True), replicas=4, elastic=bounds)
    assert short_of(spare) is None


ADMITTED, RAN, NOW = "2026-01-02T03:00:00Z", "2026-01-02T04:00:00Z", "2026-01-02T04:05:00Z"


def admitted(*, ran: bool = False, **spec: Any) -> Observed:
    """A gang of two workers whose second does not run."""
    running = {"type": "Running", "status": "False", "reason": "PodsStarting", "lastTransitionTime": RAN}
    entered = {"type": "Admitted", "status": "True", "reason": "AllPodsFit", "lastTransitionTime": ADMITTED}
    status = {"conditions": [entered, running], **({"runningTime": ADMITTED} if ran else {})}
    observed = observed_of(pod(0, node="a"), pod(1, refused=True), replicas=2, **spec)
    return replace(observed, status=TrainingJobStatus.model_validate(status))


LEFT: dict[str, tuple[Observed, float | None]] = {
    "from its admission on": (admitted(), 600 - 3900),
    "as its spec says": (admitted(runPolicy={"startTimeoutSeconds": 4000}), 100),
    "from when it lost pods": (admitted(ran=True), 1500),
    "as its spec says of that": (admitted(ran=True, runPolicy={"recoveryTimeoutSeconds": 400}), 100),
    "independent workers": (admitted(ran=True, framework="None"), None),
    "those with their own bound": (
        admitted(ran=True, framework="None", runPolicy={"recoveryTimeoutSeconds": 400}),
        100,
    ),
    "workers that are restarted together": (
        admitted(ran=True, framework="None", runPolicy={"failurePolicy": {"restart": "All"}}),
        1500,
    ),
    "without gang": (admitted(scheduling={"gang": False}), None),
    "suspended": (admitted(runPolicy={"suspend": True}), None),
}


@pytest.mark.parametrize("name", LEFT)
def test_how_long_a_gang_may_take_to_run(name: str) -> None:
    observed, seconds_left = LEFT[name]
    waits = finding(names.RUNNING, False, "PodsStarting", "it waits")
    held_pods = held_up(observed, running=waits, now=NOW)
    assert (held_pods.seconds_left if held_pods else None) == seconds_left
    runs = finding(names.RUNNING, True, "PodsReady", "all run")
    assert held_up(observed, running=runs, now=NOW) is None
