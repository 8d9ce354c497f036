"""Pods and data planned together: which node a pod goes to, and which datasets that node holds.

A byte of a dataset on a node serves every pod of that dataset there. So a node's cache is worth
most when it holds the datasets with the most pods on the node, and pods of one dataset are worth
most when they stand together, as far as GPUs allow.

:func:`place_pods` places one gang at a time: the node with the best score, among equals the fullest
one, so that large free nodes stay free for large pods; or the other way round.

:func:`plan` places a batch. It is greedy by the local bytes that a placement adds, from several orders,
then moves, swaps and makes way while that adds more (a local search with a bound on its passes), and
takes the best. Limits: it may stop in a local optimum; the distance to the true optimum is measured
by ``bench/placement_optimum.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A node: free GPUs and bytes that its cache can give to the batch's datasets."""

    name: str
    gpus: int
    cache_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PodNeed:
    """A pod: its GPUs, and the dataset that it reads."""

    name: str
    gpus: int
    dataset: str


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
    *, sites: Sequence[Site], pods: Sequence[PodNeed], sizes: Mapping[str, float], passes: int = 8
) -> JointPlan:
    """Place a batch of pods and the datasets they read so that as many bytes as possible are local.

    A pod for which no GPUs are left is not placed. Deterministic. `sizes` are the datasets' bytes.
    """
    best: _State | None = None
    for order in _orders(pods=pods, sizes=sizes):
        for gather in (False, True):
            state = _State(sites=sites, sizes=sizes)
            for pod in order:
                _insert(state=state, pod=pod, gather=gather)
            for _ in range(passes):
                if not _improve(state=state, pods=pods):
                    break
            if best is None or state.rank() > best.rank():
                best = state
    return best.result() if best is not None else _State(sites=sites, sizes=sizes).result()


