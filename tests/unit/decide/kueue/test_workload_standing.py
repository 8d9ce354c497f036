"""Where a TrainingJob's Workload stands with Kueue, and what that decides for the job."""

from typing import Any

import pytest
from tests.unit.control.builders import job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.workload_standing import (
    LONGEST_PAUSE,
    QueueStanding,
    admission_of,
    counts_differ,
    decided_by_kueue,
    evicted_for,
    leaves,
    local_queue,
    quota_returned,
    ready_status,
    requeue_left,
    requeue_pause,
    requeued,
    reset_check,
    sized_by_kueue,
    standing_of,
    with_conditions,
)
from tdcs.decide.queue.pod_admission import Admission, Reason

BEFORE, NOW, LATER = (f"2026-01-01T0{hour}:00:00Z" for hour in range(3))
QUEUE = "kueue.x-k8s.io/queue-name"


def workload(*true: str, false: tuple[str, ...] = (), reason: str = "X", **more: Any) -> dict[str, Any]:
    """A Workload with these conditions; further arguments are of its status, or its spec."""
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": f"{kind} said",
            "lastTransitionTime": BEFORE,
        }
        for status, kinds in (("True", true), ("False", false))
        for kind in kinds
    ]
    spec = {key: more.pop(key) for key in ("active", "podSets") if key in more}
    metadata = {"name": "trainingjob-x", "namespace": "n", **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions, **more}}


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}


def test_a_missing_workload_stands_nowhere() -> None:
    assert standing_of(None) == QueueStanding()
    assert not standing_of(None).exists


@pytest.mark.parametrize(
    ("true", "holds", "admitted", "evicted"),
    [
        ((), False, False, ""),
        (("Admitted",), False, False, ""),
        (("QuotaReserved",), True, False, ""),
        (("QuotaReserved", "Admitted"), True, True, ""),
        (("QuotaReserved", "Admitted", "Evicted"), True, False, "Evicted said"),
        (("Evicted",), False, False, ""),
    ],
)
def test_pods_may_exist_with_quota_and_admission_and_without_eviction(
    true: tuple[str, ...], holds: bool, admitted: bool, evicted: str
) -> None:
    standing = standing_of(workload(*true))
    assert (standing.holds, standing.admitted, standing.evicted) == (holds, admitted, evicted)


def test_an_assignment_is_read_by_the_names_of_the_pod_sets() -> None:
    sets = [
        {"name": "worker", "count": 3, "flavors": {"cpu": "a", "gpu": "b", "memory": "a"}},
        {"name": "ps", "topologyAssignment": {"levels": []}},
        {"name": "chief", "count": 1, "topologyAssignment": None},
    ]
    standing = standing_of(workload(admission={"podSetAssignments": sets}))
    assert standing.counts == {"worker": 3, "chief": 1}
    assert standing.flavors == {"worker": ("a", "b"), "ps": (), "chief": ()}
    assert standing.topologies == {"ps"}


@pytest.mark.parametrize(
    ("true", "ready", "finished"), [("PodsReady", True, False), ("Finished", False, True)]
)
def test_ready_and_finished_are_conditions(true: str, ready: bool, finished: bool) -> None:
    standing = standing_of(workload(true))
    assert (standing.ready, standing.finished) == (ready, finished)


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (workload(), ""),
        (workload(false=("QuotaReserved",)), "QuotaReserved said"),
        (workload("QuotaReserved"), "it has quota"),
        (
            workload(
                "QuotaReserved",
                admissionChecks=[
                    {"name": "a", "state": "Ready"},
                    {"name": "b", "state": "Pending"},
                    {"name": "c", "state": "Retry", "message": "cold"},
                ],
            ),
            "it has quota, and waits for its checks (b: Pending; c: cold)",
        ),
        (workload("QuotaReserved", active=False), "its Workload is not active: "),
        (
            workload(metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "tdcs.io/data"}}),
            "its data is not there yet",
        ),
    ],
)
def test_a_waiting_job_says_what_kueue_waits_for(obj: dict[str, Any], words: str) -> None:
    message = standing_of(obj).message
    assert message.startswith(words)
    assert bool(message) is bool(words)


