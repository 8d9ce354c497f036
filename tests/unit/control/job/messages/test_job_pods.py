"""A job says why its pods do not run, in the words of the scheduler and of the kubelet."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec

from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.control.job.pod_events import held_up
from tdcs.control.status_publisher import QUIET
from tdcs.decide.job import job_headline
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.observed_job import Observed
from tdcs.model.job_pods import PodProblem, PodView, newest, pod_view
from tdcs.model.kube_objects import Object

ADMITTED = TrainingJobStatus.model_validate(
    {"conditions": [{"type": "Admitted", "status": "True", "reason": "X", "lastTransitionTime": NOW}]}
)


def pod(index: int = 0, *, node: str = "", **status: Any) -> Object:
    """A worker as the API server has it."""
    return {
        "metadata": {
            "name": f"train-worker-{index}-x",
            "uid": f"uid-{index}",
            "creationTimestamp": NOW,
            "labels": {"tdcs.io/training-job": "train", "tdcs.io/role": "worker"},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


def container(**state: Any) -> Object:
    """Status of the container."""
    return {"containerStatuses": [{"name": "main", "state": state}]}


NO_GPU = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
UNSCHEDULABLE: Object = {"phase": "Pending", "conditions": [NO_GPU]}
BACK_OFF = container(waiting={"reason": "ImagePullBackOff", "message": 'Back-off pulling image "no/such"'})
RUNNING: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def shown(*pods: Object, **policy: Any) -> job_headline.Headline:
    """What `kubectl get` shows of an admitted job of two workers with this run policy."""
    spec = job_spec(datasets=[], runPolicy=policy)
    seen = Observed(spec=spec, status=ADMITTED, pods=[pod_view(each) for each in pods])
    decision = decisions.decision_of(observed=seen, data=decisions.data(seen, now=NOW))
    return job_headline.headline(seen, decision=decision, outcome=None)


def test_that_the_scheduler_has_not_heard_of_a_bound_claim_yet_calls_for_nobody() -> None:
    unheard = {
        **NO_GPU,
        "message": "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    }
    found = shown(pod(0, phase="Pending", conditions=[unheard]))
    assert (found.state, found.reason) == ("Starting", "VolumeNotBound")
    assert found.reason in QUIET


def test_the_schedulers_words_are_quoted() -> None:
    found = shown(pod(0, **UNSCHEDULABLE), pod(1, **UNSCHEDULABLE))
    assert (found.state, found.reason) == ("Starting", "Unschedulable")
    assert "0 of 2 pods run; train-worker-0-x (and 1 more with this reason)" in found.message
    assert "3 Insufficient nvidia.com/gpu" in found.message


@pytest.mark.failure_mode("pod-lacks-node-image-or-volume")
def test_the_kubelets_words_are_quoted_with_the_node() -> None:
    found = shown(pod(0, node="a", **RUNNING), pod(1, node="b", phase="Pending", **BACK_OFF))
    assert found.reason == "ImagePullBackOff"
    assert (
        '1 of 2 pods run; train-worker-1-x on node b: ImagePullBackOff: Back-off pulling image "no/such"'
        in (found.message)
    )


def test_a_pod_without_its_image_says_what_a_user_can_do() -> None:
    found = shown(pod(0, node="a", **RUNNING), pod(1, node="b", phase="Pending", **BACK_OFF))
    assert found.message.endswith(
        "; check the image's name and tag, and imagePullSecrets where its registry asks for a login; to change the "
        "template, suspend the job first (spec.runPolicy.suspend)"
    )


def test_a_job_runs_on_while_its_pods_end_one_after_the_other() -> None:
    # Between the end of a container and the pod's phase Succeeded the kubelet says that it runs and is not ready.
    ended = container(terminated={"exitCode": 0, "reason": "Completed"})
    gone = {"type": "Ready", "status": "False", "reason": "PodCompleted"}
    for between in (
        {"phase": "Running", "conditions": [gone], **ended},
        {"phase": "Succeeded", "conditions": [gone], **ended},
    ):
        found = shown(pod(0, node="a", **between), pod(1, node="b", **RUNNING))
        assert (found.state, found.message) == ("Running", "1 of 2 pods run, 1 succeeded")
    failed = container(terminated={"exitCode": 3, "reason": "Error"})
    found = shown(pod(0, node="a", phase="Running", conditions=[gone], **failed), pod(1, node="b", **RUNNING))
    assert (found.state, found.message) == ("Starting", "1 of 2 pods run")


def test_a_start_as_usual_is_no_problem() -> None:
    creating = container(waiting={"reason": "ContainerCreating"})
    found = shown(pod(0, node="a", phase="Pending", **creating))
    assert (found.reason, found.message) == ("PodsStarting", "0 of 2 pods run")


def test_a_gang_that_is_tried_again_goes_on_saying_why_it_found_no_place() -> None:
    seen = Observed(spec=job_spec(datasets=[]), status=ADMITTED)
    decision = decisions.decision_of(observed=seen, data=decisions.data(seen, now=NOW))
    again = replace(decision, shortage="2 of its 2 pods found no place within 45 s (no such serviceaccount)")
    found = job_headline.headline(seen, decision=again, outcome=None)
    assert (found.state, found.reason) == ("Starting", "NotAllPodsPlaced")
    assert found.message == (
        "0 of 2 pods run; it is tried again: 2 of its 2 pods found no place within 45 s (no such serviceaccount) the "
        "last time"
    )


def test_the_message_of_a_job_of_one_pod_counts_no_pods() -> None:
    worker = {"template": {"spec": {"containers": [{"name": "main", "image": "train"}]}}}
    seen = Observed(spec=job_spec(datasets=[], roles={"Worker": worker}), status=ADMITTED)
    assert job_headline.running(seen).message == "its pod does not run yet"
    up = replace(seen, pods=[pod_view(pod(0, node="a", **RUNNING))])
    assert job_headline.running(up).message == "its pod is ready"


def test_what_only_an_event_tells_is_quoted_too() -> None:
    views = [pod_view(pod(0, node="a", phase="Pending"))]
    problem = PodProblem(reason="FailedMount", message="driver name csi.tdcs.io not found")
    seen = Observed(
        spec=job_spec(datasets=[]), status=ADMITTED, pods=held_up(views, uid="uid-0", problem=problem)
    )
    assert job_headline.running(seen).reason == "FailedMount"
    assert "csi.tdcs.io not found" in job_headline.running(seen).message


def test_a_failed_pod_is_named_with_its_exit_code_until_its_replacement_runs() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": NOW}
    failed = pod(1, node="b", phase="Failed", **container(terminated=ended))
    found = shown(pod(0, node="a", **RUNNING), failed)
    assert (found.state, found.reason) == ("Restarting", "PodFailed")
    assert (
        "train-worker-1-x on node b failed: OOMKilled: container main ended with exit code 137"
        in found.message
    )
    assert "retry 1 of at most 6" in found.message
    fresh = pod(1, node="b", **RUNNING)
    fresh["metadata"] = {
        **fresh["metadata"],
        "name": "train-worker-1-y",
        "creationTimestamp": "2026-01-02T00:00:00Z",
    }
    assert shown(pod(0, node="a", **RUNNING), failed, fresh).state == "Running"


def test_a_pod_that_fails_with_no_retry_left_is_not_told_to_restart() -> None:
    failed = pod(1, node="b", phase="Failed", **container(terminated={"exitCode": 1, "finishedAt": NOW}))
    last = shown(pod(0, node="a", **RUNNING), failed, backoffLimit=0)
    assert (last.state, last.reason) == ("Running", "PodFailed")
    assert last.message.endswith(
        "; no retry is left (at most 0, see runPolicy.failurePolicy), so the job fails"
    )
    first = shown(pod(0, node="a", **RUNNING), failed, backoffLimit=1)
    assert (first.state, first.reason) == ("Restarting", "PodFailed")
    assert first.message.endswith("; retry 1 of at most 1 before the job fails")


def test_a_job_about_to_fail_runs_only_while_a_pod_is_up_else_it_is_what_it_was() -> None:
    failed = pod(0, node="b", phase="Failed", **container(terminated={"exitCode": 1, "finishedAt": NOW}))
    for before, after in ((None, "Starting"), ("Queued", "Starting"), ("Running", "Running")):
        known = ADMITTED.model_copy(update={"state": before})
        spec = job_spec(datasets=[], runPolicy={"backoffLimit": 0})
        seen = Observed(spec=spec, status=known, pods=[pod_view(failed)])
        decision = decisions.decision_of(observed=seen, data=decisions.data(seen, now=NOW))
        assert job_headline.headline(seen, decision=decision, outcome=None).state == after


def test_a_pod_that_the_cluster_evicted_counts_as_no_retry() -> None:
    evicted = pod(
        1,
        node="b",
        phase="Failed",
        reason="Evicted",
        conditions=[{"type": "DisruptionTarget", "status": "True"}],
    )
    found = shown(pod(0, node="a", **RUNNING), evicted, backoffLimit=0)
    assert found.state == "Restarting"
    assert found.message.endswith("it is made again, which counts as no retry")


def test_long_messages_are_cut_and_put_on_one_line() -> None:
    talk = {**NO_GPU, "message": "0/3 nodes\n are available: " + "x" * 2000}
    view = pod_view(pod(0, phase="Pending", conditions=[talk]))
    assert view.waiting is not None
    assert view.waiting.message.startswith("0/3 nodes are available: xxx")
    assert len(view.waiting.message) == 600


def test_of_each_index_the_newest_pod_counts() -> None:
    pods = [
        PodView(name="b", index="1", created="2026-01-01T00:00:00Z"),
        PodView(name="a", index="1", created="2026-01-01T00:00:01Z"),
        PodView(name="c", role="PS", index="1"),
    ]
    assert [each.name for each in newest(pods)] == ["c", "a"]
