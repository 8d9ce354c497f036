"""Gradients that travel by priority beside plain data parallel: real process groups of gloo."""

from pathlib import Path

import pytest
from tests.training.processes import CHECKOUT, Job

SCRIPT = CHECKOUT / "tests" / "training" / "data_parallel" / "averaging_worker.py"


def test_losses_are_those_of_plain_data_parallel_and_what_waits_goes_by_its_first_use(
    tmp_path: Path,
) -> None:
    workers = 3
    with Job(SCRIPT, workers, tmp_path) as job:
        assert job.end(within=100) == [0] * workers, [worker.errors for worker in job.workers]
        for worker in job.workers:
            *runs, order = worker.results()
            assert len(runs) == 4
            for run in runs:
                assert run["priority"] == pytest.approx(run["plain"], abs=1e-5)
                assert float(str(run["difference"])) < 1e-5
            # Backward makes the gradients of the last layer first; what waits goes by first use.
            offered, groups = order["offered"], order["groups"]
            assert isinstance(offered, list)
            assert isinstance(groups, list)
            assert offered != sorted(offered)
            assert order["sent"] == sorted(offered) == list(range(len(offered)))
            assert (groups[0][0], groups[-1][-1]) == ("0.weight", "5.bias")


def test_what_cannot_work_is_refused_and_a_killed_worker_ends_the_others_with_a_sentence(
    tmp_path: Path,
) -> None:
    with Job(SCRIPT, 2, tmp_path, environment={"KILLED": "yes"}) as job:
        assert job.end(within=100) == [2, 9], [worker.errors for worker in job.workers]
        (said,) = job.workers[0].results()
        assert "find_unused_parameters=True: gradients by priority" in str(said["unused"])
        assert "is used between backward and step" in str(said["clipped"])
        assert "error: averaging gradients failed" in job.workers[0].errors
