"""What every controller needs, in one value: API access, live views, caches, clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.control.cache_registry import Caches
from tdcs.control.clock import utc_now
from tdcs.control.dataset_paths import DatasetPaths
from tdcs.control.node_usage import Usage
from tdcs.control.pod_addresses import PodAddresses
from tdcs.control.release_certificates import Certificates
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import Applier
from tdcs.kube.events import EventRecorder
from tdcs.kube.queue import KeyedQueue
from tdcs.kube.resolver import addresses_of
from tdcs.kube.scope import Scope
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an administrator or a test sets.

    Attributes:
        namespace: where CacheClusters and their pods live; those of other namespaces are refused.
        dataset_namespaces: where Datasets and Preloads are served; None: everywhere.
        job_namespaces: where TrainingJobs are served; None: everywhere.
        image: image of the cache's pods when a CacheCluster names none.
        agent_image: image of the cache agents in the workers' pods: the operator's own.
        image_pull_secrets: Secrets in `namespace` with which the cache's pods pull their image.
        scheduler_name: who places the pods of jobs that name no scheduler; empty: the cluster's default.
        secrets_role: ClusterRole that lets its holder read a namespace's Secrets, named in remedies.
        service_account: the operator's own, named in remedies.
        poll_seconds: how often a cache cluster's workers are asked for. The master misses a dead one after 12 s at
            most, and the status is to be true 15 s after a change.
        progress_seconds: how often a load's progress is written to the status.
        survey_seconds: how soon what has failed at a cache is tried again, and how often its mounts are looked through.
        listing_seconds: after so long a listing counts as stuck, and lets others go on.
        revoked_seconds: after so long a Dataset with keys that its source refuses is taken off what is cached.
        keys_check_seconds: how often each Dataset's source is asked whether it still takes the Dataset's keys.
        return_seconds: how long a worker that holds data may be away before its data is planned elsewhere. One that
            restarts is back sooner, with what it held; and so are all of them after a restart of the master.
        learning_seconds: a new operator assigns nothing before it knows all mounts, or for so long at most.
        absence_seconds: how long an agent may be away before what it holds stops to count as readable. A process that
            restarts at once is back sooner, and no status changes for it.
        handover_seconds: how long what moved to another node stays where it was, in pauses between two tables of
            holders: readers that have not heard of the move would read the source.
        give_up_seconds: how long a Preload goes on when all is there but files that cannot be had.
        resync_seconds: how often every object is looked at, whatever happened.
        internal_networks: of the cluster, beside what its nodes say: of Services, say. A store there must be named by a
            rule of the CacheCluster.
        api_server_addresses: at which pods reach the API server: of the Service `kubernetes`, whatever else is known.
        clone_idle_seconds: how long a further copy of a dataset stays after the last job that needed it.
        network_probe: whether a pod tries from time to time to reach the caches, where no policy admits it.
        probe_targets: ports of the release that it tries, too, as HOST:PORT.
        kueue: whether the AdmissionChecks of Kueue that ask for data are answered.
        gang_patience_seconds: how long the pods of a gang may take to find their places before it gives them back.
    """

    namespace: str = names.SYSTEM_NAMESPACE
    dataset_namespaces: tuple[str, ...] | None = None
    job_namespaces: tuple[str, ...] | None = None
    image: str = names.DEFAULT_IMAGE
    agent_image: str = names.DEFAULT_AGENT_IMAGE
    image_pull_secrets: tuple[str, ...] = ()
    scheduler_name: str = names.SCHEDULER_NAME
    secrets_role: str = names.SECRETS_ROLE
    service_account: str = names.OPERATOR_ACCOUNT
    poll_seconds: float = 2.0
    progress_seconds: float = 2.0
    survey_seconds: float = 30.0
    listing_seconds: float = 120.0
    revoked_seconds: float = 3600.0
    keys_check_seconds: float = 600.0
    return_seconds: float = 60.0
    learning_seconds: float = 20.0
    absence_seconds: float = 3.0
    handover_seconds: float = 4.0
    give_up_seconds: float = 30.0
    resync_seconds: float = 600.0
    internal_networks: tuple[str, ...] = ()
    api_server_addresses: tuple[str, ...] = ()
    clone_idle_seconds: float = 600.0
    gang_patience_seconds: float = 45.0
    network_probe: bool = False
    probe_targets: tuple[str, ...] = ()
    kueue: bool = False

    @property
    def scope(self) -> Scope:
        """The namespaces that are served."""
        data, jobs = self.dataset_namespaces, self.job_namespaces
        return Scope(
            own=self.namespace,
            datasets=None if data is None else frozenset(data),
            jobs=None if jobs is None else frozenset(jobs),
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
    """Live views of the cluster; read only.

    Attributes:
        namespace: where the CacheClusters that count live.
        pod_addresses: of all pods of the cluster.
        paths: an index over the Datasets.
    """

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

    def cache_cluster(self, name: str) -> Object | None:
        """The CacheCluster of this name in the operator's namespace; None when there is none."""
        return self.cache_clusters.get((self.namespace, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The world of a controller."""

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
    gone: Callable[[WorkKey], None] = lambda key: None
    """Called with an object that a pass did not find on the API server, so that no view keeps it."""

    def cache_cluster_key(self, name: str) -> WorkKey:
        """A CacheCluster that counts, as a key of the work queue."""
        return WorkKey(CACHE_CLUSTERS, self.settings.namespace, name)
