"""What would become of a TrainingJob: its data, its turn, its nodes, what leaves the cache, how long it runs. No I/O.

Everything is asked of the functions by which the operator, its queue, the cache manager and the extender decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.cli.explain.explained_dataset import described, readable
from tdcs.cli.explain.planned_world import PlanWorld, applied, stores_of
from tdcs.cli.plan.forecast import Forecast, Speeds, forecast, measured_rate
from tdcs.cli.plan.placing import PlannedPod, place_pods
from tdcs.cli.plan.planned_cache import CacheOutlook, Leaving, cache_outlook
from tdcs.control.job.queue.copy_choice import CopyChoices
from tdcs.control.job.queue.gang_queue import GangQueue
from tdcs.control.operator.queue_preview import Preview, preview
from tdcs.decide.cache.eviction_order import Policy
from tdcs.decide.job.job_phase import data
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.workload_standing import QueueStanding
from tdcs.decide.queue.pod_admission import Admission, Reason
from tdcs.kube.queue import KeyedQueue
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NODES, PODS
from tdcs.model.pod_resources import Amounts, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnswer:
    """Whether something lets the job start now, and why; `yes` is None where that is not known."""

    yes: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The whole answer.

    Attributes:
        job: its namespace and name.
        starts_now: whether its pods would be made at once; None where that is not known.
        datasets: each of its Datasets in a line.
        data: whether its data lets it start.
        turn: whether the queue would, once its data is ready.
        pods: where its pods would be, as things are now; empty when that cannot be known.
        load_bytes: of its Datasets that would be brought into the cache for it.
        leaving: what would leave the cache for that.
        leaving_known: whether nothing else would leave for it.
        forecast: how long it would run; None when the user did not say how fast it computes.
        unknown: what cannot be said, and why.
    """

    job: str
    starts_now: bool | None
    datasets: tuple[str, ...]
    data: StartAnswer
    turn: StartAnswer
    pods: tuple[PlannedPod, ...] = ()
    load_bytes: int = 0
    leaving: tuple[Leaving, ...] = ()
    leaving_known: bool = True
    forecast: Forecast | None = None
    unknown: tuple[str, ...] = ()


_DATA_IS_READY = Admission(
    admitted=True,
    data_ready=True,
    reason=Reason.READY,
    message="it does not queue (scheduling.gang is false): its pods are made at once, and run as they find room",
)
"""What its datasets say, when it is asked whose turn it is."""

_BY_KUEUE = "Kueue decides, once it has looked at its Workload"

_SEEN_ALONE = frozenset({Reason.SUSPENDED, Reason.IN_KUEUE})
"""Answers that follow from the job alone."""


def plan(world: PlanWorld, *, speeds: Speeds | None, policies: Mapping[str, Policy]) -> JobPlan:
    """What would become of the job.

    Raises:
        InputError: what `speeds` says does not fit together.
    """
    spec = TrainingJobSpec.model_validate(world.job["spec"])
    without = stores_of(world, conditions=None)
    ready = stores_of(world, conditions=[names.DATA_READY])
    observed, lines = _observed(world, spec)
    data_answer = data(observed, now=world.now)
    turn = preview(
        stores=ready,
        settings=world.settings,
        obj=ready.training_jobs[world.namespace, world.name],
        observed=observed,
        standing=QueueStanding(exists=True, message=_BY_KUEUE),
        now=world.now,
        data=_DATA_IS_READY,
    )
    decision = turn.decision
    admitted = decision is not None and decision.admitted
    having = stores_of(world, conditions=[names.DATA_READY, names.ADMITTED] if admitted else [])
    caches = {
        cluster: cache_outlook(
            cluster=cluster,
            own_keys=own_datasets,
            without=without,
            having=having,
            free_gpus={node: amounts.get(names.GPU_RESOURCE, 0) for node, amounts in turn.free.items()},
            policies=policies,
            topology_labels=world.settings.topology_labels,
            now=world.now,
        )
        for cluster, own_datasets in _clusters(world, spec).items()
    }
    sees_all_pods = world.sees_all(NODES) and world.sees_all(PODS)
    workers = _workers(spec)
    pods = (
        _pods(world, spec, observed=observed, caches=caches, free=turn.free, workers=workers)
        if sees_all_pods
        else ()
    )
    lacks = (
        _no_forecast(world, spec, observed=observed, caches=caches, speeds=speeds)
        if speeds is not None
        else ""
    )
    outlook = None
    if speeds is not None and not lacks:
        nodes = {pod.node for pod in pods if pod.node and pod.score is not None}
        waits = any(use.readiness.percent >= 100 and use.readiness.timeout is None for use in spec.datasets)
        outlook = forecast(
            speeds=speeds,
            datasets=list(observed.datasets.values()),
            granted_bytes=sum(
                granted_data.bytes
                for cache in caches.values()
                if cache is not None
                for granted_data in cache.granted.values()
            ),
            gpus=_gpus(spec, workers=workers),
            nodes=max(len(nodes), 1),
            waits_for_data=waits,
        )
    data_ready, queued = _answer(data_answer), _turn(world, turn)
    return JobPlan(
        job=f"{world.namespace}/{world.name}",
        starts_now=_both(data_ready.yes, queued.yes),
        datasets=tuple(lines),
        data=data_ready,
        turn=queued,
        pods=pods,
        load_bytes=_load_bytes(observed.datasets, caches),
        leaving=tuple(leaving for cache in caches.values() if cache is not None for leaving in cache.leaving),
        leaving_known=world.sees_all(DATASETS) and None not in caches.values(),
        forecast=outlook,
        unknown=(
            *_unknown(world, caches=caches, sees_all_pods=sees_all_pods),
            *([f"how long it would run: {lacks}"] if lacks else ()),
        ),
    )


