"""Predicted time of a job: read directly, with a cold cache, preloaded, and fully cached."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.api.failures import InputError
from tdcs.decide.job.job_scenario import JobScenario
from tdcs.decide.job.job_time import predict
from tdcs.decide.place.reading_speed import Bottleneck

GB = 1e9
SLOW = JobScenario(
    gpus=8,
    nodes=4,
    epochs=10,
    dataset_bytes=GB,
    cache_bytes=GB,
    remote_rate=1e7,
    compute_rate=1e9,
)
"""A source that takes 100 seconds for an epoch, and GPUs that take one."""


def test_a_slow_source_is_read_once_with_a_cache_and_every_epoch_without() -> None:
    times = predict(SLOW)
    assert times.direct.seconds == pytest.approx(10 * 100)
    assert times.cold.seconds == pytest.approx(100 + 9)
    assert times.preloaded.seconds == times.warm.seconds == pytest.approx(10)
    assert times.direct.remote_bytes == pytest.approx(10 * GB)
    assert times.cold.remote_bytes == times.preloaded.remote_bytes == pytest.approx(GB)
    assert times.warm.remote_bytes == 0
    assert times.load_seconds == pytest.approx(100)
    assert times.cached_fraction == 1.0


def test_the_bottleneck_is_that_of_the_first_epoch() -> None:
    times = predict(SLOW)
    assert (times.cold.bottleneck, times.preloaded.bottleneck) == (Bottleneck.REMOTE, Bottleneck.COMPUTE)


@pytest.mark.parametrize(("cache", "fraction"), [(GB / 2, 0.5), (GB, 1.0), (9 * GB, 1.0)])
def test_what_does_not_fit_is_read_from_the_source_every_epoch(cache: float, fraction: float) -> None:
    times = predict(replace(SLOW, cache_bytes=cache))
    assert times.cached_fraction == fraction
    assert times.cold.remote_bytes == pytest.approx(GB + 9 * (1 - fraction) * GB)
    assert times.preloaded.remote_bytes == pytest.approx(fraction * GB + 10 * (1 - fraction) * GB)


@pytest.mark.parametrize(("nic", "seconds"), [(1e6, 250.0), (2.5e6, 100.0), (1e9, 100.0)])
def test_loading_takes_the_slower_of_the_source_and_all_links(nic: float, seconds: float) -> None:
    assert predict(replace(SLOW, nic_rate=nic)).load_seconds == pytest.approx(seconds)


def test_the_clients_processors_slow_down_only_what_is_read_through_the_cache() -> None:
    slow_client = predict(replace(SLOW, remote_rate=1e12, read_cpu_rate=1e7))
    assert slow_client.warm.seconds == pytest.approx(1000)
    assert slow_client.direct.seconds == pytest.approx(10)


def test_page_caches_that_hold_the_dataset_read_it_once_without_a_cache() -> None:
    one_node = predict(replace(SLOW, nodes=1, gpus=1, page_cache_bytes=GB))
    assert one_node.direct.remote_bytes == pytest.approx(GB)
    none = predict(replace(SLOW, nodes=1, gpus=1))
    assert none.direct.remote_bytes == pytest.approx(10 * GB)


def test_a_single_epoch_gains_nothing_from_a_cold_cache() -> None:
    times = predict(replace(SLOW, epochs=1))
    assert times.cold.seconds == times.direct.seconds == pytest.approx(100)


def test_a_measured_time_stands_for_the_fully_cached_job() -> None:
    measured = predict(replace(SLOW, warm_seconds=12.0))
    assert measured.warm.seconds == 12.0
    assert measured.cold.seconds == predict(SLOW).cold.seconds


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"nic_rate": 1e6}, "nicBytesPerSecond 1e+06 the links"),
        (
            {"read_cpu_rate": 1e7},
            "readCpuSecondsPerFile, cpusPerNode and jobsPerNode as given the processors",
        ),
    ],
)
def test_a_measured_time_that_the_hardware_cannot_reach_is_refused(
    limit: dict[str, float], words: str
) -> None:
    scenario = replace(SLOW, **limit, warm_seconds=10.0, cache_bytes=1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError) as refused:
        predict(scenario, where="file.yaml")
    assert str(refused.value).startswith(f"file.yaml: warmSeconds is 10, but with {words}")


SCENARIOS = st.builds(
    JobScenario,
    gpus=st.just(8),
    nodes=st.integers(1, 8),
    epochs=st.integers(1, 50),
    dataset_bytes=st.floats(1e6, 1e12),
    cache_bytes=st.floats(1, 1e13),
    remote_rate=st.floats(1e6, 1e10),
    compute_rate=st.floats(1e6, 1e10),
    nic_rate=st.one_of(st.just(math.inf), st.floats(1e6, 1e10)),
    page_cache_bytes=st.floats(0, 1e12),
)


@given(scenario=SCENARIOS)
def test_no_scheme_is_faster_than_the_gpus_or_reads_more_than_everything(scenario: JobScenario) -> None:
    times = predict(scenario)
    least = scenario.epochs * scenario.dataset_bytes / scenario.compute_rate
    for run in (times.direct, times.cold, times.preloaded, times.warm):
        assert run.seconds >= least * (1 - 1e-9)
        assert 0 <= run.remote_bytes <= (scenario.epochs + 1) * scenario.dataset_bytes * (1 + 1e-9)


@given(scenario=SCENARIOS)
def test_a_cache_that_is_filled_earlier_is_never_slower(scenario: JobScenario) -> None:
    times = predict(scenario)
    ordered = [times.warm, times.preloaded, times.cold, times.direct]
    for faster, slower in itertools.pairwise(ordered):
        assert faster.seconds <= slower.seconds * (1 + 1e-9)