class _State:
    """Pods on nodes, and the worth of each node's cache for the pods on it."""

    def __init__(self, *, sites: Sequence[Site], sizes: Mapping[str, float]) -> None:
        self.sites = {site.name: site for site in sites}
        self.sizes = sizes
        self.free = {site.name: site.gpus for site in sites}
        self.counts: dict[str, dict[str, int]] = {site.name: {} for site in sites}
        self.worth = dict.fromkeys(self.sites, 0.0)
        self.at: dict[PodNeed, str] = {}

    def value(self, *, node: str, minus: str | None = None, plus: str | None = None) -> float:
        """Local bytes of the node's pods, with one pod of a dataset less and one of another more."""
        counts = self.counts[node]
        if minus is not None or plus is not None:
            counts = dict(counts)
            if minus is not None:
                counts[minus] -= 1
            if plus is not None:
                counts[plus] = counts.get(plus, 0) + 1
        return sum(count * held for count, _, held in self.filled(node=node, counts=counts))

    def filled(self, *, node: str, counts: Mapping[str, int]) -> Iterable[tuple[int, str, float]]:
        """What the node's cache should hold: datasets by their number of pods here, then by name."""
        left = self.sites[node].cache_bytes
        for count, dataset in sorted(
            ((count, name) for name, count in counts.items() if count), reverse=True
        ):
            held = min(self.sizes[dataset], left)
            left -= held
            yield count, dataset, held

    def put(self, *, pod: PodNeed, node: str) -> None:
        self.at[pod] = node
        self.free[node] -= pod.gpus
        self.counts[node][pod.dataset] = self.counts[node].get(pod.dataset, 0) + 1
        self.worth[node] = self.value(node=node)

    def take(self, *, pod: PodNeed) -> str:
        node = self.at.pop(pod)
        self.free[node] += pod.gpus
        self.counts[node][pod.dataset] -= 1
        self.worth[node] = self.value(node=node)
        return node

    def rank(self) -> tuple[float, int]:
        """The larger the better: local bytes, then pods placed."""
        return (sum(self.worth.values()), len(self.at))

    def copy(self) -> "_State":
        """The same placement, to try something on."""
        other = _State(sites=tuple(self.sites.values()), sizes=self.sizes)
        other.become(self)
        return other

    def become(self, other: "_State") -> None:
        """Take over another placement of the same batch."""
        self.free = dict(other.free)
        self.counts = {node: dict(counts) for node, counts in other.counts.items()}
        self.worth = dict(other.worth)
        self.at = dict(other.at)

    def result(self) -> JointPlan:
        return JointPlan(
            nodes={pod.name: node for pod, node in self.at.items()},
            cached={
                node: {name: held for _, name, held in self.filled(node=node, counts=self.counts[node])}
                for node in self.sites
            },
            local_bytes=sum(self.worth.values()),
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


def _insert(*, state: _State, pod: PodNeed, gather: bool = False) -> bool:
    """Put a pod where it adds most; among equals on the fullest node, or to gather on the emptiest."""
    best: tuple[float, int, str] | None = None
    for node, free in state.free.items():
        if free < pod.gpus:
            continue
        gain = state.value(node=node, plus=pod.dataset) - state.worth[node]
        rank = (-gain, -free if gather else free, node)
        if best is None or rank < best:
            best = rank
    if best is None:
        return False
    state.put(pod=pod, node=best[2])
    return True


def _improve(*, state: _State, pods: Sequence[PodNeed]) -> bool:
    """One pass over all pods: move it, or exchange it with another, where that adds local bytes."""
    better = False
    for pod in pods:
        if pod not in state.at:
            better |= (
                _insert(state=state, pod=pod)
                or _replace(state=state, pod=pod)
                or _make_way(state=state, pod=pod)
            )
            continue
        better |= _move(state=state, pod=pod) or _swap(state=state, pod=pod, pods=pods)
    return better


def _move(*, state: _State, pod: PodNeed) -> bool:
    here = state.at[pod]
    lost = state.worth[here] - state.value(node=here, minus=pod.dataset)
    best, target = 1e-6 * state.sizes[pod.dataset] + 1e-9, None
    for node, free in state.free.items():
        if node == here or free < pod.gpus:
            continue
        gain = state.value(node=node, plus=pod.dataset) - state.worth[node] - lost
        if gain > best:
            best, target = gain, node
    if target is None:
        return False
    state.take(pod=pod)
    state.put(pod=pod, node=target)
    return True


def _swap(*, state: _State, pod: PodNeed, pods: Sequence[PodNeed]) -> bool:
    here = state.at[pod]
    for other in pods:
        there = state.at.get(other)
        if there is None or there == here or (other.dataset == pod.dataset and other.gpus == pod.gpus):
            continue
        if state.free[here] + pod.gpus < other.gpus or state.free[there] + other.gpus < pod.gpus:
            continue
        gain = (
            state.value(node=here, minus=pod.dataset, plus=other.dataset)
            + state.value(node=there, minus=other.dataset, plus=pod.dataset)
            - state.worth[here]
            - state.worth[there]
        )
        if gain > 1e-6 * state.sizes[pod.dataset] + 1e-9:
            state.take(pod=pod)
            state.take(pod=other)
            state.put(pod=pod, node=there)
            state.put(pod=other, node=here)
            return True
    return False


def _replace(*, state: _State, pod: PodNeed) -> bool:
    """Give an unplaced pod the place of one that adds less."""
    for other, node in list(state.at.items()):
        if state.free[node] + other.gpus < pod.gpus:
            continue
        gain = state.value(node=node, minus=other.dataset, plus=pod.dataset) - state.worth[node]
        if gain > 1e-6 * state.sizes[pod.dataset] + 1e-9:
            state.take(pod=other)
            state.put(pod=pod, node=node)
            return True
    return False


def _make_way(*, state: _State, pod: PodNeed) -> bool:
    """Place a pod that fits nowhere by moving those that lose least off one node, if that adds bytes."""
    before = state.rank()
    for node, site in state.sites.items():
        if site.gpus < pod.gpus:
            continue
        there = sorted(
            (other for other, at in state.at.items() if at == node and other.gpus < pod.gpus),
            key=lambda other: (state.sizes[other.dataset] / other.gpus, other.name),
        )
        if state.free[node] + sum(other.gpus for other in there) < pod.gpus:
            continue
        trial, moved = state.copy(), []
        for other in there:
            if trial.free[node] >= pod.gpus:
                break
            trial.take(pod=other)
            moved.append(other)
        trial.put(pod=pod, node=node)
        for other in sorted(moved, key=lambda other: (-other.gpus, other.name)):
            _insert(state=trial, pod=other)
        if trial.rank() > before:
            state.become(trial)
            return True
    return False
