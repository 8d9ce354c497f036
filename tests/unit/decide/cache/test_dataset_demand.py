"""Who asks for a dataset: jobs that read it and jobs that wait."""

from typing import Any

import pytest

from tdcs.api.dataset import USES_KEPT, DatasetStatus
from tdcs.decide.cache.dataset_demand import (
    datasets_of,
    jobs_of,
    nodes_alongside,
    stage_of,
    use_of,
    waits_for_data,
)
from tdcs.decide.cache.mount_standing import DatasetJobs
from tdcs.model.kube_objects import Object

NOW = "2026-03-01T12:00:00Z"
EARLIER = "2026-03-01T11:00:00Z"
JOB = ("n", "job")


def test_the_end_of_a_use_is_noted_also_when_no_operator_saw_it() -> None:
    reading = DatasetStatus(active_jobs=1, last_used_time=EARLIER, uses=[EARLIER])
    ended = use_of(status=reading, jobs=DatasetJobs(), mounted=False, now=NOW)
    assert (ended.last_used, ended.uses) == (NOW, (EARLIER,))
    still = use_of(status=reading, jobs=DatasetJobs(active=(JOB,)), mounted=False, now=NOW)
    assert still.last_used == EARLIER
    second = use_of(status=reading, jobs=DatasetJobs(active=(JOB, JOB)), mounted=True, now=NOW)
    assert (second.last_used, second.uses) == (EARLIER, (EARLIER, NOW))


def test_uses_that_are_still_to_come_count_as_now() -> None:
    """Else a Dataset that a job used while a clock was a year ahead would be the last to go for a year."""
    ahead = "2027-01-01T00:00:00Z"
    status = DatasetStatus(last_used_time=ahead, uses=[EARLIER, ahead])
    use = use_of(status=status, jobs=DatasetJobs(), mounted=False, now=NOW)
    assert (use.last_used, use.uses) == (NOW, (EARLIER, NOW))


def job(*true: str, suspend: bool = False, datasets: Any = ("pictures",), **conditions: Any) -> Object:
    """A job with these conditions; a keyword gives the reason of a condition that is false."""
    false = [{"type": kind, "status": "False", "reason": reason} for kind, reason in conditions.items()]
    uses = [{"name": name} for name in datasets] if isinstance(datasets, tuple) else datasets
    return {
        "metadata": {"name": "train"},
        "spec": {"datasets": uses, "runPolicy": {"suspend": suspend}},
        "status": {"conditions": [*({"type": kind, "status": "True"} for kind in true), *false]},
    }


DELETED = {**job("Admitted"), "metadata": {"deletionTimestamp": NOW}}


@pytest.mark.parametrize(
    ("obj", "stage"),
    [
        pytest.param(None, "", id="gone"),
        pytest.param(DELETED, "", id="being deleted"),
        pytest.param({"metadata": {}}, "Waiting", id="new"),
        pytest.param(job(), "Waiting", id="nothing is said yet"),
        pytest.param(job(Admitted="DatasetLoading"), "Waiting", id="its data loads"),
        pytest.param(job(Admitted="InvalidSpec"), "", id="its spec is invalid"),
        pytest.param(job("Admitted"), "Active", id="admitted"),
        pytest.param(job("Admitted", suspend=True), "", id="suspended by its user"),
        pytest.param(job("Admitted", "Succeeded"), "", id="succeeded"),
        pytest.param(job("Admitted", "Failed"), "", id="failed"),
        pytest.param(job("Admitted", Failed="X"), "Active", id="not failed"),
    ],
)
def test_a_job_is_active_from_its_admission_to_its_end(obj: Object | None, stage: str) -> None:
    assert stage_of(obj) == stage


@pytest.mark.parametrize(
    ("obj", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"spec": None}, ()),
        ({"spec": []}, ()),
        (job(datasets=None), ()),
        (job(datasets={"name": "x"}), ()),
        (job(datasets=[{"name": "a"}, {"mountPath": "/x"}, "b", {"name": ""}, {"name": 3}]), ("a", "3")),
    ],
)
def test_datasets_are_read_from_any_spec_however_wrong(obj: Object | None, names: tuple[str, ...]) -> None:
    assert datasets_of(obj) == names


def test_jobs_of_a_dataset_are_those_of_its_namespace_that_name_it() -> None:
    jobs = {
        ("n", "runs"): job("Admitted"),
        ("n", "a"): job("Admitted"),
        ("n", "waits"): job(),
        ("n", "ended"): job("Succeeded"),
        ("n", "reads another"): job(datasets=("other",)),
        ("other", "runs"): job("Admitted"),
    }
    users = jobs_of(namespace="n", dataset="pictures", jobs=jobs)
    assert users.active == (("n", "a"), ("n", "runs"))
    assert users.waiting == (("n", "waits"),)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (None, True),
        ({"type": "DataReady", "status": "False", "reason": "DatasetLoading"}, True),
        ({"type": "DataReady", "status": "True", "reason": "DatasetsReady"}, False),
        ({"type": "DataReady", "status": "True", "reason": "ReadinessTimedOut"}, True),
    ],
)
def test_more_data_matters_until_it_is_ready_in_full(condition: Object | None, expected: bool) -> None:
    assert waits_for_data({"status": {"conditions": [condition] if condition else []}}) is expected


def test_only_copies_at_an_active_job_are_alongside_it() -> None:
    copies = [
        {"dataset": "at", "meeting": {"way": "Near", "nodes": ["a", "b"]}},
        {"dataset": "far", "meeting": {"way": "Remote", "nodes": ["c"]}},
        {"dataset": "unknown"},
    ]
    reads = job("Admitted")
    reads["status"]["copies"] = copies
    assert nodes_alongside(reads) == {"at": ["a", "b"]}
    assert nodes_alongside(None) == nodes_alongside(job()) == {}
    waits = job()
    waits["status"]["copies"] = copies
    assert nodes_alongside(waits) == {}


def test_only_the_last_uses_are_kept() -> None:
    many = DatasetStatus(active_jobs=0, uses=[EARLIER] * USES_KEPT)
    use = use_of(status=many, jobs=DatasetJobs(active=(JOB,)), mounted=False, now=NOW)
    assert use.uses == (EARLIER,) * (USES_KEPT - 1) + (NOW,)


def test_a_dataset_that_was_never_used_has_no_last_use() -> None:
    assert use_of(status=None, jobs=DatasetJobs(), mounted=False, now=NOW).last_used is None
    mounted = use_of(status=None, jobs=DatasetJobs(), mounted=True, now=NOW, users=("pod",))
    assert (mounted.last_used, mounted.uses, mounted.users) == (NOW, (), ("pod",))
