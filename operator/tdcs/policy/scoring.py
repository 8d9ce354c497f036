"""How well a node suits a pod, by the cached bytes of the pod's datasets that lie on it.

One definition serves the scheduler extender (:func:`node_scores`), and the status of a
job (:func:`locality`, :func:`local_share`).

For a dataset, a node is as good as its bytes over the most bytes that any node holds;
several datasets are averaged, weighted by their sizes, because the larger one saves the
larger read.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Largest score of a kube-scheduler extender (`MaxExtenderPriority`).
MAX_SCORE = 10

#: Part of its share of the node's link that a job must need before it matters where its data lies.
LOCALITY_FLOOR = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyOnNodes:
    """One copy of a dataset: the dataset's size, and how many bytes of the copy each node holds."""

    total_bytes: int
    node_bytes: Mapping[str, int]


def node_scores(copies: Sequence[CopyOnNodes]) -> dict[str, int]:
    """Scores from 1 to 10 of the nodes that hold any byte of a pod's copies; others are left out.

    Every node that holds data is above every node that holds none, whose score
    kube-scheduler takes as 0 when it is missing from an extender's reply. Scores are
    integers, because kube-scheduler drops a whole reply that has a fraction in it.
    """
    # A score is asked for every scheduled pod: the copies are walked through once, not once per node.
    weighed = [_weigh(copy) for copy in copies]
    total = sum(copy.weight for copy in weighed)
    near: dict[str, float] = {}
    for copy in weighed:
        for node, held in copy.node_bytes.items():
            if held > 0:
                near[node] = near.get(node, 0.0) + copy.part(held)
    return {node: max(math.ceil(MAX_SCORE * part / total - 1e-9), 1) for node, part in near.items()}


def locality_matters(*, demand: float, link: float) -> bool:
    """Whether a job of this demand gains from data on its own node; both in bytes per second.

    `link` is the job's share of its nodes' links. Up to half of it, remote reads are as fast as local
    ones, and to place the job by its data would only scatter the free GPUs that large jobs wait for. An
    8-V100 node training ResNet50 needs a quarter of a 25 Gbit/s link, one training 3D-UNet on A100
    four such links.
    """
    return demand > LOCALITY_FLOOR * link


def closeness(*, node: str, copies: Sequence[CopyOnNodes]) -> float:
    """Between 0 and 1: bytes on the node over the most bytes on any node, weighted by dataset size."""
    weighed = [_weigh(copy) for copy in copies]
    weight = sum(copy.weight for copy in weighed)
    part = sum(copy.part(copy.node_bytes.get(node, 0)) for copy in weighed)
    return part / weight if weight else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weighed:
    """A copy, the most of its bytes on any node, and its weight among the copies: the dataset's size."""

    node_bytes: Mapping[str, int]
    most: int
    weight: int

    def part(self, held: int) -> float:
        """What so many bytes on a node add to its closeness, as a part of the weight of all copies."""
        return self.weight * held / self.most if self.most else 0.0


def _weigh(copy: CopyOnNodes) -> _Weighed:
    most = max(copy.node_bytes.values(), default=0)
    return _Weighed(
        node_bytes=copy.node_bytes, most=most, weight=max(copy.total_bytes, most) if most > 0 else 0
    )


def locality(*, pod_nodes: Sequence[str], copies: Sequence[CopyOnNodes]) -> float | None:
    """Mean closeness of a job's pods: 1.0 when no pod could have been placed better.

    None when no pod is placed, or nothing is cached anywhere: then no node is better than another.
    """
    if not pod_nodes or not any(held > 0 for copy in copies for held in copy.node_bytes.values()):
        return None
    return sum(closeness(node=node, copies=copies) for node in pod_nodes) / len(pod_nodes)


def local_share(*, pod_nodes: Sequence[str], copies: Sequence[CopyOnNodes]) -> float | None:
    """Mean share of the datasets' bytes that lie on the pods' own nodes, between 0 and 1.

    1.0 when every pod has all its data on its node, about 1/n for a copy partitioned
    over n nodes. None when no pod is placed or the datasets are empty.
    """
    total = sum(copy.total_bytes for copy in copies)
    if not pod_nodes or total <= 0:
        return None
    local = sum(copy.node_bytes.get(node, 0) for node in pod_nodes for copy in copies)
    return min(local / (total * len(pod_nodes)), 1.0)


def bytes_on_node(*, node: str, copies: Sequence[CopyOnNodes]) -> int:
    """Bytes of a pod's copies that lie on a node."""
    return sum(copy.node_bytes.get(node, 0) for copy in copies)
