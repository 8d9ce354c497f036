"""What every controller needs, in one value: API access, live views, caches, clock."""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import click

from tdcs.api import names
from tdcs.control.cache_registry import Caches
from tdcs.control.job_index import indexed
from tdcs.control.node_usage import PodAddresses, Usage
from tdcs.control.release_certificates import Certificates
from tdcs.decide.queue.node_requests import NodeProvisioning
from tdcs.decide.queue.share_owners import checked_weight
from tdcs.decide.source_loss import CONFIRM_SECONDS
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import Applier
from tdcs.kube.events import EventRecorder, utc_now
from tdcs.kube.queue import KeyedQueue
from tdcs.kube.scope import Scope
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, Resource
from tdcs.model.nearness import TOPOLOGY_LABELS
from tdcs.options import Parsed, option

Place = tuple[str, str]
"""Cache cluster and engine path."""


class DatasetPaths:
    """The Datasets of each mount, deleted ones too, as their statuses name it: an index over the live view, brought up
    to date where it is asked. A pass over one Dataset would else look through all of them.
    """

    def __init__(self) -> None:
        self._places: dict[Key, tuple[Object, Place | None]] = {}
        self._users: dict[Place, dict[Key, None]] = {}
        self._last: list[Object] = []

    def users(self, datasets: Mapping[Key, Object], *, cluster: str, path: str) -> tuple[Key, ...]:
        self._refresh(datasets)
        return tuple(self._users.get((cluster, path), ()))

    def places(self, datasets: Mapping[Key, Object]) -> Iterable[Place]:
        """The mounts that some Dataset names; they can be asked for membership."""
        self._refresh(datasets)
        return self._users.keys()

    def _refresh(self, datasets: Mapping[Key, Object]) -> None:
        # Nothing has changed, most of the time: identity is compared first, at a fraction of what a look at each costs.
        objects = list(datasets.values())
        if objects == self._last:
            return
        self._last = objects
        places = self._places
        for key, obj in datasets.items():
            previous = places.get(key)
            if previous is not None and previous[0] is obj:
                continue
            path = (obj.get("status") or {}).get("mountPath")
            place = (names.cache_cluster_of(obj), str(path)) if path else None
            if previous is None or previous[1] != place:
                self._move(key, None if previous is None else previous[1], place)
            places[key] = (obj, place)
        if len(places) != len(datasets):
            for key in places.keys() - datasets.keys():
                self._move(key, places.pop(key)[1], None)

    def _move(self, key: Key, before: Place | None, after: Place | None) -> None:
        if before is not None:
            users = self._users[before]
            users.pop(key)
            if not users:
                del self._users[before]
        if after is not None:
            self._users.setdefault(after, {})[key] = None


