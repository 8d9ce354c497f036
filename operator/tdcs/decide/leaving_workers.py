"""Who leaves on scale-in, and what goes with each worker; which nodes stay or get one; who may not be evicted."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Any, Protocol

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.durations import past, seconds_between, to_seconds
from tdcs.decide import worker_count
from tdcs.decide.cache.removal_cost import MountLedger
from tdcs.decide.node_departure import departure
from tdcs.decide.worker_nodes import fitting_nodes, gpus
from tdcs.model.humanize import counted, human
from tdcs.model.kube_objects import pod_has_ended
from tdcs.model.nearness import Place

Store = Mapping[tuple[str, str], Mapping[str, Any]]
"""Objects by namespace and name."""


class MountReader(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleInInput:
    """What the choice of who leaves looks at.

    Attributes:
        busy: nodes on which pods of TrainingJobs run.
        mounts: what of every mount is where.
        complete: whether every mounted Dataset is among them; until then no worker is taken to be drained.
        overdue: whether that has lasted so long that who leaves is chosen all the same.
        readers: how many unfinished TrainingJobs read a mount, by its path.
        zones: of nodes, where they are known.
    """

    draining: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    mounts: Sequence[MountLedger[MountReader]] = ()
    complete: bool = True
    overdue: bool = False
    readers: Mapping[str, int] = field(default_factory=dict)
    zones: Mapping[str, Place] = field(default_factory=dict)

    def zone(self, node: str) -> Place:
        """The zone of a node; empty where it is not known."""
        return self.zones.get(node, ())


def choose_nodes(
    *,
    spec: CacheClusterSpec,
    nodes: Mapping[str, Mapping[str, Any]],
    present: Iterable[str],
    holdings: ScaleInInput | None = None,
) -> list[str]:
    """The names of the nodes that should have a worker.

    With fewer replicas than nodes, those that have a worker stay, and of too many of them those go that cost least
    to lose (`worker_count.leaves_first`); a worker that leaves already stays again before a node gets a new one. New
    ones go to the nodes with the most GPUs, since jobs will run next to the data, and of equal ones to the zones
    with the fewest workers.

    Args:
        spec: what the user asked for.
        nodes: the cluster's nodes, as the API server has them, by name.
        present: nodes that have a worker now. They come first, so that a change of `replicas`, or a new node,
            never moves a cache.
    """
    scale_in = holdings or ScaleInInput()
    present_nodes = set(present)
    fitting = fitting_nodes(spec=spec, nodes=nodes, present=present_nodes)
    old = [name for name in fitting if name in present_nodes]
    new = [name for name in fitting if name not in present_nodes]
    leaving = leavers(nodes=old, count=len(old) - spec.replicas, holdings=scale_in)
    stay = [name for name in old if name not in leaving]

    def sites(names: Iterable[str]) -> list[worker_count.Site]:
        return [
            worker_count.Site(node=name, gpus=gpus(nodes[name]), zone=scale_in.zone(name)) for name in names
        ]

    added = worker_count.in_turn(sites(new), taken=sites(stay))
    return sorted([*stay, *(site.node for site in islice(added, max(spec.replicas - len(old), 0)))])


def leavers(*, nodes: Collection[str], count: int, holdings: ScaleInInput) -> set[str]:
    """The workers that leave: first those that already drain, then repeatedly the one that costs least to lose."""
    leaving: set[str] = set()
    begun = holdings.draining.intersection(nodes)
    while len(leaving) < count:
        is_counted = holdings.complete or holdings.overdue
        pool = (begun - leaving) or (set(nodes) - leaving if is_counted else set[str]())
        workers = Counter(holdings.zone(node) for node in nodes if node not in leaving)
        candidates = [
            replace(
                as_worker(node=node, leaving=frozenset(leaving), holdings=holdings),
                zone_workers=workers[holdings.zone(node)],
            )
            for node in sorted(pool)
        ]
        first = worker_count.leaves_first(candidates)
        if first is None:
            break
        leaving.add(first.node)
    return leaving


def as_worker(*, node: str, leaving: frozenset[str], holdings: ScaleInInput) -> worker_count.Worker:
    """The policy's view of a worker, assuming that the workers of `leaving` are gone too."""
    zone = holdings.zone(node)
    elsewhere = frozenset(name for name, other_zone in holdings.zones.items() if other_zone != zone)
    return worker_count.Worker(
        node=node,
        held=tuple(
            worker_count.Held(
                dataset=mount.path,
                held_bytes=mount.bytes_on(node),
                last_copy_bytes=mount.last_copies(node=node, draining=leaving),
                last_in_zone_bytes=mount.last_copies(node=node, draining=leaving | elsewhere)
                if elsewhere
                else 0,
                worth=float(holdings.readers.get(mount.path, 0)),
            )
            for mount in holdings.mounts
        ),
        runs_jobs=node in holdings.busy,
    )


def forecast(*, node: str, draining: frozenset[str], holdings: ScaleInInput, why: str = "") -> str:
    """What will become of what is on a worker that leaves, in words. Which nodes take it is for the grants that are
    made without the worker, and what they have no room for is known when it goes (`farewell`).

    Args:
        why: what its node has to do with it; empty: nothing.
    """
    alone = remaining(node=node, draining=draining, mounts=holdings.mounts)
    leaves = f"the worker of node {node} leaves{f', because {why}' if why else ''}"
    if not alone:
        return f"{leaves}; no data is there alone"
    return (
        f"{leaves}: {human(alone)} of cached data are on no staying worker, and move to "
        "staying ones as far as these have room"
    )


