"""What a job's status says: its state, its pods, and how near they are to their data."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NOW, dataset, job_spec
from tests.unit.control.job.builders import ADMITTED, decided, reading

from tdcs.api.run_policy import RunPolicy
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import PodPlacement, TrainingJobStatus
from tdcs.control.job import job_status
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.observed_job import JobView, Observed, job_view
from tdcs.model.job_pods import PodView


def pod(name: str, node: str, *, index: str, created: str = NOW, **more: Any) -> PodView:
    return PodView(name=name, node=node, index=index, created=created, **more)


def seen_with(*pods: PodView, before: TrainingJobStatus = ADMITTED, job: JobView | None = None) -> Observed:
    held = {"pictures": dataset(nodes={"a": 60, "b": 40})}
    jobs: dict[Role, JobView] = {"Worker": job} if job is not None else {}
    return Observed(spec=job_spec(), status=before, name="train", datasets=held, pods=pods, jobs=jobs)


def status(observed: Observed) -> TrainingJobStatus:
    outcome = decisions.outcome(observed, now=NOW)
    return job_status.status_of(observed, decision=decided(observed), outcome=outcome, now=NOW)


def test_locality_is_one_only_on_the_node_with_the_most_bytes() -> None:
    report = status(seen_with(pod("p0", "a", index="0"), pod("p1", "c", index="1")))
    assert [(place.node, place.cached_bytes) for place in report.placement] == [("a", 60), ("c", 0)]
    assert report.locality == 0.5  # one pod at its best node, one without a byte
    assert report.locality_percent == "50%"
    assert report.local_share == 0.3


def test_parameter_servers_do_not_count_for_locality() -> None:
    report = status(seen_with(pod("p0", "a", index="0"), pod("s0", "c", index="0", role="PS")))
    assert [place.pod for place in report.placement] == ["p0", "s0"]
    assert report.locality == 1.0


def test_a_replaced_pod_is_not_reported() -> None:
    old = pod("p0-old", "c", index="0", created="2025-01-01T00:00:00Z")
    report = status(seen_with(old, pod("p0-new", "a", index="0")))
    assert [place.pod for place in report.placement] == ["p0-new"]


def test_where_pods_ran_is_kept_when_they_and_the_data_are_gone() -> None:
    before = status(seen_with(pod("p0", "a", index="0")))
    status_before = before.model_copy(update={"conditions": ADMITTED.conditions})
    jobs: dict[Role, JobView] = {"Worker": JobView(complete=True, completion_time=NOW)}
    after = status(Observed(spec=job_spec(), status=status_before, jobs=jobs))
    assert after.placement == [PodPlacement(pod="p0", node="a", cached_bytes=60)]
    assert (after.locality, after.local_share) == (before.locality, before.local_share)
    assert after.completion_time == NOW


STATES = {
    "Starting": JobView(active=2, ready=1),
    "Running": JobView(active=2, ready=2),
    "Succeeded": JobView(succeeded=2, complete=True),
    "Failed": JobView(failed=7, failure="BackoffLimitExceeded: too many"),
}


@pytest.mark.parametrize("state", STATES)
def test_the_state_is_what_the_job_controller_says(state: str) -> None:
    observed = seen_with(job=STATES[state])
    outcome = decisions.outcome(observed, now=NOW)
    findings = job_status.findings_of(observed, decision=decided(observed), outcome=outcome)
    status_by_type = {finding.type: finding.status for finding in findings}
    assert status(observed).state == state
    assert (status_by_type["Running"] == "True") == (state == "Running")
    assert (status_by_type.get("Succeeded"), status_by_type.get("Failed")) == (
        "True" if state == "Succeeded" else None,
        "True" if state == "Failed" else None,
    )


def test_pods_that_end_one_by_one_do_not_make_a_running_job_start_again() -> None:
    """Between the end of the pods and the Job controller's word for it."""
    done = [pod(f"p{i}", "a", index=str(i), phase="Succeeded") for i in range(2)]
    assert status(seen_with(*done, job=JobView(active=0))).state == "Running"


def test_the_ending_of_a_job_is_read_from_its_conditions() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    view = job_view({"status": {"conditions": [{**failed, "lastTransitionTime": NOW}], "failed": 1}})
    assert view.failure == "DeadlineExceeded: too long"
    assert view.completion_time == NOW
    assert job_view({"status": {"conditions": [{**failed, "status": "False"}]}}).finished is False
    assert job_view(None) == JobView()


@pytest.mark.failure_mode("running-job-data-lost")
def test_a_running_job_reports_that_its_data_is_reloaded_and_a_suspended_one_waits() -> None:
    lost = {"pictures": dataset(cached=40)}
    spec = reading(percent=100)
    running = Observed(
        spec=spec, status=ADMITTED, datasets=lost, present=frozenset(lost), created=NOW, jobs={}, pods=()
    )
    findings = job_status.findings_of(running, decision=decided(running), outcome=None)
    ready = next(finding for finding in findings if finding.type == "DataReady")
    assert (ready.status, ready.reason) == ("True", "DatasetLoading")
    assert ready.message == (
        "the job runs, and Dataset pictures has 40% of its bytes cached now: the rest is being loaded again, and is "
        "read from other nodes or the source until then"
    )
    admitted = next(finding for finding in findings if finding.type == "Admitted")
    assert admitted.status == "True"
    assert "the job waits" not in admitted.message
    held = replace(running, spec=spec.model_copy(update={"run_policy": RunPolicy(suspend=True)}))
    assert "the job waits for 100%" in decisions.data(held, now=NOW).message
    # Of a gang that gives its places back nothing runs any more.
    assert "the job waits for 100%" in decisions.data(running, now=NOW, runs=False).message


@pytest.mark.parametrize("deleting", [True, False])
def test_the_conditions_of_a_job_that_has_ended_say_nothing_of_what_is_to_come(deleting: bool) -> None:
    datasets = {"pictures": dataset(nodes={"a": 60})}
    deleted = frozenset({"pictures"})
    jobs: dict[Role, JobView] = {"Worker": STATES["Succeeded"]}
    observed = Observed(
        spec=reading(percent=100),
        status=ADMITTED,
        datasets=datasets if deleting else {},
        present=deleted if deleting else frozenset(),
        deleting=deleted if deleting else frozenset(),
        created=NOW,
        jobs=jobs,
        pods=(),
    )
    outcome = decisions.outcome(observed, now=NOW)
    assert outcome is not None
    findings = job_status.findings_of(observed, decision=decided(observed), outcome=outcome)
    for finding in findings:
        assert "runs on" not in finding.message, finding
        assert "wait until" not in finding.message, finding
    assert next(finding.reason for finding in findings if finding.type == "DataReady") == "Finished"
