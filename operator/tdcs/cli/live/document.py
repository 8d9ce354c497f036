"""What both views show: rows by section and key, made of the objects as they are. Functions of values, no I/O.

A row is a frozen value, so that two documents are compared row by row and only what changed is sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from tdcs.api import names
from tdcs.cli.explain.live_pods import PodRow
from tdcs.cli.explain.status_command import pods_in_words
from tdcs.cli.problems import problems
from tdcs.decide.place.dataset_copies import CopyOnNodes, merged
from tdcs.decide.queue.pod_admission import GAVE_BACK, Reason
from tdcs.kube.events import utc_now
from tdcs.model.kube_objects import Object
from tdcs_scheduler.view import copies_of

Section = Literal["clusters", "nodes", "datasets", "jobs", "problems", "limits"]

RANKS: Final[Mapping[str, int]] = {
    "Running": 0,
    "Starting": 1,
    "Restarting": 1,
    "Deleting": 1,
    "Queued": 2,
    "Waiting": 2,
    "Suspended": 3,
    "Failed": 4,
    "Succeeded": 5,
}
"""In which order jobs are shown: what runs, what waits, what has ended."""

WAITING_STATES: Final = frozenset({"Queued", "Waiting", "Suspended"})

NO_PLACE_IN_THE_QUEUE: Final = frozenset(
    {Reason.NEVER, Reason.NO_MATCH, Reason.INVALID, Reason.IN_KUEUE, *GAVE_BACK}
)
"""Reasons of jobs that the operator's queue leaves out: they can never run, pause, or wait in Kueue's."""


class _Row(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What is left out is empty, zero or false."""


class ClusterRow(_Row, frozen=True, kw_only=True):
    name: str
    ready: bool = False
    workers: int = 0
    desired: int = 0
    used: int = 0
    capacity: int = 0


class NodeRow(_Row, frozen=True, kw_only=True):
    """A node: what it holds and what runs there.

    `gpus` is None where nodes cannot be read. `worker`: state of its cache worker; empty: it has none. `held`: bytes by
    dataset, the most first; 0 for one that has the same blocks as one before it, so that the sum is what is there.
    `pods`: those that read data or belong to a job.
    """

    name: str
    ready: bool = True
    cordoned: bool = False
    gpus: int | None = None
    gpus_used: int = 0
    worker: str = ""
    used: int = 0
    capacity: int = 0
    held: tuple[tuple[str, int], ...] = ()
    pods: tuple[tuple[str, str], ...] = ()


class DatasetRow(_Row, frozen=True, kw_only=True):
    """A dataset: how much of it is there, how fast the rest comes, and who reads it."""

    namespace: str
    name: str
    state: str = "Pending"
    total: int = 0
    cached: int = 0
    wanted: int = 0
    loaded: int = 0
    rate: int = 0
    copied: int = 0
    nodes: int = 0
    active: int = 0
    waiting: int = 0
    message: str = ""


class JobRow(_Row, frozen=True, kw_only=True):
    """A TrainingJob, or whatever else owns pods that mount a Dataset's claim.

    `position`: its place among the jobs that wait, from 1; 0 when it does not. `nodes`: pods by node. `scheduler`: of
    the pods, where it is no TrainingJob. `outcome`: of a job that has ended, which of its pods succeeded.
    """

    kind: str
    namespace: str
    name: str
    state: str = "Pending"
    reason: str = ""
    message: str = ""
    ready: int = 0
    wanted: int = 0
    outcome: str = ""
    locality: str = ""
    datasets: tuple[str, ...] = ()
    nodes: tuple[tuple[str, int], ...] = ()
    position: int = 0
    priority: int = 0
    scheduler: str = ""
    created: str = ""


class ProblemRow(_Row, frozen=True, kw_only=True):
    """An object that needs a person."""

    kind: str
    namespace: str
    name: str
    message: str


class LimitRow(_Row, frozen=True, kw_only=True):
    """What of the cluster is not shown, and why."""

    what: str
    why: str


Document = Mapping[Section, Mapping[str, _Row]]
"""Rows by section and key."""


@dataclass(frozen=True, kw_only=True)
class LiveObjects:
    """The objects that could be read, nodes and pods in part only (`trimmed_node`, `PodRow`); None: they may not be.

    `limits`: by kind, why its objects cannot be read, or only those of a namespace. `now`: when this was so.
    """

    nodes: Sequence[Object] | None = None
    pods: Sequence[PodRow] | None = None
    clusters: Sequence[Object] = ()
    datasets: Sequence[Object] = ()
    preloads: Sequence[Object] = ()
    jobs: Sequence[Object] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    now: str = field(default_factory=utc_now)


