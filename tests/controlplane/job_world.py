"""What the tests of jobs share: nodes whose kubelet is the test, so that pods run, fail and end on its word."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.controlplane.operator_world import CHECKOUT, World
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import TEST_LABEL
from tests.support.kube import KubeRequestError, Object
from tests.support.kube.objects import fake_node
from tests.support.waiting import eventually

GPU = "nvidia.com/gpu"
GPUS = 4
"""Of a node."""


class JobWorld(World):
    """A world of two nodes with four GPUs each, without a cache; pods stay Pending on them until told otherwise."""

    def pods(self, job: str = "train") -> list[Object]:
        """The pods of a job that are not going, by name."""
        all_pods = self.kube.list("Pod", namespace=self.namespace, labels={"tdcs.io/training-job": job})
        live_pods = [pod for pod in all_pods if not pod["metadata"].get("deletionTimestamp")]
        return sorted(live_pods, key=lambda pod: str(pod["metadata"]["name"]))

    def bound(self, job: str = "train") -> int:
        """How many pods of a job have a node."""
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.pods(job))

    def run_pods(self, job: str = "train", *, count: int) -> list[Object]:
        """Wait until so many pods of a job have a node, and let them run as a kubelet would."""
        self.wait(lambda: self.bound(job) == count)
        for pod in self.pods(job):
            if pod["status"].get("phase") == "Pending":
                self._run(pod)
        return self.pods(job)

    def play(self, job: str = "train") -> None:
        """One round of a kubelet whose pods run and end well: each pod that has a node goes one step on."""
        self._play(self.pods(job))

    def play_all(self) -> list[Object]:
        """The same for every pod of the namespace; gives the pods as they were before."""
        all_pods = self.kube.list("Pod", namespace=self.namespace)
        live_pods = [pod for pod in all_pods if not pod["metadata"].get("deletionTimestamp")]
        self._play(live_pods)
        return live_pods

    def end_pod(self, pod: Object, *, code: int = 0) -> None:
        """Let a pod end."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": _now()}
        self._stop(pod, phase="Failed" if code else "Succeeded", state={"terminated": ended})

    def hold_up(self, pod: Object, *, reason: str, message: str) -> None:
        """Let a pod's container wait for this."""
        self._stop(pod, phase="Pending", state={"waiting": {"reason": reason, "message": message}})

    def gpu_job(self, name: str, *, pods: int, gpus: int = 1, framework: str = "None", **spec: Any) -> Object:
        """A TrainingJob without datasets, of so many workers with so many GPUs each."""
        job_spec = {
            "framework": framework,
            "roles": {"Worker": self.role(pods, gpus=gpus)},
            "datasets": [],
        }
        return self.create_job(name, **{**job_spec, **spec})

    def role(self, replicas: int, *, gpus: int = 0) -> Object:
        """The pods of a role, bound to this test's nodes."""
        limits = {GPU: str(gpus)} if gpus else {}
        container = {"name": "main", "image": "train:test", "resources": {"limits": limits}}
        pod = {
            "schedulerName": "default-scheduler",
            "nodeSelector": {TEST_LABEL: self.namespace},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        return {"replicas": replicas, "template": {"spec": pod}}

    def change_job(self, name: str, **spec: Any) -> None:
        """Merge fields into a job's spec."""
        self.kube.patch("TrainingJob", name, {"spec": spec}, namespace=self.namespace)

    def indexed_job(self, name: str) -> Object:
        return self.kube.get("Job", name, namespace=self.namespace)

    def status_of(self, name: str) -> Object:
        """A job's status; empty while it has none."""
        return self.job(name).get("status") or {}

    def _play(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            phase = pod["status"].get("phase")
            try:
                if phase == "Running":
                    self.end_pod(pod)
                elif phase == "Pending" and pod["spec"].get("nodeName"):
                    self._run(pod)
            except KubeRequestError as error:
                if error.code != 404:  # deleted since it was listed
                    raise

    def _run(self, pod: Object) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _now()}
        self._say(pod, phase="Running", conditions=[*pod["status"]["conditions"], ready])

    def _stop(self, pod: Object, *, phase: str, state: Object) -> None:
        """Say of a pod that its container does not run."""
        container = {
            "name": "main",
            "image": "train:test",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        self._say(pod, phase=phase, containerStatuses=[container])

    def _say(self, pod: Object, **status: Any) -> None:
        self.kube.patch(
            "Pod", pod["metadata"]["name"], {"status": status}, namespace=self.namespace, subresource="status"
        )


def held_node(*, name: str, gpus: int, namespace: str) -> Object:
    """A node that nobody plays: its pods are bound, and what becomes of them is up to the test."""
    node = fake_node(name=name, gpus=gpus, labels={TEST_LABEL: namespace})
    del node["metadata"]["annotations"]
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the test is its kubelet",
    }
    node["status"]["conditions"] = [{**ready, "lastHeartbeatTime": _now(), "lastTransitionTime": _now()}]
    return node


@contextmanager
def held_nodes(plane: ControlPlane, *, namespace: str, count: int) -> Iterator[JobWorld]:
    """A world of so many nodes with four GPUs each, and the definitions."""
    kube = plane.kube
    kube.install_crds(CHECKOUT / "crds")
    names = [f"{namespace}-{number}" for number in range(count)]
    for name in names:
        kube.create(held_node(name=name, gpus=GPUS, namespace=namespace))
    eventually(
        lambda: not any(kube.get("Node", name)["spec"].get("taints") for name in names),
        deadline=120,
        describe=lambda: str([kube.get("Node", name) for name in names]),
    )
    world = JobWorld(plane=plane, namespace=namespace, nodes=names)
    try:
        yield world
    finally:
        world.clear()
        for name in names:
            kube.delete("Node", name)


@pytest.fixture
def jobs(control_plane: ControlPlane, namespace: str) -> Iterator[JobWorld]:
    """Two nodes with four GPUs each, and the definitions."""
    with held_nodes(control_plane, namespace=namespace, count=2) as world:
        yield world


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
