"""What the operator's tests share: three fake nodes, a cache, a cluster, and objects to create in it."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.operator_process import RunningOperator, paced_engine
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import TEST_LABEL, FakeNodes
from tests.support.kube import Kube, Object, condition
from tests.support.kube.describe import describe
from tests.support.kube.objects import with_roles
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually

CHECKOUT = Path(__file__).parents[2]
API_VERSION = "tdcs.io/v1alpha2"
SOURCE = "s3://pictures/train"
STORE_KEYS = "store-keys"
FILE_BYTES = 1_000_000
FILES = {f"{number:04d}.jpg": FILE_BYTES for number in range(40)}
TOTAL = FILE_BYTES * len(FILES)
DEADLINE = 120.0
"""Seconds: most waits take one or two, and on a machine with more to do than it can many more."""


class World:
    """Three fake nodes, an engine with a worker on each, a cache cluster, and the operator."""

    def __init__(self, *, plane: ControlPlane, namespace: str, nodes: list[str]) -> None:
        self.kube: Kube = plane.kube
        self.plane = plane
        self.namespace = namespace
        self.nodes = nodes
        self.cluster = f"c{namespace[-6:]}"
        self.engine = self.make_engine()

    def make_engine(self, *, seconds_per_block: float = 0.0) -> MemoryEngine:
        """A fresh cache with one worker on each node."""
        self.engine = paced_engine(
            sources={SOURCE: FILES},
            workers=dict.fromkeys(self.nodes, 10 * TOTAL),
            seconds_per_block=seconds_per_block,
        )
        return self.engine

    def operator(
        self,
        *,
        killed_after: int | None = None,
        gang_patience: float = 60.0,
        kueue: bool = False,
        scaler_port: int = 0,
        **settings: Any,
    ) -> RunningOperator:
        """An operator of this world; enter it to start it. `killed_after`: it dies with its write of this number;
        `settings`: further ones of the operator."""
        return RunningOperator(
            kubeconfig=self.plane.stand_in_kubeconfig("operator"),
            engine=self.engine,
            namespace=self.namespace,
            killed_after=killed_after,
            gang_patience=gang_patience,
            kueue=kueue,
            scaler_port=scaler_port,
            settings=settings,
        )

    def create_cluster(self, **more: Any) -> None:
        """A cache cluster on the nodes of this test alone; `more` of its spec."""
        spec: Object = {"nodeSelector": {TEST_LABEL: self.namespace}, **more}
        self.kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "CacheCluster",
                "metadata": {"name": self.cluster, "namespace": self.namespace},
                "spec": spec,
            }
        )

    def create_dataset(self, name: str = "pictures", **spec: Any) -> Object:
        """A Dataset on two nodes, partitioned, with keys, unless `spec` says otherwise."""
        dataset_spec = {
            "cacheClusterRef": {"name": self.cluster},
            "placement": {"mode": "Partition", "nodeCount": 2},
            **spec,
            "source": {"uri": SOURCE, "secretRef": {"name": STORE_KEYS}, **spec.get("source", {})},
        }
        self.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": STORE_KEYS, "namespace": self.namespace},
                "stringData": {"accessKeyId": "me", "secretAccessKey": "s3cr3t"},
            }
        )
        return self.kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "Dataset",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": dataset_spec,
            }
        )

    def change_dataset(self, **spec: Any) -> None:
        """Merge fields into the Dataset's spec."""
        self.kube.patch("Dataset", "pictures", {"spec": spec}, namespace=self.namespace)

    def create_job(
        self, name: str = "train", *, replicas: int = 2, labels: dict[str, str] | None = None, **spec: Any
    ) -> Object:
        """A TrainingJob that reads the dataset; the default scheduler places it."""
        container = {
            "name": "main",
            "image": "train:test",
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        template = {
            "spec": {
                "schedulerName": "default-scheduler",
                "nodeSelector": {TEST_LABEL: self.namespace},
                "containers": [container],
            }
        }
        job_spec = {
            "framework": "TensorFlow",
            "roles": {"Worker": {"replicas": replicas, "template": template}},
            "datasets": [{"name": "pictures", "mountPath": "/data", "readiness": {"percent": 100}}],
            **spec,
        }
        return self.kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": self.namespace, "labels": labels or {}},
                "spec": with_roles(job_spec),
            }
        )

    def dataset(self, name: str = "pictures") -> Object:
        return self.kube.get("Dataset", name, namespace=self.namespace)

    def job(self, name: str = "train") -> Object:
        return self.kube.get("TrainingJob", name, namespace=self.namespace)

    def wait(self, holds: Callable[[], object], *, deadline: float = DEADLINE) -> None:
        """Until it holds; a failure shows the objects and their events."""
        kinds = ("Dataset", "TrainingJob", "Job", "Pod", "PersistentVolumeClaim")
        eventually(
            holds,
            deadline=deadline,
            describe=lambda: describe(self.kube, namespace=self.namespace, kinds=kinds),
        )

    def wait_ready(self, name: str = "pictures") -> Object:
        """The Dataset, once it is Ready."""
        self.wait(lambda: condition(self.dataset(name), "Ready") == "True")
        return self.dataset(name)

    def clear(self) -> None:
        """Delete what the test made, whatever an operator that has ended still wanted to do with it."""
        mine = {
            kind: self.kube.list(kind, namespace=self.namespace)
            for kind in ("TrainingJob", "Preload", "Dataset")
        }
        for kind, objects in mine.items():
            for obj in objects:
                name = obj["metadata"]["name"]
                self.kube.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=self.namespace)
                self.kube.delete(kind, name, namespace=self.namespace)
        if self.kube.find("CacheCluster", self.cluster, namespace=self.namespace) is not None:
            self.kube.patch(
                "CacheCluster", self.cluster, {"metadata": {"finalizers": None}}, namespace=self.namespace
            )
            self.kube.delete("CacheCluster", self.cluster, namespace=self.namespace)
        self.kube.delete("PersistentVolume", f"tdcs.{self.namespace}.pictures")


@pytest.fixture
def world(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """Three nodes and the definitions; the cache cluster is deleted after the test."""
    monkeypatch.setattr(getpass, "getuser", _nameless)
    control_plane.kube.install_crds(CHECKOUT / "crds")
    world = World(plane=control_plane, namespace=namespace, nodes=fake_nodes(count=3, gpus=3))
    yield world
    world.clear()


def _nameless() -> str:
    """The user of a container, who is not in its /etc/passwd."""
    raise KeyError("getpwuid(): uid not found: 65532")


def condition_of(obj: Object, kind: str) -> Object:
    """The whole condition, empty when it is not there."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == kind), {})


def reason_of(obj: Object, kind: str) -> str:
    """The reason of a condition."""
    return str(condition_of(obj, kind).get("reason", ""))


def message_of(obj: Object, kind: str) -> str:
    """The message of a condition."""
    return str(condition_of(obj, kind).get("message", ""))