@pytest.mark.parametrize(
    ("standing", "admitted", "words"),
    [
        (QueueStanding(), False, "install it, or take the label kueue.x-k8s.io/queue-name off the job"),
        (
            QueueStanding(exists=True),
            False,
            "it waits in LocalQueue q: Kueue has not looked at its Workload yet",
        ),
        (QueueStanding(exists=True, message="full"), False, "it waits in LocalQueue q: full"),
        (QueueStanding(exists=True, message="full", evicted="gone"), False, "it waits in LocalQueue q: gone"),
        (QueueStanding(exists=True, admitted=True), True, "Kueue admitted it from LocalQueue q"),
    ],
)
def test_a_job_hears_what_kueue_has_decided(standing: QueueStanding, admitted: bool, words: str) -> None:
    admission = admission_of(standing, queue="q")
    assert admission.admitted is admitted
    assert admission.reason is (Reason.KUEUE_ADMITTED if admitted else Reason.IN_KUEUE)
    assert words in admission.message


def test_a_job_that_lost_its_label_is_not_admitted() -> None:
    assert not leaves("q").admitted
    assert "quota of LocalQueue q" in leaves("q").message


@pytest.mark.parametrize(
    ("reason", "requeue_at", "again"),
    [
        ("Preempted", None, True),
        ("Preempted", NOW, True),
        ("PodsReadyTimeout", LATER, False),
        ("Deactivated", None, False),
    ],
)
def test_returned_quota_queues_the_workload_again_unless_it_is_to_wait(
    reason: str, requeue_at: str | None, again: bool
) -> None:
    evicted = workload("QuotaReserved", "Admitted", "Evicted", reason=reason)
    if requeue_at:
        evicted["status"]["requeueState"] = {"requeueAt": requeue_at}
    status = quota_returned(evicted, now=NOW)
    assert status["admission"] is None
    after = conditions(status)
    assert after["QuotaReserved"] == ("False", "Pending")
    assert after["Admitted"] == ("False", "NoReservation")
    assert after["PodsReady"] == ("False", "Evicted")
    assert after["Requeued"] == ("True" if again else "False", reason)


@pytest.mark.parametrize(
    ("count", "seconds"), [(1, 60), (2, 120), (4, 480), (5, LONGEST_PAUSE), (10**9, LONGEST_PAUSE)]
)
def test_the_pause_doubles_up_to_a_bound(count: int, seconds: int) -> None:
    assert requeue_pause(count) == seconds


def test_a_job_that_does_not_run_in_time_is_evicted_and_counted() -> None:
    first = evicted_for(workload("QuotaReserved"), message="too slow", now=NOW)
    assert first["requeueState"] == {"count": 1, "requeueAt": "2026-01-01T01:01:00Z"}
    assert conditions(first)["Evicted"] == ("True", "PodsReadyTimeout")
    assert first["conditions"][-1]["message"] == "too slow; it queues again at 2026-01-01T01:01:00Z"
    third = evicted_for(workload(requeueState={"count": 2}), message="too slow", now=NOW)
    assert third["requeueState"] == {"count": 3, "requeueAt": "2026-01-01T01:04:00Z"}
    assert third["conditions"][-1]["message"].endswith(", as that has happened 3 times in a row")


def test_a_pause_is_never_made_shorter() -> None:
    status = evicted_for(workload(requeueState={"requeueAt": LATER}), message="x", now=NOW)
    assert status["requeueState"]["requeueAt"] == LATER


