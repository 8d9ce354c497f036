"""TrainingJobs on the nodes that Topology Aware Scheduling of the real Kueue assigns; in mode Affinity, by their data.

Kueue's manager is built by `make ecosystem`; where it is not built the tests are skipped. The test is the kubelet.
`TDCS_KUEUE_NODES=32` takes more nodes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from tests.controlplane.ecosystem.kueue_world import HOSTNAME, Queues, kueue, queued, unmade_queues
from tests.controlplane.job_world import GPUS, JobWorld, held_nodes, jobs
from tests.controlplane.operator_process import paced_engine
from tests.controlplane.operator_world import FILES, TOTAL
from tests.support.controlplane import ControlPlane
from tests.support.ecosystem.kueue import KueueManager
from tests.support.report import Measured

__all__ = ["jobs", "kueue", "unmade_queues"]

NODES = int(os.environ.get("TDCS_KUEUE_NODES", "4"))
"""Of the test of many; two hold each Dataset."""
SIZES = (3, 2, 1)
"""Pods of the jobs that read each Dataset, with a GPU each: six of the eight GPUs that its nodes have."""
PAIR = "tests.tdcs.io/pair"
BAR = 0.95


def nodes_of(jobs: JobWorld, name: str) -> set[str]:
    """The nodes of a job's pods; each has that node's label in its selector, and no scheduling gate."""
    pods = jobs.pods(name)
    assert not any(pod["spec"].get("schedulingGates") for pod in pods)
    node_names = {pod["spec"]["nodeName"] for pod in pods}
    assert {pod["spec"]["nodeSelector"][HOSTNAME] for pod in pods} == node_names
    return node_names


def test_pods_run_on_the_nodes_that_topology_aware_scheduling_assigned_to_them(
    jobs: JobWorld, unmade_queues: Queues
) -> None:
    together = {"kueue.x-k8s.io/podset-required-topology": HOSTNAME}
    unmade_queues.create(topology=True)
    with jobs.operator(kueue=True):
        for name in ("first", "second"):
            queued(jobs, name, workers=3, annotations=together)
            jobs.run_pods(name, count=3)
        assert len(nodes_of(jobs, "first")) == len(nodes_of(jobs, "second")) == 1
        assert nodes_of(jobs, "first") != nodes_of(jobs, "second")
        # No node has room for two more.
        queued(jobs, "third", workers=2, annotations=together)
        jobs.wait(lambda: jobs.status_of("third").get("reason") == "WaitsInKueue")
        for pod in jobs.pods("first"):
            jobs.end_pod(pod)
        jobs.run_pods("third", count=2)
        assert nodes_of(jobs, "third") == nodes_of(jobs, "first")


@pytest.fixture
def many(
    control_plane: ControlPlane, namespace: str, kueue: KueueManager
) -> Iterator[tuple[JobWorld, Queues]]:
    """Nodes in pairs, and their queue."""
    del kueue  # it runs
    with held_nodes(control_plane, namespace=namespace, count=NODES) as world:
        for number, node in enumerate(world.nodes):
            world.kube.patch("Node", node, {"metadata": {"labels": {PAIR: f"{namespace}-{number // 2}"}}})
        queues = Queues(world, quota=NODES * GPUS)
        try:
            yield world, queues
        finally:
            world.kube.delete_all("TrainingJob", namespace=namespace)
            queues.delete()


@pytest.mark.timeout(120 + 20 * NODES, func_only=True)
def test_in_mode_affinity_pods_run_on_their_data_where_there_is_room(
    many: tuple[JobWorld, Queues], measured: Measured
) -> None:
    """With Kueue's gate TASRespectNodeAffinityPreferred; without it Kueue fills one node after the other."""
    world, queues = many
    sets = [f"set-{number}" for number in range(NODES // 2)]
    world.engine = paced_engine(
        sources={f"s3://pictures/{name}": FILES for name in sets},
        workers=dict.fromkeys(world.nodes, 10 * TOTAL),
    )
    world.create_cluster()
    queues.create(topology=True)
    waiting = [(name, size) for name in sets for size in SIZES]
    random.Random(NODES).shuffle(waiting)
    away: list[str] = []
    with world.operator(kueue=True):
        for number, name in enumerate(sets):
            pair = {PAIR: f"{world.namespace}-{number}"}
            place = {"mode": "Replicate", "nodeCount": 2, "nodeSelector": pair}
            world.create_dataset(name, placement=place, source={"uri": f"s3://pictures/{name}"})
        for name in sets:
            world.wait_ready(name)
        for name, size in waiting:
            uses = [{"name": name, "mountPath": "/data", "readiness": {"percent": 100}}]
            job = f"{name}-{size}"
            queued(world, job, workers=size, datasets=uses, scheduling={"mode": "Affinity"})
        for name, size in waiting:
            world.run_pods(f"{name}-{size}", count=size)
            number = sets.index(name)
            node_names = [pod["spec"]["nodeName"] for pod in world.pods(f"{name}-{size}")]
            away += [node for node in node_names if node not in world.nodes[2 * number : 2 * number + 2]]
    pods = sum(size for _, size in waiting)
    measured(f"Kueue's TAS on {NODES} nodes: {pods - len(away)} of {pods} pods on their data")
    assert pods - len(away) >= BAR * pods, away
