"""The observed state of a TrainingJob."""

from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.observed_job import (
    JobView,
    Observed,
    ended,
    job_view,
    predicted_seconds,
    started,
)
from tdcs.model.job_pods import PodView


def status(*true: str, false: str = "", **fields: Any) -> TrainingJobStatus:
    conditions = [
        {"type": kind, "status": value, "reason": "X", "lastTransitionTime": NOW}
        for value, kinds in (("True", true), ("False", [false] if false else []))
        for kind in kinds
    ]
    return TrainingJobStatus.model_validate({"conditions": conditions, **fields})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0090", 90),
        ("999999999999", 999_999_999_999),
        ("9999999999999", None),
        ("0", None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        (" 5", None),
        ("٣", None),
        ("soon", None),
        (None, None),
        (7, 7),
    ],
)
def test_a_prediction_is_a_whole_number_of_seconds_above_zero(text: object, seconds: int | None) -> None:
    assert predicted_seconds({"tdcs.io/predicted-seconds": text}) == seconds


def test_a_job_without_annotations_has_no_prediction() -> None:
    assert predicted_seconds(None) is None
    assert predicted_seconds({}) is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (status(), False),
        (status("Admitted"), False),
        (status("Succeeded"), True),
        (status("Failed"), True),
        (status(false="Failed"), False),
    ],
)
def test_a_job_has_ended_when_it_succeeded_or_failed(conditions: TrainingJobStatus, expected: bool) -> None:
    assert ended(conditions) is expected
    assert Observed(spec=job_spec(), status=conditions).ended is expected


def test_a_missing_job_is_seen_as_nothing() -> None:
    assert job_view(None) == JobView()
    assert not job_view(None).exists
    assert job_view({}) == JobView(exists=True)


@pytest.mark.parametrize(
    ("condition", "failure", "finished"),
    [
        ({"type": "Failed", "reason": "Backoff", "message": "six times"}, "Backoff: six times", True),
        ({"type": "Failed", "reason": "Backoff"}, "Backoff", True),
        ({"type": "Failed"}, "Failed", True),
        ({"type": "Failed", "status": "False", "reason": "Backoff"}, "", False),
        ({"type": "Complete"}, "", True),
        ({"type": "FailureTarget"}, "", False),
    ],
)
def test_a_job_is_finished_by_a_condition_that_is_true(
    condition: dict[str, str], failure: str, finished: bool
) -> None:
    view = job_view({"status": {"conditions": [{"status": "True", **condition}]}})
    assert (view.failure, view.finished) == (failure, finished)


def test_the_end_of_a_failed_job_is_when_its_condition_changed() -> None:
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": NOW}
    assert job_view({"status": {"conditions": [failed]}}).completion_time == NOW
    done = {"completionTime": "2026-01-02T00:00:00Z", "conditions": [{**failed, "type": "Complete"}]}
    assert job_view({"status": done}).completion_time == "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [("0", True), ("0-3", True), ("0,2", True), ("1-3", False), ("10", False), ("", False), (None, False)],
)
def test_index_0_has_succeeded_when_the_list_begins_with_it(indexes: str | None, expected: bool) -> None:
    assert job_view({"status": {"completedIndexes": indexes}}).first_succeeded is expected


@pytest.mark.parametrize(("text", "attempt"), [("0", 0), ("12", 12), ("", None), ("-1", None), ("²", None)])
def test_an_attempt_that_is_no_number_is_unknown(text: str, attempt: int | None) -> None:
    view = job_view({"metadata": {"annotations": {"tdcs.io/restart-attempt": text}}})
    assert view.attempt == attempt


@pytest.mark.parametrize(("text", "gang"), [("true", True), ("false", False), ("True", None), ("", None)])
def test_a_gang_setting_that_is_no_boolean_is_unknown(text: str, gang: bool | None) -> None:
    assert job_view({"metadata": {"annotations": {"tdcs.io/gang": text}}}).gang is gang


def test_a_job_that_is_being_deleted_is_going() -> None:
    assert job_view({"metadata": {"deletionTimestamp": NOW}}).going
    assert not job_view({"metadata": {}}).going


@pytest.mark.parametrize(("live", "expected"), [({}, False), ({"status": {"startTime": NOW}}, True)])
def test_a_job_was_started_once_it_has_a_start_time(live: dict[str, Any], expected: bool) -> None:
    assert started(live) is expected


