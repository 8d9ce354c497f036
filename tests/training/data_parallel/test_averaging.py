"""Gradients that travel by priority beside plain data parallel: real process groups of gloo."""

import itertools
from pathlib import Path

import pytest
from tests.training.processes import CHECKOUT, Job

from tdcs_train.data_parallel.trial import Trial

SCRIPT = CHECKOUT / "tests" / "training" / "data_parallel" / "averaging_worker.py"


def test_losses_are_those_of_plain_data_parallel_and_what_waits_goes_by_its_first_use(
    tmp_path: Path,
) -> None:
    workers = 3
    with Job(SCRIPT, workers, tmp_path) as job:
        assert job.end(within=100) == [0] * workers, [worker.errors for worker in job.workers]
        for worker in job.workers:
            *runs, faster, slower, order = worker.results()
            assert len(runs) == 4
            for run in runs:
                assert run["priority"] == pytest.approx(run["plain"], abs=1e-5)
                assert float(str(run["difference"])) < 1e-5
            # One plain step, then in turns, then what was found to be faster.
            turns = [False] * 3 + [True] * 3 + [False] * 2
            for run, gain in ((faster, 2.0), (slower, 0.5)):
                assert run["priority"] == pytest.approx(run["plain"], abs=1e-5)
                assert run["gain"] == gain
                assert run["ways"] == turns + [gain > 1] * 4
                # Where plain averaging is faster, the model goes on as if it had never had a hook.
                assert run["hooked"] == [True] * len(turns) + [gain > 1] * 4
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
        (messages,) = job.workers[0].results()
        assert "find_unused_parameters=True: gradients by priority" in str(messages["unused"])
        assert "static_graph=True: gradients by priority" in str(messages["static"])
        assert "has a process group of 1 of 2 workers" in str(messages["part"])
        assert "is used between backward and step" in str(messages["clipped"])
        assert "error: averaging gradients failed" in job.workers[0].errors


def test_of_both_ways_the_one_with_the_smaller_median_is_found_whatever_a_change_costs() -> None:
    # The iteration after a change is left out (50), and one that something else held up counts little (9).
    plain, priority = [50, 4, 4, 9], [50, 3, 3, 9, 3, 3, 3]
    moments = iter([0, *itertools.accumulate([*plain, *priority, *plain])])
    trial = Trial(3, lambda: float(next(moments)))
    trial.begin()
    ways = []
    while not trial.ended:
        ways.append(trial.by_priority)
        trial.step()
    assert ways == [False] * 4 + [True] * 7 + [False] * 4
    assert trial.gain == 4 / 3
    assert trial.by_priority


def test_a_trial_of_no_steps_has_ended_for_priority() -> None:
    trial = Trial(0)
    assert trial.ended
    assert trial.by_priority
    assert trial.gain == 1.0
