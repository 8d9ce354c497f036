"""How well a node suits a pod, by the bytes of the pod's datasets that are on it or are on their way there.

One definition serves the scheduler extender (:func:`combined_scores`), the node affinity of jobs that another scheduler
places (:func:`node_scores`), and the status of a job (:func:`locality`, :func:`local_share`).

For a dataset, a node is as good as its bytes over the most bytes that any node holds, where bytes
that are only being loaded onto it count half: a job that starts cold goes where its data goes;
several datasets are averaged, weighted by their sizes, because the larger one saves the
larger read.

kube-scheduler places one pod after another. So that a pod does not take what only a later one could have used, a node
counts less for it the more pods wait for other data there, and a pod that finds its own data nowhere leaves such nodes
alone (:func:`nodes_to_take`). Nodes that a pod leaves to larger ones come behind all others
(:func:`without_left_nodes`).
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tdcs.decide.place.dataset_copies import CopyOnNodes

FloatArray = NDArray[np.float64]

_NOTHING_AWAITED: Final[Mapping[str, float]] = MappingProxyType({})

#: Largest score of a kube-scheduler extender (`MaxExtenderPriority`).
MAX_SCORE = 10


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True, eq=False)
class CombinedData:
    """What nodes are worth for all copies of a pod together.

    Attributes:
        nodes: those that are worth something, each once.
        worth: of each of them, above 0 and up to 1: 1 is the worth of a node that is the best one for every copy.
    """

    nodes: tuple[str, ...]
    worth: FloatArray


#: The penalty for a node that holds other data for which pods wait, one for each node that holds it: this part
#: of the most bytes that the pod could get. Chosen by simulation: with less, more pods miss their data; with more, the
#: others lose more bytes than those gain.
WAITING_POD = 0.5


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
    data = combined(copies, places=[copy.place_of_best(candidates) for copy in copies])
    demand = np.fromiter((awaited.get(node, 0.0) for node in data.nodes), float) if awaited else None
    return combined_scores(data, awaited=demand, candidates=candidates)


def combined(copies: Iterable[CopyOnNodes], *, places: Iterable[int | None]) -> CombinedData:
    """What the nodes are worth for all of these copies, of each from the place of its best candidate on."""
    several = [copy.near_from(place) for copy, place in zip(copies, places, strict=True)]
    total = sum(near.weight for near in several)
    nodes: dict[str, float] = {}
    for near in several:
        for node, part in near.nodes.items():
            nodes[node] = nodes.get(node, 0.0) + part
    return CombinedData(nodes=tuple(nodes), worth=np.fromiter(nodes.values(), float) / max(total, 1))


def combined_scores(
    data: CombinedData, *, awaited: FloatArray | None = None, candidates: Container[str] | None = None
) -> dict[str, int]:
    """The scores of :func:`node_scores`. `awaited` goes along with the nodes of `data`; None: nothing is awaited."""
    if not data.nodes:
        return {}
    if awaited is None:
        return dict(zip(data.nodes, _whole(data.worth), strict=True))
    # At most as much is taken from a node as the best one is worth.
    remaining_worth = data.worth - np.minimum(WAITING_POD * awaited, 1.0)
    best = _best_candidate(data.nodes, remaining_worth, candidates)
    most = 0.0 if best is None else remaining_worth[best]
    scores = dict(zip(data.nodes, _whole(remaining_worth + (1.0 - most)), strict=True))
    if best is None or most < remaining_worth.max():
        scores = {
            node: scores[node] for node, part in zip(data.nodes, remaining_worth, strict=True) if part <= most
        }
    return scores


def _whole(worth: FloatArray) -> list[int]:
    """Scores of nodes that are worth so much, where 1 gets the largest.

    They go down to 1 and not to 0: a pod goes without its data for no other pod.
    """
    scores: list[int] = np.maximum(np.ceil(MAX_SCORE * worth - 1e-9), 1.0).astype(np.int64).tolist()
    return scores


def _best_candidate(
    nodes: Sequence[str], remaining_worth: FloatArray, candidates: Container[str] | None
) -> int | None:
    """The number of the node that is worth most of those that can be chosen; None when none can."""
    best = int(remaining_worth.argmax())
    if candidates is None or nodes[best] in candidates:  # as nearly always
        return best
    return next((int(number) for number in np.argsort(-remaining_worth) if nodes[number] in candidates), None)


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


def without_left_nodes(
    scores: Mapping[str, int], *, leave: Container[str], candidates: Collection[str]
) -> dict[str, int]:
    """Scores with which a pod keeps off the nodes that it leaves to larger pods, while it has another candidate.

    Those get none. Of the others each gets at least 1, so that it comes before them, and one with data at least 2. When
    the pod has no other candidate, the scores stay as they are: then it takes the best empty node.

    Args:
        scores: those of :func:`node_scores` or :func:`nodes_to_take`.
        leave: the nodes (:class:`tdcs.decide.queue.kept_nodes.NodesLeft`).
        candidates: the nodes that have room for the pod.
    """
    other_candidates = [node for node in candidates if node not in leave]
    if not other_candidates or len(other_candidates) == len(candidates):
        return dict(scores)
    return {node: max(scores[node], 2) if node in scores else 1 for node in other_candidates}


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
    """Mean share of the datasets' bytes that are on the pods' own nodes, between 0 and 1.

    1.0 when every pod has all its data on its node, about 1/n for a copy partitioned
    over n nodes. None when no pod is placed or the datasets are empty.
    """
    total = sum(copy.total_bytes for copy in copies)
    if not pod_nodes or total <= 0:
        return None
    local = sum(copy.node_bytes.get(node, 0) for node in pod_nodes for copy in copies)
    return min(local / (total * len(pod_nodes)), 1.0)


def bytes_on_node(*, node: str, copies: Sequence[CopyOnNodes]) -> int:
    return sum(copy.node_bytes.get(node, 0) for copy in copies)
