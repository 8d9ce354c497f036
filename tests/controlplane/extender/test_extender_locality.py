"""Random clusters and job mixes: every pod lands on its data where there is room, else as many as can.

A cluster is a group of nodes that its pods select; four of them share out 32 nodes, and ten such groups are looked at
together. Nodes are partly taken by other pods, datasets are on some of the nodes, and several jobs want them at once.
``TDCS_LOCALITY_CLUSTERS=200`` looks at so many, and also has pods there that have nothing but a claim.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from tests.controlplane.extender_world import (
    SCHEDULER,
    Extender,
    put_claim,
    put_dataset,
    start_extender,
    start_scheduler,
)
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.generators.random_clusters import (
    GPUS,
    GROUP,
    NODES,
    Cluster,
    Tally,
    alike,
    off_data_alongside_room,
    random_clusters,
)
from tests.support.kube import Kube, Object
from tests.support.kube.claimed_pods import volumes
from tests.support.kube.describe import describe
from tests.support.kube.objects import gpu_pod
from tests.support.programs.processes import Process
from tests.support.report import Measured
from tests.support.waiting import eventually

CLUSTERS = int(os.environ.get("TDCS_LOCALITY_CLUSTERS", "20"))
GROUPS_AT_ONCE = 10
DEEP = pytest.mark.deep(
    "jobs that wait for even parts: tests/controlplane/extender/test_extender_locality.py"
)
LABEL = "tests.tdcs.io/cluster"


@dataclass(frozen=True)
class World:
    """The extender, and the scheduler that asks it."""

    extender: Extender
    scheduler: Process
    kube: Kube
    namespace: str


@pytest.fixture
def world(control_plane: ControlPlane, kube: Kube, namespace: str) -> World:
    extender = start_extender(control_plane)
    return World(extender, start_scheduler(control_plane, extender.url), kube, namespace)


def as_drawn(cluster: Cluster) -> Cluster:
    return cluster


@pytest.mark.timeout(900, func_only=True)  # many more clusters than by default can be asked for
@pytest.mark.parametrize(
    ("held", "parts", "pods", "optima"),
    [
        # Each node holds about as much as the others, as placement lays data out, and the jobs come together.
        pytest.param(True, alike, 0.99, 0.95, id="jobs-that-wait-together"),
        pytest.param(
            True, as_drawn, 0.985, 0.9, id="jobs-that-wait-together-for-very-uneven-parts", marks=DEEP
        ),
        # Nobody knows the pods that are not there yet: what only they could have used may be taken. How many are there
        # depends on the machine; `place_in_turn` with none ahead, in any order, comes to 0.956 and 17 of 20 at worst.
        pytest.param(False, as_drawn, 0.95, 0.8, id="jobs-that-come-one-by-one"),
    ],
)
def test_on_random_clusters_pods_land_on_their_data_as_long_as_there_is_room(
    world: World,
    fake_nodes: FakeNodes,
    measured: Measured,
    held: bool,
    parts: Callable[[Cluster], Cluster],
    pods: float,
    optima: float,
) -> None:
    tally = looked_at(world, fake_nodes, count=CLUSTERS, held=held, parts=parts)
    measured(str(tally))
    assert tally.on_data >= pods * tally.possible
    assert tally.at_optimum >= optima * tally.clusters


@pytest.mark.skipif("TDCS_LOCALITY_CLUSTERS" not in os.environ, reason="set TDCS_LOCALITY_CLUSTERS=100")
@pytest.mark.timeout(900, func_only=True)
@pytest.mark.parametrize("held", [True, False], ids=["that-wait-together", "that-come-one-by-one"])
def test_pods_that_only_mount_a_claim_land_on_their_data_as_those_of_training_jobs_do(
    world: World, fake_nodes: FakeNodes, measured: Measured, held: bool
) -> None:
    tally = looked_at(world, fake_nodes, count=CLUSTERS, held=held, parts=alike, by_claim=True)
    measured(f"by the claim alone: {tally}")
    assert tally.on_data >= 0.95 * tally.possible


def looked_at(
    world: World,
    fake_nodes: FakeNodes,
    *,
    count: int,
    held: bool,
    parts: Callable[[Cluster], Cluster],
    by_claim: bool = False,
) -> Tally:
    """What becomes of so many clusters; no pod of them is off its data next to a node that holds it and has room."""
    groups = list(range(0, count, GROUP))
    nodes = fake_nodes(count=NODES * min(len(groups), GROUPS_AT_ONCE), gpus=GPUS)
    tally = Tally()
    for begin in range(0, len(groups), GROUPS_AT_ONCE):
        firsts = groups[begin : begin + GROUPS_AT_ONCE]
        clusters = [
            parts(cluster)
            for place, first in enumerate(firsts)
            for cluster in random_clusters(first=first, nodes=nodes[NODES * place : NODES * (place + 1)])
        ]
        for cluster, placed in run(world, held=held, clusters=clusters, by_claim=by_claim):
            assert not off_data_alongside_room(cluster, placed), (cluster, placed)
            tally.add(cluster, placed)
    return tally


def run(
    world: World, *, held: bool, clusters: Sequence[Cluster], by_claim: bool
) -> list[tuple[Cluster, list[tuple[int, str]]]]:
    """Schedule the jobs of these clusters; for each the (job, node) of its pods. Leaves no pod behind.

    With `held` the scheduler is let go when all of them wait, else it places them while they come. `by_claim`: pods
    have no annotation and mount the claim of their Dataset; every other job is a ReplicaSet, the others are bare pods.
    """
    extender, kube, namespace = world.extender, world.kube, world.namespace
    bound_pods: list[Object] = []
    workloads: list[Object] = []
    labels = {node: {LABEL: str(cluster.number)} for cluster in clusters for node in cluster.free}
    parts = {
        f"set-{cluster.number}-{job}": sizes
        for cluster in clusters
        for job, (sizes, _) in enumerate(cluster.jobs)
    }
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda node: kube.patch("Node", node, {"metadata": {"labels": labels[node]}}), labels))
        put = pool.map(
            lambda name: put_dataset(extender, kube, namespace=namespace, held=parts[name], name=name), parts
        )
        annotations = dict(zip(parts, put, strict=True))
        if by_claim:
            list(pool.map(lambda name: put_claim(kube, namespace=namespace, name=name), parts))
    count = 0
    for cluster in clusters:
        for node, free in cluster.free.items():
            if free < GPUS:
                pod = gpu_pod(name=f"other-{node}", namespace=namespace, gpus=GPUS - free)
                bound_pods.append({**pod, "spec": {**pod["spec"], "nodeName": node}})
        for job, (_, pods) in enumerate(cluster.jobs):
            name = f"set-{cluster.number}-{job}"
            spec: Object = {"nodeSelector": {LABEL: str(cluster.number)}}
            read = {} if by_claim else {"tdcs.io/datasets": annotations[name]}
            pod = gpu_pod(
                name=name,
                namespace=namespace,
                gpus=cluster.pod_gpus,
                scheduler=SCHEDULER,
                labels={"set": name},
                annotations=read,
                spec={**spec, "volumes": volumes(name)} if by_claim else spec,
            )
            count += pods
            if by_claim and job % 2 == 0:
                workloads.append(replica_set(pod, pods=pods))
            else:
                workloads += [
                    {**pod, "metadata": {**pod["metadata"], "name": f"{name}-{number}"}}
                    for number in range(pods)
                ]
    kube.create_many(bound_pods)
    if held:
        world.scheduler.pause()
    try:
        kube.create_many(workloads)
        if held:
            eventually(lambda: extender.waiting_pods() == count, deadline=120)
    finally:
        if held:
            world.scheduler.resume()

    def places() -> list[tuple[str, str]]:
        """The set and the node of each pod that has one; of other pods the set is empty."""
        pods = kube.list("Pod", namespace=namespace)
        return [
            (pod["metadata"].get("labels", {}).get("set", ""), pod["spec"]["nodeName"])
            for pod in pods
            if pod["spec"].get("nodeName")
        ]

    eventually(
        lambda: len(places()) == len(bound_pods) + count,
        deadline=120,
        describe=lambda: describe(kube, namespace=namespace),
    )
    node_by_pod = places()
    if by_claim:
        kube.delete_all("ReplicaSet", namespace=namespace)
    kube.delete_all("Pod", namespace=namespace, grace_seconds=0)
    eventually(lambda: not kube.list("Pod", namespace=namespace), deadline=120)
    return [
        (
            cluster,
            [
                (job, node)
                for job in range(len(cluster.jobs))
                for name, node in node_by_pod
                if name == f"set-{cluster.number}-{job}"
            ],
        )
        for cluster in clusters
    ]


def replica_set(pod: Object, *, pods: int) -> Object:
    """A controller of so many such pods."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": metadata["labels"]},
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": pod["spec"]},
        },
    }
