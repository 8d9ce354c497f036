"""Random clusters and job mixes: every pod lands on its data where there is room, else as many as can.

A cluster is a group of nodes that its pods select; four of them share out 32 nodes, and ten such groups are looked at
together. Nodes are partly taken by other pods, datasets lie on some of the nodes, and several jobs want them at once.
``TDCS_LOCALITY_CLUSTERS=200`` looks at so many.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from tests.controlplane.extender_world import (
    SCHEDULER,
    Extender,
    put_dataset,
    start_extender,
    start_scheduler,
)
from tests.support.controlplane import ControlPlane
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.describe import describe
from tests.support.generators.random_clusters import (
    GPUS,
    GROUP,
    NODES,
    Cluster,
    Tally,
    alike,
    off_data_beside_room,
    random_clusters,
)
from tests.support.kube import Kube, Object
from tests.support.objects import gpu_pod
from tests.support.processes import Process
from tests.support.report import Measured
from tests.support.waiting import eventually

CLUSTERS = int(os.environ.get("TDCS_LOCALITY_CLUSTERS", "20"))
GROUPS_AT_ONCE = 10
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
        pytest.param(True, as_drawn, 0.985, 0.9, id="jobs-that-wait-together-for-very-uneven-parts"),
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
    groups = list(range(0, CLUSTERS, GROUP))
    nodes = fake_nodes(count=NODES * min(len(groups), GROUPS_AT_ONCE), gpus=GPUS)
    tally = Tally()
    for begin in range(0, len(groups), GROUPS_AT_ONCE):
        firsts = groups[begin : begin + GROUPS_AT_ONCE]
        clusters = [
            parts(cluster)
            for place, first in enumerate(firsts)
            for cluster in random_clusters(first=first, nodes=nodes[NODES * place : NODES * (place + 1)])
        ]
        for cluster, placed in run(world, held=held, clusters=clusters):
            assert not off_data_beside_room(cluster, placed), (cluster, placed)
            tally.add(cluster, placed)
    measured(str(tally))
    assert tally.on_data >= pods * tally.possible
    assert tally.at_optimum >= optima * tally.clusters


def run(
    world: World, *, held: bool, clusters: Sequence[Cluster]
) -> list[tuple[Cluster, list[tuple[int, str]]]]:
    """Schedule the jobs of these clusters; for each the (job, node) of its pods. Leaves no pod behind.

    With `held` the scheduler is let go when all of them wait, else it places them while they come.
    """
    extender, kube, namespace = world.extender, world.kube, world.namespace
    others: list[Object] = []
    wanted: list[Object] = []
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
    for cluster in clusters:
        for node, free in cluster.free.items():
            if free < GPUS:
                pod = gpu_pod(name=f"other-{node}", namespace=namespace, gpus=GPUS - free)
                others.append({**pod, "spec": {**pod["spec"], "nodeName": node}})
        for job, (_, pods) in enumerate(cluster.jobs):
            name = f"set-{cluster.number}-{job}"
            wanted += [
                gpu_pod(
                    name=f"{name}-{pod}",
                    namespace=namespace,
                    gpus=cluster.pod_gpus,
                    scheduler=SCHEDULER,
                    labels={"set": name},
                    annotations={"tdcs.io/datasets": annotations[name]},
                    spec={"nodeSelector": {LABEL: str(cluster.number)}},
                )
                for pod in range(pods)
            ]
    kube.create_many(others)
    if held:
        world.scheduler.pause()
    try:
        kube.create_many(wanted)
        if held:
            eventually(lambda: extender.waiting_pods() == len(wanted), deadline=120)
    finally:
        if held:
            world.scheduler.resume()

    def places() -> dict[str, str]:
        found = kube.list("Pod", namespace=namespace)
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in found if pod["spec"].get("nodeName")
        }

    eventually(
        lambda: len(places()) == len(others) + len(wanted),
        deadline=120,
        describe=lambda: describe(kube, namespace=namespace),
    )
    found = places()
    kube.delete_all("Pod", namespace=namespace, grace_seconds=0)
    eventually(lambda: not kube.list("Pod", namespace=namespace), deadline=120)
    return [
        (
            cluster,
            [
                (job, found[f"set-{cluster.number}-{job}-{pod}"])
                for job, (_, pods) in enumerate(cluster.jobs)
                for pod in range(pods)
            ],
        )
        for cluster in clusters
    ]
