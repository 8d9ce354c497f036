"""TrainingJobs and other jobs in a queue of the real Kueue: its manager, a queue with all GPUs, and who uses them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.controlplane.job_world import GPU, JobWorld
from tests.controlplane.operator_world import CHECKOUT
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import TEST_LABEL
from tests.support.ecosystem.kueue import KUEUE_API, KueueManager
from tests.support.ecosystem.webhooks import ASKED
from tests.support.kube import KubeRequestError, Object, condition
from tests.support.kube.claimed_pods import volumes
from tests.support.waiting import eventually

QUOTA = 8
"""GPUs of the queue, if nothing else is said: all that two nodes have."""

QUEUE = {"kueue.x-k8s.io/queue-name": "gpu"}
HOSTNAME = "kubernetes.io/hostname"


class Queues:
    """A ClusterQueue with all GPUs, the LocalQueues `gpu` and `default`, and classes of priority.

    Args:
        world: whose nodes.
        quota: of GPUs.
    """

    def __init__(self, world: JobWorld, *, quota: int = QUOTA) -> None:
        self._kube = world.kube
        self._namespace = world.namespace
        self._quota = quota
        self.name = world.cluster
        self.urgent = f"{world.cluster}-urgent"

    def create(self, *, checks: Sequence[str] = (), topology: bool = False) -> None:
        """Make them, and wait until the queue admits.

        Args:
            checks: names of AdmissionChecks of the queue.
            topology: whether Kueue assigns nodes (Topology Aware Scheduling).
        """
        self._kube.patch("Namespace", self._namespace, {"metadata": {"labels": ASKED}})
        mine = {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}}
        listed = [{"name": check} for check in checks]
        quota = {"name": self.name, "resources": [{"name": GPU, "nominalQuota": self._quota}]}
        flavor: Object = {"nodeLabels": {TEST_LABEL: self._namespace}}
        if topology:
            self._create("Topology", self.name, {"levels": [{"nodeLabel": HOSTNAME}]})
            flavor["topologyName"] = self.name
        self._create("ResourceFlavor", self.name, flavor)
        self._create(
            "ClusterQueue",
            self.name,
            {
                "namespaceSelector": mine,
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}],
                **({"admissionChecksStrategy": {"admissionChecks": listed}} if checks else {}),
            },
        )
        for name in ("gpu", "default"):
            self._create("LocalQueue", name, {"clusterQueue": self.name}, namespace=self._namespace)
        self._kube.create(
            {
                "apiVersion": KUEUE_API,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": self.urgent},
                "value": 1000,
                "description": "",
            }
        )
        eventually(
            lambda: condition(self._kube.get("ClusterQueue", self.name), "Active") == "True", deadline=60
        )

    def delete(self) -> None:
        """What does not go with the namespace. No Kueue is needed for it."""
        self._kube.delete_all("Workload", namespace=self._namespace)
        self.release()
        for kind, name, namespace in self._made():
            self._kube.delete(kind, name, namespace=namespace)

    def release(self) -> None:
        """Take the finalizers away, which only Kueue would."""
        for kind, name, namespace in self._made():
            with contextlib.suppress(KubeRequestError):  # it is gone
                self._kube.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)

    def _made(self) -> list[tuple[str, str, str | None]]:
        workloads = [workload["metadata"]["name"] for workload in self.workloads()]
        return [
            *(("Workload", name, self._namespace) for name in workloads),
            *(("LocalQueue", name, self._namespace) for name in ("gpu", "default")),
            ("ClusterQueue", self.name, None),
            ("ResourceFlavor", self.name, None),
            ("Topology", self.name, None),
            ("WorkloadPriorityClass", self.urgent, None),
        ]

    def workloads(self) -> list[Object]:
        """All Workloads of the namespace."""
        return self._kube.list("Workload", namespace=self._namespace)

    def workload(self, job: str) -> Object:
        """The one of a TrainingJob; empty while there is none."""
        return self._kube.find("Workload", f"trainingjob-{job}", namespace=self._namespace) or {}

    def workload_of(self, job: str) -> Object:
        """The one of a Job of Kubernetes; empty while there is none."""
        owned = (
            workload
            for workload in self.workloads()
            for owner in workload["metadata"].get("ownerReferences", ())
            if (owner["kind"], owner["name"]) == ("Job", job)
        )
        return next(owned, {})

    def used(self) -> int:
        """GPUs of the quota that are held."""
        status = self._kube.get("ClusterQueue", self.name).get("status") or {}
        held = [
            int(resource["total"])
            for flavor in status.get("flavorsReservation") or ()
            for resource in flavor["resources"]
        ]
        return sum(held)

    def _create(self, kind: str, name: str, spec: Object, *, namespace: str | None = None) -> None:
        place = {"namespace": namespace} if namespace else {}
        metadata = {"name": name, **place}
        self._kube.create({"apiVersion": KUEUE_API, "kind": kind, "metadata": metadata, "spec": spec})


@pytest.fixture(scope="module")
def kueue(
    shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KueueManager]:
    """One for all tests: its start takes seconds."""
    shared_control_plane.kube.install_crds(CHECKOUT / "crds")
    manager = KueueManager(shared_control_plane, folder=tmp_path_factory.mktemp("kueue"))
    manager.start()
    yield manager
    manager.stop()


@pytest.fixture
def unmade_queues(jobs: JobWorld, kueue: KueueManager) -> Iterator[Queues]:
    """Queues that the test creates; they are deleted after it."""
    del kueue  # it runs
    queues = Queues(jobs)
    yield queues
    jobs.kube.delete_all("TrainingJob", namespace=jobs.namespace)
    jobs.kube.delete_all("Job", namespace=jobs.namespace)
    queues.delete()


@pytest.fixture
def queues(unmade_queues: Queues) -> Queues:
    """The same, created."""
    unmade_queues.create()
    return unmade_queues


def queued(jobs: JobWorld, name: str, *, chief: int = 0, workers: int, gpus: int = 1, **more: Any) -> None:
    """A TrainingJob in the queue, with so many GPUs for each worker and one for the chief."""
    worker = jobs.role(workers, gpus=gpus)
    worker["template"]["metadata"] = {"annotations": more.pop("annotations", {})}
    roles = {"Worker": worker, **({"Chief": jobs.role(1, gpus=1)} if chief else {})}
    labels = {**QUEUE, **more.pop("labels", {})}
    framework = more.pop("framework", "TensorFlow" if chief else "None")
    jobs.gpu_job(name, pods=workers, framework=framework, roles=roles, labels=labels, **more)


def plain(
    jobs: JobWorld,
    name: str,
    *,
    pods: int,
    gpus: int,
    labels: dict[str, str] | None = None,
    claims: Sequence[str] = (),
) -> None:
    """A Job of Kubernetes in the queue, whose pods mount these claims."""
    role = jobs.role(pods, gpus=gpus)
    pod = {**role["template"]["spec"], "restartPolicy": "Never", "volumes": volumes(*claims)}
    jobs.kube.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": jobs.namespace, "labels": {**QUEUE, **(labels or {})}},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "completionMode": "Indexed",
                "template": {"metadata": {"labels": {"tdcs.io/training-job": name}}, "spec": pod},
            },
        }
    )


def holds(workload: Object) -> bool:
    return condition(workload, "QuotaReserved") == "True"


def evictions(workload: Object) -> int:
    """How often Kueue has taken a Workload's quota back."""
    stats = (workload.get("status") or {}).get("schedulingStats") or {}
    return sum(int(eviction["count"]) for eviction in stats.get("evictions") or ())
