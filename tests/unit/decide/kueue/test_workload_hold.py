"""A Workload outside of Kueue's queue until its data, a place or its change is there."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.decide.job.test_data_verdict import CHECK, at, workload

from tdcs.decide.kueue.workload_hold import (
    change_free_status,
    change_hold_status,
    hold_status,
    is_on_hold,
    place_free_status,
    place_hold_status,
    queue_status,
    waits_for_change,
    waits_for_place,
)

NOW = at(500)
RETRY = {"name": CHECK, "state": "Retry", "message": "cold"}
KINDS: tuple[Callable[[Any], bool], ...] = (is_on_hold, waits_for_place, waits_for_change)


def after(obj: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """The Workload once the server has taken this status."""
    return {**obj, "status": {**obj["status"], **status}}


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    by_type = {entry["type"]: entry for entry in status["conditions"]}
    return by_type[kind]["status"], by_type[kind]["reason"], by_type[kind]["message"]


def kinds(obj: dict[str, Any]) -> list[bool]:
    return [kind(obj) for kind in KINDS]


def test_each_hold_is_known_by_its_own_mark() -> None:
    obj = workload()
    assert kinds(obj) == [False, False, False]
    assert kinds(after(obj, hold_status(obj, check=RETRY, now=NOW))) == [True, False, False]
    assert kinds(after(obj, place_hold_status(obj, message="full", now=NOW))) == [False, True, False]
    assert kinds(after(obj, change_hold_status(obj, now=NOW))) == [False, False, True]


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "Admitted"},
        {"status": "True"},
        {"reason": "Pending"},
        {"message": "tdcs.io/dataset: x"},
        {"message": None},
    ],
)
def test_a_hold_of_kueue_or_of_others_is_none_of_ours(changed: dict[str, Any]) -> None:
    held = {"type": "QuotaReserved", "status": "False", "reason": "OnHold", "message": "tdcs.io/data: x"}
    assert is_on_hold({"status": {"conditions": [held]}})
    assert not is_on_hold({"status": {"conditions": [{**held, **changed}]}})
    assert not is_on_hold({})


def test_a_workload_on_hold_has_no_quota_and_its_other_checks_begin_again() -> None:
    obj = workload()
    obj["status"]["admissionChecks"] += [
        {"name": "prov", "state": "Ready", "message": "x"},
        {"name": "new", "state": "Pending", "message": "y"},
    ]
    status = hold_status(obj, check=RETRY, now=NOW)
    assert status["admission"] is None
    assert condition(status, "QuotaReserved") == ("False", "OnHold", "tdcs.io/data: cold")
    own, prov, new = status["admissionChecks"]
    assert own == RETRY
    assert (prov["name"], prov["state"], prov["lastTransitionTime"]) == ("prov", "Pending", NOW)
    assert new == {"name": "new", "state": "Pending", "message": "y"}


@pytest.mark.parametrize(
    ("hold", "message"),
    [
        (lambda obj: place_hold_status(obj, message="full", now=NOW), "tdcs.io/places: full"),
        (lambda obj: change_hold_status(obj, now=NOW), "tdcs.io/changed: the job was changed"),
    ],
    ids=["place", "change"],
)
def test_quota_that_is_given_back_takes_the_admission_along(
    hold: Callable[[Any], dict[str, Any]], message: str
) -> None:
    obj = workload(state="Ready", true=("Admitted",))
    status = hold(obj)
    assert status["admission"] is None
    reserved = condition(status, "QuotaReserved")
    assert reserved[:2] == ("False", "OnHold")
    assert reserved[2].startswith(message)
    assert condition(status, "Admitted")[:2] == ("False", "NoReservation")
    assert [check["state"] for check in status["admissionChecks"]] == ["Pending"]
    del obj["status"]["admissionChecks"]
    assert "admissionChecks" not in hold(obj)


@pytest.mark.parametrize(
    ("hold", "free"),
    [
        (lambda obj: place_hold_status(obj, message="full", now=NOW), place_free_status),
        (lambda obj: change_hold_status(obj, now=NOW), change_free_status),
    ],
    ids=["place", "change"],
)
def test_a_workload_that_is_freed_queues_again(
    hold: Callable[[Any], dict[str, Any]], free: Callable[..., dict[str, Any]]
) -> None:
    obj = workload()
    held = after(obj, hold(obj))
    freed = after(held, free(held, now=at(600)))
    assert kinds(freed) == [False, False, False]
    assert condition(freed["status"], "QuotaReserved")[:2] == ("False", "Pending")


READY = {"name": CHECK, "state": "Ready", "message": "there"}


def test_a_workload_whose_data_is_there_queues_again_with_its_check() -> None:
    held = workload(reserved=None, held=True, state="Retry")
    status = queue_status(held, check=READY, message="1 dataset ready", now=NOW)
    assert kinds(after(held, status)) == [False, False, False]
    assert condition(status, "QuotaReserved") == ("False", "Pending", "tdcs.io/data: 1 dataset ready")
    assert status["admissionChecks"] == [READY]
    assert "requeueState" not in status


def test_a_check_that_is_gone_leaves_the_other_states() -> None:
    held = workload(reserved=None, held=True, state="Retry")
    status = queue_status(held, check=None, message="x", now=NOW)
    assert status["admissionChecks"] == held["status"]["admissionChecks"]


def test_a_workload_that_kueue_passed_over_is_marked_as_requeued_and_waits_no_more() -> None:
    held = workload(reserved=None, held=True, true=("Requeued",))
    unknown = queue_status(held, check=READY, message="x", now=NOW, requeued=True)
    assert unknown["conditions"][-1]["observedGeneration"] == 0
    held["metadata"]["generation"] = 4
    status = queue_status(held, check=READY, message="x" * 3000, now=NOW, requeued=True)
    (again,) = (entry for entry in status["conditions"] if entry["type"] == "Requeued")
    assert (again["status"], again["lastTransitionTime"], again["observedGeneration"]) == ("True", NOW, 4)
    assert len(again["message"]) == 2000
    assert "requeueState" not in status
    held["status"]["requeueState"] = {"count": 2, "requeueAt": at(900)}
    waiting = queue_status(held, check=READY, message="x", now=NOW, requeued=True)
    assert waiting["requeueState"] == {"requeueAt": None}


def test_the_time_of_a_condition_stays_while_its_status_does() -> None:
    held = workload(reserved=None, held=True)
    status = queue_status(held, check=None, message="x", now=NOW)
    (reserved,) = (entry for entry in status["conditions"] if entry["type"] == "QuotaReserved")
    assert reserved["lastTransitionTime"] == at(0)
    (taken,) = (
        entry
        for entry in hold_status(workload(reserved=3), check=RETRY, now=NOW)["conditions"]
        if entry["type"] == "QuotaReserved"
    )
    assert taken["lastTransitionTime"] == NOW