def _no_forecast(
    world: PlanWorld,
    spec: TrainingJobSpec,
    *,
    observed: Observed,
    caches: Mapping[str, CacheOutlook | None],
    speeds: Speeds,
) -> str:
    """What is missing to say how long it would run; empty: nothing."""
    datasets = observed.datasets
    sized = all(dataset.status and dataset.status.total_bytes for dataset in datasets.values())
    if not (sized and spec.datasets and len(datasets) == len(spec.datasets)):
        return "the size of its data is not known yet"
    if not world.sees_all(CACHE_CLUSTERS) and None in caches.values():
        return "what the cache would hold of its data is unknown"
    if speeds.remote_bytes_per_second is None and measured_rate(list(datasets.values())) is None:
        return (
            "give --remote-bytes-per-second, such as 180M, for how fast the source is: no load of "
            f"{'Dataset' if len(datasets) == 1 else 'Datasets'} {', '.join(datasets)} was measured (none has ended, "
            "none is asked for by spec.preload, or the blocks were in the cache already)"
        )
    return ""


def _observed(world: PlanWorld, spec: TrainingJobSpec) -> tuple[Observed, list[str]]:
    """What a pass over the job would look at, and each of its Datasets in words."""
    dataset_objects = {
        str(dataset["metadata"]["name"]): dataset
        for dataset in world.of(DATASETS)
        if dataset["metadata"].get("namespace") == world.namespace
    }
    own_datasets = {
        use.name: dataset_objects[use.name] for use in spec.datasets if use.name in dataset_objects
    }
    datasets, broken = readable(own_datasets)
    observed = Observed(
        spec=spec,
        status=TrainingJobStatus(),
        name=world.name,
        namespace=world.namespace,
        created=world.now,
        datasets=datasets,
        present=frozenset(own_datasets),
        deleting=frozenset(
            name for name, dataset in own_datasets.items() if dataset["metadata"].get("deletionTimestamp")
        ),
    )
    lines = [broken.get(use.name) or described(use.name, datasets.get(use.name)) for use in spec.datasets]
    return observed, lines


def _turn(world: PlanWorld, turn: Preview) -> StartAnswer:
    decision = turn.decision
    hidden = world.hidden_from_queue
    if decision is None or (hidden and decision.reason not in _SEEN_ALONE):
        text = f"you may not list {', '.join(hidden)} of the whole cluster, so its place in the queue is not known"
        return StartAnswer(yes=None, reason="Unknown", message=text)
    yes = None if decision.reason is Reason.IN_KUEUE else decision.admitted
    more = "; nodes would be asked for" if turn.asks_for_nodes and not decision.admitted else ""
    return StartAnswer(yes=yes, reason=decision.reason.value, message=f"{decision.message}{more}")


def _both(first: bool | None, second: bool | None) -> bool | None:
    """Whether both hold: no as soon as one does not, and not known when one is not."""
    if first is False or second is False:
        return False
    return None if None in (first, second) else True


def _answer(admission: Admission) -> StartAnswer:
    return StartAnswer(yes=admission.admitted, reason=admission.reason.value, message=admission.message)


def _clusters(world: PlanWorld, spec: TrainingJobSpec) -> dict[str, list[tuple[str, str]]]:
    clusters: dict[str, list[tuple[str, str]]] = {}
    names_ = {use.name for use in spec.datasets}
    for dataset in world.of(DATASETS):
        key = (str(dataset["metadata"].get("namespace")), str(dataset["metadata"]["name"]))
        if key[0] == world.namespace and key[1] in names_:
            clusters.setdefault(names.cache_cluster_of(dataset), []).append(key)
    return clusters


