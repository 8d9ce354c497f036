"""What the queue reads from the live views: what is free on nodes, and the pods that jobs have or still need."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role
from tdcs.control.context import Stores
from tdcs.control.job.queue.job_facts import EPOCH
from tdcs.control.job.queue.pod_demand import PodDemand
from tdcs.control.job_index import indexed
from tdcs.control.node_usage import GoneBy, job_pod_of, owner_of
from tdcs.decide.place.gang_fit import PodGroup
from tdcs.decide.place.node_eligibility import may_run, signature, why_nowhere
from tdcs.decide.queue.namespace_quota import QuotaCharge, charges_of
from tdcs.decide.queue.queue_nodes import EmptyNodes
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import Amounts, amounts


def copy_of(stores: Stores) -> Stores:
    """What a pass over the queue looks at, as it is now: it stays so while a thread looks. Objects are never changed,
    only replaced, so that their containers are copied, and no object."""
    return replace(
        stores,
        cache_clusters=dict(stores.cache_clusters),
        datasets=dict(stores.datasets),
        training_jobs=indexed(stores.training_jobs).copy(),
        nodes=dict(stores.nodes),
        pods=dict(stores.pods),
        jobs=dict(stores.jobs),
        priority_classes=dict(stores.priority_classes),
        runtime_classes=dict(stores.runtime_classes),
        resource_quotas=dict(stores.resource_quotas),
        namespaces=dict(stores.namespaces),
        usage=stores.usage.copy(),
    )


PodCounts = Mapping[str, Mapping[str, int]]
"""How many pods of each role (in lower case), by the uid of the TrainingJob."""


class NodeRoom:
    """The nodes: which pods may run there, and what they have left.

    Attributes:
        empty: which jobs would fit, were they all empty.
    """

    def __init__(self, *, stores: Stores) -> None:
        self._stores = stores
        self.clear()

    def clear(self) -> None:
        """The nodes have changed. A pass that goes on in a thread still looks at those that it began with."""
        self._eligible: dict[str, frozenset[str]] = {}
        self._nowhere: dict[str, str] = {}
        self._capacity: dict[str, Amounts] = {}
        self.empty = EmptyNodes()

    def at(self, stores: Stores) -> "NodeRoom":
        """The same of a copy of the views, for a thread: what it works out is known here, too."""
        node_room = NodeRoom(stores=stores)
        node_room._eligible, node_room._nowhere, node_room._capacity = (
            self._eligible,
            self._nowhere,
            self._capacity,
        )
        node_room.empty = self.empty
        return node_room

    def eligible(self, pod: Mapping[str, object], *, sign: str = "") -> frozenset[str]:
        """The nodes with labels and taints that let pods of this spec run there; `sign`: its signature, if known."""
        sign = sign or signature(pod)
        if sign not in self._eligible:
            self._eligible[sign] = frozenset(
                name for (_, name), node in self._stores.nodes.items() if may_run(pod, node)
            )
        return self._eligible[sign]

    def why_nowhere(self, pod: Mapping[str, object]) -> str:
        """Why no node's labels and taints let pods of this spec run there."""
        sign = signature(pod)
        if sign not in self._nowhere:
            self._nowhere[sign] = why_nowhere(pod, list(self._stores.nodes.values()))
        return self._nowhere[sign]

    def capacity(self) -> dict[str, Amounts]:
        if not self._capacity:
            self._capacity.update(
                {
                    name: amounts((node.get("status") or {}).get("allocatable"))
                    for (_, name), node in self._stores.nodes.items()
                }
            )
        return self._capacity

    def free(self, nodes: Collection[str] | None = None) -> dict[str, Amounts]:
        """What each of these nodes has left next to the pods that are on it; left out: of all nodes."""
        return self._without(nodes, self._stores.usage.taken)

    def lasting(self) -> dict[str, Amounts]:
        """What each node has next to the pods that belong to no TrainingJob."""
        return self._without(None, self._stores.usage.foreign)

    def _without(
        self, nodes: Collection[str] | None, taken_of: Callable[[str], Mapping[str, int]]
    ) -> dict[str, Amounts]:
        sizes = self.capacity()
        free: dict[str, Amounts] = {}
        for name in sizes if nodes is None else nodes:
            if name in sizes:
                size, less = sizes[name], taken_of(name)
                free[name] = (
                    {resource: value - less.get(resource, 0) for resource, value in size.items()}
                    if less
                    else size
                )
        return free


Whose = TypeVar("Whose")


def owners(stores: Stores) -> dict[str, str]:
    """The uid of the TrainingJob by the uid of its Indexed Job."""
    return {
        uid: owner
        for job in stores.jobs.values()
        if (uid := job["metadata"].get("uid")) and (owner := owner_of(job))
    }


