"""Predictions against published times, and what must hold for any job."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.labs.published_runs import RUNS, PublishedRun

from tdcs.cli.main import main
from tdcs.decide.job.job_scenario import KEYS, REQUIRED, parse_scenario
from tdcs.decide.job.job_time import JobScenario, predict
from tdcs.model.humanize import duration
from tdcs_labs.advice import advise


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.nodes} nodes")
def test_the_published_runs_are_predicted_within_five_percent(run: PublishedRun) -> None:
    prediction = predict(run.scenario)
    assert prediction.direct.seconds == pytest.approx(run.direct, rel=0.05)
    assert prediction.cold.seconds == pytest.approx(run.cold, rel=0.05)
    assert prediction.warm.seconds == pytest.approx(run.warm)


scenarios = st.builds(
    JobScenario,
    gpus=st.just(8),
    nodes=st.integers(min_value=1, max_value=8),
    epochs=st.integers(min_value=1, max_value=40),
    dataset_bytes=st.floats(min_value=1e6, max_value=1e12),
    cache_bytes=st.floats(min_value=1e6, max_value=1e12),
    remote_rate=st.floats(min_value=1e6, max_value=1e10),
    compute_rate=st.floats(min_value=1e6, max_value=1e10),
    page_cache_bytes=st.floats(min_value=0, max_value=1e12),
)


@given(scenario=scenarios)
def test_more_cache_earlier_is_never_slower(scenario: JobScenario) -> None:
    prediction = predict(scenario)
    slack = 1 + 1e-9
    assert prediction.warm.seconds <= prediction.preloaded.seconds * slack
    assert prediction.preloaded.seconds <= prediction.cold.seconds * slack
    assert prediction.cold.seconds <= prediction.direct.seconds * slack
    assert prediction.cold.remote_bytes <= prediction.direct.remote_bytes * slack


def test_many_epochs_cost_no_time_to_predict() -> None:
    prediction = predict(
        JobScenario(
            gpus=8,
            nodes=4,
            epochs=10**9,
            dataset_bytes=1e9,
            cache_bytes=5e8,
            remote_rate=1e8,
            compute_rate=1e9,
        )
    )
    assert prediction.cold.seconds == pytest.approx(1e9 * 5e8 / 1e8, rel=0.01)


def test_a_cache_that_holds_a_part_reads_the_rest_every_epoch() -> None:
    prediction = predict(
        JobScenario(
            gpus=8, nodes=2, epochs=10, dataset_bytes=1e9, cache_bytes=8e8, remote_rate=1e8, compute_rate=1e9
        )
    )
    assert prediction.cold.remote_bytes == pytest.approx(1e9 + 9 * 2e8)
    assert prediction.preloaded.remote_bytes == pytest.approx(8e8 + 10 * 2e8)
    assert "Only 80 % of the dataset fits; with room for all of it the job would run 10 times" in advise(
        prediction
    )


def test_loading_comes_in_over_the_source_or_the_links_whichever_is_slower() -> None:
    for nic, seconds in ((1e7, 1e9 / 2e7), (1e8, 1e9 / 1e8)):
        prediction = predict(
            JobScenario(
                gpus=8,
                nodes=2,
                epochs=10,
                dataset_bytes=1e9,
                cache_bytes=4e9,
                remote_rate=1e8,
                compute_rate=1e9,
                nic_rate=nic,
            )
        )
        assert prediction.load_seconds == pytest.approx(seconds)


def test_the_advice_counts_the_time_of_loading() -> None:
    """Three epochs of 1000 s from the source, 20 s each from the cache, 1000 s to load."""
    values = {"gpus": 1, "nodes": 1, "dataset_bytes": 1e12, "cache_bytes": 1e12, "remote_rate": 1e9}
    prediction = predict(JobScenario(epochs=3, compute_rate=5e10, **values))  # type: ignore[arg-type]
    assert (prediction.direct.seconds, prediction.preloaded.seconds, prediction.load_seconds) == (
        3000,
        60,
        1000,
    )
    assert "50 times as fast" in advise(prediction)
    assert "with the 17 min of loading 2.8 times, from an empty cache 2.9 times" in advise(prediction)
    once = predict(JobScenario(epochs=1, compute_rate=5e10, **values))  # type: ignore[arg-type]
    assert "For this job alone that gains nothing" in advise(once)
    assert "Cache the dataset." not in advise(once)


def test_a_cache_that_is_too_small_is_no_reason_not_to_cache() -> None:
    """Direct 77,309 s an epoch; what is slow is the room for 1 of 144 GiB, not caching."""
    values: dict[object, object] = {
        "gpus": 8,
        "nodes": 1,
        "epochs": 90,
        "datasetBytes": "144Gi",
        "remoteBytesPerSecond": "180M",
        "warmSeconds": 3_681,
    }
    small = predict(parse_scenario(where="test", values={**values, "cacheBytes": "1Gi"}))
    assert small.direct.seconds / small.preloaded.seconds < 1.01
    assert "Only 1 % of the dataset fits, which gains less than 1 %" in advise(small)
    assert "with room for all of it the job would run 21 times as fast" in advise(small)
    assert "as fast when it reads directly: caching" not in advise(small)
    large = predict(parse_scenario(where="test", values={**values, "cacheBytes": "1Ti"}))
    assert "the job runs 21 times as fast" in advise(large)
    assert "fits" not in advise(large)
    slow = predict(parse_scenario(where="test", values={**values, "cacheBytes": "1Gi", "warmSeconds": 1e6}))
    assert advise(slow).endswith("caching its dataset gains less than 1 %.")


READER: dict[object, object] = {
    "gpus": 1,
    "nodes": 1,
    "epochs": 3,
    "datasetBytes": 200e6,
    "datasetFiles": 1_000,
    "cacheBytes": 200e6,
    "remoteBytesPerSecond": 20e6,
    "imagesPerSecondPerGpu": 500,
    "cpusPerNode": 2,
}
"""Epochs of 10 s from the source and 2 s of the GPU; 1,000 files to read on two processors."""


@pytest.mark.parametrize(
    ("cpu", "jobs", "cold", "warm", "limit"),
    [
        (0.002, 1, 10 + 2 + 2, 3 * 2, "compute"),
        (0.010, 1, 10 + 5 + 5, 3 * 5, "cpu"),
        (0.010, 2, 10 + 10 + 10, 3 * 10, "cpu"),
        (0.010, 4, 3 * 20, 3 * 20, "cpu"),
    ],
)
def test_jobs_of_a_node_share_its_processors_for_what_reading_a_file_costs(
    cpu: float, jobs: int, cold: float, warm: float, limit: str
) -> None:
    values = {**READER, "readCpuSecondsPerFile": cpu, "jobsPerNode": jobs}
    prediction = predict(parse_scenario(where="test", values=values))
    assert prediction.cold.seconds == pytest.approx(cold)
    assert prediction.warm.seconds == pytest.approx(warm)
    assert prediction.warm.bottleneck == limit
    assert prediction.direct.seconds == pytest.approx(30), (
        "reads that pass the cache by do not cost its client"
    )
    assert ("the nodes' processors limit it" in advise(prediction)) is (limit == "cpu" and warm < 30)


def test_a_job_alone_has_all_processors_of_its_nodes() -> None:
    values = {**READER, "gpus": 2, "nodes": 2, "imagesPerSecondPerGpu": 250, "readCpuSecondsPerFile": 0.01}
    prediction = predict(parse_scenario(where="test", values=values))
    assert prediction.warm.seconds == pytest.approx(3 * 2.5)


def test_what_is_in_the_page_cache_costs_no_reading() -> None:
    values = {**READER, "readCpuSecondsPerFile": 0.01, "pageCacheBytesPerNode": 400e6}
    prediction = predict(parse_scenario(where="test", values=values))
    assert prediction.warm.seconds == pytest.approx(5 + 2 + 2)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.2 s"),
        (60, "60 s"),
        (119.9, "120 s"),
        (1_000, "17 min"),
        (7_200, "2 h"),
        (9_000, "2.5 h"),
        (1e6, "12 days"),
    ],
)
def test_times_are_printed_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_times_side_by_side_are_printed_in_one_unit_where_that_is_readable() -> None:
    assert duration(6_720, alongside=7_560) == "1.9 h"
    assert duration(600, alongside=7_560) == "10 min"
    assert duration(90, alongside=130) == "1.5 min"
    assert duration(7_560, alongside=7_560) == "2.1 h"


def test_times_to_compare_have_a_digit_more() -> None:
    assert [duration(seconds, digits=3) for seconds in (7_260, 60_000, 475_920, 1e8)] == [
        "2.02 h",
        "16.7 h",
        "5.51 days",
        "1,157 days",
    ]


def small_scenario(folder: Path) -> Path:
    """A scenario with a dataset of two megabytes."""
    path = folder / "small.yaml"
    path.write_text(
        "gpus: 1\nnodes: 1\nepochs: 2\ndatasetBytes: 2M\ncacheBytes: 4M\nremoteBytesPerSecond: 1M\n"
        "warmSeconds: 1\n",
        encoding="utf-8",
    )
    return path


def test_the_help_lists_every_key() -> None:
    help_text = " ".join(CliRunner().invoke(main, ["predict", "--help"]).stdout.split())
    assert all(key in help_text for key in KEYS)
    assert ", ".join(REQUIRED) in help_text


def test_the_command_prints_one_document_a_table_or_a_picture(tmp_path: Path) -> None:
    path, plot = tmp_path / "job.yaml", tmp_path / "job.svg"
    path.write_text(
        "gpus: 8\nnodes: 1\nepochs: 90\ndatasetBytes: 137Gi\ndatasetFiles: 1281167\ncacheBytes: 600e9\n"
        "remoteBytesPerSecond: 180M\nimagesPerSecondPerGpu: 1160\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(main, ["predict", "--file", str(path), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {
        "directSeconds",
        "coldSeconds",
        "preloadedSeconds",
        "warmSeconds",
        "bottleneck",
        "remoteBytes",
        "advice",
    } <= set(report)
    assert report["bottleneck"] == "remote"
    picture = CliRunner().invoke(main, ["predict", "--file", str(path)])
    assert "MiB" in CliRunner().invoke(main, ["predict", "--file", str(small_scenario(tmp_path))]).stdout
    assert "TiB" in picture.stdout
    assert picture.stdout.rstrip().splitlines()[-1] == report["advice"]
    piped = CliRunner().invoke(main, ["predict", "--file", "-", "--json"], input=path.read_bytes())
    assert piped.exit_code == 0, piped.output
    assert json.loads(piped.stdout) == report
    result = CliRunner().invoke(main, ["predict", "--file", str(path), "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    assert "preloaded" in result.stdout
    assert plot.read_text(encoding="utf-8").lstrip().startswith("<?xml")
