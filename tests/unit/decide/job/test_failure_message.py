"""The message of a failed job: the pod, its exit code, how often it was tried, and where its log is."""

from typing import Any

import pytest
from tests.unit.control.builders import NOW

from tdcs.api.conditions import Condition
from tdcs.decide.job.failure_message import failed
from tdcs.model.job_pods import PodView, pod_view

LIMIT = "BackoffLimitExceeded: Job has reached the specified backoff limit"


def pod(
    index: int, *, code: int = 1, reason: str = "Error", at: int = 0, going: bool = False, **ended: Any
) -> PodView:
    """A worker that ended with this exit code, as the API server has it."""
    metadata: dict[str, Any] = {
        "name": f"mnist-worker-{index}-x{at}",
        "labels": {"tdcs.io/role": "worker"},
        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
    }
    if going:
        metadata["deletionTimestamp"] = NOW
    state = {"exitCode": code, "reason": reason, "finishedAt": f"2026-01-01T00:00:{at:02d}Z", **ended}
    containers = [{"name": "main", "state": {"terminated": state}}]
    return pod_view(
        {
            "metadata": metadata,
            "spec": {"nodeName": "gpu-3"},
            "status": {"phase": "Failed", "containerStatuses": containers},
        }
    )


def message_of(
    *pods: PodView, verdict: str = LIMIT, limit: int = 6, conditions: tuple[Condition, ...] = ()
) -> str:
    return failed(
        role="Worker", verdict=verdict, limit=limit, pods=pods, namespace="team", conditions=conditions
    )


def test_the_last_failure_is_reported_with_code_reason_and_the_command_for_its_log() -> None:
    pods = [pod(0, at=1), pod(1, code=137, reason="OOMKilled", at=7), pod(1, at=3)]
    assert message_of(*pods) == (
        "worker 1 (pod mnist-worker-1-x7 on node gpu-3) failed with exit code 137 (OOMKilled) after 1 retry "
        f"({LIMIT}); see kubectl logs -n team mnist-worker-1-x7 -c main"
    )


def test_no_log_is_named_of_a_container_that_never_ran() -> None:
    text = message_of(pod(0, code=128, reason="StartError", message="exec: no such file"))
    assert "failed with exit code 128 (StartError): exec: no such file" in text
    assert text.endswith("; container main has no log, as it never ran: check its command and image")


def test_pods_that_were_ended_because_the_job_failed_are_not_its_cause() -> None:
    assert message_of(pod(0, code=3, at=1), pod(1, code=143, at=9, going=True)).startswith(
        "worker 0 (pod mnist-worker-0-x1"
    )
    assert message_of(pod(1, code=143, at=9, going=True)).startswith(
        "worker 1 "
    )  # the only one that is known


def test_retries_are_those_of_the_pod_that_is_named_as_far_as_they_are_known() -> None:
    ended = [pod(index, code=143, at=9, going=True) for index in (0, 0, 1, 2)]
    assert "exit code 1 (Backoff" in message_of(pod(0, at=1), pod(1), pod(2), *ended)
    assert "exit code 1 after 2 retries (" in message_of(*(pod(0, at=at) for at in range(3)), pod(1), *ended)
    assert "exit code 1 after 1 retry (" in message_of(*(pod(0, at=at) for at in range(3)), limit=1)
    assert "exit code 1 (Backoff" in message_of(pod(0, at=1), pod(0), limit=0)
    assert "exit code 143 (Backoff" in message_of(*ended)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([pod(0)], "failed with exit code 1 (Backoff"),
        ([pod(0), pod(0, at=1)], "failed with exit code 1 after 1 retry (Backoff"),
        ([pod(0, message="no GPU\nfound")], "failed with exit code 1: no GPU found (Backoff"),
        (
            [
                PodView(
                    name="p",
                    index="0",
                    phase="Failed",
                    failure=pod_view(
                        {
                            "metadata": {"name": "p"},
                            "spec": {},
                            "status": {"phase": "Failed", "reason": "Evicted", "message": "disk"},
                        }
                    ).failure,
                )
            ],
            "worker 0 (pod p) failed with Evicted: disk (",
        ),
    ],
    ids=["first try", "one retry", "its own last words", "not by its container"],
)
def test_a_failure_reads_like_a_sentence(pods: list[PodView], words: str) -> None:
    assert words in message_of(*pods)


def test_a_pod_that_is_gone_is_reported_as_before() -> None:
    restarting = Condition(
        type="Restarting",
        status="True",
        reason="PodFailed",
        message="mnist-worker-1-x on node gpu-3 failed: Error",
        last_transition_time=NOW,
    )
    assert "; before that, mnist-worker-1-x on node gpu-3 failed: Error; the logs" in message_of(
        conditions=(restarting,)
    )
    last = restarting.model_copy(update={"status": "False", "reason": "NoRetryLeft"})
    assert "; before that, mnist-worker-1-x on node gpu-3" in message_of(conditions=(last,))
    over = restarting.model_copy(
        update={"status": "False", "message": "no failed pod waits for its replacement"}
    )
    assert (
        message_of(conditions=(over,))
        == f"Worker: {LIMIT}; the logs of its pods, which status.placement names, say why"
    )


def test_a_job_that_took_too_long_blames_no_pod() -> None:
    text = message_of(
        pod(0, code=143), verdict="DeadlineExceeded: Job was active longer than specified deadline"
    )
    assert "spec.runPolicy.activeDeadlineSeconds" in text
    assert "exit code" not in text
