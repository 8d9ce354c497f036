"""How well a node suits a pod, by the bytes of the pod's datasets that lie on it or are on their way there.

One definition serves the scheduler extender (:func:`node_scores`), and the status of a
job (:func:`locality`, :func:`local_share`).

For a dataset, a node is as good as its bytes over the most bytes that any node holds, where bytes
that are only being loaded onto it count half: a job that starts cold goes where its data goes;
several datasets are averaged, weighted by their sizes, because the larger one saves the
larger read.

kube-scheduler places one pod after another. So that a pod does not take what only a later one could have used, a node
counts less for it the more pods wait for other data there, and a pod that finds its own data nowhere leaves such nodes
alone (:func:`nodes_to_take`).
"""

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

_NOTHING_AWAITED: Final[Mapping[str, float]] = MappingProxyType({})

#: Largest score of a kube-scheduler extender (`MaxExtenderPriority`).
MAX_SCORE = 10


@dataclass(frozen=True, kw_only=True)
class CopyOnNodes:
    """One copy of a dataset. What follows from it is worked out once: every pod that is placed asks for it.

    Attributes:
        total_bytes: the dataset's size.
        node_bytes: bytes of the copy that lie on each node.
        arriving: bytes of the copy that each node lacks and is to get.
        brought: whether Preloads brought it to their nodes: no job is dealt out to it, and for every job it counts in
            full.
    """

    total_bytes: int
    node_bytes: Mapping[str, int]
    arriving: Mapping[str, int] = field(default_factory=dict)
    brought: bool = False

    @cached_property
    def worth(self) -> Mapping[str, int]:
        """What each node counts for: its bytes, and a part of those that are on their way."""
        if not self.arriving:
            return self.node_bytes
        worth = dict(self.node_bytes)
        for node, coming in self.arriving.items():
            worth[node] = worth.get(node, 0) + coming // ARRIVING
        return worth

    @cached_property
    def ranked(self) -> Sequence[str]:
        """The nodes that are worth something, the best one first."""
        return sorted(
            (node for node, worth in self.worth.items() if worth > 0), key=lambda node: -self.worth[node]
        )

    @cached_property
    def near(self) -> "Near":
        """What the nodes are worth beside one another, when all can be chosen."""
        return self._near(self.ranked)

    def near_to(self, candidates: Container[str] | None) -> "Near":
        """What the nodes are worth beside the best of these candidates; those that are worth more are left out."""
        if candidates is None:
            return self.near
        for place, node in enumerate(self.ranked):
            if node in candidates:
                alike = self.worth[node] == self.worth[self.ranked[0]]
                return self.near if alike else self._near(self.ranked[place:])
        return _NOWHERE

    def _near(self, ranked: Sequence[str]) -> "Near":
        if not ranked:
            return _NOWHERE
        most = self.worth[ranked[0]]
        weight = max(self.total_bytes, most)
        part = weight / most
        return Near(weight=weight, nodes={node: part * self.worth[node] for node in ranked})


@dataclass(frozen=True, kw_only=True, slots=True)
class Near:
    """What nodes are worth for one copy.

    Attributes:
        weight: what the copy counts beside others: its size in bytes, and nothing when it is nowhere.
        nodes: those that are worth something: what over what the best one is worth, times the weight.
    """

    weight: int
    nodes: Mapping[str, float]


_NOWHERE: Final = Near(weight=0, nodes=MappingProxyType({}))

#: What it takes from a node that other data lies there for which pods wait, one for each node that holds it: this part
#: of the most bytes that the pod could get. Chosen by simulation: with less, more pods miss their data; with more, the
#: others lose more bytes than those gain.
WAITING_POD = 0.5

#: How much less bytes on their way to a node count than bytes that lie there.
ARRIVING = 2

#: How much less bytes of another copy count than bytes of the copy that a pod is to read.
OTHER_COPY = 2


def merged(copies: Sequence[CopyOnNodes]) -> CopyOnNodes | None:
    """What all copies of one dataset offer together: on each node the best of them. None when there is no copy.

    A pod reads whatever lies on its node, of whichever copy.
    """
    if not copies:
        return None
    return CopyOnNodes(
        total_bytes=max(copy.total_bytes for copy in copies),
        node_bytes=_largest([copy.node_bytes for copy in copies]),
        arriving=_largest([copy.arriving for copy in copies]),
    )


