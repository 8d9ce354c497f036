"""Stories of jobs that avoid a node, and wait."""

import pytest
from tests.unit.control.job.restarts.test_job_restarts import again, runs
from tests.unit.control.jobs import Jobs

from tdcs.model.kube_resources import NODES, TRAINING_JOBS


async def avoids(jobs: Jobs, node: str) -> None:
    """The job waits, suspended, and avoids a node, as after two failures there."""
    await jobs.change(runPolicy={"suspend": True})
    await jobs.until_state("Suspended")
    status = {"avoidedNodes": [node], "nodeFailures": [{"node": node, "failures": 2}]}
    await jobs.server.merge_status(TRAINING_JOBS, name="train", namespace="n", patch={"status": status})


@pytest.mark.failure_mode("nodes-go-while-job-avoids-one")
async def test_a_job_runs_on_the_node_that_it_avoids_when_the_others_are_gone() -> None:
    async with Jobs(gpus={"a": 2, "b": 2}) as jobs:
        before = await runs(jobs, workers=1, gpus=2)
        await avoids(jobs, "a")
        await jobs.server.delete(NODES, name="b")
        await jobs.change(runPolicy={"suspend": False})
        await again(jobs, workers=1, before=before)
        assert not jobs.status().get("avoidedNodes")
        assert jobs.status()["nodeFailures"] == [{"node": "a", "failures": 2}]
        assert jobs.events().count("AvoidedNodesNeeded") == 1


async def test_a_job_that_waits_for_other_nodes_than_the_avoided_one_says_so_until_they_go() -> None:
    async with Jobs(gpus={"a": 2, "b": 2}) as jobs:
        before = await runs(jobs, workers=1, gpus=2)
        await avoids(jobs, "a")
        await jobs.server.merge(NODES, name="a", patch={"spec": {"unschedulable": True}})
        await jobs.create("other", workers=1, gpus=2)
        await jobs.until(lambda: jobs.bound("other") == 1)
        await jobs.server.merge(NODES, name="a", patch={"spec": {"unschedulable": None}})
        await jobs.change(runPolicy={"suspend": False})
        await jobs.until_state("Queued")
        message = jobs.status()["message"]
        assert "without node a, where the job failed repeatedly (status.nodeFailures)" in message
        assert jobs.status()["avoidedNodes"] == ["a"]
        await jobs.server.delete(NODES, name="b")
        await again(jobs, workers=1, before=before)
