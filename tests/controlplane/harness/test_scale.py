"""The control plane is real and quick enough to test scheduling at the size of a large cluster.

That is a thousand nodes with ``TDCS_DEEP=1``, and 100 otherwise, of which the rate is measured as well.
"""

import os
import time
from collections import Counter

import pytest
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import OwnControlPlane
from tests.support.controlplane.nodes import add_fake_nodes
from tests.support.kube.describe import describe
from tests.support.kube.objects import gpu_pod
from tests.support.report import Measured
from tests.support.waiting import eventually

NODES = 1000 if os.environ.get("TDCS_DEEP") else 100
GPUS = 8


@pytest.mark.timeout(900, func_only=True)  # a thousand take half a minute of both cores
def test_as_many_pods_as_nodes_fill_them_all(own_control_plane: OwnControlPlane, measured: Measured) -> None:
    # Its own, because to throw one away is quicker than to delete hundreds of objects.
    plane = own_control_plane()
    kube, namespace = plane.kube, "default"
    names = [f"node-{i:04d}" for i in range(NODES)]
    begin = time.monotonic()
    add_fake_nodes(plane, names=names, gpus=GPUS, deadline=300)
    measured(f"{NODES} KWOK nodes Ready in {time.monotonic() - begin:.1f} s")

    # A pod takes all GPUs of a node: they fit only if the scheduler counts every one of them right.
    pods = [gpu_pod(name=f"pod-{i:04d}", namespace=namespace, gpus=GPUS) for i in range(NODES)]
    scheduler = plane.process("kube-scheduler")
    before = scheduled(plane)
    scheduler.pause()  # so that its rate is measured, not that of the pods' creation
    try:
        kube.create_many(pods)
    finally:
        scheduler.resume()
    begin = time.monotonic()
    eventually(
        lambda: scheduled(plane) - before >= NODES,
        deadline=300,
        describe=lambda: describe(kube, namespace=namespace),
    )
    seconds = time.monotonic() - begin
    measured(f"{NODES} pods scheduled on {NODES} nodes in {seconds:.1f} s: {NODES / seconds:.0f} pods/s")

    def all_run() -> bool:
        return all(pod["status"]["phase"] == "Running" for pod in kube.list("Pod", namespace=namespace))

    eventually(all_run, deadline=300, describe=lambda: describe(kube, namespace=namespace), interval=0.5)
    places = Counter(pod["spec"]["nodeName"] for pod in kube.list("Pod", namespace=namespace))
    assert places == dict.fromkeys(names, 1)


def scheduled(plane: ControlPlane) -> int:
    """How many pods the scheduler has bound since it started."""
    return int(plane.metric("scheduler_schedule_attempts_total", {"result": "scheduled"}))
