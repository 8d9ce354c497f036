"""Pipelines of processes over TCP: they learn the same as threads do, resume, and end when a worker is lost."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.training.processes import CHECKOUT, Job

SCRIPT = CHECKOUT / "tests" / "training" / "pipeline" / "pipeline_worker.py"
FRONT, BACK = ["node2", "node3", "node4", "node5"], ["node6", "node7", "node8"]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Stages 2-1."""
    path = tmp_path / "plan.json"
    stages = [{"nodes": FRONT, "replicas": 2}, {"nodes": BACK, "replicas": 1}]
    path.write_text(json.dumps({"stages": stages}))
    return path


def finished(job: Job) -> list[list[dict[str, object]]]:
    codes = job.end(within=60)
    assert codes == [0] * len(codes), [worker.errors for worker in job.workers]
    return [worker.results() for worker in job.workers]


@pytest.mark.parametrize("ahead", [0, 1])
def test_replicas_of_a_stage_end_with_equal_weights_and_the_loss_falls(
    plan: Path, tmp_path: Path, ahead: int
) -> None:
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "ahead": ahead}))
    with Job(SCRIPT, 3, tmp_path, ["--plan", str(plan), "--rounds", "6", "--count", "100"]) as job:
        first, second, last = finished(job)
    assert first[-1]["weights"] == second[-1]["weights"]
    assert [result["versions"] for result in (first[-1], second[-1], last[-1])] == [
        2 + ahead,
        2 + ahead,
        1,
    ]
    losses = [float(str(result["loss"])) for result in last[:-1]]
    assert losses == [result["loss"] for result in first[:-1]]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("mode", ["stash", "flush"])
def test_a_job_that_lost_a_worker_resumes_and_ends_as_the_undisturbed_one(
    plan: Path, tmp_path: Path, mode: str
) -> None:
    common = ["--plan", str(plan), "--mode", mode, "--rounds", "4"]
    with Job(SCRIPT, 3, tmp_path, [*common, "--checkpoints", str(tmp_path / "calm")]) as job:
        calm = finished(job)
    disturbed = [*common, "--checkpoints", str(tmp_path / "disturbed")]
    with Job(SCRIPT, 3, tmp_path, [*disturbed, "--pause", "0.3"]) as job:
        job.workers[0].await_line('"done": 24')
        job.workers[2].process.kill()
        codes = job.end(within=30)
        assert codes == [2, 2, -signal.SIGKILL]
        for worker in job.workers[:2]:
            assert "error: rank 2 (stage 1) ended" in worker.errors
            assert "Traceback" not in worker.errors
    with Job(SCRIPT, 3, tmp_path, disturbed) as job:
        resumed = finished(job)
        assert all("resumed after 24" in worker.output for worker in job.workers)
    assert [results[-1] for results in resumed] == [results[-1] for results in calm]


def test_every_worker_of_a_long_pipeline_names_the_one_that_ended_first(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    stages = [FRONT[:2], FRONT[2:], BACK[:2], BACK[2:]]
    plan.write_text(json.dumps({"stages": [{"nodes": nodes, "replicas": 1} for nodes in stages]}))
    with Job(SCRIPT, 4, tmp_path, ["--plan", str(plan), "--rounds", "100000"]) as job:
        job.workers[1].await_line('"done": 12')
        job.workers[3].process.kill()
        assert job.end(within=30) == [2, 2, 2, -signal.SIGKILL]
        for worker in job.workers[:3]:
            assert "rank 3 (stage 3) ended" in worker.errors
            assert "Traceback" not in worker.errors


def test_a_worker_that_is_killed_while_the_others_wait_for_its_checkpoint_ends_them_at_once(
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan.json"
    stages = [FRONT, BACK[:1], BACK[1:]]
    plan.write_text(json.dumps({"stages": [{"nodes": nodes, "replicas": 1} for nodes in stages]}))
    arguments = ["--plan", str(plan), "--checkpoints", str(tmp_path), "--timeout", "120", "--killed", "2"]
    with Job(SCRIPT, 3, tmp_path, arguments) as job:
        assert job.end(within=60) == [2, 2, -signal.SIGKILL]
        for worker in job.workers[:2]:
            assert "rank 2 (stage 2) ended" in worker.errors
            assert "Traceback" not in worker.errors


def test_a_worker_that_stalls_ends_the_others_with_its_name_within_the_timeout(
    plan: Path, tmp_path: Path
) -> None:
    arguments = ["--plan", str(plan), "--rounds", "100000", "--timeout", "5"]
    with Job(SCRIPT, 3, tmp_path, arguments) as job:
        job.workers[0].await_line('"done": 12')
        os.kill(job.workers[2].pid, signal.SIGSTOP)
        begin = time.monotonic()
        codes = [worker.end(within=25) for worker in job.workers[:2]]
        assert time.monotonic() - begin < 20
        assert codes == [2, 2]
        assert any("rank 2 (stage 1) has sent nothing for 5 s" in worker.errors for worker in job.workers[:2])
        assert not any("Traceback" in worker.errors for worker in job.workers[:2])


def test_workers_of_which_one_has_another_version_end_with_its_name(plan: Path, tmp_path: Path) -> None:
    with Job(SCRIPT, 3, tmp_path, ["--plan", str(plan)], of_rank={1: {"SCRIPT": "2"}}) as job:
        codes = job.end(within=40)
    assert codes == [2, 2, 2]
    assert "rank 1" in job.workers[0].errors
    assert "has script 2, rank 0 has 1; all workers must have the same" in job.workers[0].errors


def test_a_worker_that_does_not_come_is_named_within_the_timeout(plan: Path, tmp_path: Path) -> None:
    with Job(
        SCRIPT, 2, tmp_path, ["--plan", str(plan), "--timeout", "3"], environment={"WORLD_SIZE": "3"}
    ) as job:
        codes = job.end(within=30)
    assert codes == [2, 2]
    assert "rank 2 of 3 did not come within 3 s" in job.workers[0].errors


def test_a_plan_for_another_number_of_workers_is_refused(plan: Path, tmp_path: Path) -> None:
    with Job(SCRIPT, 2, tmp_path, ["--plan", str(plan)]) as job:
        codes = job.end(within=30)
    assert codes == [2, 2]
    assert "is a plan for 3 workers (2-1), the job has 2 (WORLD_SIZE)" in job.workers[0].errors


def test_batches_that_replicas_cannot_share_evenly_are_refused(plan: Path, tmp_path: Path) -> None:
    with Job(SCRIPT, 3, tmp_path, ["--plan", str(plan), "--count", "7", "--rounds", "1"]) as job:
        codes = job.end(within=40)
    assert codes == [2, 2, 2]
    message = "7 mini-batches cannot be shared by the 2 replicas of stage 0: give a multiple of 2, such as 6"
    assert message in job.workers[0].errors


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--mode", "flush"], "by which mode flush gains nothing"),
        (["--vertical-sync"], "which vertical_sync does not know"),
    ],
    ids=["flush", "vertical sync"],
)
def test_a_plan_with_more_in_flight_is_refused_where_that_means_nothing(
    plan: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "ahead": 1}))
    with Job(SCRIPT, 3, tmp_path, ["--plan", str(plan), *arguments]) as job:
        codes = job.end(within=30)
    assert codes == [2, 2, 2]
    for worker in job.workers:
        assert f"error: the plan has ahead 1, {reason}" in worker.errors
        assert "Traceback" not in worker.errors
