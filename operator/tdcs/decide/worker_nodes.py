"""Which nodes can have a cache worker at all, and in which state the cluster is by its workers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec, CacheClusterStatus, CacheWorker, WorkerState
from tdcs.api.cachecluster_parts import Toleration
from tdcs.api.conditions import CACHE_STARTING, CACHE_UNAVAILABLE, NO_CACHE_NODE, Finding, finding
from tdcs.api.durations import seconds_since
from tdcs.decide.place.slot_nodes import matches
from tdcs.model.cache_engine import WorkerInfo
from tdcs.model.cache_view import STARTING_SECONDS, starting_text
from tdcs.model.humanize import human
from tdcs.model.pod_resources import amounts

TRANSIENT_TAINTS = "node.kubernetes.io/"
"""Taints that the cluster itself sets while a node is not ready, cordoned or short of something. A worker
stays through them: its blocks are on the node's disk, and deleting it would lose them."""


ALL_READY = "AllReady"
"""Of Ready and Progressing: all workers are there."""

WORKERS_LEAVING = "WorkersLeaving"
"""Of Progressing: all wanted workers are there, and others hand their data over."""

CACHE_SILENT = "CacheSilent"
"""Of Ready and Progressing: the cache has been silent for no longer than a restart takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseView:
    """What the DaemonSet controller says of Alluxio's FUSE clients, in a cache of the profile Stock."""

    wanted: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlluxioWorkers:
    """Alluxio's workers in the pods of agents that answer.

    Attributes:
        starting: how many are not ready.
        needed: whether pods read through them, as they do by Alluxio's FUSE clients.
    """

    starting: int
    needed: bool


def fitting_nodes(
    *, spec: CacheClusterSpec, nodes: Mapping[str, Mapping[str, Any]], present: Collection[str]
) -> list[str]:
    """The nodes that may have a worker: those that match the selector, with taints that are tolerated. Where there is
    none, workers stay on the nodes that have one: a mistyped selector empties no cache.

    Args:
        spec: what the user asked for.
        nodes: the cluster's nodes, as the API server has them, by name.
        present: nodes that have a worker now; taints that come and go do not drive it away.
    """
    fitting = matching_nodes(spec=spec, nodes=nodes, present=present)
    return fitting or [name for name in nodes if name in present]


def matching_nodes(
    *, spec: CacheClusterSpec, nodes: Mapping[str, Mapping[str, Any]], present: Collection[str]
) -> list[str]:
    """The nodes that match the selector, with taints that are tolerated."""
    return [
        name
        for name, node in nodes.items()
        if matches(node["metadata"].get("labels", {}), spec.node_selector)
        and _tolerated(node, spec.tolerations, stays=name in present)
    ]


def without_match(condition: Finding) -> Finding:
    """A condition of a cache whose workers stay although no node matches: the message says so."""
    text = (
        f"{condition.message}; no node matches spec.nodeSelector and spec.tolerations, so nodes that have a worker "
        "keep it, unless spec.replicas or spec.scaling lets it go: label a node, or change the selector"
    )
    settled = condition.type == names.PROGRESSING and condition.reason == ALL_READY
    reason = NO_CACHE_NODE if settled else condition.reason
    return replace(condition, reason=reason, message=text)


def gpus(node: Mapping[str, Any]) -> int:
    return amounts((node.get("status") or {}).get("allocatable")).get(names.GPU_RESOURCE, 0)


def _tolerated(node: Mapping[str, Any], tolerations: Sequence[Toleration], *, stays: bool) -> bool:
    for taint in node.get("spec", {}).get("taints", ()):
        if taint.get("effect") == "PreferNoSchedule":
            continue
        if stays and str(taint.get("key", "")).startswith(TRANSIENT_TAINTS):
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return False
    return True


def tolerates(toleration: Toleration, taint: Mapping[str, Any]) -> bool:
    """Whether a toleration covers a taint, by the rules of the scheduler."""
    if toleration.effect and toleration.effect != taint.get("effect"):
        return False
    if toleration.key and toleration.key != taint.get("key"):
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.get("value", "")