def trimmed_node(node: Object) -> Object:
    """What the views need of a node: its heartbeats and images are left out."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = _condition(status, "Ready")
    return {
        "metadata": {key: metadata.get(key, "") for key in ("name", "resourceVersion")},
        "ready": ready.get("status") == "True",
        "cordoned": bool(spec.get("unschedulable")),
        "gpus": int((status.get("allocatable") or {}).get(names.GPU_RESOURCE) or 0),
    }


def document(world: LiveObjects) -> Document:
    held = _held(world.datasets)
    readers = _readers(world)
    objects = {
        "CacheCluster": world.clusters,
        "Dataset": world.datasets,
        "Preload": world.preloads,
        "TrainingJob": world.jobs,
    }
    problem_rows = [
        ProblemRow(kind=problem.kind, namespace=problem.namespace, name=problem.name, message=problem.message)
        for problem in problems(objects, now=world.now)
    ]
    return {
        "clusters": {row.name: row for row in map(_cluster, world.clusters)},
        "nodes": {row.name: row for row in _nodes(world, held, readers)},
        "datasets": {f"{row.namespace}/{row.name}": row for row in map(_dataset, world.datasets)},
        "jobs": {f"{row.kind}/{row.namespace}/{row.name}": row for row in _jobs(world, readers)},
        "problems": {f"{row.kind}/{row.namespace}/{row.name}/{row.message}": row for row in problem_rows},
        "limits": {what: LimitRow(what=what, why=why) for what, why in sorted(world.limits.items())},
    }


def changes(before: Document, after: Document) -> dict[str, dict[str, _Row | None]]:
    """The rows by section that are new or differ, and None for those that are gone; empty: nothing changed."""
    changed: dict[str, dict[str, _Row | None]] = {}
    for section, rows in after.items():
        rows_before = before.get(section, {})
        differing: dict[str, _Row | None] = {
            key: row for key, row in rows.items() if rows_before.get(key) != row
        }
        differing.update(dict.fromkeys(rows_before.keys() - rows.keys()))
        if differing:
            changed[section] = differing
    return changed


def _cluster(obj: Object) -> ClusterRow:
    status = obj.get("status") or {}
    return ClusterRow(
        name=obj["metadata"]["name"],
        ready=_is_true(status, names.READY),
        workers=status.get("readyReplicas", 0),
        desired=status.get("desiredReplicas", 0),
        used=status.get("usedBytes", 0),
        capacity=status.get("capacityBytes", 0),
    )


def _held(datasets: Sequence[Object]) -> dict[str, list[tuple[str, int]]]:
    """Bytes of each dataset by node, the most first: of whichever copy, and of a mount that several share, once."""
    held: dict[str, list[tuple[str, int, str]]] = {}
    for dataset in datasets:
        path = (dataset.get("status") or {}).get("mountPath") or _title(dataset)
        mount = f"{names.cache_cluster_of(dataset)}:{path}"
        copies: CopyOnNodes | None = _copies(dataset)
        for node, size in (copies.node_bytes if copies else {}).items():
            if size > 0:
                held.setdefault(node, []).append((_title(dataset), size, mount))
    return {node: _counted_once(sizes) for node, sizes in held.items()}


def _counted_once(held: Sequence[tuple[str, int, str]]) -> list[tuple[str, int]]:
    """Datasets with their bytes and mounts, of which the same mount's bytes are those of one Dataset only."""
    counted_mounts: set[str] = set()
    sizes = []
    for title, size, mount in sorted(held, key=lambda entry: (-entry[1], entry[0])):
        sizes.append((title, 0 if mount in counted_mounts else size))
        counted_mounts.add(mount)
    return sorted(sizes, key=lambda entry: (-entry[1], entry[0]))


def _copies(dataset: Object) -> Any:
    try:
        return merged(list(copies_of(dataset=dataset).values()))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # a status that cannot be read: its problem is shown next to it


def _readers(world: LiveObjects) -> list[PodRow]:
    dataset_titles = {_title(dataset) for dataset in world.datasets}
    return [
        pod for pod in world.pods or () if pod.job or any(claim in dataset_titles for claim in pod.claims)
    ]


def _nodes(
    world: LiveObjects, held: Mapping[str, list[tuple[str, int]]], readers: Sequence[PodRow]
) -> Iterator[NodeRow]:
    workers = {
        worker["node"]: worker
        for cluster in world.clusters
        for worker in (cluster.get("status") or {}).get("workers") or ()
    }
    taken_gpus: dict[str, int] = {}
    for pod in world.pods or ():
        if pod.node and not pod.ended:
            taken_gpus[pod.node] = taken_gpus.get(pod.node, 0) + pod.gpus
    running: dict[str, list[tuple[str, str]]] = {}
    for pod in readers:
        if pod.node and not pod.ended:
            running.setdefault(pod.node, []).append((pod.name, pod.owner_key))
    node_objects = {node["metadata"]["name"]: node for node in world.nodes or ()}
    # Without the right to list nodes, those that caches and datasets name are shown.
    for name in sorted(node_objects) if world.nodes is not None else sorted({*workers, *held, *running}):
        node, worker = node_objects.get(name), workers.get(name, {})
        yield NodeRow(
            name=name,
            ready=node is None or node["ready"],
            cordoned=node is not None and node["cordoned"],
            gpus=None if node is None else node["gpus"],
            gpus_used=taken_gpus.get(name, 0),
            worker=worker.get("state", ""),
            used=worker.get("usedBytes", 0),
            capacity=worker.get("capacityBytes", 0),
            held=tuple(held.get(name, ())),
            pods=tuple(sorted(running.get(name, ()))),
        )


