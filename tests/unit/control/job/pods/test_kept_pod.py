"""What is kept of a job's pod says the same as the pod, in a tenth of its memory."""

import gc
import json
import tracemalloc
from typing import Any

import pytest

from tdcs.control.node_usage import job_pod_of
from tdcs.control.operator.kept_pod import kept_pod
from tdcs.model.job_pods import pod_view
from tdcs.model.kube_objects import Object

NOW = "2026-01-01T00:00:00Z"


def pod(index: int = 0, **status: Any) -> Object:
    """A pod as the API server sends it."""
    labels = {"tdcs.io/training-job": "train", "tdcs.io/role": "worker", "job-name": "train-worker"}
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)]
    fields: Object = {f"f:a{outer}": {f"f:b{inner}": {} for inner in range(8)} for outer in range(8)}
    return {
        "metadata": {
            "name": f"train-worker-{index}-abcde",
            "namespace": "n",
            "uid": f"0b0c0c0c-1111-2222-3333-{index:012}",
            "resourceVersion": str(index),
            "creationTimestamp": NOW,
            "labels": labels,
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index), "other": "x" * 200},
            "ownerReferences": [
                {"kind": "Job", "name": "train-worker", "uid": "of-the-job", "controller": True}
            ],
            "managedFields": [{"manager": "kubelet", "time": NOW, "fieldsV1": fields}],
        },
        "spec": {
            "nodeName": f"node-{index % 100}",
            "schedulerName": "tdcs-scheduler",
            "containers": [{"name": "main", "image": "train:1", "env": env}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": NOW}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {"name": "main", "imageID": "a" * 80, "state": {"running": {"startedAt": NOW}}}
            ],
            **status,
        },
    }


REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/8 nodes"}
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "drained",
}
ENDED = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": NOW, "message": "too large"}
WAITS = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}

STATES: dict[str, dict[str, Any]] = {
    "runs": {},
    "refused by its scheduler": {"phase": "Pending", "conditions": [REFUSED], "containerStatuses": []},
    "waits for its image": {
        "phase": "Pending",
        "containerStatuses": [{"name": "main", "state": {"waiting": WAITS}}],
    },
    "killed for its memory": {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "side", "state": {"running": {"startedAt": NOW}}},
            {"name": "main", "state": {"terminated": ENDED}},
        ],
    },
    "failed before it began": {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "init", "state": {"terminated": ENDED}}],
        "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}],
    },
    "evicted": {"phase": "Failed", "conditions": [EVICTED], "reason": "Evicted", "message": "low on memory"},
    "without a status": {"phase": None, "conditions": None, "containerStatuses": None},
}


@pytest.mark.parametrize("state", STATES)
def test_what_is_kept_of_a_pod_says_the_same_as_the_pod(state: str) -> None:
    whole = pod(3, **STATES[state])
    reduced = kept_pod(whole)
    assert pod_view(reduced) == pod_view(whole)
    assert job_pod_of(reduced) == job_pod_of(whole)
    assert kept_pod(reduced) == reduced
    assert reduced["metadata"]["resourceVersion"] == "3"


def test_a_pod_that_is_new_or_going_is_kept_as_such() -> None:
    new = pod()
    del new["status"], new["spec"]["nodeName"], new["metadata"]["annotations"]
    assert pod_view(kept_pod(new)) == pod_view(new)
    going = pod()
    going["metadata"]["deletionTimestamp"] = NOW
    assert pod_view(kept_pod(going)).going


def test_a_pod_takes_two_kilobytes_and_a_half_at_most() -> None:
    sent = [json.dumps(pod(index)) for index in range(1_000)]
    tracemalloc.start()
    reduced = [kept_pod(json.loads(text)) for text in sent]
    gc.collect()
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(sent[0]) > 3_500
    assert used_bytes / len(reduced) < 2_500, f"{used_bytes / len(reduced):.0f} bytes a pod"
