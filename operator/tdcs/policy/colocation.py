"""Pods and data planned together: which node a pod goes to, and which datasets that node holds.

A byte of a dataset on a node serves every pod of that dataset there. So a node's cache is worth
most when it holds the datasets with the most pods on the node, and pods of one dataset are worth
most when they stand together, as far as GPUs allow.

:func:`place_pods` places one gang at a time: the node with the best score, among equals the fullest
one, so that large free nodes stay free for large pods; or the other way round.

:func:`plan` places a batch. It is greedy by the local bytes that a placement adds, from several orders;
the best of these starts are then bettered by a search with a bound on its steps
(:mod:`tdcs.policy.local_search`). Limits: it may stop in a local optimum; the distance to the true
optimum is measured by ``bench/placement_optimum.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tdcs.policy.local_search import Placement, PodNeed, Site, improve, insert, rearrange

__all__ = ["JointPlan", "PodNeed", "Site", "place_pods", "plan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JointPlan:
    """The node of each placed pod, the cached bytes by node and dataset, and the local bytes in all."""

    nodes: Mapping[str, str]
    cached: Mapping[str, Mapping[str, float]]
    local_bytes: float


def place_pods(
    *,
    pods: Sequence[int],
    free_gpus: Mapping[str, int],
    scores: Mapping[str, int],
    data_first: bool = True,
) -> tuple[str, ...] | None:
    """The nodes of a gang's pods, in the order of `pods`; None when they do not all fit.

    Args:
        pods: GPUs of each pod.
        free_gpus: GPUs that are free, by node.
        scores: the score of each node (:func:`tdcs.policy.scoring.node_scores`); a missing one is 0.
        data_first: whether the score comes before packing. Where the job does not gain from data on its
            own node (:func:`tdcs.policy.scoring.locality_matters`) packing comes first, and the score decides
            among equally full nodes: scattered free GPUs keep large jobs waiting.
    """
    taken: dict[str, int] = {}
    chosen: dict[int, str] = {}
    for index in sorted(range(len(pods)), key=lambda index: -pods[index]):
        gpus = pods[index]
        best: tuple[int, int, str] | None = None
        for name, free in free_gpus.items():
            room = free - taken.get(name, 0) if taken else free
            if room < gpus:
                continue
            score = -scores.get(name, 0)
            rank = (score, room, name) if data_first else (room, score, name)
            if best is None or rank < best:
                best = rank
        if best is None:
            return None
        chosen[index] = best[2]
        taken[best[2]] = taken.get(best[2], 0) + gpus
    return tuple(chosen[index] for index in range(len(pods)))


def plan(
    *,
    sites: Sequence[Site],
    pods: Sequence[PodNeed],
    sizes: Mapping[str, float],
    passes: int = 8,
    effort: int = 20_000,
) -> JointPlan:
    """Place a batch of pods and the datasets they read so that as many bytes as possible are local.

    A pod for which no GPUs are left is not placed. Deterministic.

    Args:
        sites: the nodes.
        pods: the batch.
        sizes: the datasets' bytes.
        passes: how often all pods are looked at one by one, at most.
        effort: how many pods the search from the best start takes out and puts back.
    """
    found = []
    for order in _orders(pods=pods, sizes=sizes):
        for gather in (False, True):
            state = Placement(sites=sites, sizes=sizes)
            for pod in order:
                insert(state=state, pod=pod, gather=gather)
            _settle(state=state, pods=pods, passes=passes)
            found.append(state)
    # One long search of the best start gains more than several short ones.
    best = max(found, key=Placement.rank, default=Placement(sites=sites, sizes=sizes))
    if best.rank()[0] < _all_local(sites=sites, pods=pods, sizes=sizes):
        rearrange(state=best, pods=pods, effort=effort)
        _settle(state=best, pods=pods, passes=passes)
    return _result(best)


def _settle(*, state: Placement, pods: Sequence[PodNeed], passes: int) -> None:
    for _ in range(passes):
        if not improve(state=state, pods=pods):
            break


def _all_local(*, sites: Sequence[Site], pods: Sequence[PodNeed], sizes: Mapping[str, float]) -> float:
    """Local bytes if every pod had the largest cache to itself: more cannot be, so the search may end there."""
    largest = max((site.cache_bytes for site in sites), default=0.0)
    return sum(min(sizes[pod.dataset], largest) for pod in pods) * (1.0 - 1e-9)


def _result(state: Placement) -> JointPlan:
    return JointPlan(
        nodes={pod.name: node for pod, node in state.at.items()},
        cached={
            node: {name: held for _, name, held in state.filled(node=node, counts=state.counts[node])}
            for node in state.sites
        },
        local_bytes=sum(state.worth.values()),
    )


def _orders(*, pods: Sequence[PodNeed], sizes: Mapping[str, float]) -> Iterable[list[PodNeed]]:
    """The orders in which pods are inserted; each is best for some batches.

    Most bytes per GPU first, for when GPUs run out; whole datasets by their weight, for when caches
    are small; and the largest pods first, for when they would not fit any more later.
    """
    weight: dict[str, float] = {}
    for pod in pods:
        weight[pod.dataset] = weight.get(pod.dataset, 0.0) + sizes[pod.dataset]
    yield sorted(
        pods, key=lambda pod: (-sizes[pod.dataset] / pod.gpus, -weight[pod.dataset], pod.dataset, pod.name)
    )
    yield sorted(pods, key=lambda pod: (-weight[pod.dataset], pod.dataset, -pod.gpus, pod.name))
    yield sorted(pods, key=lambda pod: (-pod.gpus, -sizes[pod.dataset], pod.dataset, pod.name))