def users_of(*, cluster: str, datasets: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """The Datasets that are, or may be, mounted in a cache cluster, by namespace and name."""
    return sorted(
        f"{namespace}/{name}"
        for (namespace, name), dataset in datasets.items()
        if names.cache_cluster_of(dataset) == cluster and (dataset.get("status") or {}).get("mountPath")
    )


def files_of(*, cluster: str, datasets: Mapping[tuple[str, str], Mapping[str, Any]]) -> int:
    """Files of the sources of a cache cluster; one that several Datasets read counts once."""
    statuses = [
        dataset.get("status") or {}
        for dataset in datasets.values()
        if names.cache_cluster_of(dataset) == cluster
    ]
    return sum(
        {
            status["mountPath"]: int(status.get("totalFiles") or 0)
            for status in statuses
            if status.get("mountPath")
        }.values()
    )


def starting_nodes(
    *, wanted: Iterable[str], made: Mapping[str, str], known: CacheClusterStatus | None, now: str
) -> frozenset[str]:
    """The nodes whose worker was just created: an earlier worker there may still count as lost.

    Args:
        wanted: the nodes that are to have a worker.
        made: when the StatefulSet of each was made, or asked for again; without those that are not there yet.
        known: the status so far: a worker that was ready there is lost when it goes, however young; one that drained
            is asked for again just now.
    """
    states = {worker.node: worker.state for worker in (known.workers if known else ())}
    return frozenset(
        node
        for node in wanted
        if states.get(node) not in {"Ready", "Lost"}
        and (
            node not in made
            or states.get(node) == "Draining"
            or seconds_since(made[node], now=now) < STARTING_SECONDS
        )
    )


def worker_states(
    *, wanted: Sequence[str], workers: Iterable[WorkerInfo], starting: Collection[str] = ()
) -> list[CacheWorker]:
    """The state of each wanted worker by the agents. `starting`: nodes whose worker was just created."""
    worker_by_node = {worker.name: worker for worker in workers}
    states = []
    for node in wanted:
        worker = worker_by_node.get(node)
        absent_state: WorkerState = "Pending" if worker is None or node in starting else "Lost"
        state: WorkerState = "Ready" if worker is not None and worker.live else absent_state
        states.append(
            CacheWorker(
                node=node,
                state=state,
                capacity_bytes=worker.capacity_bytes if worker else 0,
                used_bytes=worker.used_bytes if worker else 0,
                target=worker.target if worker and worker.target else None,
            )
        )
    return states


def with_idle(workers: Sequence[CacheWorker], idle_since: Mapping[str, str]) -> list[CacheWorker]:
    return [
        worker.model_copy(update={"idle_since": idle_since.get(worker.node)})
        if worker.idle_since != idle_since.get(worker.node)
        else worker
        for worker in workers
    ]


def silent_workers(
    *, wanted: Sequence[str], known: CacheClusterStatus | None, restarting: bool = False
) -> list[CacheWorker]:
    """The state of each wanted worker while the cache does not answer, from the last status. `restarting`: it
    has been silent for no longer than a restart takes."""
    before = {worker.node: worker for worker in (known.workers if known else ())}
    return [
        (before[node] if restarting else before[node].model_copy(update={"state": "Pending"}))
        if node in before
        else CacheWorker(node=node, state="Pending")
        for node in wanted
    ]


def unready_pods(worker_sets: Iterable[Mapping[str, Any]]) -> int:
    """The number of worker pods that run and are not ready, as the StatefulSet controller counts them."""
    statuses = [worker_set.get("status") or {} for worker_set in worker_sets]
    return sum(
        int(status.get("replicas") or 0) > int(status.get("readyReplicas") or 0) for status in statuses
    )


def worker_pods(worker_sets: Iterable[Mapping[str, Any]]) -> int:
    """The number of worker pods, as the StatefulSet controller counts them."""
    return sum(int((worker_set.get("status") or {}).get("replicas") or 0) for worker_set in worker_sets)


def status_of(
    *,
    cluster: str,
    pods: int,
    workers: Sequence[CacheWorker],
    draining: Sequence[CacheWorker] = (),
    wanted_bytes: int = 0,
    datasets: int = 0,
) -> CacheClusterStatus:
    """The status without its conditions; workers that leave are listed, and count among the pods only."""
    live = [worker for worker in workers if worker.state == "Ready"]
    capacity = sum(worker.capacity_bytes for worker in live)
    used = sum(worker.used_bytes for worker in live)
    return CacheClusterStatus(
        replicas=pods,
        desired_replicas=len(workers),
        ready_replicas=len(live),
        selector=(f"{names.LABEL_CACHE_CLUSTER}={cluster},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"),
        capacity_bytes=capacity,
        used_bytes=used,
        used=f"{human(used)} of {human(capacity)}" if capacity else None,
        used_ratio=round(used / capacity, 4) if capacity else 0.0,
        wanted_bytes=wanted_bytes,
        datasets=datasets,
        workers=sorted([*workers, *draining], key=lambda worker: worker.node),
    )


def is_ready(status: CacheClusterStatus | None) -> bool:
    """Whether the cache was ready when its status was written."""
    conditions = status.conditions if status is not None else ()
    return any(condition.type == names.READY and condition.status == "True" for condition in conditions)


def readiness(
    *,
    workers: Sequence[CacheWorker],
    fuse: FuseView,
    namespace: str,
    failure: str = "",
    starting: bool = False,
    restarting: bool = False,
    draining: Sequence[CacheWorker] = (),
    was_ready: bool = False,
    alluxio: AlluxioWorkers | None = None,
) -> Finding:
    """The Ready condition: the cache serves.

    It begins when all workers are there for the first time. From then on it stays while the engine answers and a worker
    is left, whatever starts, leaves or is lost (see :func:`progress`), as a Deployment stays Available; and while it
    is silent for a moment, since agents serve what they hold.

    Args:
        namespace: where the cache's pods are.
        failure: why the engine could not be asked; empty when it answered.
        starting: whether it has never answered, and is not expected to yet.
        restarting: whether it has answered, and a restart takes as long as it has been silent.
        was_ready: whether the condition was true before.
        alluxio: Alluxio's own workers; None where none runs.
    """
    if failure and starting:
        return finding(names.READY, False, CACHE_STARTING, starting_text(failure))
    if failure and restarting and was_ready:
        text = f"what is cached is read, and what is new waits: the cache does not answer yet: {failure}"
        return finding(names.READY, True, CACHE_SILENT, text)
    if failure:
        return finding(names.READY, False, CACHE_UNAVAILABLE, failure)
    if not workers:
        return finding(
            names.READY,
            False,
            NO_CACHE_NODE,
            "no node matches spec.nodeSelector and spec.tolerations: label a node, or change the selector",
        )
    going_on = progress(workers=workers, fuse=fuse, namespace=namespace, draining=draining, alluxio=alluxio)
    if going_on.reason in {ALL_READY, WORKERS_LEAVING}:
        return finding(names.READY, True, ALL_READY, going_on.message)
    serves = was_ready and any(worker.state == "Ready" for worker in workers)
    return finding(names.READY, serves, going_on.reason, going_on.message)


def progress(
    *,
    workers: Sequence[CacheWorker],
    fuse: FuseView,
    namespace: str,
    draining: Sequence[CacheWorker] = (),
    alluxio: AlluxioWorkers | None = None,
) -> Finding:
    """The Progressing condition: whether workers start or leave. False with `WorkerLost` while one is missed of which
    nothing is known to come back."""
    lost = [worker.node for worker in workers if worker.state == "Lost"]
    ready = sum(worker.state == "Ready" for worker in workers)
    count = f"{ready} of {len(workers)} cache workers are registered{_leave(draining)}"
    if lost:
        text = f"{count}; lost: {', '.join(lost[:5])}. See the pods of namespace {namespace}"
        return finding(names.PROGRESSING, False, "WorkerLost", text)
    if ready < len(workers):
        return finding(names.PROGRESSING, True, "WorkersStarting", count)
    if alluxio is not None and alluxio.starting:
        with_alluxio = f"{count}; Alluxio's worker next to {alluxio.starting} of them is not ready yet"
        if alluxio.needed:
            return finding(names.PROGRESSING, True, "WorkersStarting", with_alluxio)
        count = f"{with_alluxio}, which only Alluxio's own clients need"
    if fuse.ready < fuse.wanted:
        text = f"{fuse.ready} of {fuse.wanted} FUSE clients are ready"
        return finding(names.PROGRESSING, True, "ClientsStarting", text)
    if draining:
        return finding(names.PROGRESSING, True, WORKERS_LEAVING, count)
    return finding(names.PROGRESSING, False, ALL_READY, count)


def _leave(draining: Sequence[CacheWorker]) -> str:
    if not draining:
        return ""
    named = ", ".join(
        f"{worker.node} ({human(worker.last_copy_bytes)} to move)" if worker.last_copy_bytes else worker.node
        for worker in draining[:5]
    )
    return f"; draining: {named}"