@pytest.mark.parametrize(
    ("obj", "seconds"),
    [
        (workload(requeueState={"requeueAt": LATER}), None),
        (workload(false=("Requeued",), reason="Preempted", requeueState={"requeueAt": LATER}), None),
        (workload("Requeued", reason="PodsReadyTimeout", requeueState={"requeueAt": LATER}), None),
        (workload(false=("Requeued",), reason="PodsReadyTimeout"), None),
        (workload(false=("Requeued",), reason="PodsReadyTimeout", requeueState={"requeueAt": LATER}), 3600.0),
        (
            workload(false=("Requeued",), reason="PodsReadyTimeout", requeueState={"requeueAt": BEFORE}),
            -3600.0,
        ),
    ],
)
def test_seconds_are_left_only_of_a_pause_for_a_slow_start(
    obj: dict[str, Any], seconds: float | None
) -> None:
    assert requeue_left(obj, now=NOW) == seconds


def test_a_pause_that_is_over_queues_the_workload_again() -> None:
    status = requeued(workload(false=("Requeued",)), now=NOW)
    assert conditions(status)["Requeued"] == ("True", "BackoffFinished")
    assert status["requeueState"] == {"requeueAt": None}


def test_a_job_that_runs_is_forgiven_its_slow_starts() -> None:
    assert conditions(ready_status(workload(), now=NOW))["PodsReady"] == ("True", "Started")
    assert "requeueState" not in ready_status(workload(), now=NOW)
    assert ready_status(workload(requeueState={"count": 2}), now=NOW)["requeueState"] is None


@pytest.mark.parametrize(
    ("asked", "assigned", "differ"),
    [
        ({"worker": (3, None)}, {}, False),
        ({"worker": (3, None)}, {"worker": 3}, False),
        ({"worker": (3, None)}, {"worker": 2}, True),
        ({"worker": (3, None)}, {"worker": 4}, True),
        ({"worker": (3, 2)}, {"worker": 2}, False),
        ({"worker": (3, 2)}, {"worker": 1}, True),
        ({"worker": (3, None)}, {"worker": None}, False),
        ({"worker": (3, None), "ps": (1, None)}, {"worker": 3}, True),
        ({"worker": (3, None)}, {"worker": 3, "ps": 1}, True),
    ],
)
def test_quota_differs_where_a_pod_set_has_another_number_than_it_can_do_with(
    asked: dict[str, tuple[int, int | None]], assigned: dict[str, int | None], differ: bool
) -> None:
    pod_sets = [
        {"name": name, "count": count, **({"minCount": least} if least else {})}
        for name, (count, least) in asked.items()
    ]
    assignments = [
        {"name": name, **({} if count is None else {"count": count})} for name, count in assigned.items()
    ]
    obj = workload(podSets=pod_sets, admission={"podSetAssignments": assignments})
    assert counts_differ(obj) is differ


def test_a_pending_check_stays_as_it_is_and_others_begin_again() -> None:
    pending = {"name": "a", "state": "Pending", "message": "x"}
    assert reset_check(pending, now=NOW) is pending
    assert reset_check({"name": "a", "state": "Ready", "podSetUpdates": [1]}, now=NOW) == {
        "name": "a",
        "state": "Pending",
        "message": "Reset to Pending: the quota was given back. Previously: Ready",
        "lastTransitionTime": NOW,
    }


def test_other_conditions_stay_and_times_change_only_with_the_status() -> None:
    obj = workload("A", "B", false=("C",), metadata={"generation": 7})
    changed = with_conditions(obj, {"B": (True, "R", "m" * 3000), "C": (True, "R", "m")}, now=NOW)
    a, b, c = changed
    assert a == obj["status"]["conditions"][0]
    assert (b["lastTransitionTime"], b["reason"], len(b["message"])) == (BEFORE, "R", 2000)
    assert (c["lastTransitionTime"], c["status"], c["observedGeneration"]) == (NOW, "True", 7)


