"""After a job its status says how wrong its prediction was."""

from typing import Any

import pytest
from tests.unit.control.builders import job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.job.job_status import status_of
from tdcs.decide.job.job_phase import Decision, JobOutcome, data
from tdcs.decide.job.observed_job import Observed, predicted_seconds
from tdcs.decide.queue.pod_admission import Reason

START, END = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"


def reported(*, predicted: int | None, succeeded: bool = True, **fields: Any) -> TrainingJobStatus:
    before = TrainingJobStatus.model_validate({"startTime": START} | fields)
    observed = Observed(spec=job_spec(), status=before, name="train", created=START, predicted=predicted)
    decision = Decision(admitted=True, reason=Reason.FITS, message="", data=data(observed, now=END))
    outcome = JobOutcome(succeeded=succeeded, reason="Completed", message="", time=END)
    return status_of(observed, decision=decision, outcome=outcome, now=END)


def test_the_error_is_the_prediction_less_the_time_that_the_job_took() -> None:
    prediction = reported(predicted=450).prediction
    assert prediction is not None
    assert (prediction.predicted_seconds, prediction.run_seconds, prediction.error_percent) == (450, 600, -25)
    again = reported(predicted=999, prediction=prediction.model_dump(by_alias=True)).prediction
    assert again == prediction


def test_a_job_that_ends_within_its_first_second_counts_as_one_second() -> None:
    prediction = reported(predicted=3, startTime=END).prediction
    assert prediction is not None
    assert (prediction.run_seconds, prediction.error_percent) == (1, 200)


def test_without_a_prediction_or_a_comparable_time_there_is_no_error() -> None:
    assert reported(predicted=None).prediction is None
    assert reported(predicted=450, succeeded=False).prediction is None
    assert reported(predicted=450, suspendedSeconds=60).prediction is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("450", 450), ("", None), ("0", None), ("-3", None), ("4.5", None), ("9" * 30, None), ("٣", None)],
)
def test_an_annotation_that_is_no_number_of_seconds_counts_for_nothing(
    text: str, seconds: int | None
) -> None:
    assert predicted_seconds({"tdcs.io/predicted-seconds": text}) == seconds
    assert predicted_seconds(None) is None
