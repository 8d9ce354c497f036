"""Random clusters and job mixes: every pod lands on its data where there is room, else as many as can.

A cluster is a group of nodes that its pods select; four of them are looked at together. Nodes are partly taken by
other pods, datasets lie on some of the nodes in very different parts, and several jobs want them at once.
``TDCS_LOCALITY_CLUSTERS=200`` looks at so many.
"""

import itertools
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.controlplane.extender_world import SCHEDULER, Extender, extender, put_dataset
from tests.support.controlplane.fixtures import FakeNodes
from tests.support.describe import describe
from tests.support.kube import Kube, Object
from tests.support.objects import gpu_pod
from tests.support.report import Measured
from tests.support.waiting import eventually

__all__ = ["extender"]

CLUSTERS = int(os.environ.get("TDCS_LOCALITY_CLUSTERS", "20"))
AT_ONCE = 4
NODES, GPUS = 32, 8
LABEL = "tests.tdcs.io/cluster"
GB = 10**9


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes with free GPUs; jobs of equal pods, each with the bytes of its dataset by node.

    Attributes:
        slots: how many of its pods each node has room for.
        jobs: bytes by node of each job's dataset, and its number of pods.
    """

    number: int
    pod_gpus: int
    free: Mapping[str, int]
    jobs: Sequence[tuple[Mapping[str, int], int]]
    slots: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        slots = {node: gpus // self.pod_gpus for node, gpus in self.free.items()}
        object.__setattr__(self, "slots", slots)

    def most_on_data(self) -> int:
        """How many pods can be on their data at once: a matching of pods to slots, grown by augmenting paths."""
        taken: dict[str, list[int]] = {node: [] for node in self.slots}

        def finds_room(job: int, seen: set[str]) -> bool:
            for node in self.jobs[job][0]:
                if node in seen:
                    continue
                seen.add(node)
                if len(taken[node]) < self.slots[node]:
                    taken[node].append(job)
                    return True
                for place, other in enumerate(taken[node]):
                    if finds_room(other, seen):
                        taken[node][place] = job
                        return True
            return False

        return sum(finds_room(job, set()) for job, (_, pods) in enumerate(self.jobs) for _ in range(pods))


def random_clusters(*, first: int, nodes: Sequence[str]) -> list[Cluster]:
    """Clusters that share out the nodes; sizes, free GPUs, datasets and jobs are drawn from the first's number."""
    draw = random.Random(first)
    cuts = [0, *sorted(draw.sample(range(2, NODES - 2), AT_ONCE - 1)), NODES]
    found = []
    for number, (begin, end) in enumerate(itertools.pairwise(cuts), start=first):
        own = list(nodes[begin:end])
        pod_gpus = draw.choice([1, 1, 2, 4])
        free = {node: draw.choice([0, 2, 4, 8, 8, 8]) for node in own}
        room = sum(gpus // pod_gpus for gpus in free.values())
        jobs = []
        for _ in range(draw.randint(1, 3)):
            holders = draw.sample(own, draw.randint(1, len(own)))
            pods = draw.randint(0, min(room, 12))
            room -= pods
            jobs.append(({node: draw.randint(1, 100) * GB // 10 for node in holders}, pods))
        found.append(Cluster(number=number, pod_gpus=pod_gpus, free=free, jobs=jobs))
    return found


def test_on_random_clusters_pods_land_on_their_data_as_long_as_there_is_room(
    extender: Extender, kube: Kube, namespace: str, fake_nodes: FakeNodes, measured: Measured
) -> None:
    nodes = fake_nodes(count=NODES, gpus=GPUS)
    pods = reached = possible = at_optimum = 0
    for first in range(0, CLUSTERS, AT_ONCE):
        clusters = random_clusters(first=first, nodes=nodes)
        for cluster, placed in run(extender, kube, namespace=namespace, clusters=clusters):
            left = dict(cluster.slots)
            on_data = 0
            for job, node in placed:
                left[node] -= 1
                on_data += node in cluster.jobs[job][0]
            for job, node in placed:
                free_holders = [holder for holder in cluster.jobs[job][0] if left[holder] > 0]
                assert node in cluster.jobs[job][0] or not free_holders, (cluster, placed)
            best = cluster.most_on_data()
            pods, reached, possible = pods + len(placed), reached + on_data, possible + best
            at_optimum += on_data == best
    measured(
        f"{CLUSTERS} random clusters, {pods} pods: {reached} of at most {possible} on their data; "
        f"{at_optimum} clusters at the optimum"
    )
    # One pod after another is placed, so a job may take what only a later one could have used.
    assert reached >= 0.95 * possible


def run(
    extender: Extender, kube: Kube, *, namespace: str, clusters: Sequence[Cluster]
) -> list[tuple[Cluster, list[tuple[int, str]]]]:
    """Schedule the jobs of these clusters; for each the (job, node) of its pods. Leaves no pod behind."""
    others: list[Object] = []
    wanted: list[Object] = []
    for cluster in clusters:
        label = {LABEL: str(cluster.number)}
        for node, free in cluster.free.items():
            kube.patch("Node", node, {"metadata": {"labels": label}})
            if free < GPUS:
                pod = gpu_pod(name=f"other-{node}", namespace=namespace, gpus=GPUS - free)
                others.append({**pod, "spec": {**pod["spec"], "nodeName": node}})
        for job, (held, pods) in enumerate(cluster.jobs):
            name = f"set-{cluster.number}-{job}"
            annotation = put_dataset(extender, kube, namespace=namespace, held=held, name=name)
            wanted += [
                gpu_pod(
                    name=f"{name}-{pod}",
                    namespace=namespace,
                    gpus=cluster.pod_gpus,
                    scheduler=SCHEDULER,
                    labels={"set": name},
                    annotations={"tdcs.io/datasets": annotation},
                    spec={"nodeSelector": label},
                )
                for pod in range(pods)
            ]
    kube.create_many(others)
    kube.create_many(wanted)

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
    eventually(lambda: not kube.list("Pod", namespace=namespace), deadline=60)
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