def workers(count: int) -> dict[str, Any]:
    """Roles of a job with so many workers."""
    containers = [{"name": "main", "image": "train"}]
    return {"Worker": {"replicas": count, "template": {"spec": {"containers": containers}}}}


def elastic(*, gang: bool = True, replicas: int = 6, **more: Any) -> Observed:
    spec = job_spec(
        roles=workers(replicas),
        framework="PyTorch",
        elastic={"minReplicas": 2, "maxReplicas": 8},
        scheduling={"gang": gang},
    )
    return Observed(spec=spec, **{"status": status(), **more})


@pytest.mark.parametrize(
    ("observed", "replicas"),
    [
        pytest.param(elastic(), 2, id="a gang starts with its minimum"),
        pytest.param(elastic(workers=4), 4, id="the queue gives it more"),
        pytest.param(elastic(workers=9), 6, id="never more than it asks for"),
        pytest.param(
            elastic(status=status("Admitted", admittedWorkers=5)), 5, id="what it was admitted with"
        ),
        pytest.param(elastic(status=status(admittedWorkers=5)), 2, id="unless it was suspended since"),
        pytest.param(elastic(status=status("Admitted")), 6, id="what nobody counted"),
        pytest.param(elastic(gang=False), 6, id="no gang"),
        pytest.param(elastic(gang=False, workers=3), 3, id="no gang, and Kueue counts its workers"),
    ],
)
def test_an_elastic_job_has_the_workers_that_its_queue_admitted(observed: Observed, replicas: int) -> None:
    assert observed.replicas("Worker") == replicas


def test_a_job_that_is_not_elastic_has_the_workers_of_its_spec() -> None:
    assert Observed(spec=job_spec(roles=workers(3)), status=status(), workers=1).replicas("Worker") == 3


@pytest.mark.parametrize(
    ("was_admitted", "made_as", "expected"),
    [(True, False, False), (True, True, True), (True, None, True), (False, False, True)],
)
def test_a_change_of_gang_counts_only_for_jobs_that_were_not_admitted(
    was_admitted: bool, made_as: bool | None, expected: bool
) -> None:
    observed = Observed(
        spec=job_spec(scheduling={"gang": True}),
        status=status("Admitted") if was_admitted else status(),
        jobs={"Worker": JobView(exists=True, gang=made_as)},
    )
    assert observed.as_admitted().spec.scheduling.gang is expected


def pod(index: int, phase: str, created: str = "") -> PodView:
    return PodView(name=f"p{index}{created}", index=str(index), phase=phase, created=created)


RUNNING = JobView(exists=True)


@pytest.mark.parametrize(
    ("job", "pods", "absent"),
    [
        pytest.param(RUNNING, [], 3, id="none was made"),
        pytest.param(RUNNING, [pod(0, "Running"), pod(1, "Pending")], 1, id="one is to be made"),
        pytest.param(RUNNING, [pod(0, "Running"), pod(1, "Failed"), pod(2, "Pending")], 0, id="a failed one"),
        pytest.param(JobView(exists=True, succeeded=2), [pod(2, "Running")], 0, id="ended ones may be gone"),
        pytest.param(
            JobView(exists=True, succeeded=1),
            [pod(0, "Succeeded"), pod(1, "Running")],
            1,
            id="an ended one counts once",
        ),
        pytest.param(
            RUNNING, [pod(0, "Failed", "1"), pod(0, "Running", "2")], 2, id="a replaced one counts once"
        ),
        pytest.param(JobView(exists=True, suspended=True), [], 0, id="suspended"),
        pytest.param(JobView(exists=True, failure="x"), [], 0, id="failed"),
        pytest.param(JobView(), [], 0, id="no Job"),
    ],
)
def test_pods_are_absent_that_a_running_job_still_has_to_make(
    job: JobView, pods: list[PodView], absent: int
) -> None:
    observed = Observed(spec=job_spec(roles=workers(3)), status=status(), jobs={"Worker": job}, pods=pods)
    assert observed.absent("Worker") == absent


def test_pods_of_another_role_do_not_stand_in() -> None:
    servers = [PodView(name=f"s{index}", role="PS", index=str(index), phase="Running") for index in range(3)]
    observed = Observed(
        spec=job_spec(roles=workers(3)), status=status(), jobs={"Worker": RUNNING}, pods=servers
    )
    assert observed.absent("Worker") == 3
