"""Whose failure counts, and which container it is blamed on."""

from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.job_headline import last_failure
from tdcs.decide.job.job_phase import outcome
from tdcs.decide.job.job_restart import restart_of
from tdcs.decide.job.observed_job import JobView, Observed
from tdcs.model.job_pods import PodProblem, PodView, pod_view

RUNS = TrainingJobStatus.model_validate(
    {
        "conditions": [
            {"type": type_, "status": "True", "reason": "X", "lastTransitionTime": NOW}
            for type_ in ("Admitted", "Running")
        ]
    }
)


def failed_pod(index: int, *, code: int, at: int, **more: Any) -> PodView:
    return PodView(
        name=f"train-worker-{index}-x",
        index=str(index),
        node="ab"[index],
        phase="Failed",
        finished=f"2026-01-01T00:00:{at:02d}Z",
        exit_codes={"main": code},
        failure=PodProblem(reason="Error", code=code, container="main"),
        **more,
    )


def seen_with(*pods: PodView, verdict: str, rule: dict[str, Any]) -> Observed:
    policy = {"failurePolicy": {"restart": "All", "onExitCodes": [rule]}}
    spec = job_spec(framework="PyTorch", workers=2, runPolicy=policy)
    job = JobView(exists=True, failed=1, failure=verdict, attempt=0, start_time=NOW)
    return Observed(
        spec=spec, status=RUNS, name="train", namespace="n", created=NOW, jobs={"Worker": job}, pods=pods
    )


LIMIT = "BackoffLimitExceeded: x"


@pytest.mark.parametrize("verdict", [LIMIT, ""])
@pytest.mark.parametrize(
    "rule",
    [
        {"action": "FailJob", "operator": "NotIn", "values": [1]},
        {"action": "FailJob", "operator": "In", "values": [143]},
    ],
)
def test_pods_that_their_job_ended_do_not_fail_it_by_their_exit_code(
    verdict: str, rule: dict[str, Any]
) -> None:
    failed, ended = failed_pod(0, code=1, at=5), failed_pod(1, code=143, at=3, going=True)
    observed = seen_with(failed, ended, verdict=verdict, rule=rule)
    restart = restart_of(observed)
    assert restart is not None
    assert restart.failed_node == "a"
    assert restart.counts
    assert "worker 0" in restart.message
    message = last_failure(observed)
    assert message is not None
    assert "train-worker-0-x" in message.text


@pytest.mark.parametrize("verdict", [LIMIT, "PodFailurePolicy: x", ""])
def test_a_pod_that_fails_by_itself_with_such_a_code_ends_the_job_whatever_failed_next_to_it(
    verdict: str,
) -> None:
    rule = {"action": "FailJob", "values": [42]}
    failed = [failed_pod(0, code=1, at=5), failed_pod(1, code=42, at=7)]
    assert restart_of(seen_with(*failed, verdict=verdict, rule=rule)) is None
    without_pod = seen_with(failed_pod(0, code=1, at=5), verdict="PodFailurePolicy: x", rule=rule)
    assert restart_of(without_pod) is None  # the Job knew the pod, which is gone
    end = outcome(without_pod, now=NOW)
    assert end is not None
    assert not end.succeeded


def test_a_failed_pod_that_somebody_deletes_counts_where_no_other_failed() -> None:
    deleted = failed_pod(0, code=1, at=5, going=True)
    restart = restart_of(seen_with(deleted, verdict=LIMIT, rule={"action": "Ignore", "values": [7]}))
    assert restart is not None
    assert restart.counts


def ended_container(name: str, code: int, *, at: int) -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "finishedAt": f"2026-01-01T00:00:{at:02d}Z"}
    return {"name": name, "state": {"terminated": end}}


def blamed(**containers: list[dict[str, Any]]) -> str:
    """Which container a failed pod is blamed on."""
    pod = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Failed", **containers}}
    problem = pod_view(pod).failure
    return "" if problem is None else f"{problem.container} {problem.code}"


def test_a_failure_is_blamed_on_the_program_and_not_on_what_ends_with_it() -> None:
    main = ended_container("main", 1, at=5)
    sidecar = ended_container("proxy", 137, at=8)
    assert blamed(initContainerStatuses=[sidecar], containerStatuses=[main]) == "main 1"
    assert blamed(containerStatuses=[ended_container("logs", 143, at=8), main]) == "main 1"
    waits = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    assert blamed(initContainerStatuses=[sidecar], containerStatuses=[waits]) == "proxy 137"
    good = ended_container("main", 0, at=5)
    assert blamed(initContainerStatuses=[sidecar], containerStatuses=[good]) == "proxy 137"


def test_a_rule_about_a_container_that_no_template_has_is_refused_by_its_field() -> None:
    rules = [{"action": "FailJob", "containerName": name, "values": [2]} for name in ("main", "mian")]
    with pytest.raises(
        ValueError,
        match=r"onExitCodes\[1\].containerName: no template has a container 'mian': name one of main",
    ):
        job_spec(framework="PyTorch", workers=2, runPolicy={"failurePolicy": {"onExitCodes": rules}})
