"""Checkpoints of a pipeline: what stays, what is refused, and by which sentence."""

import itertools
import json
import resource
from pathlib import Path

import pytest
import torch
from tests.training.processes import CHECKOUT, Job

from tdcs_train.errors import InputError
from tdcs_train.model.errors import PlanError
from tdcs_train.pipeline import checkpoint
from tdcs_train.pipeline.checkpoint import Checkpoint, Kept

SCRIPT = CHECKOUT / "tests" / "training" / "pipeline" / "pipeline_worker.py"
NODES = [f"node{number}" for number in range(2, 9)]


def state(done: int, *, stage: int = 0, plan: str = "one", size: int = 4) -> Checkpoint:
    """A checkpoint with one tensor."""
    return Checkpoint(
        stage=stage, done=done, plan=plan, model={"0.weight": torch.zeros(size)}, optimizer=None
    )


def plan_of(folder: Path, *cuts: int) -> list[str]:
    """The options for a plan of stages with one worker each that begin at these layers."""
    ends = [0, *cuts, len(NODES)]
    stages = [{"nodes": NODES[begin:end], "replicas": 1} for begin, end in itertools.pairwise(ends)]
    path = folder / f"plan-{len(stages)}.json"
    path.write_text(json.dumps({"stages": stages}))
    return ["--plan", str(path)]


def test_a_step_that_was_just_written_stays_though_higher_ones_are_there(tmp_path: Path) -> None:
    for done in (16, 24, 32, 8):
        path = checkpoint.save(tmp_path, state(done))
        assert path.exists()
    assert checkpoint.steps_in(tmp_path) == {0: [8, 24, 32]}
    checkpoint.save(tmp_path, state(40))
    assert checkpoint.steps_in(tmp_path) == {0: [32, 40]}


def test_a_folder_with_checkpoints_but_no_common_step_is_refused_with_what_is_there(tmp_path: Path) -> None:
    for done in (8, 16):
        checkpoint.save(tmp_path, state(done))
    checkpoint.save(tmp_path, state(24, stage=1))
    files = checkpoint.kept_in(tmp_path)
    sentence = r"no step of all 3 stages \(stage 0 has 8, 16; stage 1 has 24; stage 2 has none\)"
    with pytest.raises(PlanError, match=sentence) as refused:
        checkpoint.check_start(tmp_path, files, stages=3, plan="one")
    assert str(tmp_path) in str(refused.value)
    with pytest.raises(PlanError, match=r"stage-0\.step-000000008\.pt was written with another plan"):
        checkpoint.check_start(tmp_path, files, stages=3, plan="other")


def test_a_first_save_that_was_cut_short_and_an_empty_folder_are_no_reason_to_refuse(tmp_path: Path) -> None:
    checkpoint.check_start(tmp_path / "absent", checkpoint.kept_in(tmp_path / "absent"), stages=2, plan="one")
    checkpoint.save(tmp_path, state(8))
    checkpoint.check_start(tmp_path, checkpoint.kept_in(tmp_path), stages=2, plan="one")
    with pytest.raises(PlanError, match="was written with another plan"):
        checkpoint.check_start(tmp_path, checkpoint.kept_in(tmp_path), stages=2, plan="other")


def test_the_newest_step_is_one_that_every_worker_can_go_on_from() -> None:
    old = [Kept(stage=stage, step=8, plan="old", stages=3) for stage in range(3)]
    new = [Kept(stage=stage, step=16, plan="new", stages=2) for stage in range(2)]
    newest = checkpoint.newest_common
    assert newest([[*old, *new], [*old, *new]], [0, 1], plan="new") == new[0]
    assert newest([[new[0]], [new[1]]], [0, 1], plan="new") == new[0]  # each has a folder of its own
    assert newest([[*old, new[0]], [*old, new[0]]], [0, 1], plan="new") == old[0]
    assert newest([[*old, *new], [*old]], [0, 0], plan="third") == old[0]
    assert newest([[*old[:2]], [*old]], [0, 1], plan="new") is None
    assert newest([[], []], [0, 1], plan="new") is None


def test_a_folder_that_is_a_file_or_takes_no_more_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for use in (lambda: checkpoint.steps_in(file), lambda: checkpoint.save(file, state(8))):
        with pytest.raises(InputError, match=r"checkpoints cannot be kept in .*file: .*; give a folder"):
            use()
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, former[1]))
    try:
        with pytest.raises(InputError, match=f"cannot be kept in {tmp_path / 'full'}: "):
            checkpoint.save(tmp_path / "full", state(8, size=100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert list((tmp_path / "full").iterdir()) == []


def test_a_job_with_another_number_of_stages_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    common = ["--mode", "flush", "--count", "2", "--checkpoints", str(tmp_path / "kept")]
    with Job(SCRIPT, 2, tmp_path, [*plan_of(tmp_path, 4), *common]) as job:
        assert job.end(within=60) == [0, 0], [worker.errors for worker in job.workers]
    with Job(SCRIPT, 3, tmp_path, [*plan_of(tmp_path, 2, 4), *common, "--rounds", "3"]) as job:
        assert job.end(within=60) == [0, 0, 0], [worker.errors for worker in job.workers]
        assert all("resumed after 4" in worker.output for worker in job.workers)
        moved = job.workers[0].results()
    arguments = [*common[:-1], str(tmp_path / "other"), "--rounds", "3"]
    with Job(SCRIPT, 2, tmp_path, [*plan_of(tmp_path, 4), *arguments]) as job:
        assert job.end(within=60) == [0, 0], [worker.errors for worker in job.workers]
        whole = job.workers[0].results()
    assert moved[0]["loss"] == pytest.approx(whole[2]["loss"], abs=1e-6)


def test_checkpoints_of_another_width_or_optimizer_are_refused_with_the_file(tmp_path: Path) -> None:
    common = [*plan_of(tmp_path, 4), "--count", "4", "--checkpoints", str(tmp_path / "kept")]
    with Job(SCRIPT, 2, tmp_path, [*common, "--rounds", "1"]) as job:
        assert job.end(within=60) == [0, 0], [worker.errors for worker in job.workers]
    for option in (["--width", "7"], ["--frozen", "1"]):
        with Job(SCRIPT, 2, tmp_path, [*common, *option]) as job:
            assert job.end(within=60) == [2, 2]
            assert any(
                "step-000000004.pt is of another model or optimizer: " in w.errors for w in job.workers
            )
            assert not any("Traceback" in worker.errors for worker in job.workers)
