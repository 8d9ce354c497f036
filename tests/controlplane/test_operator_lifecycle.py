"""The operator on a real control plane: a dataset is loaded, a job waits for it, runs where it lies, and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.operator_process import RunningOperator, paced_engine
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import TEST_LABEL, FakeNodes
from tests.support.describe import describe
from tests.support.kube import Kube, Object, condition
from tests.support.waiting import eventually

from tdcs.engine.memory import MemoryEngine

CHECKOUT = Path(__file__).parents[2]
API_VERSION = "tdcs.io/v1alpha1"
SOURCE = "s3://pictures/train"
FILE_BYTES = 1_000_000
FILES = {f"{number:04d}.jpg": FILE_BYTES for number in range(40)}
TOTAL = FILE_BYTES * len(FILES)
DEADLINE = 60.0


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

    def operator(self) -> RunningOperator:
        """An operator of this world; enter it to start it."""
        return RunningOperator(kubeconfig=self.plane.kubeconfig, engine=self.engine, namespace=self.namespace)

    def create_cluster(self) -> None:
        """A cache cluster on the nodes of this test alone."""
        spec: Object = {"nodeSelector": {TEST_LABEL: self.namespace}}
        self.kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "CacheCluster",
                "metadata": {"name": self.cluster},
                "spec": spec,
            }
        )

    def create_dataset(self, name: str = "pictures", **spec: Any) -> Object:
        """A Dataset on two nodes, partitioned, unless `spec` says otherwise."""
        wanted = {
            "source": {"uri": SOURCE},
            "cacheCluster": self.cluster,
            "placement": {"mode": "Partition", "nodeCount": 2},
            **spec,
        }
        return self.kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "Dataset",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": wanted,
            }
        )

    def create_job(self, name: str = "train", *, replicas: int = 2, **spec: Any) -> Object:
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
        wanted = {
            "framework": "TensorFlow",
            "replicaSpecs": {"Worker": {"replicas": replicas, "template": template}},
            "datasets": [{"name": "pictures", "mountPath": "/data"}],
            **spec,
        }
        return self.kube.create(
            {
                "apiVersion": API_VERSION,
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": wanted,
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


@pytest.fixture
def world(control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes) -> Iterator[World]:
    """Three nodes and the definitions; the cache cluster is deleted after the test."""
    control_plane.kube.install_crds(CHECKOUT / "crds")
    made = World(plane=control_plane, namespace=namespace, nodes=fake_nodes(count=3, gpus=3))
    yield made
    for kind in ("TrainingJob", "Dataset"):
        for obj in made.kube.list(kind, namespace=namespace):
            made.kube.patch(
                kind, obj["metadata"]["name"], {"metadata": {"finalizers": None}}, namespace=namespace
            )
            made.kube.delete(kind, obj["metadata"]["name"], namespace=namespace)
    made.kube.delete("CacheCluster", made.cluster)
    made.kube.delete("PersistentVolume", f"tdcs.{namespace}.pictures")


def test_a_dataset_is_loaded_onto_two_nodes_and_a_job_runs_to_its_end(world: World) -> None:
    world.create_cluster()
    world.create_dataset()
    world.create_job()
    with world.operator():
        status = world.wait_ready()["status"]
        held = {node["name"]: node["bytes"] for node in status["copies"][0]["nodes"]}
        assert len(held) == 2
        assert held == {name: sum(world.engine.holdings(worker=name).values()) for name in held}
        assert sum(held.values()) == status["totalBytes"] == status["cachedBytes"] == TOTAL
        assert status["totalFiles"] == len(FILES)
        assert status["cachedRatio"] == 1

        world.wait(lambda: condition(world.job(), "Succeeded") == "True")
        job = world.job()["status"]
        pods = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in world.kube.list("Pod", namespace=world.namespace)
            if "job-name" in pod["metadata"]["labels"]
        }
        assert {place["pod"]: place["node"] for place in job["placement"]} == pods
        near = [held.get(node, 0) / max(held.values()) for node in pods.values()]
        share = [held.get(node, 0) / TOTAL for node in pods.values()]
        assert job["locality"] == pytest.approx(sum(near) / 2, abs=1e-3)
        assert job["localShare"] == pytest.approx(sum(share) / 2, abs=1e-3)
        assert job["state"] == "Succeeded"
        assert job["replicaStatuses"]["Worker"]["succeeded"] == 2
        assert job["completionTime"]
