"""`tdcs queue move` of jobs that the own queue does not order, and of ranks that no job can have."""

import click
import pytest
from tests.unit.control.jobs import Jobs
from tests.unit.control.kueue.test_one_admitter import waiting_in_kueue

from tdcs.cli.queue_command import move_job


async def test_a_job_in_kueue_is_not_moved_and_its_owner_hears_who_orders_it() -> None:
    async with Jobs(gpus={"a": 1}, kueue=True) as jobs:
        await waiting_in_kueue(jobs, "queued")
        await jobs.until(lambda: jobs.status("queued").get("queueName") == "gpu")
        with pytest.raises(click.ClickException) as refused:
            await move_job(jobs.server, namespace="n", name="queued", first=True)
        assert "LocalQueue gpu of Kueue, which orders its jobs by priority, then by age" in str(refused.value)
        assert "kubectl label trainingjob queued -n n --overwrite kueue.x-k8s.io/priority-class=CLASS" in str(
            refused.value
        )
        assert "rank" not in (jobs.training_job("queued")["spec"].get("scheduling") or {})
        # Nor is it among those that a job of the own queue is put before.
        for name in ("older", "younger"):
            await jobs.create(name, workers=2)
            await jobs.until_state("Queued", name)
        (line,) = await move_job(jobs.server, namespace="n", name="younger", first=True)
        assert "before 1 other waiting job of its namespace" in line


async def test_a_job_whose_operator_does_not_follow_kueue_is_moved_whatever_label_it_has() -> None:
    async with Jobs(gpus={"a": 1}) as jobs:
        for name in ("older", "younger"):
            await jobs.create(name, labels={"kueue.x-k8s.io/queue-name": "gpu"}, workers=2)
            await jobs.until_state("Queued", name)
        (line,) = await move_job(jobs.server, namespace="n", name="younger", first=True)
        assert "rank -1" in line


@pytest.mark.parametrize(
    ("first", "bound", "rank"), [(True, -1_000_000, -1_000_001), (False, 1_000_000, 1_000_001)]
)
async def test_a_move_beyond_the_last_rank_says_which_job_has_it(first: bool, bound: int, rank: int) -> None:
    async with Jobs(gpus={"a": 1}) as jobs:
        await jobs.create("outermost", workers=2, scheduling={"rank": bound})
        await jobs.create("moved", workers=2)
        for name in ("outermost", "moved"):
            await jobs.until_state("Queued", name)
        with pytest.raises(click.ClickException) as refused:
            await move_job(jobs.server, namespace="n", name="moved", first=first)
        assert f"cannot have rank {rank}: ranks go from -1000000 to 1000000" in str(refused.value)
        assert f"TrainingJob n/outermost has {bound}" in str(refused.value)
