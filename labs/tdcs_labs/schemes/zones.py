"""What crosses zones: of the reads of jobs, and while copies are brought. Where nodes have labels readers and agents
take from the nearest one that has a block (`node/reader/serving/holder_order.py`, `decide/place/near_peers.py`)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tdcs.model.nearness import Place
from tdcs_labs.job import SimJob
from tdcs_labs.schemes.ledger import Cached

Zones = Mapping[str, Place]


def share_across(job: SimJob, *, copies: Sequence[Cached], zones: Zones, near: bool) -> float:
    """The share of the cached bytes that a job reads from other zones, its GPUs as weights.

    Args:
        copies: those that are there; the bytes of each are on its nodes independently of the others.
        near: whether the nearest copy is read, else each in turn.
    """
    if not copies:
        return 0.0
    weights = Counter[Place]()
    for node, gpus in zip(job.nodes, job.pods, strict=True):
        weights[zones[node]] += gpus
    share = 0.0
    for zone, gpus in weights.items():
        outside = [1.0 - share_in(copy, zone, zones=zones) for copy in copies]
        share += gpus / job.gpus * (math.prod(outside) if near else sum(outside) / len(outside))
    return share


def share_in(copy: Cached, zone: Place, *, zones: Zones) -> float:
    """The share of a copy that is in a zone."""
    held, total = copy.held
    sizes = [size for node, size in held.items() if zones[node] == zone]
    most = max(sizes, default=0.0) if copy.replicated else sum(sizes)
    return min(most / total, 1.0) if total > 0.0 else 0.0


def crossings_of_replicas(nodes: Sequence[str], *, zones: Zones, near: bool) -> float:
    """How often a byte crosses zones until all nodes of a replicated copy have it, of which one reads the source: once
    for each further zone, or as often as two of the nodes are in different zones."""
    counts = Counter(zones[node] for node in nodes)
    if near or len(nodes) < 2:
        return max(len(counts) - 1, 0)
    same_zone = sum(count * (count - 1) for count in counts.values()) / (len(nodes) * (len(nodes) - 1))
    return (len(nodes) - 1) * (1.0 - same_zone)


def crossings_of_clone(clone: Cached, first: Cached, *, zones: Zones) -> float:
    """How often a byte crosses zones on its way from the first copy to a further one."""
    weights = Counter[Place]()
    for node, size in clone.nodes.items():
        weights[zones[node]] += int(size)
    total = sum(weights.values())
    crossed = sum(size * (1.0 - share_in(first, zone, zones=zones)) for zone, size in weights.items())
    return crossed / total if total else 0.0
