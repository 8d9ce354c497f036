"""What `spec.scaling.followJobs` calls for: nodes that it chooses, since when others are idle, and that in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tdcs.api import names
from tdcs.api.cachecluster import DEFAULT_DELAY, CacheClusterSpec, CacheWorker, Scaling
from tdcs.api.conditions import Finding, finding
from tdcs.api.durations import seconds_between
from tdcs.decide import worker_count
from tdcs.decide.leaving_workers import ScaleInInput, as_worker
from tdcs.decide.worker_count import Bounds, Following, Site
from tdcs.decide.worker_nodes import fitting_nodes, gpus
from tdcs.model.humanize import counted

_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the choice looks at next to what is where.

    Attributes:
        nodes: the cluster's nodes, as the API server has them, by name.
        present: nodes that have a worker now.
        readers: nodes on which pods run that mount data of the cache.
        idle_since: workers that nothing called for at the last look, and since when.
        needed_bytes: bytes that the cache needs for its jobs; None when that is not known yet.
        worker_bytes: what one worker may hold.
    """

    nodes: Mapping[str, Mapping[str, Any]]
    present: frozenset[str]
    readers: frozenset[str]
    idle_since: Mapping[str, str]
    needed_bytes: int | None
    worker_bytes: int
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The nodes that shall have a worker.

    Attributes:
        nodes: their names, sorted.
        idle_since: those of them that nothing calls for, and since when.
        left_out: nodes with readers that get no worker because of `maxReplicas`.
        unfit: nodes with readers that may have none.
        alongside: how many of the chosen ones have readers.
    """

    nodes: tuple[str, ...]
    idle_since: Mapping[str, str]
    left_out: tuple[str, ...]
    unfit: tuple[str, ...]
    alongside: int


def choose(*, spec: CacheClusterSpec, observed: Seen, holdings: ScaleInInput) -> Chosen:
    """The nodes that should have a worker."""
    fitting = fitting_nodes(spec=spec, nodes=observed.nodes, present=observed.present)
    workers = {
        name: as_worker(node=name, leaving=holdings.draining, holdings=holdings)
        for name in fitting
        if name in observed.present
    }
    following: Following = worker_count.follow_jobs(
        sites=[
            Site(
                node=name,
                has_worker=name in observed.present,
                draining=name in holdings.draining,
                has_readers=name in observed.readers,
                spare_since=_seconds(observed.idle_since[name]) if name in observed.idle_since else None,
                gpus=gpus(observed.nodes[name]),
                loss=worker_count.loss(workers[name]) if name in workers else 0.0,
                zone_loss=worker_count.zone_loss(workers[name]) if name in workers else 0.0,
                zone=holdings.zone(name),
            )
            for name in fitting
        ],
        bounds=_bounds(spec.scaling, observed),
        now=_seconds(observed.now),
    )
    return Chosen(
        nodes=following.nodes,
        idle_since={name: observed.idle_since.get(name, observed.now) for name in following.spare},
        left_out=following.left_out,
        unfit=tuple(sorted(name for name in observed.readers.difference(fitting) if name in observed.nodes)),
        alongside=len(observed.readers.intersection(following.nodes)),
    )


def needs_holdings(chosen: Chosen, observed: Seen) -> bool:
    """Whether a worker leaves or becomes spare, so that the location of data is needed."""
    return (
        not observed.present <= {*chosen.nodes} or not chosen.idle_since.keys() <= observed.idle_since.keys()
    )


def idle_since_of(workers: list[CacheWorker]) -> dict[str, str]:
    """The workers that nothing called for at the last look, by what the status says."""
    return {worker.node: worker.idle_since for worker in workers if worker.idle_since is not None}


def follows(chosen: Chosen, *, limits: Scaling) -> Finding:
    if chosen.unfit:
        text = (
            f"on {counted(len(chosen.unfit), 'node')} pods read data of this cache, and the node matches "
            f"neither spec.nodeSelector nor spec.tolerations: {_some(chosen.unfit)}. They get no worker, and their "
            "pods read from other nodes: widen the selector, or keep the jobs off these nodes"
        )
        return finding(names.FOLLOWS_JOBS, False, "NodesDoNotFit", text)
    if chosen.left_out:
        text = (
            f"{counted(len(chosen.left_out), 'node')} with pods that read data of this cache have no worker, because "
            f"spec.scaling.maxReplicas is {limits.max_replicas}: {_some(chosen.left_out)}. Their pods read from other "
            "nodes"
        )
        return finding(names.FOLLOWS_JOBS, False, "AtMaximum", text)
    other_count = len(chosen.nodes) - chosen.alongside - len(chosen.idle_since)
    text = f"{counted(chosen.alongside, 'worker')} next to pods that read"
    if other_count > 0:
        text += f", {other_count} for the minimum or for the size of the data"
    if chosen.idle_since:
        delay = limits.scale_down_delay or DEFAULT_DELAY
        text += f"; {len(chosen.idle_since)} spare, which leave after {delay} (spec.scaling.scaleDownDelay)"
    return finding(names.FOLLOWS_JOBS, True, "Following", text)


def off() -> Finding:
    """The condition FollowsJobs of a cache that does not any more."""
    return finding(
        names.FOLLOWS_JOBS,
        False,
        "Off",
        "spec.scaling.followJobs is off: spec.replicas says how many workers",
    )


def _bounds(limits: Scaling, observed: Seen) -> Bounds:
    return Bounds(
        minimum=limits.min_replicas or 1,
        maximum=limits.max_replicas,
        idle_seconds=limits.delay_seconds,
        needed_bytes=observed.needed_bytes,
        worker_bytes=observed.worker_bytes,
    )


def _seconds(time: str) -> float:
    return seconds_between(_EPOCH, time)


def _some(nodes: tuple[str, ...]) -> str:
    return ", ".join(nodes[:5]) + (" and others" if len(nodes) > 5 else "")
