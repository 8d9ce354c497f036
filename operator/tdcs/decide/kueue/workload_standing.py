"""Where a TrainingJob's Workload stands with Kueue, what that decides for the job, and what to write to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tdcs.api import names
from tdcs.api.durations import seconds_between, time_after
from tdcs.api.names import KUEUE_GATED_BY, KUEUE_QUEUE
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.kueue_nodes import pod_set_name
from tdcs.decide.queue.pod_admission import Admission, Reason
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import WORKLOADS

QUOTA_RESERVED, ADMITTED, EVICTED = "QuotaReserved", "Admitted", "Evicted"
PODS_READY, REQUEUED, FINISHED = "PodsReady", "Requeued", "Finished"

PODS_READY_TIMEOUT = "PodsReadyTimeout"
"""Reason of an eviction: the pods were not all ready in time."""

FIRST_PAUSE, LONGEST_PAUSE = 60, 900
"""Seconds: Kueue's own first pause, and the longest one of the operator's own queue."""

NO_KUEUE = f"there is no Kueue with {WORKLOADS.api_version} (0.19 or later): install it"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStanding:
    """What Kueue has decided so far.

    Attributes:
        exists: whether there is a Workload.
        holds: whether it holds quota.
        admitted: whether its pods may exist: it holds quota, its checks are ready, and it is not evicted.
        evicted: why it has to give back the quota that it holds; empty when it need not.
        message: why it waits, in Kueue's words.
        counts: how many pods of each set were admitted.
        flavors: names of the ResourceFlavors of each set.
        topologies: the sets to which domains of a topology were assigned.
        ready, finished: whether the Workload says that all pods are ready, and that the job has ended.
    """

    exists: bool = False
    holds: bool = False
    admitted: bool = False
    evicted: str = ""
    message: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    topologies: frozenset[str] = frozenset()
    ready: bool = False
    finished: bool = False


def standing_of(workload: Object | None) -> QueueStanding:
    if workload is None:
        return QueueStanding()
    status = workload.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    true = {kind for kind, condition in conditions.items() if condition.get("status") == "True"}
    sets = (status.get("admission") or {}).get("podSetAssignments") or ()
    holds = QUOTA_RESERVED in true
    evicted = conditions.get(EVICTED, {}) if EVICTED in true and holds else None
    return QueueStanding(
        exists=True,
        holds=holds,
        admitted=holds and ADMITTED in true and evicted is None,
        evicted="" if evicted is None else str(evicted.get("message") or evicted.get("reason") or "evicted"),
        message=_why(workload, conditions, holds=holds),
        counts={
            str(assignment["name"]): int(assignment["count"]) for assignment in sets if "count" in assignment
        },
        flavors={
            str(assignment["name"]): tuple(dict.fromkeys((assignment.get("flavors") or {}).values()))
            for assignment in sets
        },
        topologies=frozenset(
            str(assignment["name"]) for assignment in sets if assignment.get("topologyAssignment")
        ),
        ready=PODS_READY in true,
        finished=FINISHED in true,
    )


def admission_of(standing: QueueStanding, *, queue: str) -> Admission:
    if not standing.exists:
        text = f"{NO_KUEUE}, or take the label {KUEUE_QUEUE} off the job"
        return Admission(admitted=False, data_ready=True, reason=Reason.IN_KUEUE, message=text)
    if standing.admitted:
        text = f"Kueue admitted it from LocalQueue {queue}"
        return Admission(admitted=True, data_ready=True, reason=Reason.KUEUE_ADMITTED, message=text)
    why = standing.evicted or standing.message or "Kueue has not looked at its Workload yet"
    text = f"it waits in LocalQueue {queue}: {why}"
    return Admission(admitted=False, data_ready=True, reason=Reason.IN_KUEUE, message=text)


def leaves(queue: str) -> Admission:
    """The answer for a job that lost its queue's label while it holds quota."""
    text = (
        f"it has lost the label {KUEUE_QUEUE}, by which it had quota of LocalQueue {queue}: it is stopped, gives this "
        "quota back, and then waits in the operator's own queue"
    )
    return Admission(admitted=False, data_ready=True, reason=Reason.IN_KUEUE, message=text)


