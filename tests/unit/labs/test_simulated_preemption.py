"""Simulated jobs give way to more important ones by the operator's own rule, and lose nothing that they have read."""

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.labs.conftest import synthetic_jobs

from tdcs.api.failures import InputError
from tdcs.cli.main import main
from tdcs_labs.engine import Simulation
from tdcs_labs.run import SCHEMES
from tdcs_labs.scenario import Scenario
from tdcs_labs.store import StoreLimits
from tdcs_labs.trace import TraceJob, read_trace
from tdcs_labs.workload import assign_work

SMALL = Scenario(
    nodes=4,
    cache_bytes=200e9,
    store=StoreLimits(bytes_per_second=5e8, requests_per_second=4000),
    preemption=True,
)


def jobs_of_two_classes(count: int) -> list[TraceJob]:
    """Every fifth job is important."""
    return [
        dataclasses.replace(job, priority=100 if number % 5 == 0 else 0)
        for number, job in enumerate(synthetic_jobs(count=count))
        if job.gpus <= SMALL.gpus
    ]


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_a_job_that_gave_way_reads_all_its_bytes_once_and_no_gpu_is_lost(scheme: str) -> None:
    work = assign_work(jobs=jobs_of_two_classes(100))
    run = Simulation(work=work, scenario=SMALL, scheme=SCHEMES[scheme])
    run.run()
    assert run.preemptions > 0
    for job in run.jobs:
        assert job.read_bytes == pytest.approx(job.work, rel=1e-6, abs=10)
        assert not (job.was_preempted and job.priority)
    assert set(run.cluster.free.values()) == {SMALL.gpus_per_node}
    useful = sum(item.job.duration * item.job.gpus for item in work)
    assert run.busy_gpu_seconds >= useful * (1 - 1e-6)


def test_important_jobs_start_sooner_with_preemption() -> None:
    work = assign_work(jobs=jobs_of_two_classes(100))

    def waited(scenario: Scenario) -> float:
        run = Simulation(work=work, scenario=scenario, scheme=SCHEMES["tdcs"])
        run.run()
        return sum(job.started - job.submitted for job in run.jobs if job.priority)

    assert waited(SMALL) < waited(dataclasses.replace(SMALL, preemption=False))


TRACE = """timestamp,duration,num_gpus,cluster,priority
2017-10-01 00:00:00,5000,8,a,
2017-10-01 00:00:10,100,8,b,10
"""


def test_the_command_says_how_many_jobs_gave_way(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    arguments = ["simulate", "trace", "--trace", str(path), "--nodes", "1", "--json"]
    report = json.loads(CliRunner().invoke(main, [*arguments, "--preemption"]).output)
    assert report["preemptions"] == 1
    without = json.loads(CliRunner().invoke(main, arguments).output)
    assert "preemptions" not in without
    assert report["meanJctSeconds"] < without["meanJctSeconds"]


def test_a_priority_that_is_no_whole_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE.replace(",b,10", ",b,high"))
    with pytest.raises(InputError, match="row 3: priority must be a whole number, got high"):
        read_trace(path=path)
