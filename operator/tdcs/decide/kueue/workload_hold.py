"""A Workload without quota and outside of Kueue's queue, until its data is there.

State Retry of a check alone does not give quota back for as long as it should: Kueue 0.19 evicts a Workload with
`requeueAfterSeconds` after that time only, and queues one without it again at once. So the quota of a Workload that has
not started is given back by the way that Kueue has for StatefulSets of no replicas: QuotaReserved is False with the
reason OnHold.
"""

from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.decide.kueue.workload_standing import (
    ADMITTED,
    CHANGED,
    QUOTA_RESERVED,
    REQUEUED,
    reset_check,
    with_conditions,
)
from tdcs.model.kube_objects import Object

RETRY = "Retry"
"""State of a check whose Workload is on hold."""

_ON_HOLD, _PENDING, _DATA_READY = "OnHold", "Pending", "DataReady"
_MARK = f"{names.KUEUE_CONTROLLER}: "
"""Tells the holds of TDCS from those of Kueue."""

_PLACE_MARK = f"{names.GROUP}/places: "
"""Tells those of a TrainingJob that has no place at its data."""


_CHANGE_MARK = f"{names.GROUP}/changed: "
"""Tells those of a TrainingJob whose quota was reserved for what it was before it was changed."""


def is_on_hold(workload: Object) -> bool:
    """Whether it waits for its data."""
    return _is_held(workload, mark=_MARK)


def waits_for_place(workload: Object) -> bool:
    """Whether it waits for a place at its data (`access.maxConcurrentJobs`)."""
    return _is_held(workload, mark=_PLACE_MARK)


def waits_for_change(workload: Object) -> bool:
    """Whether it has given quota back, and is to ask for what its job is now."""
    return _is_held(workload, mark=_CHANGE_MARK)


def _is_held(workload: Object, *, mark: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == QUOTA_RESERVED
        and condition.get("status") == "False"
        and condition.get("reason") == _ON_HOLD
        and str(condition.get("message", "")).startswith(mark)
        for condition in conditions
    )


def hold_status(workload: Object, *, check: Mapping[str, Any], now: str) -> Object:
    """The status that takes a Workload out of the queue, and gives its quota back if it has some.

    Args:
        workload: has not started.
        check: state of the check that holds it.
    """
    status = workload.get("status") or {}
    checks = [
        check if state.get("name") == check["name"] else reset_check(state, now=now)
        for state in status.get("admissionChecks") or ()
    ]
    return {
        "admission": None,
        "admissionChecks": checks,
        "conditions": _conditions(workload, reason=_ON_HOLD, message=str(check["message"]), now=now),
    }


def place_hold_status(workload: Object, *, message: str, now: str) -> Object:
    """The status that gives back the quota of a TrainingJob that has not started, and finds no place at its data."""
    return _given_back(workload, message=f"{_PLACE_MARK}{message}", now=now)


def change_hold_status(workload: Object, *, now: str) -> Object:
    """The status that gives back quota for other pods than the job asks for now. The pods of a Workload can be changed
    without quota only, and Kueue would reserve some for the old ones again at once: so it is on hold until then."""
    return _given_back(workload, message=f"{_CHANGE_MARK}{CHANGED}", now=now)


def change_free_status(workload: Object, *, now: str) -> Object:
    """The status with which Kueue queues it again, once it asks for what its job is now."""
    why = {QUOTA_RESERVED: (False, _PENDING, f"{_CHANGE_MARK}it asks for what the job is now")}
    return {"conditions": with_conditions(workload, why, now=now)}


def _given_back(workload: Object, *, message: str, now: str) -> Object:
    status = workload.get("status") or {}
    checks = [reset_check(state, now=now) for state in status.get("admissionChecks") or ()]
    why = {
        QUOTA_RESERVED: (False, _ON_HOLD, message),
        ADMITTED: (False, "NoReservation", "The workload has no reservation"),
    }
    conditions = with_conditions(workload, why, now=now)
    return {"admission": None, **({"admissionChecks": checks} if checks else {}), "conditions": conditions}


def place_free_status(workload: Object, *, now: str) -> Object:
    """The status with which Kueue queues it again."""
    why = {QUOTA_RESERVED: (False, _PENDING, f"{_PLACE_MARK}there is a place at its data")}
    return {"conditions": with_conditions(workload, why, now=now)}


def queue_status(
    workload: Object, *, check: Mapping[str, Any] | None, message: str, now: str, requeued: bool = False
) -> Object:
    """The status with which Kueue queues a Workload again.

    Args:
        workload: is on hold, or passed over for the state of the check.
        check: state of the check that held it; None: it has none any more.
        now: the time.
        requeued: it is passed over. Kueue 0.19 looks again at such a one when its condition Requeued has changed, and
            the time is over for which it was to wait.
    """
    states = (workload.get("status") or {}).get("admissionChecks") or ()
    checks = [
        check if check is not None and state.get("name") == check["name"] else state for state in states
    ]
    conditions = _conditions(workload, reason=_PENDING, message=message, now=now)
    if not requeued:
        return {"admissionChecks": checks, "conditions": conditions}
    again = {
        "type": REQUEUED,
        "status": "True",
        "reason": _DATA_READY,
        "message": f"{_MARK}{message}"[:2000],
        "lastTransitionTime": now,
        "observedGeneration": workload["metadata"].get("generation", 0),
    }
    kept_conditions = [condition for condition in conditions if condition.get("type") != REQUEUED]
    waits = (
        {"requeueState": {"requeueAt": None}} if (workload.get("status") or {}).get("requeueState") else {}
    )
    return {"admissionChecks": checks, "conditions": [*kept_conditions, again], **waits}


def _conditions(workload: Object, *, reason: str, message: str, now: str) -> list[Mapping[str, Any]]:
    why = (False, reason, f"{_MARK}{message}")
    return with_conditions(workload, {QUOTA_RESERVED: why}, now=now)