def quota_returned(workload: Object, *, now: str) -> Object:
    """The status of an evicted Workload once none of its pods runs any more: what it held is free."""
    conditions = {
        condition.get("type"): condition
        for condition in (workload.get("status") or {}).get("conditions") or ()
    }
    evicted = conditions.get(EVICTED, {})
    why = str(evicted.get("message") or "evicted")
    seconds_left = _seconds_until_requeued(workload, now=now)
    again = evicted.get("reason") != "Deactivated" and (seconds_left is None or seconds_left <= 0)
    return {
        "admission": None,
        "conditions": with_conditions(
            workload,
            {
                QUOTA_RESERVED: (False, "Pending", why),
                ADMITTED: (False, "NoReservation", "The workload has no reservation"),
                PODS_READY: (False, "Evicted", why),
                REQUEUED: (again, str(evicted.get("reason") or "Evicted"), why),
            },
            now=now,
        ),
    }


def requeue_pause(count: int) -> int:
    """Seconds that a job waits that did not run in time for the `count`-th time in a row, before Kueue looks at it
    again: else it would take the same quota from the others forever."""
    return int(min(FIRST_PAUSE * 2 ** min(count - 1, 32), LONGEST_PAUSE))


def evicted_for(workload: Object, *, message: str, now: str) -> Object:
    """The status of a Workload whose job holds quota and does not run in time, as where Kueue itself waits for pods:
    how often it has happened, and when the job is queued again, are part of it."""
    state = (workload.get("status") or {}).get("requeueState") or {}
    count = int(state.get("count") or 0) + 1
    at = max(time_after(now, seconds=requeue_pause(count)), str(state.get("requeueAt") or ""))
    often = f", as that has happened {count} times in a row" if count > 1 else ""
    why = (True, PODS_READY_TIMEOUT, f"{message}; it queues again at {at}{often}")
    return {
        "conditions": with_conditions(workload, {EVICTED: why}, now=now),
        "requeueState": {"count": count, "requeueAt": at},
    }


def requeue_left(workload: Object, *, now: str) -> float | None:
    """Seconds until a job that did not run in time queues again; None: it does not wait for that."""
    conditions = {
        condition.get("type"): condition
        for condition in (workload.get("status") or {}).get("conditions") or ()
    }
    requeued = conditions.get(REQUEUED, {})
    waits = requeued.get("status") == "False" and requeued.get("reason") == PODS_READY_TIMEOUT
    return _seconds_until_requeued(workload, now=now) if waits else None


def requeued(workload: Object, *, now: str) -> Object:
    """The status with which Kueue queues a Workload again whose pause is over. Kueue writes the same; where the time
    was written by another than itself it cannot always remove it."""
    why = {REQUEUED: (True, "BackoffFinished", "The workload backoff was finished")}
    return {
        "conditions": with_conditions(workload, why, now=now),
        "requeueState": {"requeueAt": None},
    }


def ready_status(workload: Object, *, now: str) -> Object:
    """The status of a Workload all of whose pods are ready: how often it was not in time is forgotten."""
    why = {PODS_READY: (True, "Started", "all pods of the TrainingJob are ready")}
    again = {"requeueState": None} if (workload.get("status") or {}).get("requeueState") else {}
    return {"conditions": with_conditions(workload, why, now=now), **again}


def _seconds_until_requeued(workload: Object, *, now: str) -> float | None:
    at = ((workload.get("status") or {}).get("requeueState") or {}).get("requeueAt")
    return seconds_between(now, str(at)) if at else None


CHANGED = "the job was changed: it gives back the quota that it has for what it was before, and queues again"
"""Why a Workload that holds quota for other pods than its job asks for now does not start them."""


def counts_differ(workload: Object) -> bool:
    """Whether Kueue has assigned quota for another number of pods than the Workload asks for, or can do with."""
    sets = {str(pod_set["name"]): pod_set for pod_set in (workload.get("spec") or {}).get("podSets") or ()}
    assigned = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    counts = {str(assignment["name"]): assignment.get("count") for assignment in assigned}
    if not counts:
        return False
    return counts.keys() != sets.keys() or any(
        count is not None and not _least(sets[name]) <= int(count) <= int(sets[name].get("count", 1))
        for name, count in counts.items()
    )


def _least(pods: Mapping[str, Any]) -> int:
    return int(pods.get("minCount") or pods.get("count", 1))


