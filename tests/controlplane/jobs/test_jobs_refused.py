"""Gangs that kube-scheduler refuses for what the queue does not know give back what was kept for them.

How long that takes by the operator's own settings is tried with ``TDCS_TIMED=1``; else it waits less for places.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from tests.controlplane.job_world import JobWorld, jobs
from tests.controlplane.operator_world import message_of, reason_of
from tests.support.controlplane.fixtures import TEST_LABEL
from tests.support.kube import Object

from tdcs.control.job.queue.gang_requeue import PLACEMENT_SECONDS

__all__ = ["jobs"]

TIMED = bool(os.environ.get("TDCS_TIMED"))
PATIENCE = PLACEMENT_SECONDS if TIMED else 3.0
"""Seconds that a gang has to find its places."""

LIMIT = 60.0
"""Seconds after which the room of a gang that was refused is free for others."""


def one_a_node(jobs: JobWorld) -> Object:
    """Three pods on two nodes, no two of them on one node."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"tdcs.io/training-job": "refused"}},
    }
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def in_another_zone(jobs: JobWorld) -> Object:
    """Pods with a volume that only nodes of another zone can mount."""
    name = f"weights-{jobs.namespace}"
    size = {"storage": "1Gi"}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["elsewhere"]}
    jobs.kube.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {TEST_LABEL: jobs.namespace}},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "claimRef": {"name": "weights", "namespace": jobs.namespace},
                "hostPath": {"path": "/weights"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            },
        }
    )
    jobs.kube.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "weights", "namespace": jobs.namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": name,
                "resources": {"requests": size},
            },
        }
    )

    def is_bound() -> bool:
        claim = jobs.kube.get("PersistentVolumeClaim", "weights", namespace=jobs.namespace)
        return bool(claim["status"].get("phase") == "Bound")

    jobs.wait(is_bound)
    return {"volumes": [{"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}]}


def by_a_mistyped_scheduler(jobs: JobWorld) -> Object:
    """Pods that no scheduler looks at."""
    return {"schedulerName": "tdcs-schedular"}


REFUSALS: dict[str, tuple[Any, str]] = {
    "anti-affinity": (one_a_node, "didn't match pod anti-affinity rules"),
    "a zoned volume": (in_another_zone, "didn't match PersistentVolume's node af"),
    "a mistyped schedulerName": (
        by_a_mistyped_scheduler,
        "no scheduler named tdcs-schedular has looked at them",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_what_is_kept_for_a_gang_that_is_refused_is_free_within_a_minute(jobs: JobWorld, why: str) -> None:
    change, words = REFUSALS[why]
    role = jobs.role(3, gpus=2)
    role["template"]["spec"] |= change(jobs)
    try:
        with jobs.operator(gang_patience=PATIENCE):
            jobs.gpu_job("refused", pods=3, roles={"Worker": role})
            jobs.wait(lambda: len(jobs.pods("refused")) == 3)
            admitted = time.monotonic()
            jobs.gpu_job("next", pods=2, gpus=4)  # it needs all that there is
            jobs.wait(lambda: reason_of(jobs.job("next"), "Queued") in {"NotEnoughRoom", "BehindOtherJobs"})
            jobs.wait(lambda: reason_of(jobs.job("refused"), "Admitted") == "NotAllPodsPlaced")
            assert words in message_of(jobs.job("refused"), "Admitted")
            jobs.wait(lambda: jobs.bound("next") == 2)
            passed = time.monotonic() - admitted
            assert not jobs.pods("refused")
            assert jobs.indexed_job("refused-worker")["spec"]["suspend"] is True
            if TIMED:
                assert passed < LIMIT
    finally:
        if why == "a zoned volume":
            jobs.kube.delete("PersistentVolume", f"weights-{jobs.namespace}")
