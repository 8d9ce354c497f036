"""Better places for the pods of a batch, one improvement after another.

The search behind :func:`tdcs.policy.colocation.plan`. Its moves are, from small to large:

- move one pod, exchange two, give an unplaced pod the place of one that adds less, or make way for it
  (:func:`improve`: passes over all pods until none helps);
- take out a whole neighbourhood, the pods of one dataset or those of two or three nodes, and put
  its pods back in another order (:func:`rearrange`: "ruin and recreate", Schrimpf and others,
  Journal of Computational Physics 2000); only a better whole is kept.

Neighbourhoods are drawn from a fixed seed, so the same batch gets the same plan.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

#: Part of the nodes that pods which are put back overlook ("blinks", Christiaens and Vanden Berghe, 2020).
OVERLOOKED = (0.0, 0.1, 0.3)
#: Part of the local bytes that a rearrangement may lose at first; it falls to nothing.
WORSE_AT_FIRST = 0.003


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


class Placement:
    """Pods on nodes, and the worth of each node's cache for the pods on it."""

    def __init__(self, *, sites: Sequence[Site], sizes: Mapping[str, float]) -> None:
        self.sites = {site.name: site for site in sites}
        self.sizes = sizes
        self.free = {site.name: site.gpus for site in sites}
        self.counts: dict[str, dict[str, int]] = {site.name: {} for site in sites}
        self.worth = dict.fromkeys(self.sites, 0.0)
        self.at: dict[PodNeed, str] = {}
        # A search asks for the same values again and again; those of a node hold until its pods change.
        self._values: dict[str, dict[tuple[str | None, str | None], float]] = {
            name: {} for name in self.sites
        }

    def value(self, *, node: str, minus: str | None = None, plus: str | None = None) -> float:
        """Local bytes of the node's pods, with one pod of a dataset less and one of another more."""
        known = self._values[node].get((minus, plus))
        if known is not None:
            return known
        counts = self.counts[node]
        if minus is not None or plus is not None:
            counts = dict(counts)
            if minus is not None:
                counts[minus] -= 1
            if plus is not None:
                counts[plus] = counts.get(plus, 0) + 1
        value = sum(count * held for count, _, held in self.filled(node=node, counts=counts))
        self._values[node][minus, plus] = value
        return value

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
        """Place a pod."""
        self.at[pod] = node
        self.free[node] -= pod.gpus
        self.counts[node][pod.dataset] = self.counts[node].get(pod.dataset, 0) + 1
        self._renew(node)

    def take(self, *, pod: PodNeed) -> str:
        """Take a pod off its node, and say which that was."""
        node = self.at.pop(pod)
        self.free[node] += pod.gpus
        self.counts[node][pod.dataset] -= 1
        self._renew(node)
        return node

    def _renew(self, node: str) -> None:
        self._values[node] = {}
        self.worth[node] = self.value(node=node)

    def rank(self) -> tuple[float, int]:
        """The larger the better: local bytes, then pods placed."""
        return (sum(self.worth.values()), len(self.at))

    def least_gain(self, dataset: str) -> float:
        """What counts as more bytes, so that rounding never looks like progress."""
        return 1e-6 * self.sizes[dataset] + 1e-9


