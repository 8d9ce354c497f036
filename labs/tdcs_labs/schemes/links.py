"""What the links of the nodes that hold a dataset give to its readers."""

import math
from collections.abc import Mapping, Sequence

from tdcs_labs.job import SimJob


def share_on_nodes(job: SimJob, *, held: Mapping[str, float], total: float) -> float:
    """The share of a dataset's cached bytes on the job's own nodes, its GPUs as weights."""
    if total <= 0.0:
        return 0.0
    if len(job.nodes) == 1:
        # Most jobs have one pod, and this is asked for every reader whenever a dataset changes.
        return min(held.get(job.nodes[0], 0.0) / total, 1.0)
    local_bytes = sum(held.get(node, 0.0) * gpus for node, gpus in zip(job.nodes, job.pods, strict=True))
    return min(local_bytes / (total * job.gpus), 1.0)


def supply_factor(*, away: float, holders: int, nic_rate: float) -> float:
    """The part that `holders` links can send of the bytes per second asked of them; 1 when it is all."""
    supply = holders * nic_rate
    return min(supply / away, 1.0) if away > 0.0 else 1.0


def given(job: SimJob, *, hit: float, factor: float) -> float:
    """Bytes per second of cache hits that a job gets when the links are `factor` of what is asked."""
    return math.inf if factor >= 1.0 else job.compute * hit * factor


def away_rate(jobs: Sequence[SimJob], *, hits: Sequence[float], locals_: Sequence[float]) -> float:
    """Bytes per second that jobs at full speed ask of other nodes' caches."""
    return sum(job.compute * hit * (1.0 - local) for job, hit, local in zip(jobs, hits, locals_, strict=True))
