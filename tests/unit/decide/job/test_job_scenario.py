"""A scenario of a job: its keys, its bounds, and what follows from them."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.api.failures import InputError
from tdcs.decide.job.job_scenario import BOUNDS, REQUIRED, JobScenario, parse_scenario

MEASURED: dict[Any, Any] = {
    "gpus": 8,
    "nodes": 2,
    "epochs": 5,
    "datasetBytes": 1000,
    "cacheBytes": 800,
    "remoteBytesPerSecond": 10,
    "warmSeconds": 50,
}


def parse(values: dict[Any, Any], **changes: Any) -> JobScenario:
    return parse_scenario(where="file.yaml", values=values | changes)


def refusal(values: dict[Any, Any]) -> str:
    with pytest.raises(InputError) as refused:
        parse_scenario(where="file.yaml", values=values)
    assert str(refused.value).startswith("file.yaml: ")
    return str(refused.value).removeprefix("file.yaml: ")


def without(values: dict[Any, Any], key: str) -> dict[Any, Any]:
    return {name: value for name, value in values.items() if name != key}


BY_SPEED = without(MEASURED, "warmSeconds") | {"datasetFiles": 20, "imagesPerSecondPerGpu": 3}


def test_the_speed_of_the_gpus_follows_from_the_measured_time() -> None:
    scenario = parse(MEASURED)
    assert scenario.compute_rate == 1000 * 5 / 50
    assert scenario.warm_seconds == 50
    assert (scenario.gpus, scenario.nodes, scenario.epochs) == (8, 2, 5)


def test_the_speed_of_the_gpus_follows_from_images_and_their_mean_size() -> None:
    scenario = parse(BY_SPEED)
    assert scenario.compute_rate == 3 * 8 * 1000 / 20
    assert scenario.warm_seconds is None


def test_what_is_not_given_limits_nothing() -> None:
    scenario = parse(MEASURED)
    assert (scenario.nic_rate, scenario.read_cpu_rate, scenario.page_cache_bytes) == (math.inf, math.inf, 0.0)


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(key: str) -> None:
    assert refusal(without(MEASURED, key)) == f"key {key} is missing; add it"


def test_an_unknown_key_is_named_with_those_that_there_are() -> None:
    assert refusal(MEASURED | {"gpu": 8}).startswith("unknown key gpu; the keys are gpus, nodes")
    assert refusal(MEASURED | {7: 8}).startswith("unknown key 7; ")


@pytest.mark.parametrize(
    "values", [MEASURED | {"imagesPerSecondPerGpu": 3}, without(BY_SPEED, "imagesPerSecondPerGpu")]
)
def test_the_speed_of_the_gpus_is_given_in_one_way(values: dict[Any, Any]) -> None:
    assert refusal(values).startswith("give either warmSeconds or imagesPerSecondPerGpu")


def test_images_need_a_number_of_files() -> None:
    assert refusal(without(BY_SPEED, "datasetFiles")).startswith("key datasetFiles is missing")


def test_every_node_has_a_gpu() -> None:
    assert parse(MEASURED, nodes=8).nodes == 8
    assert refusal(MEASURED | {"nodes": 9}).startswith("nodes is 9 but gpus is 8")


def test_processors_limit_reading_by_their_share_of_the_nodes() -> None:
    reading = {"datasetFiles": 20, "readCpuSecondsPerFile": 0.5, "cpusPerNode": 16}
    assert parse(MEASURED, **reading).read_cpu_rate == 16 * 2 / 0.5 * (1000 / 20)
    assert parse(MEASURED, **reading, jobsPerNode=4).read_cpu_rate == 16 * 2 / 4 / 0.5 * (1000 / 20)


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        ({"cpusPerNode": 16}, "key readCpuSecondsPerFile is missing; cpusPerNode means nothing without it"),
        ({"jobsPerNode": 2}, "key readCpuSecondsPerFile is missing; jobsPerNode means nothing without it"),
        (
            {"readCpuSecondsPerFile": 1, "datasetFiles": 9},
            "key cpusPerNode is missing; readCpuSecondsPerFile needs it",
        ),
        (
            {"readCpuSecondsPerFile": 1, "cpusPerNode": 9},
            "key datasetFiles is missing; readCpuSecondsPerFile needs it",
        ),
    ],
)
def test_keys_about_reading_need_each_other(reading: dict[str, Any], words: str) -> None:
    assert refusal(MEASURED | reading) == words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gpus", "eight", "gpus must be a number, got 'eight'; correct it"),
        ("gpus", None, "gpus must be a number, got None"),
        ("gpus", math.nan, "gpus must be a number, got nan"),
        ("gpus", 0, "gpus must be above zero, got 0; correct it"),
        ("gpus", -3, "gpus must be above zero, got -3"),
        ("nicBytesPerSecond", 0, "nicBytesPerSecond must be above zero, got 0; leave the key out"),
        ("cacheBytes", "144GB", "cacheBytes must be a number, got '144GB'; write 144G or 144Gi"),
        ("cacheBytes", "144GiB", "cacheBytes must be a number, got '144GiB'; write 144Gi"),
    ],
)
def test_a_value_that_is_no_number_above_zero_is_named_with_a_remedy(
    key: str, value: object, words: str
) -> None:
    assert refusal(MEASURED | {key: value}).startswith(words)


@pytest.mark.parametrize("value", [2.5, math.inf, 10**400, "9" * 5000])
def test_no_count_that_is_not_whole_or_endless_is_taken(value: object) -> None:
    assert len(refusal(MEASURED | {"epochs": value})) < 200


@pytest.mark.parametrize("key", BOUNDS)
def test_a_value_outside_of_its_bounds_is_refused_and_one_at_a_bound_taken(key: str) -> None:
    least, most = BOUNDS[key]
    values = MEASURED if key != "imagesPerSecondPerGpu" else BY_SPEED
    needs = {"nodes": {"gpus": 10_000}, "gpus": {"nodes": 1}}.get(key, {})
    reading = {"readCpuSecondsPerFile": 1, "cpusPerNode": 1, "datasetFiles": 9}
    needs |= reading if key in {"readCpuSecondsPerFile", "cpusPerNode", "jobsPerNode"} else {}
    for bound in (least, most):
        assert parse(values | needs | {key: bound})
    assert key in refusal(values | needs | {key: most * 2})


def test_the_option_that_gave_a_value_is_named_instead_of_the_key() -> None:
    with pytest.raises(InputError, match=r"--gpus must be above zero, got 0"):
        parse_scenario(where="plan", values=MEASURED | {"gpus": 0}, options={"gpus": "--gpus"})


def test_sizes_may_have_units() -> None:
    assert parse(MEASURED, cacheBytes="1Ki", datasetBytes="2k").cache_bytes == 1024
    assert parse(MEASURED, datasetBytes="2k").dataset_bytes == 2000


ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.just([1]))


@given(values=st.dictionaries(st.sampled_from([*BOUNDS, "other"]), ODD))
def test_any_input_is_taken_or_refused_in_one_sentence(values: dict[str, Any]) -> None:
    text = ""
    try:
        parse(MEASURED, **values)
    except InputError as refused:
        text = str(refused)
    assert "\n" not in text
