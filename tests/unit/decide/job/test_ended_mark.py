"""The mark of an ended job, by which it is recognised after a backup restored it without its status."""

import json

import pytest
from tests.unit.control.builders import NOW

from tdcs.api import names
from tdcs.api.durations import SKEW_SECONDS, time_after
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.ended_mark import (
    RESTORED,
    earlier_end,
    ended_before,
    ended_mark,
    has_mark,
    is_of_another_life,
    queues_again,
)
from tdcs.model.kube_objects import Object

NO_STATUS = TrainingJobStatus()


def job(*, mark: object = None, name: str = "train", uid: str = "new") -> Object:
    """A job with this annotation; a text as it is, anything else as JSON."""
    metadata: Object = {"name": name, "namespace": "n", "uid": uid}
    if mark is not None:
        text = mark if isinstance(mark, str) else json.dumps(mark)
        metadata["annotations"] = {names.ANNOTATION_ENDED: text}
    return {"metadata": metadata}


def marked(**changes: object) -> dict[str, object]:
    return {"name": "train", "uid": "old", "state": "Succeeded", "time": NOW, **changes}


def with_condition(kind: str, *, at: str = NOW, status: str = "True") -> TrainingJobStatus:
    return TrainingJobStatus.model_validate(
        {"conditions": [{"type": kind, "status": status, "reason": "R", "lastTransitionTime": at}]}
    )


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_job_restored_with_its_mark_has_the_end_that_it_had(succeeded: bool) -> None:
    mark = ended_mark(job(uid="old"), succeeded=succeeded, time=NOW)
    assert has_mark(job(mark=mark, uid="old"))
    end = earlier_end(job(mark=mark, uid="new"), NO_STATUS)
    assert end is not None
    assert (end.succeeded, end.time) == (succeeded, NOW)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(job(), id="without a mark"),
        pytest.param(job(mark=marked(), uid="old"), id="the job that ended itself"),
        pytest.param(job(mark=marked(), name="copy"), id="a copy under another name"),
        pytest.param(job(mark=marked(uid=None)), id="a mark without a uid"),
        *(
            pytest.param(job(mark=text), id=text or "empty")
            for text in ("", "{", "[]", "null", "7", '"train"')
        ),
    ],
)
def test_any_other_job_has_not_ended_before(obj: Object) -> None:
    assert earlier_end(obj, NO_STATUS) is None


def test_a_job_that_has_conditions_has_not_ended_before() -> None:
    assert earlier_end(job(mark=marked()), with_condition(names.ADMITTED)) is None


@pytest.mark.parametrize("obj", [job(), job(mark="{"), job(mark=marked()), job(mark=marked(uid=None))])
def test_only_a_mark_with_the_uid_of_the_job_is_its_mark(obj: Object) -> None:
    assert not has_mark(obj)


@pytest.mark.parametrize("time", ["", None, "yesterday", 5, "2026-01-01", "2026-02-30T00:00:00Z", ["x"]])
def test_a_time_that_is_none_is_reported_as_unknown_and_not_written(time: object) -> None:
    end = earlier_end(job(mark=marked(time=time)), NO_STATUS)
    assert end is not None
    status, _ = ended_before(end, NO_STATUS, now=NOW)
    assert status.completion_time == NOW
    assert "at an unknown time when it was backed up" in status.message


@pytest.mark.parametrize(("state", "kind"), [("Succeeded", names.SUCCEEDED), ("Failed", names.FAILED)])
def test_a_restored_job_shows_its_end_and_how_to_run_it_again(state: str, kind: str) -> None:
    end = earlier_end(job(mark=marked(state=state)), NO_STATUS)
    assert end is not None
    status, conditions = ended_before(end, NO_STATUS, now=time_after(NOW, seconds=9))
    assert (status.state, status.reason, status.completion_time) == (state, RESTORED, NOW)
    assert status.message.endswith("to run it again, create it without this annotation")
    assert [(condition.type, condition.status) for condition in conditions] == [
        (names.ADMITTED, "False"),
        (kind, "True"),
    ]


@pytest.mark.parametrize(
    ("seconds", "restored"),
    [(-1, False), (0, False), (SKEW_SECONDS, False), (SKEW_SECONDS + 1, True), (86_400 * 365, True)],
)
def test_a_job_admitted_before_it_was_created_by_more_than_clocks_differ_was_restored(
    seconds: float, restored: bool
) -> None:
    created = time_after(NOW, seconds=seconds)
    assert is_of_another_life(with_condition(names.ADMITTED), created=created) is restored


@pytest.mark.parametrize(
    ("status", "created"),
    [
        pytest.param(NO_STATUS, "2027-01-01T00:00:00Z", id="never admitted"),
        pytest.param(with_condition(names.ADMITTED), "", id="creation time not known"),
        pytest.param(
            with_condition(names.ADMITTED, status="False"), "2027-01-01T00:00:00Z", id="not admitted"
        ),
        pytest.param(with_condition(names.RUNNING), "2027-01-01T00:00:00Z", id="another condition"),
        pytest.param(with_condition(names.SUCCEEDED), "2027-01-01T00:00:00Z", id="ended"),
    ],
)
def test_other_jobs_do_not_queue_again(status: TrainingJobStatus, created: str) -> None:
    assert not is_of_another_life(status, created=created)


def test_a_job_that_ran_when_it_was_backed_up_waits_and_is_not_admitted() -> None:
    status, conditions = queues_again()
    assert (status.state, status.reason) == ("Waiting", RESTORED)
    assert {condition.type: condition.status for condition in conditions} == {
        names.ADMITTED: "False",
        names.RUNNING: "False",
    }