def remaining(*, node: str, draining: frozenset[str], mounts: Iterable[MountLedger[MountReader]]) -> int:
    """Bytes on a worker that leaves and on no staying one."""
    return sum(mount.last_copies(node=node, draining=draining) for mount in mounts)


def is_drained(
    *, node: str, draining: frozenset[str], staying: frozenset[str], holdings: ScaleInInput
) -> bool:
    """Whether nothing more will be moved away from a worker that leaves.

    What finds no room is given up only when every staying worker was there to take it: one that is being restarted
    has room in a moment.
    """
    return holdings.complete and all(
        draining <= mount.draining
        and not mount.moving
        and (
            mount.last_copies(node=node, draining=draining) == 0 or (not mount.busy and staying <= mount.live)
        )
        for mount in holdings.mounts
    )


def goes_without_drain(
    *, is_ending: bool, has_node: bool, dead_for: float | None, return_seconds: float
) -> bool | None:
    """Whether a worker that is not wanted any more goes now, of one that can hand nothing over; None: it drains first.

    Args:
        is_ending: whether it is on its way already.
        has_node: whether its node exists.
        dead_for: seconds for which no worker has answered on its node; None when one does.
        return_seconds: so long one may be away that restarts, and is back with what it holds.
    """
    if is_ending or not has_node:
        return True
    return None if dead_for is None else dead_for >= return_seconds


class DrainStep(Enum):
    """What comes next for a worker that is to hand over what it holds."""

    BEGIN = "It begins to drain."
    WAIT = "It drains."
    FINISH = "It goes: nothing more will be moved away from it."
    TIME_OUT = "It goes with what it holds, since its time is over."


def drain_step(
    *, began: str, timeout: str, drained_for: float | None, handover_seconds: float, now: str
) -> DrainStep:
    """Whether a worker that can hand over what it holds goes on draining.

    Args:
        began: when it began to drain; empty when it has not. A time to come was written by a wrong clock, and does not
            count: what would be late is dropped.
        timeout: `spec.scaling.drainTimeout`.
        drained_for: seconds for which nothing has been left to move away; None when something is.
        handover_seconds: so long readers may ask it for what is elsewhere by now.
    """
    has_begun = began != "" and past(began, now=now) == began
    if (seconds_between(began, now) if has_begun else 0.0) >= to_seconds(timeout):
        return DrainStep.TIME_OUT
    if drained_for is not None and drained_for >= handover_seconds:
        return DrainStep.FINISH
    return DrainStep.WAIT if has_begun else DrainStep.BEGIN


def farewell(*, node: str, lost: int, readers: int, timeout: str = "") -> str:
    """What became of the data of a worker that goes, in words; with the time limit when that ended it."""
    if not lost:
        return f"the worker of node {node} goes: all that lay there alone has been moved"
    why = f"spec.scaling.drainTimeout ({timeout}) is over" if timeout else "no other node had room for them"
    return (
        f"the worker of node {node} goes with {human(lost)} that are nowhere else, of {counted(readers, 'dataset')}: "
        f"{why}. They will be read from the source again"
    )


def protected_nodes(
    *,
    holders: Collection[str],
    before: Collection[str],
    complete: bool,
    answering: Collection[str],
    nodes: Mapping[str, Mapping[str, Any]],
) -> frozenset[str]:
    """The nodes whose workers' pods nobody may evict.

    Args:
        holders: nodes with data that is on no staying one.
        before: the nodes that were protected so far. One of which nothing is known now stays protected.
        complete: whether `holders` is about every mounted Dataset.
        answering: nodes whose workers answer.
        nodes: the cluster's nodes by name. A cordoned one that gets no notice of its end is most often restarted, with
            its disk; nothing moves away from it, and a drain of it would never end.
    """
    unknown = set(before) if not complete else set(before).difference(answering)
    return frozenset(
        name
        for name in unknown.union(holders)
        if name in nodes
        and (not (nodes[name].get("spec") or {}).get("unschedulable") or departure(nodes[name]) is not None)
    )


def busy_nodes(*, pods: Store) -> frozenset[str]:
    return frozenset(
        str(pod["spec"]["nodeName"])
        for pod in pods.values()
        if pod["spec"].get("nodeName") and not pod_has_ended(pod)
    )


def readers_of(*, mounts: Iterable[MountLedger[MountReader]], jobs: Store) -> dict[str, int]:
    using: dict[tuple[str, str], int] = {}
    for (namespace, _), job in jobs.items():
        conditions = (job.get("status") or {}).get("conditions") or ()
        if any(
            condition["type"] in {names.SUCCEEDED, names.FAILED} and condition["status"] == "True"
            for condition in conditions
        ):
            continue
        for use in job.get("spec", {}).get("datasets") or ():
            key = (namespace, str(use.get("name")))
            using[key] = using.get(key, 0) + 1
    return {
        mount.path: sum(using.get((key.namespace, key.name), 0) for key in mount.readers) for mount in mounts
    }