def addresses_of(host: str) -> list[str]:
    """All addresses of a host. Blocks; raises OSError when it has none.

    The name is absolute: by the search list of the operator's pod `minio.team-b` would be a Service of the cluster.
    """
    addresses = socket.getaddrinfo(f"{host.removesuffix('.')}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in addresses))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an administrator or a test sets; each `option` is one of `tdcs operator`.

    Attributes:
        poll_seconds: how often a cache cluster's workers are asked for. The master misses a dead one after 12 s at
            most, and the status is to be true 15 s after a change.
        progress_seconds: how often a load's progress is written to the status.
        survey_seconds: how soon what has failed at a cache is tried again, and how often its mounts are looked through.
        listing_seconds: after so long a listing counts as stuck, and lets others go on.
        loss_confirm_seconds: how long a source that has lost much must be so before that is believed.
        keys_check_seconds: how often each Dataset's source is asked whether it still takes the Dataset's keys.
        learning_seconds: a new operator assigns nothing before it knows all mounts, or for so long at most.
        absence_seconds: how long an agent may be away before what it holds stops to count as readable. A process that
            restarts at once is back sooner, and no status changes for it.
        outage_seconds: how long a cache, or Alluxio's master, may be silent, as in a restart, before conditions say so.
        handover_seconds: how long what moved to another node stays where it was, in pauses between two tables of
            holders: readers that have not heard of the move would read the source.
        give_up_seconds: how long a Preload goes on when all is there but files that cannot be had.
        resync_seconds: how often every object is looked at, whatever happened.
        api_server_addresses: at which pods reach the API server: of the Service `kubernetes`, whatever else is known.
        clone_idle_seconds: how long a further copy of a dataset stays after the last job that needed it.
        gang_patience_seconds: how long the pods of a gang may take to find their places before it gives them back.
    """

    namespace: str = option(
        "Namespace of the CacheClusters and of their pods.",
        default=names.SYSTEM_NAMESPACE,
        env="TDCS_NAMESPACE",
    )
    scope: Literal["cluster", "namespaces"] = option(
        "Where it works: in every namespace, or in its own and those of the next two options.",
        default="cluster",
    )
    dataset_namespaces: tuple[str, ...] = option(
        "With --scope namespaces: a namespace with Datasets and Preloads; may be repeated.", default=()
    )
    job_namespaces: tuple[str, ...] = option(
        "With --scope namespaces: a namespace with TrainingJobs; may be repeated.", default=()
    )
    image: str = option(
        "Image of the cache's pods where a CacheCluster names none.",
        default=names.DEFAULT_IMAGE,
        env="TDCS_ALLUXIO_IMAGE",
    )
    agent_image: str = option(
        "Image of the cache agents in the workers' pods: the operator's own.",
        default=names.DEFAULT_AGENT_IMAGE,
        env="TDCS_AGENT_IMAGE",
    )
    image_pull_secrets: tuple[str, ...] = option(
        "Secret in that namespace with which the cache's pods pull their image; may be repeated.", default=()
    )
    scheduler_name: str = option(
        "Who places the pods of jobs that name no scheduler; empty: the cluster's default scheduler.",
        default=names.SCHEDULER_NAME,
        env="TDCS_SCHEDULER_NAME",
        empty=True,
    )
    secrets_role: str = option(
        "ClusterRole that allows to read Secrets; messages name it to users who have to bind it.",
        default=names.SECRETS_ROLE,
    )
    service_account: str = option(
        "The operator's own service account; messages name it to users who have to bind a role to it.",
        default=names.OPERATOR_ACCOUNT,
    )
    internal_networks: tuple[str, ...] = option(
        "Network of the cluster, such as 10.96.0.0/12, next to those that nodes and ServiceCIDRs name: Datasets may "
        "use a store there only by a rule that names it. May be given several times.",
        default=(),
    )
    # A worker that restarts is back sooner, with what it held; and so are all of them after a restart of the cache.
    return_seconds: float = option(
        "How long a cache worker may be away, as during a restart, before what it held is loaded on another node.",
        default=60.0,
        type=click.FloatRange(min=1),
        flag="--worker-return-seconds",
        chart="operator.workerReturnSeconds",
    )
    keys_check_seconds: float = 600.0
    loss_confirm_seconds: float = CONFIRM_SECONDS
    revoked_seconds: float = option(
        "How long a Dataset that is mounted may have no keys that its source takes, before its volume goes, which "
        f"pods that run keep. Sources are asked as often, and every {keys_check_seconds:.0f} s at least.",
        default=3600.0,
        type=click.FloatRange(min=10),
        flag="--revoked-keys-seconds",
        chart="operator.revokedKeysSeconds",
    )
    network_probe: bool = option(
        "Have a pod that no NetworkPolicy admits try to reach each cache, once an hour.", default=False
    )
    probe_targets: tuple[str, ...] = option(
        "HOST:PORT that this pod tries, too; may be repeated.", default=()
    )
    topology_labels: tuple[str, ...] = option(
        "Label of nodes that says where they are, the nearest level first, such as that of racks before that of zones; "
        "may be repeated, and empty: none. Of several agents that have what a reader or an agent lacks the nearest is "
        "asked, a copy is kept in one zone where it fits, and further ones are in others.",
        default=TOPOLOGY_LABELS,
        flag="--topology-label",
    )
    kueue: bool = option(
        f"Answer the AdmissionChecks of Kueue with the controller {names.KUEUE_CONTROLLER}.", default=False
    )
    queue_order: Literal["FairShare", "Priority"] = option(
        "In which order TrainingJobs wait: FairShare has namespaces take turns by the shares of the cluster that they "
        "have, Priority goes by priority and age alone.",
        default="FairShare",
        chart="operator.queueOrder",
    )
    fair_share_label: str = option(
        "Label of namespaces: those with one value of it have one share together, and take turns as one. A namespace "
        "without it has its own. Default: each namespace has its own.",
        default="",
        chart="operator.fairShare.label",
    )
    fair_share_weights: tuple[str, ...] = option(
        "Weight of a share, as NAME=WEIGHT: the value of the label, or a namespace where there is no label; may be "
        "repeated. 2 has twice the share of 1, which is the default, and 0 comes after all others.",
        default=(),
        type=Parsed("name=weight", checked_weight),
        flag="--fair-share-weight",
        chart="operator.fairShare.weights",
    )
    queue_aging_seconds: int = option(
        "Seconds of waiting after which a TrainingJob counts as one of the next higher priority that waits, at most "
        "twice; 0: never.",
        default=86400,
        type=click.IntRange(min=0),
        chart="operator.queueAgingSeconds",
    )
    preemption: bool = option(
        "Let a TrainingJob whose PriorityClass has the preemptionPolicy PreemptLowerPriority take the place of running "
        "ones of lower priority: these are suspended, and queue again.",
        default=False,
        chart="operator.preemption",
    )
    node_provisioning: NodeProvisioning = option(
        "How a gang asks for nodes that are not there: by a ProvisioningRequest, which the cluster autoscaler answers, "
        "or by releasing all its pods at once, by which Karpenter and others see what is missing.",
        default="Off",
        chart="operator.nodeProvisioning",
    )
    node_wait_seconds: int = option(
        "So long a gang waits for nodes that it asked for; then it gives back what it has, and asks again after a "
        "pause.",
        default=900,
        type=click.IntRange(min=30),
        chart="operator.nodeWaitSeconds",
    )
    provisioning_class_name: str = option(
        "The class of its ProvisioningRequests.",
        default="best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        chart="operator.provisioningClassName",
    )
    poll_seconds: float = 2.0
    progress_seconds: float = 2.0
    survey_seconds: float = 30.0
    listing_seconds: float = 120.0
    learning_seconds: float = 20.0
    absence_seconds: float = 3.0
    outage_seconds: float = 180.0
    handover_seconds: float = 4.0
    give_up_seconds: float = 30.0
    resync_seconds: float = 600.0
    api_server_addresses: tuple[str, ...] = ()
    clone_idle_seconds: float = 600.0
    gang_patience_seconds: float = 45.0

    @property
    def served(self) -> Scope:
        named = self.scope == "namespaces"
        return Scope(
            own=self.namespace,
            datasets=frozenset(self.dataset_namespaces) if named else None,
            jobs=frozenset(self.job_namespaces) if named else None,
        )


@dataclass(frozen=True, slots=True)
class WorkKey:
    """One custom resource, as a key of the work queue. The namespace is empty in cluster scope."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource.kind} {where}"


Store = Mapping[Key, Object]
"""Objects by (namespace, name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Live views of the cluster; read only."""

    namespace: str = names.SYSTEM_NAMESPACE
    cache_clusters: Store = field(default_factory=dict)
    datasets: Store = field(default_factory=dict)
    preloads: Store = field(default_factory=dict)
    training_jobs: Store = field(default_factory=dict)
    nodes: Store = field(default_factory=dict)
    pods: Store = field(default_factory=dict)
    jobs: Store = field(default_factory=dict)
    stateful_sets: Store = field(default_factory=dict)
    daemon_sets: Store = field(default_factory=dict)
    priority_classes: Store = field(default_factory=dict)
    runtime_classes: Store = field(default_factory=dict)
    resource_quotas: Store = field(default_factory=dict)
    namespaces: Store = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    pod_addresses: PodAddresses = field(default_factory=PodAddresses)
    paths: DatasetPaths = field(default_factory=DatasetPaths)

    def live_jobs(self) -> Mapping[Key, Object]:
        """The TrainingJobs that have not ended."""
        return indexed(self.training_jobs).live

    def jobs_reading(self, dataset: Key) -> Mapping[Key, Object]:
        """Those of them that name a Dataset."""
        return indexed(self.training_jobs).reading(dataset)

    def is_going(self, namespace: str) -> bool:
        """Whether a namespace is being deleted: nothing new can be made in it."""
        obj = self.namespaces.get(("", namespace))
        return obj is not None and bool(obj["metadata"].get("deletionTimestamp"))

    def cache_cluster(self, name: str) -> Object | None:
        """The CacheCluster of this name in the operator's namespace; None when there is none."""
        return self.cache_clusters.get((self.namespace, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    api: KubeApi
    applier: Applier
    recorder: EventRecorder
    caches: Caches
    stores: Stores
    queue: KeyedQueue[WorkKey]
    settings: Settings = field(default_factory=Settings)
    now: Callable[[], str] = utc_now
    resolve: Callable[[str], Sequence[str]] = addresses_of
    """The addresses of a host; raises OSError when it has none. Called in a thread."""
    certificates: Certificates | None = None
    """Of the release; None: connections are plain, and every caller is believed."""

    async def read(self, key: WorkKey) -> Object | None:
        """The object of a key as the API server has it; None: it is gone."""
        return await self.api.get(key.resource, name=key.name, namespace=key.namespace)

    def cache_cluster_key(self, name: str) -> WorkKey:
        """A CacheCluster that counts, as a key of the work queue."""
        return WorkKey(CACHE_CLUSTERS, self.settings.namespace, name)
