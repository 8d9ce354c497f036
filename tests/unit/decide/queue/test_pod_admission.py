"""When a training job's pods may exist."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdcs.decide.queue.pod_admission import DatasetReadiness, Reason, choose_copy, decide


def dataset(
    *, exists: bool = True, readable: bool = True, cached: float = 1.0, required: float = 1.0
) -> DatasetReadiness:
    return DatasetReadiness(
        name="imagenet", exists=exists, readable=readable, cached_ratio=cached, required_ratio=required
    )


def test_a_job_whose_datasets_are_cached_enters() -> None:
    decision = decide(suspended=False, datasets=[dataset(), dataset(cached=0.5, required=0.5)])
    assert decision.admitted
    assert decision.message == "2 datasets ready"


def test_a_job_without_datasets_enters() -> None:
    assert decide(suspended=False, datasets=[]).admitted


@pytest.mark.parametrize(
    ("blocker", "reason", "words"),
    [
        (dataset(exists=False), Reason.MISSING, "no Dataset imagenet"),
        (dataset(readable=False), Reason.UNREADABLE, "not mounted yet"),
        (dataset(cached=0.4), Reason.LOADING, "40% of its bytes cached, the job waits for 100%"),
    ],
)
def test_the_dataset_that_is_not_ready_names_the_reason(
    blocker: DatasetReadiness, reason: Reason, words: str
) -> None:
    decision = decide(suspended=False, datasets=[dataset(), blocker])
    assert (decision.admitted, decision.data_ready, decision.reason) == (False, False, reason)
    assert words in decision.message


def test_a_job_that_waits_for_what_never_comes_says_why() -> None:
    why = "PathNotFound: the source has no file under 'train2' of paths"
    blocker = dataclasses.replace(dataset(cached=0.0), lacks_why=why)
    assert decide(suspended=False, datasets=[blocker]).message.endswith(f"the job waits for 100%. {why}")


@pytest.mark.parametrize(
    ("lost", "reason", "words"),
    [
        (
            dataset(cached=0.4),
            Reason.LOADING,
            "has 40% of its bytes cached now: the rest is being loaded again",
        ),
        (dataset(readable=False), Reason.UNREADABLE, "is not mounted just now"),
        (dataset(exists=False), Reason.MISSING, "is gone from the job's namespace"),
        (
            dataclasses.replace(dataset(), deleting=True),
            Reason.DELETING,
            "is being deleted, which waits for the job's",
        ),
    ],
)
def test_a_running_job_is_never_reported_as_waiting(
    lost: DatasetReadiness, reason: Reason, words: str
) -> None:
    decision = decide(suspended=False, datasets=[lost], runs=True)
    # What comes again by itself calls for nobody.
    assert (decision.data_ready, decision.reason) == (reason is Reason.LOADING, reason)
    assert words in decision.message
    assert "the job runs" in decision.message
    assert "waits for 1" not in decision.message


def test_a_suspended_job_waits_although_its_data_is_ready() -> None:
    decision = decide(suspended=True, datasets=[dataset()])
    assert (decision.admitted, decision.data_ready, decision.reason) == (False, True, Reason.SUSPENDED)
    assert "spec.runPolicy.suspend" in decision.message


def test_a_rounding_error_does_not_hold_a_job() -> None:
    assert decide(suspended=False, datasets=[dataset(cached=0.1 + 0.2, required=0.3)]).admitted
    assert decide(suspended=False, datasets=[dataset(cached=0.3 - 1e-12, required=0.3)]).admitted


parts = st.floats(min_value=0.0, max_value=1.0)
readiness = st.builds(dataset, exists=st.booleans(), readable=st.booleans(), cached=parts, required=parts)


@given(datasets=st.lists(readiness, max_size=5), suspended=st.booleans())
def test_a_job_enters_only_when_every_dataset_is_as_it_asks_and_nobody_holds_it(
    datasets: list[DatasetReadiness], suspended: bool
) -> None:
    decision = decide(suspended=suspended, datasets=datasets)
    ready = all(
        dataset.exists and dataset.readable and dataset.cached_ratio >= dataset.required_ratio - 1e-9
        for dataset in datasets
    )
    assert decision.data_ready == ready
    assert decision.admitted == (ready and not suspended)
    assert decision.message


@given(datasets=st.lists(readiness, min_size=1, max_size=5), more=parts)
def test_more_cached_bytes_never_send_a_job_back(datasets: list[DatasetReadiness], more: float) -> None:
    fuller = [
        dataclasses.replace(dataset, cached_ratio=max(dataset.cached_ratio, more)) for dataset in datasets
    ]
    before = decide(suspended=False, datasets=datasets)
    assert decide(suspended=False, datasets=fuller).admitted >= before.admitted


@pytest.mark.parametrize(
    ("active", "options", "copy"),
    [
        ({"0": 3}, {}, "0"),
        ({"0": 3, "1": 1}, {"limit": 4}, "1"),
        ({"0": 1, "1": 3}, {"room": {"0": 2, "1": 6}}, "1"),
        ({"0": 3, "1": 1}, {"room": {"0": 6, "1": 6}}, "1"),
        ({"0": 4, "1": 1}, {"limit": 4, "room": {"0": 6, "1": 0}}, "1"),
        ({"0": 4}, {"limit": 4}, None),
        ({}, {}, None),
    ],
)
def test_which_copy_a_job_reads(active: dict[str, int], options: dict[str, object], copy: str | None) -> None:
    assert choose_copy(active=active, **options) == copy  # type: ignore[arg-type]


@given(
    active=st.dictionaries(
        st.integers(min_value=0, max_value=5).map(str), st.integers(min_value=0, max_value=9)
    ),
    limit=st.integers(min_value=1, max_value=9),
)
def test_a_copy_is_never_given_more_jobs_than_its_limit_and_none_with_a_place_is_left_out(
    active: dict[str, int], limit: int
) -> None:
    copy = choose_copy(active=active, limit=limit)
    if copy is None:
        assert all(jobs >= limit for jobs in active.values())
    else:
        assert active[copy] < limit