class Draws:
    """Pseudo-random numbers that depend on the seed alone (SplitMix64, Steele and others, OOPSLA 2014)."""

    def __init__(self, *, seed: int) -> None:
        self._state = seed

    def below(self, count: int) -> int:
        """A whole number from 0 up to, but without, `count`."""
        self._state = (self._state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (self._state ^ (self._state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        return ((mixed ^ (mixed >> 31)) * count) >> 64

    def happens(self, chance: float) -> bool:
        """True in this part of all draws."""
        return self.below(1 << 30) < chance * (1 << 30)

    def one_of(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed


def insert(
    *, state: Placement, pod: PodNeed, gather: bool = False, skipped: Callable[[], bool] | None = None
) -> bool:
    """Put a pod where it adds most; among equals on the fullest node, or to gather on the emptiest.

    `skipped` says for each node whether it is overlooked this time.
    """
    best: tuple[float, int, str] | None = None
    for node, free in state.free.items():
        if free < pod.gpus or (skipped is not None and skipped()):
            continue
        gain = state.value(node=node, plus=pod.dataset) - state.worth[node]
        rank = (-gain, -free if gather else free, node)
        if best is None or rank < best:
            best = rank
    if best is None:
        return False
    state.put(pod=pod, node=best[2])
    return True


def improve(*, state: Placement, pods: Sequence[PodNeed]) -> bool:
    """One pass over all pods: move it, or exchange it with another, where that adds local bytes."""
    better = False
    for pod in pods:
        if pod not in state.at:
            better |= insert(state=state, pod=pod) or _replace(state=state, pod=pod)
            if pod not in state.at:
                better |= _make_way(state=state, pod=pod)
            continue
        better |= _move(state=state, pod=pod) or _swap(state=state, pod=pod, pods=pods)
    return better


def rearrange(*, state: Placement, pods: Sequence[PodNeed], effort: int) -> None:
    """Take neighbourhoods out and put them back in other orders, until `effort` pods were put back.

    At first a whole that is a little worse is kept too, so that the search leaves local optima; it ends
    with the best whole it has seen.
    """
    draw = Draws(seed=len(pods))
    nodes, datasets = sorted(state.sites), sorted({pod.dataset for pod in pods})
    best, best_at = state.rank(), dict(state.at)
    spent = 0 if pods and nodes else effort
    while spent < effort:
        loose = _neighbourhood(state=state, pods=pods, nodes=nodes, datasets=datasets, draw=draw)
        overlooked = draw.one_of(OVERLOOKED)
        _recreate(
            state=state,
            loose=loose,
            gather=draw.happens(0.5),
            slack=WORSE_AT_FIRST * (1.0 - spent / effort),
            skipped=functools.partial(draw.happens, overlooked) if overlooked else None,
        )
        # A neighbourhood may be empty; the look at it is an effort too.
        spent += len(loose) + 1
        if (now := state.rank()) > best:
            best, best_at = now, dict(state.at)
    for pod in list(state.at):
        if best_at.get(pod) != state.at[pod]:
            state.take(pod=pod)
    for pod, node in best_at.items():
        if pod not in state.at:
            state.put(pod=pod, node=node)


def _neighbourhood(
    *,
    state: Placement,
    pods: Sequence[PodNeed],
    nodes: Sequence[str],
    datasets: Sequence[str],
    draw: Draws,
) -> list[PodNeed]:
    """Pods of a few nodes, of a dataset or two, or of both, in one of several orders."""
    near: set[str] = set()
    chosen: set[str] = set()
    kind = draw.below(3)
    if kind != 0:
        near = set(draw.shuffled(nodes)[: 1 + draw.below(5)])
    if kind != 1:
        chosen = set(draw.shuffled(datasets)[: 1 + draw.below(2)])
    loose = draw.shuffled(
        [pod for pod in pods if state.at.get(pod) in near or pod.dataset in chosen or pod not in state.at]
    )
    match draw.below(4):
        case 0:
            loose.sort(key=lambda pod: (-pod.gpus, pod.dataset))
        case 1:
            loose.sort(key=lambda pod: (-state.sizes[pod.dataset], pod.dataset, -pod.gpus))
        case 2:
            first = {name: place for place, name in enumerate(draw.shuffled(datasets))}
            loose.sort(key=lambda pod: first[pod.dataset])
        case _:
            pass
    return loose


def _recreate(
    *,
    state: Placement,
    loose: Sequence[PodNeed],
    gather: bool = False,
    slack: float = 0.0,
    skipped: Callable[[], bool] | None = None,
) -> None:
    """Put pods that were taken out back in this order; as it was when that is worse by more than the slack."""
    before = state.rank()
    was = {pod: state.take(pod=pod) for pod in loose if pod in state.at}
    for pod in loose:
        insert(state=state, pod=pod, gather=gather, skipped=skipped)
    now = state.rank()
    least = before[0] * (1.0 - slack)
    if now[0] > least + 1e-9 * max(before[0], 1.0) or (now[0] >= least and now[1] > before[1]):
        return
    for pod in loose:
        if pod in state.at:
            state.take(pod=pod)
    for pod, node in was.items():
        state.put(pod=pod, node=node)


def _move(*, state: Placement, pod: PodNeed) -> bool:
    here = state.at[pod]
    lost = state.worth[here] - state.value(node=here, minus=pod.dataset)
    best, target = state.least_gain(pod.dataset), None
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


def _swap(*, state: Placement, pod: PodNeed, pods: Sequence[PodNeed]) -> bool:
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
        if gain > state.least_gain(pod.dataset):
            state.take(pod=pod)
            state.take(pod=other)
            state.put(pod=pod, node=there)
            state.put(pod=other, node=here)
            return True
    return False


def _replace(*, state: Placement, pod: PodNeed) -> bool:
    """Give an unplaced pod the place of one that adds less."""
    for other, node in list(state.at.items()):
        if state.free[node] + other.gpus < pod.gpus:
            continue
        gain = state.value(node=node, minus=other.dataset, plus=pod.dataset) - state.worth[node]
        if gain > state.least_gain(pod.dataset):
            state.take(pod=other)
            state.put(pod=pod, node=node)
            return True
    return False


def _make_way(*, state: Placement, pod: PodNeed) -> bool:
    """Place a pod that fits nowhere by moving those that lose least off one node, if that adds bytes."""
    for node, site in state.sites.items():
        if site.gpus < pod.gpus:
            continue
        there = sorted(
            (other for other, at in state.at.items() if at == node and other.gpus < pod.gpus),
            key=lambda other: (state.sizes[other.dataset] / other.gpus, other.name),
        )
        room = state.free[node]
        moved: list[PodNeed] = []
        for other in there:
            if room >= pod.gpus:
                break
            room += other.gpus
            moved.append(other)
        if room < pod.gpus:
            continue
        _recreate(
            state=state,
            loose=[pod, *sorted(moved, key=lambda other: (-other.gpus, other.name))],
        )
        if pod in state.at:
            return True
    return False