def job(reason: str = "", *, suspend: bool = False, **more: Any) -> Observed:
    """A job that was admitted for this reason; empty: it was not."""
    admitted = {"type": "Admitted", "status": "True", "reason": reason, "lastTransitionTime": BEFORE}
    status = TrainingJobStatus.model_validate({"conditions": [admitted] if reason else []})
    return Observed(spec=job_spec(datasets=[], runPolicy={"suspend": suspend}, **more), status=status)


DATA = Admission(admitted=True, data_ready=True, reason=Reason.READY, message="0 datasets ready")
ADMITTED = QueueStanding(exists=True, holds=True, admitted=True)
WAITS = QueueStanding(exists=True, message="full")
EVICTED = QueueStanding(exists=True, holds=True, evicted="preempted")


def decided(observed: Observed, standing: QueueStanding, **more: Any) -> tuple[bool, Reason]:
    arguments = {"data": DATA, "over": False, **more}
    decision = decided_by_kueue(observed, standing, queue="q", **arguments)
    return decision.admitted, decision.reason


@pytest.mark.parametrize(
    ("observed", "standing", "expected"),
    [
        pytest.param(job(), ADMITTED, (True, Reason.KUEUE_ADMITTED), id="admitted"),
        pytest.param(job(), WAITS, (False, Reason.IN_KUEUE), id="waits"),
        pytest.param(job("AdmittedByKueue"), WAITS, (False, Reason.IN_KUEUE), id="Kueue took it back"),
        pytest.param(job("AdmittedByKueue"), EVICTED, (False, Reason.IN_KUEUE), id="evicted"),
        pytest.param(job("AllPodsFit"), EVICTED, (False, Reason.IN_KUEUE), id="evicted, admitted by another"),
    ],
)
def test_kueue_decides(observed: Observed, standing: QueueStanding, expected: tuple[bool, Reason]) -> None:
    assert decided(observed, standing) == expected


@pytest.mark.parametrize(
    ("reason", "standing"),
    [("AllPodsFit", WAITS), ("AdmittedByKueue", QueueStanding())],
    ids=["it ran before it was put into the queue", "Kueue is gone"],
)
def test_a_job_that_runs_runs_on_until_kueue_evicts_it(reason: str, standing: QueueStanding) -> None:
    assert decided(job(reason), standing)[0]


def test_a_job_without_a_place_at_its_data_waits_whatever_kueue_says() -> None:
    assert decided(job(), ADMITTED, short="no place") == (False, Reason.AT_LIMIT)


def test_a_suspended_job_is_not_admitted() -> None:
    assert decided(job("AdmittedByKueue", suspend=True), WAITS) == (False, Reason.SUSPENDED)


def elastic(standing: QueueStanding, **more: Any) -> int | None:
    bounds = {"minReplicas": 1, "maxReplicas": 4}
    observed = job(framework="PyTorch", **{"elastic": bounds, **more})
    return sized_by_kueue(observed, standing).workers


def test_an_elastic_job_has_the_workers_that_kueue_admitted() -> None:
    counted = QueueStanding(exists=True, admitted=True, counts={"worker": 3})
    assert elastic(counted) == 3
    assert elastic(counted, elastic=None) is None
    assert elastic(QueueStanding(exists=True, admitted=True, counts={"ps": 3})) is None
    assert elastic(QueueStanding(exists=True, counts={"worker": 3})) is None


@pytest.mark.parametrize(
    ("labels", "kueue", "queue"),
    [
        ({QUEUE: "q"}, True, "q"),
        ({QUEUE: "q"}, False, ""),
        ({QUEUE: ""}, True, ""),
        ({}, True, ""),
        (None, True, ""),
    ],
)
def test_a_jobs_label_names_its_queue_where_the_operator_follows_kueue(
    labels: dict[str, str] | None, kueue: bool, queue: str
) -> None:
    assert local_queue({"metadata": {"labels": labels}}, kueue=kueue) == queue