def _workers(spec: TrainingJobSpec) -> int:
    return spec.elastic.min_replicas if spec.is_elastic_gang and spec.elastic else spec.worker.replicas


def _gpus(spec: TrainingJobSpec, *, workers: int) -> int:
    """GPUs of the whole job; at least one a worker, for jobs that compute on processors."""
    counts = {
        role: workers if role == "Worker" else role_spec.replicas
        for role, role_spec in spec.by_role().items()
    }
    gpus = sum(
        counts[role] * pod_requests(role_spec.template["spec"]).get(names.GPU_RESOURCE, 0)
        for role, role_spec in spec.by_role().items()
    )
    return gpus or workers


def _pods(
    world: PlanWorld,
    spec: TrainingJobSpec,
    *,
    observed: Observed,
    caches: Mapping[str, CacheOutlook | None],
    free: Mapping[str, Amounts],
    workers: int,
) -> tuple[PlannedPod, ...]:
    job = applied(world, conditions=[names.DATA_READY])
    stores = stores_of(world, conditions=[names.DATA_READY])
    queue = GangQueue.by(world.settings, stores=stores, queue=KeyedQueue())
    copies = CopyChoices(stores=stores, room=queue.job_room, turns=queue.turns).of(
        job, observed, admitted=True
    )
    return place_pods(
        job=job,
        spec=spec,
        workers=workers,
        copies=copies,
        datasets=[_with_grant(dataset, caches, world) for dataset in world.of(DATASETS)],
        pods=world.of(PODS),
        nodes=world.of(NODES),
        free=free,
    )


def _with_grant(dataset: Object, caches: Mapping[str, CacheOutlook | None], world: PlanWorld) -> Object:
    """A Dataset of the job as its status will be once its grant is known: with what is on its way."""
    cache = caches.get(names.cache_cluster_of(dataset))
    metadata = dataset["metadata"]
    granted = cache.granted.get(metadata["name"]) if cache is not None else None
    if granted is None or metadata.get("namespace") != world.namespace:
        return dataset
    status = dataset.get("status") or {}
    copies_before = {copy["id"]: copy for copy in status.get("copies") or ()}
    for id_, nodes in granted.copies.items():
        held = {
            node["name"]: int(node.get("bytes") or 0)
            for node in copies_before.get(id_, {}).get("nodes") or ()
        }
        if not _lacks(held, nodes):
            continue
        copies_before[id_] = {
            "id": id_,
            "nodes": [
                {
                    "name": node,
                    "bytes": held.get(node, 0),
                    "arriving": max(nodes.get(node, 0) - held.get(node, 0), 0),
                }
                for node in sorted(held.keys() | nodes.keys())
            ],
        }
    return {**dataset, "status": {**status, "copies": list(copies_before.values())}}


def _load_bytes(datasets: Mapping[str, Dataset], caches: Mapping[str, CacheOutlook | None]) -> int:
    total = 0
    for cache in caches.values():
        for name, granted in (cache.granted if cache is not None else {}).items():
            status = datasets[name].status if name in datasets else None
            held = {
                copy.id: {node.name: node.bytes for node in copy.nodes}
                for copy in (status.copies if status is not None else ())
            }
            total += sum(_lacks(held.get(id_, {}), nodes) for id_, nodes in granted.copies.items())
    return total


def _lacks(held: Mapping[str, int], granted: Mapping[str, int]) -> int:
    """Bytes that a copy lacks. On which node it has a little more or less is not known: slots differ in size."""
    held_bytes, granted_bytes = sum(held.values()), sum(granted.values())
    return granted_bytes - held_bytes if granted_bytes - held_bytes > granted_bytes / 100 else 0


def _unknown(
    world: PlanWorld, *, caches: Mapping[str, CacheOutlook | None], sees_all_pods: bool
) -> Sequence[str]:
    unknowns = [world.operator.unknown] if world.operator.unknown else []
    if not sees_all_pods:
        unknowns.append("where its pods would be: you may not list the nodes, and the pods of all namespaces")
    if not world.sees_all(DATASETS):
        unknowns.append("what Datasets of other namespaces would lose: you may not list them")
    unknowns += [
        f"what would leave the cache: CacheCluster {cluster} shows no workers that are ready, or you may not read it"
        for cluster, cache in caches.items()
        if cache is None
    ]
    return unknowns
