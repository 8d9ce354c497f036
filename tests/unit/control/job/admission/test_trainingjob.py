"""When a job may start, by what its datasets and its user say."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NOW, dataset, job_spec
from tests.unit.control.job.builders import ADMITTED, decided, reading

from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.job import job_status
from tdcs.decide.job import job_headline
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.pod_admission import Reason

LATER = "2026-01-01T01:00:00Z"


def seen_of(spec: TrainingJobSpec, datasets: dict[str, Dataset], **more: Any) -> Observed:
    present = frozenset(datasets)
    return Observed(
        spec=spec, status=TrainingJobStatus(), datasets=datasets, present=present, created=NOW, **more
    )


WAITING: dict[str, tuple[dict[str, Dataset], Reason]] = {
    "no such dataset": ({}, Reason.MISSING),
    "not mounted": ({"pictures": dataset(Mounted=False)}, Reason.UNREADABLE),
    "half cached": ({"pictures": dataset(cached=50)}, Reason.LOADING),
    "all cached": ({"pictures": dataset()}, Reason.READY),
    "half cached, and no more fits": ({"pictures": dataset(cached=50, Loaded=True)}, Reason.READY),
    "not to be preloaded": ({"pictures": dataset(cached=0, preload=False)}, Reason.READY),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_job_waits_for_what_will_still_come(name: str) -> None:
    datasets, reason = WAITING[name]
    decision = decided(seen_of(reading(percent=100), datasets))
    assert decision.reason is reason
    assert decision.admitted == (reason is Reason.READY)


@pytest.mark.failure_mode("job-dataset-missing")
def test_why_a_dataset_cannot_be_read_is_said_in_its_own_words() -> None:
    dataset_json = dataset(Mounted=False).model_dump(by_alias=True, mode="json")
    dataset_json["status"]["conditions"][0]["message"] = "the store answers 403"
    refused = Dataset.model_validate(dataset_json)
    decision = decided(seen_of(reading(), {"pictures": refused}))
    assert decision.message == "Dataset pictures is not mounted yet: Reported: the store answers 403"
    # One that exists and does not parse is not among the datasets that can be used.
    broken = Observed(spec=reading(), status=TrainingJobStatus(), present=frozenset({"pictures"}))
    assert decided(broken).reason is Reason.UNREADABLE
    assert "it cannot be understood; its own status says which fields" in decided(broken).message


def test_by_default_a_job_starts_as_soon_as_its_dataset_can_be_read() -> None:
    assert decided(seen_of(reading(), {"pictures": dataset(cached=0)})).admitted
    assert not decided(seen_of(reading(), {"pictures": dataset(Mounted=False)})).admitted
    unbound = seen_of(reading(), {"pictures": dataset(claim="")})
    # A pod would be turned away, and wait for its next admission.
    assert decided(unbound).reason is Reason.UNREADABLE
    why = "Dataset pictures cannot be read by pods yet: its volume is not bound yet (kubectl get pvc)"
    assert decided(unbound).message == why


@pytest.mark.failure_mode("dataset-loads-too-slowly")
def test_a_job_waits_no_longer_than_its_timeout() -> None:
    observed = seen_of(reading(percent=100, timeout="1h"), {"pictures": dataset(cached=50)})
    assert decided(observed).reason is Reason.LOADING
    assert decided(observed, now=LATER).admitted
    assert decisions.patience_left(observed.spec.datasets[0], observed=observed, now=NOW) == 3600


def test_a_job_says_until_when_it_waits_for_its_data() -> None:
    observed = seen_of(reading(percent=100, timeout="1h"), {"pictures": dataset(cached=50)})
    assert decided(observed).message == (
        "Dataset pictures has 50% of its bytes cached, the job waits for 100%, until 2026-01-01T01:00:00Z at most "
        "(readiness.timeout)"
    )
    held = observed.spec.run_policy.model_copy(update={"suspend": True})
    suspended = replace(observed, spec=observed.spec.model_copy(update={"run_policy": held}))
    assert "until" not in decided(suspended).data.message


def test_a_job_says_when_the_loading_begins_that_it_waits_for() -> None:
    document = dataset(cached=0).model_dump(by_alias=True, mode="json")
    document["spec"]["preload"]["startTime"] = "2030-01-31T20:00:00Z"
    pictures = Dataset.model_validate(document)
    observed = seen_of(reading(percent=100), {"pictures": pictures})
    assert decided(observed).reason is Reason.SCHEDULED
    assert decided(observed).message == (
        "Dataset pictures has 0% of its bytes cached, loading begins at 2030-01-31T20:00:00Z "
        "(spec.preload.startTime), the job waits for 100%"
    )
    assert decided(observed, now="2030-02-01T00:00:00Z").reason is Reason.LOADING


@pytest.mark.failure_mode("dataset-loads-too-slowly")
def test_a_job_that_its_timeout_started_says_how_cold_it_started_and_goes_on_saying_so() -> None:
    spec = reading(percent=80, timeout="30m")
    first = decided(seen_of(spec, {"pictures": dataset(cached=3)}), now=LATER)
    message = "after 30m it starts with 3% of Dataset pictures cached, 80% was asked for"
    assert (first.admitted, first.data.data_ready) == (True, True)
    assert (first.data.reason, first.data.message) == (Reason.TIMED_OUT, message)
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": first.reason,
            "message": message,
            "lastTransitionTime": NOW,
        }
        for type_ in ("DataReady", "Admitted")
    ]
    for cached in (3, 60, 100):
        status = TrainingJobStatus.model_validate({"conditions": conditions})
        later = Observed(
            spec=spec,
            status=status,
            datasets={"pictures": dataset(cached=cached)},
            present=frozenset({"pictures"}),
            created=NOW,
        )
        again = decided(later, now=LATER)
        assert (again.reason, again.message) == (Reason.TIMED_OUT, message)
        assert (again.data.reason, again.data.message) == (Reason.TIMED_OUT, message)


def test_a_timeout_after_enough_was_cached_is_not_reported() -> None:
    observed = seen_of(reading(percent=80, timeout="30m"), {"pictures": dataset(cached=90)})
    assert decided(observed, now=LATER).data.message == "1 dataset ready"


def test_a_dataset_that_is_being_deleted_is_not_called_missing() -> None:
    observed = Observed(
        spec=job_spec(),
        status=TrainingJobStatus(),
        present=frozenset({"pictures"}),
        deleting=frozenset({"pictures"}),
    )
    decision = decided(observed)
    assert decision.reason is Reason.DELETING
    assert "is being deleted" in decision.message
    assert "there is no" not in decision.message


def test_a_running_job_is_not_taken_back_when_its_data_goes() -> None:
    decision = decided(Observed(spec=job_spec(), status=ADMITTED, datasets={}))
    assert (decision.admitted, decision.data.data_ready) == (True, False)


def test_the_users_suspension_takes_back_even_a_running_job() -> None:
    spec = job_spec(runPolicy={"suspend": True})
    observed = Observed(spec=spec, status=ADMITTED, datasets={"pictures": dataset()})
    assert decided(observed).admitted is False
    assert job_headline.headline(observed, decision=decided(observed), outcome=None).state == "Suspended"


def test_a_suspended_job_without_its_dataset_is_suspended_first() -> None:
    observed = Observed(spec=job_spec(runPolicy={"suspend": True}), status=TrainingJobStatus())
    findings = {
        finding.type: finding
        for finding in job_status.findings_of(observed, decision=decided(observed), outcome=None)
    }
    assert findings["Suspended"].status == "True"
    assert (findings["DataReady"].status, findings["DataReady"].reason) == ("False", "DatasetNotFound")