def taken_by_jobs(stores: Stores, job_owners: Mapping[str, str]) -> dict[str, dict[str, dict[str, int]]]:
    """What the pods of each TrainingJob take, by its uid and by node: those that are not being deleted. A pod counts
    for the job that made its Job, whatever its labels say."""
    pods = ((job_owners.get(owner, ""), node, takes) for owner, node, takes in stores.usage.of_jobs())
    return _by_node((uid, node, takes) for uid, node, takes in pods if uid)


def taken_by_deleted(stores: Stores) -> dict[GoneBy, dict[str, dict[str, int]]]:
    """What pods take that are being deleted, by when they are gone at the latest, and by node."""
    return _by_node(stores.usage.deleted())


def _by_node(pods: Iterable[tuple[Whose, str, Amounts]]) -> dict[Whose, dict[str, dict[str, int]]]:
    amounts_of: dict[Whose, dict[str, dict[str, int]]] = {}
    for owner, node, takes in pods:
        amounts_ = amounts_of.setdefault(owner, {}).setdefault(node, {})
        for resource, value in takes.items():
            amounts_[resource] = amounts_.get(resource, 0) + value
    return amounts_of


def started_at(stores: Stores, job_owners: Mapping[str, str]) -> dict[str, float]:
    """When the Jobs of each TrainingJob were last started, in seconds since 1970."""
    started: dict[str, float] = {}
    for job in stores.jobs.values():
        start, uid = (job.get("status") or {}).get("startTime"), job["metadata"].get("uid", "")
        if start and uid in job_owners:
            started[job_owners[uid]] = max(started.get(job_owners[uid], 0.0), seconds_between(EPOCH, start))
    return started


def placed_pods(stores: Stores, job_owners: Mapping[str, str]) -> PodCounts:
    """How many pods of each job have a node, or need none any more.

    Which pod has a node is read where the use of the nodes is counted, so that a pod is either reserved for or counted,
    at every moment.
    """
    succeeded = (
        job_pod_of(pod)
        for pod in stores.pods.values()
        if (pod.get("status") or {}).get("phase") == "Succeeded"
    )
    indexes: dict[str, dict[str, set[str]]] = {}
    for job_pod in (*stores.usage.job_pods(), *succeeded):
        if job_pod is not None and (job := job_owners.get(job_pod.owner)) is not None:
            indexes.setdefault(job, {}).setdefault(job_pod.role, set()).add(job_pod.index)
    return _counted(indexes)


def existing_pods(stores: Stores, job_owners: Mapping[str, str]) -> PodCounts:
    """How many pods of each job exist, which quotas count already, or need not exist any more."""
    indexes: dict[str, dict[str, set[str]]] = {}
    for pod in stores.pods.values() if stores.resource_quotas else ():
        job_pod = job_pod_of(pod)
        if job_pod is None or (pod.get("status") or {}).get("phase") == "Failed":
            continue
        if (job := job_owners.get(job_pod.owner)) is not None:
            indexes.setdefault(job, {}).setdefault(job_pod.role, set()).add(job_pod.index)
    return _counted(indexes)


def _counted(indexes: Mapping[str, Mapping[str, set[str]]]) -> PodCounts:
    return {
        job: {role: len(indexes_of_role) for role, indexes_of_role in roles.items()}
        for job, roles in indexes.items()
    }


def quotas_by_namespace(stores: Stores) -> dict[str, list[tuple[str, Object]]]:
    """The ResourceQuotas of each namespace that has some, with their names."""
    quotas: dict[str, list[tuple[str, Object]]] = {}
    for (namespace, name), quota in stores.resource_quotas.items():
        quotas.setdefault(namespace, []).append((name, quota))
    return quotas


def pod_groups(
    demand: PodDemand, *, replicas: Mapping[Role, int], room: NodeRoom, present: Mapping[str, int]
) -> list[PodGroup]:
    """The pods of a job next to those that are present.

    Args:
        demand: what its pods need.
        replicas: how many pods each role is to have.
        room: the nodes.
        present: how many pods of each role (in lower case) are there already.
    """
    groups = []
    for role, role_spec in demand.roles.items():
        missing = replicas.get(role, 0) - present.get(role.lower(), 0)
        if missing > 0:
            pod = role_spec.template["spec"]
            nodes = room.eligible(pod, sign=demand.signatures[role])
            nowhere = "" if nodes else room.why_nowhere(pod)
            groups.append(
                PodGroup(count=missing, request=demand.requests[role], nodes=nodes, nowhere=nowhere)
            )
    return groups


def quota_charges(
    quotas: Sequence[tuple[str, Object]],
    demand: PodDemand,
    *,
    replicas: Mapping[Role, int],
    present: Mapping[str, int],
) -> tuple[QuotaCharge, ...]:
    """What the pods of a job that do not exist yet take of its namespace's quotas."""
    if not quotas:
        return ()
    pods = [
        (
            max(replicas.get(role, 0) - present.get(role.lower(), 0), 0),
            role_spec.template["spec"],
            demand.charges[role],
        )
        for role, role_spec in demand.roles.items()
    ]
    return charges_of(quotas=quotas, pods=pods, priority_class=demand.priority_class)
