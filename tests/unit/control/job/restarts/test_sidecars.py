"""Stories of containers that a webhook adds to pods, and that never end."""

from typing import Any

import pytest
from tests.unit.control.job.restarts.test_job_restarts import again, uids
from tests.unit.control.jobs import Jobs

from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PODS


async def program_ends(jobs: Jobs, pods: list[Object], *, code: int = 0) -> None:
    """The program of these pods ends, and the proxy next to it goes on."""
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": utc_now()}
    containers = [
        {"name": "proxy", "state": {"running": {"startedAt": utc_now()}}},
        {"name": "main", "state": {"terminated": ended}},
    ]
    for pod in pods:
        await jobs.server.merge(
            PODS,
            name=pod["metadata"]["name"],
            namespace="n",
            patch={"status": {"conditions": [], "containerStatuses": containers}},
        )


async def woken(jobs: Jobs) -> None:
    """The grace is over on the operator's clock, and the job is looked at."""
    jobs.advance(31)
    await jobs.change(runPolicy={"activeDeadlineSeconds": 1000})


async def running(jobs: Jobs, **spec: Any) -> None:
    await jobs.create(workers=2, **spec)
    await jobs.until(lambda: jobs.bound("train") == 2)
    await jobs.run()
    await jobs.until_state("Running")


@pytest.mark.failure_mode("sidecar-runs-on")
async def test_a_job_whose_programs_have_ended_ends_and_frees_its_gpus_though_a_sidecar_runs() -> None:
    async with Jobs(gpus={"a": 2}) as jobs:
        await running(jobs)
        await program_ends(jobs, jobs.pods("train")[:1])
        await woken(jobs)
        await program_ends(jobs, jobs.pods("train")[1:])
        for _ in range(10):
            await jobs.play()
        assert jobs.status()["state"] != "Succeeded"  # the second one has its grace
        await woken(jobs)
        await jobs.until_state("Succeeded")
        assert "containers that no template names still ran" in jobs.status()["message"]
        await jobs.create("next", workers=2)
        await jobs.until(lambda: jobs.bound("next") == 2)


async def test_a_program_that_failed_next_to_a_sidecar_restarts_all_where_they_need_it() -> None:
    async with Jobs(gpus={"a": 2}) as jobs:
        await running(jobs, framework="PyTorch")
        before = uids(jobs)
        await program_ends(jobs, jobs.pods("train")[1:], code=3)
        await woken(jobs)
        await jobs.until(lambda: jobs.status().get("restarts") == 1)
        await again(jobs, workers=2, before=before)
        assert jobs.status()["restartsCountTowardsMax"] == 1


async def test_an_independent_worker_that_failed_next_to_a_sidecar_is_said_to_be_held_up() -> None:
    async with Jobs(gpus={"a": 2}) as jobs:
        await running(jobs)
        await program_ends(jobs, jobs.pods("train")[1:], code=3)
        await woken(jobs)
        await jobs.until(lambda: jobs.status().get("reason") == "SidecarRunning")
        assert "container main ended with exit code 3" in jobs.status()["message"]
        assert "have that one end, or delete the pod" in jobs.status()["message"]