def _dataset(obj: Object) -> DatasetRow:
    metadata, status = obj["metadata"], obj.get("status") or {}
    copies: CopyOnNodes | None = _copies(obj)
    return DatasetRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        state=status.get("state") or "Pending",
        total=status.get("totalBytes", 0),
        cached=status.get("cachedBytes", 0),
        wanted=status.get("wantedBytes", 0),
        loaded=status.get("loadedBytes", 0),
        rate=status.get("bytesPerSecond", 0),
        copied=status.get("copiedBytesPerSecond", 0),
        nodes=0 if copies is None else sum(size > 0 for size in copies.node_bytes.values()),
        active=status.get("activeJobs", 0),
        waiting=status.get("waitingJobs", 0),
        message=_not_ready(status),
    )


def _not_ready(status: Mapping[str, Any]) -> str:
    """Why a dataset is not simply Ready."""
    return (
        ""
        if status.get("state") == "Ready"
        else str(status.get("message") or _condition(status, names.READY).get("message", ""))
    )


def _jobs(world: LiveObjects, readers: Sequence[PodRow]) -> Iterator[JobRow]:
    by_owner: dict[str, list[PodRow]] = {}
    for pod in readers:
        by_owner.setdefault(pod.owner_key, []).append(pod)
    rows = [_training_job(job, by_owner) for job in world.jobs]
    waiting = sorted(
        (
            row
            for row in rows
            if row.state in WAITING_STATES - {"Suspended"} and row.reason not in NO_PLACE_IN_THE_QUEUE
        ),
        key=lambda row: (-row.priority, row.created, row.name, row.namespace),
    )
    places = {(row.namespace, row.name): number for number, row in enumerate(waiting, start=1)}
    for row in rows:
        yield msgspec.structs.replace(row, position=places.get((row.namespace, row.name), 0))
    for pods in by_owner.values():
        if not pods[0].job:
            yield _foreign_job(pods)


def _training_job(job: Object, pods: Mapping[str, Sequence[PodRow]]) -> JobRow:
    metadata, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    roles = status.get("replicaStatuses") or ()
    live = [pod for pod in pods.get(f"TrainingJob/{namespace}/{name}", ()) if pod.node and not pod.ended]
    nodes = [pod.node for pod in live] or [place["node"] for place in status.get("placement") or ()]
    return JobRow(
        kind="TrainingJob",
        namespace=namespace,
        name=name,
        state=_job_state(job),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        ready=sum(role.get("ready", 0) for role in roles),
        wanted=int(spec.get("workers") or 1)
        + sum(
            int(role.get("replicas") or 1)
            for role in spec.get("replicaSpecs") or ()
            if role["name"] != "Worker"
        ),
        outcome=pods_in_words(job) if status.get("state") in {"Succeeded", "Failed"} else "",
        locality=status.get("localityPercent") or "",
        datasets=tuple(f"{namespace}/{use.get('name', '')}" for use in spec.get("datasets") or ()),
        nodes=_counted(nodes),
        created=str(metadata.get("creationTimestamp", "")),
    )


def _job_state(job: Object) -> str:
    """Its state; one that is deleted and still there does not run on."""
    return (
        "Deleting"
        if job["metadata"].get("deletionTimestamp")
        else (job.get("status") or {}).get("state") or "Waiting"
    )


def _foreign_job(pods: Sequence[PodRow]) -> JobRow:
    """Pods of one owner that mount Datasets' claims."""
    first, live = pods[0], [pod for pod in pods if not pod.ended]
    placed = [pod for pod in live if pod.node]
    waits = next((pod.waits_for for pod in live if pod.waits_for), "")
    running = [pod for pod in placed if pod.running]
    ended = "Failed" if first.failed else "Succeeded"
    state = "Running" if running else "Starting" if placed else "Waiting" if live else ended
    return JobRow(
        kind=first.owner_kind,
        namespace=first.namespace,
        name=first.owner_name,
        state=state,
        message=waits,
        ready=len(running),
        wanted=len(live or pods),
        datasets=tuple(sorted({claim for pod in pods for claim in pod.claims})),
        nodes=_counted([pod.node for pod in placed]),
        scheduler=first.scheduler,
        created=min(pod.created for pod in pods),
    )


def _counted(nodes: Sequence[str]) -> tuple[tuple[str, int], ...]:
    return tuple((node, nodes.count(node)) for node in sorted(set(nodes)))


def _title(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next(
        (condition for condition in status.get("conditions") or () if condition.get("type") == kind), {}
    )


def _is_true(status: Mapping[str, Any], kind: str) -> bool:
    return _condition(status, kind).get("status") == "True"
