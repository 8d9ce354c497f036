"""Which nodes hold a copy of a dataset, and in which mode: pure.

:func:`plan_copy` chooses the nodes and the mode from what the nodes have free, :func:`node_bytes` says how many bytes
each of them gets. Which slots these are is decided by :mod:`tdcs.model.slots`.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tdcs.decide.place.zone_order import Zones, spread, together
from tdcs.model.nearness import Place


class Mode(StrEnum):
    """How the bytes of one copy are distributed over its nodes."""

    AUTO = "Auto"
    PARTITION = "Partition"
    REPLICATE = "Replicate"


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheNode:
    """One cache node as the placement sees it.

    Attributes:
        name: the node's name in Kubernetes.
        capacity_bytes: what its cache can hold in all; the node's weight.
        free_bytes: what this dataset may still take there, its own bytes included
            (capacity less the bytes of other datasets and of any reserve).
        held_bytes: bytes of this dataset that are there already.
        free_gpus: GPUs that no pod has asked for.
        has_readers: whether the dataset is read there, and its data is to go where it is read.
        zone: its zone, named by that and what it is in; empty where that is not known.
        rack: likewise the nearest level below zones.
    """

    name: str
    capacity_bytes: int
    free_bytes: int
    held_bytes: int = 0
    free_gpus: int = 0
    has_readers: bool = False
    zone: Place = ()
    rack: Place = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeBudget:
    """A chosen node, its weight in the spreading and the bytes it may take."""

    name: str
    weight: int
    limit_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyPlan:
    """The nodes of one copy and how its bytes are distributed over them.

    Attributes:
        mode: PARTITION or REPLICATE, never AUTO.
        nodes: the chosen nodes, best first; empty when there is no candidate.
        dataset_bytes: the size that was planned for.
        fits: whether the whole dataset finds room in the mode.
    """

    mode: Mode
    nodes: tuple[NodeBudget, ...]
    dataset_bytes: int
    fits: bool


def plan_copy(
    *,
    dataset: str,
    dataset_bytes: int,
    nodes: Sequence[CacheNode],
    mode: Mode = Mode.AUTO,
    node_count: int | None = None,
    zones: Zones = Zones.AUTO,
    others: Sequence[CacheNode] = (),
) -> CopyPlan:
    """Choose the nodes of one copy of a dataset, and whether it is partitioned or replicated.

    Nodes with readers come first, where the data is to go there: without node_count the copy is on all of them,
    replicated on those that can hold all of it if there are any. Then come nodes that hold bytes of the dataset (what
    is there need not travel), then those with free GPUs (jobs can run next to the data), then those with the most free
    cache; ties are broken by a hash of dataset and node, so that datasets spread. In a cluster with several zones or
    racks these come before GPUs and free cache, see :mod:`tdcs.decide.place.zone_order`.

    Args:
        dataset: a stable name, used for breaking ties only.
        dataset_bytes: size of one whole copy.
        nodes: the candidates; nodes without any room are never chosen.
        mode: AUTO replicates when every chosen node can hold the whole dataset, else partitions.
        node_count: how many nodes; None means the fewest that can hold the copy and every one with readers, or for
            REPLICATE every candidate that can.
        zones: in which zones its nodes are.
        others: the nodes of other copies.

    Raises:
        ValueError: for a node_count below one or a negative size.
    """
    if dataset_bytes < 0:
        raise ValueError(f"dataset {dataset}: size must not be negative, got {dataset_bytes}")
    if node_count is not None and node_count < 1:
        raise ValueError(f"dataset {dataset}: nodeCount must be at least 1, got {node_count}")
    order: Iterable[CacheNode] = _in_order(dataset, nodes)
    if len({(node.zone, node.rack) for node in nodes}) > 1:
        order = _by_zones(
            list(order), size=dataset_bytes, mode=mode, count=node_count, zones=zones, others=others
        )
    if mode is Mode.REPLICATE:
        # A node too small for the whole dataset would hold a part only: take it last.
        ranked = sorted(order, key=lambda node: node.free_bytes < dataset_bytes)
        whole = sum(node.free_bytes >= dataset_bytes for node in ranked)
        chosen = ranked[: node_count or max(whole, 1)]
    elif node_count is not None:
        chosen = list(itertools.islice(order, node_count))
    else:
        ranked = list(order)
        alongside = [node for node in ranked if node.has_readers]
        whole_alongside = [node for node in alongside if node.free_bytes >= dataset_bytes]
        if mode is Mode.AUTO and whole_alongside:
            chosen = whole_alongside
        else:
            chosen = ranked[: max(_fewest_that_hold(ranked, dataset_bytes), len(alongside))]
    each_holds_all = bool(chosen) and all(node.free_bytes >= dataset_bytes for node in chosen)
    if mode is Mode.AUTO:
        mode = Mode.REPLICATE if each_holds_all else Mode.PARTITION
    room = sum(node.free_bytes for node in chosen)
    return CopyPlan(
        mode=mode,
        nodes=tuple(
            NodeBudget(name=node.name, weight=node.capacity_bytes, limit_bytes=node.free_bytes)
            for node in chosen
        ),
        dataset_bytes=dataset_bytes,
        fits=each_holds_all if mode is Mode.REPLICATE else bool(chosen) and room >= dataset_bytes,
    )


def _in_order(dataset: str, nodes: Iterable[CacheNode]) -> Iterator[CacheNode]:
    """The nodes with room, the best first. Ties are broken where they are reached: of hundreds of nodes most are
    alike, and a few are chosen."""

    def rank(node: CacheNode) -> tuple[bool, int, int, int]:
        return not node.has_readers, -node.held_bytes, -min(node.free_gpus, 1), -node.free_bytes

    with_room = sorted((node for node in nodes if node.free_bytes > 0), key=rank)
    for _, equal in itertools.groupby(with_room, key=rank):
        yield from sorted(equal, key=lambda node: _unit_hash(dataset, node.name))


def _by_zones(
    ranked: Sequence[CacheNode],
    *,
    size: int,
    mode: Mode,
    count: int | None,
    zones: Zones,
    others: Sequence[CacheNode],
) -> list[CacheNode]:
    """The nodes in the order in which they are chosen in a cluster with zones or racks."""
    near = together(ranked, size=size, others=others, policy=zones)
    if zones is Zones.TOGETHER or (zones is Zones.AUTO and mode is Mode.PARTITION):
        return near
    far = spread(ranked, size=size, others=others, policy=zones)
    if zones is Zones.SPREAD or mode is Mode.REPLICATE:
        return far
    is_replicated = count is not None and all(node.free_bytes >= size for node in far[:count])
    return far if is_replicated else near


def node_bytes(plan: CopyPlan) -> dict[str, int]:
    """Bytes of the copy that each of the plan's nodes will hold, without naming the blocks.

    All of the dataset on each node that has
    room for it when replicated, else shares by weight, where a full node's rest goes to the others.
    """
    if plan.mode is Mode.REPLICATE:
        return {node.name: min(node.limit_bytes, plan.dataset_bytes) for node in plan.nodes}
    held = dict.fromkeys((node.name for node in plan.nodes), 0)
    remaining = min(plan.dataset_bytes, sum(node.limit_bytes for node in plan.nodes))
    open_nodes = list(plan.nodes)
    while remaining > 0 and open_nodes:
        weight = sum(node.weight for node in open_nodes) or 1
        full = [node for node in open_nodes if remaining * node.weight >= node.limit_bytes * weight]
        for node in full or open_nodes:
            held[node.name] = node.limit_bytes if full else remaining * node.weight // weight
        if not full:
            # Whole bytes: the remainder of the division goes to the first nodes that have room.
            remainder = remaining - sum(held[node.name] for node in open_nodes)
            for node in open_nodes:
                more = min(remainder, node.limit_bytes - held[node.name])
                held[node.name] += more
                remainder -= more
            break
        remaining -= sum(node.limit_bytes for node in full)
        spent = {node.name for node in full}
        open_nodes = [node for node in open_nodes if node.name not in spent]
    return held


def _fewest_that_hold(ranked: Sequence[CacheNode], dataset_bytes: int) -> int:
    room = 0
    for count, node in enumerate(ranked, start=1):
        room += node.free_bytes
        if room >= dataset_bytes:
            return count
    return len(ranked)


def _unit_hash(key: str, node: str) -> float:
    """A number in (0, 1) that depends on the pair alone, the same in every process."""
    digest = hashlib.blake2b(f"{key}\0{node}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 1) / (2**64 + 2)