def reset_check(check: Mapping[str, Any], *, now: str) -> Mapping[str, Any]:
    """The state of a check, which has judged quota that is given back: as after an eviction."""
    if check.get("state") == "Pending":
        return check
    text = f"Reset to Pending: the quota was given back. Previously: {check.get('state')}"
    return {"name": check.get("name"), "state": "Pending", "message": text, "lastTransitionTime": now}


def with_conditions(
    workload: Object, changes: Mapping[str, tuple[bool, str, str]], *, now: str
) -> list[Mapping[str, Any]]:
    """The conditions of a Workload with others changed: status, reason and message by type."""
    conditions: Sequence[Mapping[str, Any]] = (workload.get("status") or {}).get("conditions") or ()
    before = {str(condition.get("type")): condition for condition in conditions}
    changed = dict(before)
    for kind, (holds, reason, message) in changes.items():
        status = "True" if holds else "False"
        is_unchanged = before.get(kind, {}).get("status") == status
        changed[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:2000],
            "lastTransitionTime": before[kind]["lastTransitionTime"] if is_unchanged else now,
            "observedGeneration": workload["metadata"].get("generation", 0),
        }
    return list(changed.values())


def _why(workload: Object, conditions: Mapping[Any, Mapping[str, Any]], *, holds: bool) -> str:
    if (workload.get("spec") or {}).get("active") is False:
        name, namespace = workload["metadata"]["name"], workload["metadata"].get("namespace", "")
        return (
            "its Workload is not active: a check rejected it, a limit of Kueue was reached, or somebody stopped it; "
            f"see its conditions, then kueuectl resume workload {name} -n {namespace} (spec.active)"
        )
    if KUEUE_GATED_BY in (workload["metadata"].get("annotations") or {}):
        return "its data is not there yet"
    if holds:
        checks = (workload.get("status") or {}).get("admissionChecks") or ()
        waits = [state for state in checks if state.get("state") != "Ready"]
        named = "; ".join(
            f"{state.get('name')}: {state.get('message') or state.get('state')}" for state in waits
        )
        return f"it has quota, and waits for its checks ({named})" if named else "it has quota"
    return str(conditions.get(QUOTA_RESERVED, {}).get("message") or "")


def decided_by_kueue(
    observed: Observed, standing: QueueStanding, *, queue: str, data: Admission, over: bool, short: str = ""
) -> Decision:
    """Kueue decides, once the data is there. A job that ran before it was put into the queue runs on until Kueue has
    admitted it and evicts it; so does one that runs where Kueue is gone.

    Args:
        observed: the job.
        standing: where its Workload stands.
        queue: its LocalQueue.
        data: what its datasets say.
        over: whether it has just ended.
        short: why no dataset has a place for it; empty: it has its places, or may take them.
    """
    admission = admission_of(standing, queue=queue)
    if short:
        admission = Admission(admitted=False, data_ready=True, reason=Reason.AT_LIMIT, message=short)
    admitted_conditions = (
        condition for condition in observed.status.conditions if condition.type == names.ADMITTED
    )
    decides = any(condition.reason == Reason.KUEUE_ADMITTED for condition in admitted_conditions)
    holds = not standing.evicted and (standing.admitted or not standing.exists or not decides)
    if observed.was_admitted and not holds and not over and not observed.spec.run_policy.suspend:
        return decisions.taken_back(admission=admission, data=data)
    decision = decisions.decision_of(observed=observed, data=data, admission=admission)
    if decision.admitted and decision.reason is Reason.READY and admission.reason is Reason.KUEUE_ADMITTED:
        # The condition said something else for a while: that a child was refused, say. Kueue decides all the same.
        text = admission.message if data.admitted else decision.message
        return replace(decision, reason=Reason.KUEUE_ADMITTED, message=text)
    return decision


def sized_by_kueue(observed: Observed, standing: QueueStanding) -> Observed:
    """With the number of workers that Kueue has admitted of an elastic job: its quota is for these, whatever number was
    asked for since."""
    count = standing.counts.get(pod_set_name("Worker"))
    if count is None or observed.spec.elastic is None or not standing.admitted:
        return observed
    return replace(observed, workers=count)


def local_queue(job: Object, *, kueue: bool) -> str:
    """The LocalQueue by which Kueue decides about a job; empty: the own queue decides.

    Args:
        job: as the API server has it, however wrong its spec may be.
        kueue: whether the operator follows Kueue at all.
    """
    labels = job["metadata"].get("labels") or {}
    return str(labels.get(KUEUE_QUEUE) or "") if kueue else ""
