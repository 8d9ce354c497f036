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


def headline_of(*pods: Object, **policy: Any) -> job_headline.Headline:
    """What `kubectl get` shows of an admitted job of two workers with this run policy."""
    spec = job_spec(datasets=[], runPolicy=policy)
    observed = Observed(spec=spec, status=ADMITTED, namespace="n", pods=[pod_view(obj) for obj in pods])
    decision = decisions.decision_of(observed=observed, data=decisions.data(observed, now=NOW))
    return job_headline.headline(observed, decision=decision, outcome=None)


def test_that_the_scheduler_has_not_heard_of_a_bound_claim_yet_calls_for_nobody() -> None:
    unheard = {
        **NO_GPU,
        "message": "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    }
    headline = headline_of(pod(0, phase="Pending", conditions=[unheard]))
    assert (headline.state, headline.reason) == ("Starting", "VolumeNotBound")
    assert headline.reason in QUIET


def test_the_schedulers_words_are_quoted() -> None:
    headline = headline_of(pod(0, **UNSCHEDULABLE), pod(1, **UNSCHEDULABLE))
    assert (headline.state, headline.reason) == ("Starting", "Unschedulable")
    assert "0 of 2 pods run; train-worker-0-x (and 1 more with this reason)" in headline.message
    assert "3 Insufficient nvidia.com/gpu" in headline.message


@pytest.mark.failure_mode("pod-lacks-node-image-or-volume")
def test_the_kubelets_words_are_quoted_with_the_node() -> None:
    headline = headline_of(pod(0, node="a", **RUNNING), pod(1, node="b", phase="Pending", **BACK_OFF))
    assert headline.reason == "ImagePullBackOff"
    assert (
        '1 of 2 pods run; train-worker-1-x on node b: ImagePullBackOff: Back-off pulling image "no/such"'
        in (headline.message)
    )


def test_a_pod_without_its_image_says_what_a_user_can_do() -> None:
    headline = headline_of(pod(0, node="a", **RUNNING), pod(1, node="b", phase="Pending", **BACK_OFF))
    assert headline.message.endswith(
        "; check the image's name and tag, and imagePullSecrets where its registry asks for a login; to change the "
        "template, suspend the job first (spec.runPolicy.suspend)"
    )


def test_a_job_runs_on_while_its_pods_end_one_after_the_other() -> None:
    # Between the end of a container and the pod's phase Succeeded the kubelet says that it runs and is not ready.
    ended = container(terminated={"exitCode": 0, "reason": "Completed"})
    ready_condition = {"type": "Ready", "status": "False", "reason": "PodCompleted"}
    for between in (
        {"phase": "Running", "conditions": [ready_condition], **ended},
        {"phase": "Succeeded", "conditions": [ready_condition], **ended},
    ):
        headline = headline_of(pod(0, node="a", **between), pod(1, node="b", **RUNNING))
        assert (headline.state, headline.message) == ("Running", "1 of 2 pods run, 1 succeeded")
    failed = container(terminated={"exitCode": 3, "reason": "Error"})
    headline = headline_of(
        pod(0, node="a", phase="Running", conditions=[ready_condition], **failed), pod(1, node="b", **RUNNING)
    )
    assert (headline.state, headline.message) == ("Starting", "1 of 2 pods run")


def test_a_start_as_usual_is_no_problem() -> None:
    creating = container(waiting={"reason": "ContainerCreating"})
    headline = headline_of(pod(0, node="a", phase="Pending", **creating))
    assert (headline.reason, headline.message) == ("PodsStarting", "0 of 2 pods run")


def test_a_gang_that_is_tried_again_goes_on_saying_why_it_found_no_place() -> None:
    observed = Observed(spec=job_spec(datasets=[]), status=ADMITTED)
    decision = decisions.decision_of(observed=observed, data=decisions.data(observed, now=NOW))
    again = replace(decision, shortage="2 of its 2 pods found no place within 45 s (no such serviceaccount)")
    headline = job_headline.headline(observed, decision=again, outcome=None)
    assert (headline.state, headline.reason) == ("Starting", "NotAllPodsPlaced")
    assert headline.message == (
        "0 of 2 pods run; it is tried again: 2 of its 2 pods found no place within 45 s (no such serviceaccount) the "
        "last time"
    )


def test_the_message_of_a_job_of_one_pod_counts_no_pods() -> None:
    worker = {"template": {"spec": {"containers": [{"name": "main", "image": "train"}]}}}
    observed = Observed(spec=job_spec(datasets=[], roles={"Worker": worker}), status=ADMITTED)
    assert job_headline.running(observed).message == "its pod does not run yet"
    up = replace(observed, pods=[pod_view(pod(0, node="a", **RUNNING))])
    assert job_headline.running(up).message == "its pod is ready"


def test_what_only_an_event_tells_is_quoted_too() -> None:
    views = [pod_view(pod(0, node="a", phase="Pending"))]
    problem = PodProblem(reason="FailedMount", message="driver name csi.tdcs.io not found")
    observed = Observed(
        spec=job_spec(datasets=[]), status=ADMITTED, pods=held_up(views, uid="uid-0", problem=problem)
    )
    assert job_headline.running(observed).reason == "FailedMount"
    assert "csi.tdcs.io not found" in job_headline.running(observed).message


def test_a_failed_pod_is_named_with_its_exit_code_until_its_replacement_runs() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": NOW}
    failed = pod(1, node="b", phase="Failed", **container(terminated=ended))
    headline = headline_of(pod(0, node="a", **RUNNING), failed)
    assert (headline.state, headline.reason) == ("Restarting", "PodFailed")
    assert (
        "train-worker-1-x on node b failed: OOMKilled: container main ended with exit code 137"
        in headline.message
    )
    assert "retry 1 of at most 6" in headline.message
    fresh = pod(1, node="b", **RUNNING)
    fresh["metadata"] = {
        **fresh["metadata"],
        "name": "train-worker-1-y",
        "creationTimestamp": "2026-01-02T00:00:00Z",
    }
    assert headline_of(pod(0, node="a", **RUNNING), failed, fresh).state == "Running"


def test_a_pod_that_fails_with_no_retry_left_is_not_reported_as_restarting() -> None:
    failed = pod(1, node="b", phase="Failed", **container(terminated={"exitCode": 1, "finishedAt": NOW}))
    last = headline_of(pod(0, node="a", **RUNNING), failed, backoffLimit=0)
    assert (last.state, last.reason) == ("Running", "PodFailed")
    assert last.message.endswith(
        "; no retry is left (at most 0, see runPolicy.failurePolicy), so the job fails; "
        "see kubectl logs -n n train-worker-1-x -c main"
    )
    first = headline_of(pod(0, node="a", **RUNNING), failed, backoffLimit=1)
    assert (first.state, first.reason) == ("Restarting", "PodFailed")
    assert first.message.endswith(
        "; retry 1 of at most 1 before the job fails; see kubectl logs -n n train-worker-1-x -c main"
    )


def test_a_pod_that_is_gone_or_never_ran_has_no_log_to_look_at() -> None:
    ended = {"exitCode": 128, "finishedAt": NOW}
    never_ran = pod(1, node="b", phase="Failed", **container(terminated={**ended, "reason": "StartError"}))
    leaves = pod(1, node="b", phase="Failed", **container(terminated=ended))
    leaves["metadata"] = {**leaves["metadata"], "deletionTimestamp": NOW}
    evicted = pod(1, node="b", phase="Failed", reason="Evicted", message="The node was low on memory")
    for failed in (never_ran, leaves, evicted):
        assert "kubectl logs" not in headline_of(pod(0, node="a", **RUNNING), failed).message


def test_a_job_about_to_fail_runs_only_while_a_pod_is_up_else_it_is_what_it_was() -> None:
    failed = pod(0, node="b", phase="Failed", **container(terminated={"exitCode": 1, "finishedAt": NOW}))
    for before, after in ((None, "Starting"), ("Queued", "Starting"), ("Running", "Running")):
        status = ADMITTED.model_copy(update={"state": before})
        spec = job_spec(datasets=[], runPolicy={"backoffLimit": 0})
        observed = Observed(spec=spec, status=status, pods=[pod_view(failed)])
        decision = decisions.decision_of(observed=observed, data=decisions.data(observed, now=NOW))
        assert job_headline.headline(observed, decision=decision, outcome=None).state == after


def test_a_pod_that_the_cluster_evicted_counts_as_no_retry() -> None:
    evicted = pod(
        1,
        node="b",
        phase="Failed",
        reason="Evicted",
        conditions=[{"type": "DisruptionTarget", "status": "True"}],
    )
    headline = headline_of(pod(0, node="a", **RUNNING), evicted, backoffLimit=0)
    assert headline.state == "Restarting"
    assert headline.message.endswith("it is made again, which counts as no retry")


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
    assert [newest_pod.name for newest_pod in newest(pods)] == ["c", "a"]
