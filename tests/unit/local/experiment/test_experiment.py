"""The live experiment's plan, what is predicted of it, and what its results come to."""

import itertools
import json
from dataclasses import replace

import pytest

from tdcs_local.experiment import objects
from tdcs_local.experiment.analysis import Measured, bars, measured_of, rows
from tdcs_local.experiment.plan import MOST_SECONDS, Configuration, Plan, Run, Setting
from tdcs_local.experiment.prediction import READ_CPU_SECONDS, predicted_seconds, simulated_seconds

SETTING = Setting(images=216, total_bytes=23_540_000)
COMPUTE = SETTING.epochs * SETTING.compute_seconds


def a_run(configuration: Configuration, *, jobs: int = 1, mbit: int = 27, repetition: int = 1) -> Run:
    return Run(configuration=configuration, jobs=jobs, mbit=mbit, repetition=repetition)


def predicted(configuration: Configuration, *, jobs: int = 1, mbit: int = 27) -> float:
    return predicted_seconds(a_run(configuration, jobs=jobs, mbit=mbit), SETTING, cache_bytes=2 << 30)


def measured(run: Run, *seconds: float) -> Measured:
    return Measured(
        run=run,
        predicted=predicted(run.configuration, jobs=run.jobs, mbit=run.mbit),
        simulated=simulated_seconds(run, SETTING),
        seconds=seconds,
        images=720,
        source_bytes=1,
    )


def test_all_runs_take_less_than_half_an_hour_by_their_own_estimate() -> None:
    assert Plan().estimated_seconds(SETTING) < MOST_SECONDS


def test_every_shared_run_follows_the_preloaded_one_of_its_dataset() -> None:
    found = list(Plan().runs())
    for before, after in itertools.pairwise(found):
        if after.configuration is Configuration.SHARED:
            assert before == a_run(
                Configuration.PRELOADED, jobs=after.jobs, mbit=after.mbit, repetition=after.repetition
            )


def test_the_slow_link_is_the_bound_and_the_fast_one_is_not() -> None:
    assert predicted(Configuration.DIRECT) >= 3.5 * COMPUTE
    assert predicted(Configuration.DIRECT, mbit=400) == pytest.approx(COMPUTE)


def test_jobs_that_read_directly_share_the_link_and_jobs_on_one_cold_cache_do_not() -> None:
    assert predicted(Configuration.DIRECT, jobs=4) == pytest.approx(4 * predicted(Configuration.DIRECT))
    first = SETTING.link_seconds(mbit=27)
    assert predicted(Configuration.STOCK) == pytest.approx(first + 2 * SETTING.compute_seconds)
    assert predicted(Configuration.SHARED, jobs=4) == pytest.approx(COMPUTE)


@pytest.mark.parametrize(("jobs", "cpus"), [(2, 2), (4, 2), (4, 4)])
def test_jobs_on_stock_alluxio_share_the_processors_for_its_fuse_client(jobs: int, cpus: int) -> None:
    setting = replace(SETTING, cpus=cpus)
    run = a_run(Configuration.STOCK, jobs=jobs)
    later = jobs * setting.images * READ_CPU_SECONDS[Configuration.STOCK] / cpus
    assert later > setting.compute_seconds
    assert predicted_seconds(run, setting, cache_bytes=2 << 30) == pytest.approx(
        setting.link_seconds(mbit=27) + 2 * later
    )


def test_results_of_before_there_was_a_number_of_processors_are_of_two() -> None:
    assert Setting(images=1, total_bytes=1).cpus == 2


@pytest.mark.parametrize("configuration", [Configuration.DIRECT, Configuration.SHARED])
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_simulator_and_prediction_agree(configuration: Configuration, jobs: int) -> None:
    found = simulated_seconds(a_run(configuration, jobs=jobs), SETTING)
    assert found == pytest.approx(predicted(configuration, jobs=jobs), rel=0.01)


def test_the_table_has_medians_of_the_repetitions_and_their_error() -> None:
    found = [
        *(
            measured(a_run(Configuration.DIRECT, repetition=n), seconds)
            for n, seconds in enumerate((25.0, 27.0, 90.0))
        ),
        *(
            measured(a_run(Configuration.SHARED, repetition=n), seconds)
            for n, seconds in enumerate((5.5, 6.0, 6.5))
        ),
    ]
    direct, shared = rows(found)
    assert (direct.seconds, shared.seconds, shared.images_per_second) == (27.0, 6.0, 120.0)
    assert shared.over_direct == 4.5
    assert shared.error == pytest.approx(6.0 / COMPUTE - 1)
    assert shared.simulator_error == pytest.approx(shared.error, abs=1e-6)


@pytest.mark.parametrize(
    ("shared", "fast", "met"),
    [(1.02, 1.02, [True, True, True]), (2.5, 1.02, [False, True, False]), (1.02, 1.1, [True, False, True])],
)
def test_bars_are_met_or_missed_by_the_worst_row(shared: float, fast: float, met: list[bool]) -> None:
    table = rows(
        [
            measured(a_run(Configuration.DIRECT), 4 * COMPUTE),
            measured(a_run(Configuration.SHARED), shared * COMPUTE),
            measured(a_run(Configuration.DIRECT, mbit=400), COMPUTE),
            measured(a_run(Configuration.SHARED, mbit=400), fast * COMPUTE),
        ]
    )
    assert [bar.met for bar in bars(table, compute_seconds=COMPUTE)] == met


def test_results_are_read_as_they_were_written() -> None:
    one = replace(measured(a_run(Configuration.SHARED, jobs=2), 3.6, 3.7), epochs=((1.2, 1.2, 1.2), (1.3,)))
    assert measured_of(json.loads(json.dumps(one.document()))) == one


def test_jobs_differ_in_their_order_and_only_direct_ones_mount_the_bucket_themselves() -> None:
    direct, shared = (
        objects.jobs(a_run(configuration, jobs=2), SETTING, name="n", image="i", begin=1.0)
        for configuration in (Configuration.DIRECT, Configuration.SHARED)
    )
    assert "rclone mount" in json.dumps(direct[0])
    assert "rclone" not in json.dumps(shared)
    assert [job["metadata"]["name"] for job in shared] == ["n-0", "n-1"]
    assert json.dumps(shared[0]).replace("n-0", "n-1").replace("--seed 0", "--seed 1") == json.dumps(
        shared[1]
    )


def test_jobs_on_stock_alluxio_read_its_fuse_mount_and_no_claim() -> None:
    (job,) = objects.jobs(a_run(Configuration.STOCK), SETTING, name="n", image="i", begin=1.0)
    volumes = {each["name"]: each for each in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes["data"]["hostPath"]["path"] == "/var/lib/tdcs/fuse/stock/pictures"
    assert "persistentVolumeClaim" not in json.dumps(job)
