"""Random clusters and job mixes, how many pods can be on their data at once, and a kube-scheduler in a few lines."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.protocol import Candidates, PrioritizeRequest
from tdcs_scheduler.rank import rank
from tdcs_scheduler.view import DatasetView

GB = 10**9
GROUP = 4
"""Clusters that share out their nodes."""
NODES, GPUS = 32, 8


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
        jobs_on: dict[str, list[int]] = {node: [] for node in self.slots}

        def finds_room(job: int, seen: set[str]) -> bool:
            for node in self.jobs[job][0]:
                if node in seen:
                    continue
                seen.add(node)
                if len(jobs_on[node]) < self.slots[node]:
                    jobs_on[node].append(job)
                    return True
                for place, placed_job in enumerate(jobs_on[node]):
                    if finds_room(placed_job, seen):
                        jobs_on[node][place] = job
                        return True
            return False

        return sum(finds_room(job, set()) for job, (_, pods) in enumerate(self.jobs) for _ in range(pods))


def shares(draw: random.Random, *, nodes: Sequence[str]) -> Iterator[list[str]]:
    """The nodes of each cluster of a group: all of NODES are shared out."""
    cuts = [0, *sorted(draw.sample(range(2, NODES - 2), GROUP - 1)), NODES]
    return (list(nodes[begin:end]) for begin, end in itertools.pairwise(cuts))


def random_clusters(*, first: int, nodes: Sequence[str]) -> list[Cluster]:
    """Clusters that share out the nodes; sizes, free GPUs, datasets and jobs are drawn from the first's number."""
    draw = random.Random(first)
    clusters = []
    for number, node_names in enumerate(shares(draw, nodes=nodes), start=first):
        pod_gpus = draw.choice([1, 1, 2, 4])
        free = {node: draw.choice([0, 2, 4, 8, 8, 8]) for node in node_names}
        room = sum(gpus // pod_gpus for gpus in free.values())
        jobs = []
        for _ in range(draw.randint(1, 3)):
            holders = draw.sample(node_names, draw.randint(1, len(node_names)))
            pods = draw.randint(0, min(room, 12))
            room -= pods
            jobs.append(({node: draw.randint(1, 100) * GB // 10 for node in holders}, pods))
        clusters.append(Cluster(number=number, pod_gpus=pod_gpus, free=free, jobs=jobs))
    return clusters


def alike(cluster: Cluster) -> Cluster:
    """The same cluster with its datasets as they are placed: nodes that hold one hold about the same part of it."""
    draw = random.Random(cluster.number)
    jobs = [
        ({node: int(5 * GB * draw.uniform(0.95, 1.05)) for node in held}, pods) for held, pods in cluster.jobs
    ]
    return Cluster(number=cluster.number, pod_gpus=cluster.pod_gpus, free=cluster.free, jobs=jobs)


def place_in_turn(cluster: Cluster, *, ahead: int, draw: random.Random) -> list[tuple[int, str]]:
    """The (job, node) of each pod, placed one after another by the extender's scores as kube-scheduler would.

    Pods come in the order of their jobs, the node with the highest score wins, then the one with fewer pods, then
    chance. What kube-scheduler's own plugins say else is never worth as much as a score.

    Args:
        cluster: with its jobs.
        ahead: how many of the pods behind it in the queue the extender knows to wait.
        draw: the chance.
    """
    view = DatasetView()
    demand = Demand(view=view)
    for job, (held, _) in enumerate(cluster.jobs):
        nodes = [{"name": node, "bytes": size} for node, size in held.items()]
        status = {"totalBytes": sum(held.values()), "copies": [{"id": "0", "nodes": nodes}]}
        view.on_change(("n", str(job)), {"status": status})
    annotations = [json.dumps([{"dataset": f"n/{job}", "copy": "0"}]) for job in range(len(cluster.jobs))]
    queue = [job for job, (_, pods) in enumerate(cluster.jobs) for _ in range(pods)]

    def comes(number: int) -> None:
        if number < len(queue):
            metadata = {"annotations": {"tdcs.io/datasets": annotations[queue[number]]}}
            demand.on_pod(("n", str(number)), waiting_pod({"metadata": metadata}))

    free_slots = dict(cluster.slots)
    pods = {node: int(gpus < GPUS) for node, gpus in cluster.free.items()}
    placed = []
    for number in range(ahead):
        comes(number)
    for number, job in enumerate(queue):
        comes(number + ahead)
        candidates = [node for node, slots in free_slots.items() if slots > 0]
        request = PrioritizeRequest(
            pod=f"n/{number}",
            uid=str(number),
            annotation=annotations[job],
            nodes=Candidates(json.dumps(candidates).encode()),
        )
        scores = rank(request=request, view=view, demand=demand, synced=True, exact=False).scores
        chosen = max(candidates, key=lambda node: (scores.get(node, 0), -pods[node], draw.random()))
        free_slots[chosen] -= 1
        pods[chosen] += 1
        placed.append((job, chosen))
        demand.on_pod(("n", str(number)), None)
    return placed


def off_data_alongside_room(cluster: Cluster, placed: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The pods that are not on their data although a node that holds it has room in the end."""
    free_slots = dict(cluster.slots)
    for _, node in placed:
        free_slots[node] -= 1
    return [
        (job, node)
        for job, node in placed
        if node not in cluster.jobs[job][0] and any(free_slots[holder] > 0 for holder in cluster.jobs[job][0])
    ]


@dataclass(kw_only=True)
class Tally:
    """What became of several clusters."""

    clusters: int = 0
    pods: int = 0
    on_data: int = 0
    possible: int = 0
    at_optimum: int = 0
    bytes_on_data: int = 0

    def add(self, cluster: Cluster, placed: Sequence[tuple[int, str]]) -> None:
        """Count one more."""
        on_data = sum(node in cluster.jobs[job][0] for job, node in placed)
        best = cluster.most_on_data()
        self.clusters += 1
        self.pods += len(placed)
        self.on_data += on_data
        self.possible += best
        self.at_optimum += on_data == best
        self.bytes_on_data += sum(cluster.jobs[job][0].get(node, 0) for job, node in placed)

    def __str__(self) -> str:
        return (
            f"{self.clusters} random clusters, {self.pods} pods: {self.on_data} of at most {self.possible} on their "
            f"data, with {self.bytes_on_data / GB:.0f} GB; {self.at_optimum} clusters at the optimum"
        )