def preferring(*, own: CopyOnNodes, others: Sequence[CopyOnNodes]) -> CopyOnNodes:
    """A dataset for a pod that is to read one of its copies: bytes of the other copies count half.

    So the pods of a job gather around its copy, and where that has no room, around another before they go where
    nothing lies. What Preloads brought counts in full: no other job is dealt out to it.
    """
    if not others:
        return own
    return CopyOnNodes(
        total_bytes=own.total_bytes,
        node_bytes=_largest(
            [
                own.node_bytes,
                *(each.node_bytes if each.brought else _less(each.node_bytes) for each in others),
            ]
        ),
        arriving=_largest(
            [own.arriving, *(each.arriving if each.brought else _less(each.arriving) for each in others)]
        ),
    )


def _largest(several: Sequence[Mapping[str, int]]) -> dict[str, int]:
    best: dict[str, int] = {}
    for each in several:
        for node, size in each.items():
            best[node] = max(size, best.get(node, 0))
    return best


def _less(sizes: Mapping[str, int]) -> dict[str, int]:
    return {node: size // OTHER_COPY for node, size in sizes.items()}


def node_scores(
    copies: Sequence[CopyOnNodes],
    *,
    awaited: Mapping[str, float] = _NOTHING_AWAITED,
    candidates: Container[str] | None = None,
) -> dict[str, int]:
    """Scores from 1 to 10 of the nodes that hold any byte of a pod's copies, or are to get some; others are left out.

    Args:
        copies: what the pod reads.
        awaited: how much other pods wait for a node: for each dataset on it that this pod does not read, the pods that
            wait for that dataset over the nodes that hold it.
        candidates: nodes are compared with the best of these; None is with the best of all. Nodes that are no
            candidates may be in the answer, unless they are better.

    Every node that holds data is above every node that holds none, whose score
    kube-scheduler takes as 0 when it is missing from an extender's reply. Scores are
    integers, because kube-scheduler drops a whole reply that has a fraction in it.
    """
    several = [copy.near_to(candidates) for copy in copies]
    total = sum(near.weight for near in several)
    nodes = several[0].nodes if len(several) == 1 else _together(several)
    if not awaited:
        scale = MAX_SCORE / total if total else 0.0
        return {node: math.ceil(scale * part - 1e-9) or 1 for node, part in nodes.items()}
    # At most as much is taken from a node as the best one is worth.
    left = {
        node: part / total - min(WAITING_POD * awaited.get(node, 0.0), 1.0) for node, part in nodes.items()
    }
    most = _most(left, candidates)
    # Scores go down to 1 and not to 0: a pod goes without its data for nobody.
    short = 1.0 - most - 1e-9 / MAX_SCORE
    return {
        node: max(math.ceil(MAX_SCORE * (part + short)), 1) for node, part in left.items() if part <= most
    }


def _together(several: Sequence[Near]) -> Mapping[str, float]:
    nodes: dict[str, float] = {}
    for near in several:
        for node, part in near.nodes.items():
            nodes[node] = nodes.get(node, 0.0) + part
    return nodes


def _most(left: Mapping[str, float], candidates: Container[str] | None) -> float:
    """What the best candidate is worth."""
    if not left:
        return 0.0
    best = max(left, key=left.__getitem__)
    if candidates is None or best in candidates:  # as nearly always
        return left[best]
    ranked = sorted(left, key=left.__getitem__, reverse=True)
    return next((left[node] for node in ranked if node in candidates), 0.0)


def nodes_to_take(*, candidates: Collection[str], awaited: Mapping[str, float]) -> dict[str, int]:
    """Scores for a pod that finds its data on no candidate: 1 for those for whose data the others wait least.

    None gets a score when they are all alike.
    """
    if not awaited:
        return {}
    # There may be thousands: in the usual case none of them is looked at twice.
    chosen = [node for node in candidates if node not in awaited]
    if not chosen:
        least = min((awaited[node] for node in candidates), default=0.0) + 1e-9
        chosen = [node for node in candidates if awaited[node] <= least]
    return dict.fromkeys(chosen, 1) if len(chosen) < len(candidates) else {}


def closeness(*, node: str, copies: Sequence[CopyOnNodes]) -> float:
    """Between 0 and 1: what the node is worth over what the best node is worth, weighted by dataset size."""
    weight = sum(copy.near.weight for copy in copies)
    return sum(copy.near.nodes.get(node, 0.0) for copy in copies) / weight if weight else 0.0


def locality(*, pod_nodes: Sequence[str], copies: Sequence[CopyOnNodes]) -> float | None:
    """Mean closeness of a job's pods: 1.0 when no pod could have been placed better.

    None when no pod is placed, or nothing is cached anywhere or on its way: then no node is better than another.
    """
    if not pod_nodes or not any(worth > 0 for copy in copies for worth in copy.worth.values()):
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
