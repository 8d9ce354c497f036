"""What a plan is made from: the cluster as the API server has it, with the job as if it had been applied. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.cli.explain.operator_settings import FoundSettings
from tdcs.control.context import Settings, Stores
from tdcs.control.job_index import has_ended
from tdcs.control.node_usage import Usage, trimmed
from tdcs.model.kube_objects import Object, pod_has_ended
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRELOADS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    TRAINING_JOBS,
    WORKLOADS,
    Resource,
)

READ: tuple[Resource, ...] = (
    DATASETS,
    TRAINING_JOBS,
    NODES,
    PODS,
    JOBS,
    CACHE_CLUSTERS,
    PRELOADS,
    RESOURCE_QUOTAS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    NAMESPACES,
    WORKLOADS,
)
"""What is read, the kinds without which there is no plan first."""

NEEDED = frozenset({DATASETS.plural, TRAINING_JOBS.plural})

OF_QUEUE = (NODES, PODS, TRAINING_JOBS, JOBS, NAMESPACES, RESOURCE_QUOTAS)
"""On these the queue's answer depends; on PriorityClasses where a job names one."""

PLANNED_UID = "planned"
"""The uid of the job, which has none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWorld:
    """What was read.

    Attributes:
        now: the time.
        objects: those of each kind, by plural.
        hidden: kinds that the user may not list at all, by plural.
        partly: kinds that the user may list in the job's own namespace only.
        operator: how the operator is set.
    """

    job: Object
    now: str
    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    partly: frozenset[str] = frozenset()
    operator: FoundSettings = field(default_factory=FoundSettings)

    @property
    def settings(self) -> Settings:
        """Those of the operator; unknown ones are the chart's, with Kueue where there is one."""
        return self.operator.settings or Settings(kueue=self.has_kueue)

    @property
    def hidden_from_queue(self) -> list[str]:
        """The kinds on which the queue's answer depends, and of which not all may be listed."""
        classes = [PRIORITY_CLASSES] if self._names_a_class else []
        return [kind.plural for kind in (*OF_QUEUE, *classes) if not self.sees_all(kind)]

    @property
    def _names_a_class(self) -> bool:
        jobs = (self.job, *self.of(TRAINING_JOBS))
        return any("priorityClassName" in str(job.get("spec")) and not has_ended(job) for job in jobs)

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])

    def of(self, resource: Resource) -> Sequence[Object]:
        """The objects of a kind; none of one that may not be listed."""
        return self.objects.get(resource.plural, ())

    @property
    def has_kueue(self) -> bool:
        """Whether there is a Kueue: its Workloads are served, be they listed or not."""
        return WORKLOADS.plural in self.objects or WORKLOADS.plural in self.hidden

    def sees_all(self, resource: Resource) -> bool:
        return resource.plural not in self.hidden | self.partly


def stores_of(world: PlanWorld, *, conditions: Sequence[str] | None) -> Stores:
    """The views that the operator would have.

    Args:
        world: what was read.
        conditions: those of the job that are true; None: the job is not there.
    """
    usage = Usage()
    for pod in world.of(PODS):
        key = _key(pod)
        usage.seen(key, None if pod_has_ended(pod) or not pod["spec"].get("nodeName") else trimmed(pod))
    jobs = {_key(job): job for job in world.of(TRAINING_JOBS)}
    if conditions is not None:
        jobs[world.namespace, world.name] = applied(world, conditions=conditions)
    return Stores(
        namespace=operator_namespace(world.of(CACHE_CLUSTERS)),
        cache_clusters=_by_key(world, CACHE_CLUSTERS),
        datasets=_by_key(world, DATASETS),
        preloads=_by_key(world, PRELOADS),
        training_jobs=jobs,
        nodes=_by_key(world, NODES),
        pods=_by_key(world, PODS),
        jobs=_by_key(world, JOBS),
        priority_classes=_by_key(world, PRIORITY_CLASSES),
        runtime_classes=_by_key(world, RUNTIME_CLASSES),
        resource_quotas=_by_key(world, RESOURCE_QUOTAS),
        namespaces=_by_key(world, NAMESPACES),
        usage=usage,
    )


def applied(world: PlanWorld, *, conditions: Sequence[str]) -> Object:
    """The job as the API server would have it, with these conditions true."""
    metadata = {**world.job["metadata"], "uid": PLANNED_UID, "generation": 1, "creationTimestamp": world.now}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_TRAINING_JOB,
        "metadata": metadata,
        "spec": world.job["spec"],
        "status": {
            "conditions": [
                {
                    "type": condition,
                    "status": "True",
                    "reason": "Planned",
                    "message": "",
                    "lastTransitionTime": world.now,
                }
                for condition in conditions
            ]
        },
    }


def operator_namespace(cache_clusters: Sequence[Object]) -> str:
    """Where the CacheClusters live that count: the usual namespace, or the only one that has some."""
    namespaces = sorted({str(cluster["metadata"].get("namespace", "")) for cluster in cache_clusters})
    return names.SYSTEM_NAMESPACE if names.SYSTEM_NAMESPACE in namespaces or not namespaces else namespaces[0]


def _by_key(world: PlanWorld, resource: Resource) -> dict[tuple[str, str], Object]:
    return {_key(obj): obj for obj in world.of(resource)}


def _key(obj: Object) -> tuple[str, str]:
    return str(obj["metadata"].get("namespace") or ""), str(obj["metadata"]["name"])
