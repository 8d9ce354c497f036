"""CacheCluster: one cache, shared by many datasets."""

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from tdcs.api.base import (
    IS_IMAGE,
    NO_IMAGE,
    Measure,
    Model,
    NodeSelector,
    OnceSeen,
    Share,
    StatusModel,
    WrittenAlways,
    defaulted,
    list_map,
    object_name_rule,
    one_value,
    rule,
    rules,
)
from tdcs.api.cachecluster_parts import (
    AgentComponent,
    Component,
    FolderAccess,
    Journal,
    Storage,
    Toleration,
    checked_quantity,
)
from tdcs.api.conditions import Conditions
from tdcs.api.durations import Duration, to_seconds
from tdcs.api.quantities import QUANTITY_SCHEMA
from tdcs.api.selection import ABOVE_ZERO, IN_RANGE, NOT_TAKEN
from tdcs.api.sharing import CacheQuota
from tdcs.api.source_rules import SourceFolder, SourceRule

WorkerState = Literal["Pending", "Ready", "Draining", "Lost"]
Profile = Literal["Tuned", "Stock"]
Engine = Literal["Alluxio", "Native"]
Protect = Literal["All", "Needed", "Never"]

EVERY_NODE = 5000
"""Kubernetes supports no cluster of more nodes, so that many workers are one on every node. A default, because the
scale subresource fails on an object without replicas."""


DEFAULT_DELAY = "10m"
"""`scaleDownDelay` where it is left out."""

SCALING_RULES = (
    rule(
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "minReplicas must not be above maxReplicas",
        field=".minReplicas",
    ),
    rule(
        "(has(self.followJobs) && self.followJobs) || "
        "!(has(self.minReplicas) || has(self.maxReplicas) || has(self.scaleDownDelay))",
        "minReplicas, maxReplicas and scaleDownDelay belong to followJobs: set that to true, or remove them; without "
        "it spec.replicas is the number of workers, and a HorizontalPodAutoscaler has bounds of its own",
        field=".followJobs",
    ),
)
"""Rules between the fields."""

NATIVE_RULES = (
    rule(
        "!has(self.engine) || self.engine != 'Native' || ((!has(self.profile) || self.profile == 'Tuned') && "
        "(!has(self.properties) || size(self.properties) == 0))",
        "profile Stock and properties are Alluxio's, and with engine Native none runs: remove them, or set engine to "
        "Alluxio",
        field=".engine",
    ),
)
"""What cannot be set with an engine."""

ONE_OWNER = rule(
    "!has(self.scaling) || !has(self.scaling.followJobs) || !self.scaling.followJobs || "
    f"!has(self.replicas) || self.replicas == {EVERY_NODE}",
    "with spec.scaling.followJobs TDCS itself says how many workers there are, so neither kubectl scale nor a "
    "HorizontalPodAutoscaler can: remove spec.replicas (or the autoscaler) and set scaling.minReplicas and "
    "maxReplicas, or set followJobs to false",
    field=".replicas",
)
"""The number of workers has one owner. It refuses the scale subresource, too."""


class Scaling(Model):
    """How the number of workers changes."""

    follow_jobs: bool = False
    """Whether workers, and the data with them, follow the pods that read it: a node on which such a pod runs has a
    worker, and there are as many as the data that jobs need takes. Then spec.replicas is left out."""
    min_replicas: Annotated[int, Field(ge=1, le=EVERY_NODE)] | None = None
    """With followJobs: the fewest workers; left out, 1."""
    max_replicas: Annotated[int, Field(ge=1, le=EVERY_NODE)] | None = None
    """With followJobs: the most workers, those that drain not counted; left out, one on every node that matches."""
    scale_down_delay: Duration | None = None
    """With followJobs: how long a worker stays that nothing calls for any more, and data on a node where it is not read
    any more, since the next job may come soon; left out, 10m."""
    drain_timeout: Duration = "1h"
    """How long a worker that leaves may take to hand to the others what only it holds; then it goes all the same, and
    the rest is read from the source again. With 0s it goes at once."""

    protect: Protect = "All"
    """Which data protects the pod of a worker that holds its last copy: no drain, autoscaler or descheduler evicts it
    (PodDisruptionBudget NAME-last-copies) until the data is on another worker, or the worker has gone by itself. Not
    so on a cordoned node without a notice of its end, as kubectl drain leaves it: that is most often restarted, so its
    worker may be evicted, and the data stays on its disk. All: any. Needed: what is read, waited for or pinned, or has
    a time that is not over; idle data goes with nodes that an autoscaler finds empty. Never: none."""

    @property
    def delay_seconds(self) -> float:
        return to_seconds(self.scale_down_delay or DEFAULT_DELAY)


_Bytes = Annotated[
    int | str,
    AfterValidator(checked_quantity),
    # With its rules inside: pydantic would drop those next to an optional field.
    WithJsonSchema(
        {
            **QUANTITY_SCHEMA,
            **rules(rule(ABOVE_ZERO, "must be a size above zero, such as 10Ti", subject=NOT_TAKEN), IN_RANGE),
        }
    ),
]


def _within(dataset: str, namespace: str, *, above: str) -> dict[str, str]:
    return rule(
        f"!has(self.{dataset}) || !has(self.{namespace}) || !({above})",
        f"{dataset} must not be above {namespace}: no Dataset could have as much",
        field=f".{dataset}",
    )


class Limits(Model):
    """How large the sources of Datasets may be. The listing of one beyond a limit ends there, and gives no version."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            _within(
                "filesPerDataset", "filesPerNamespace", above="self.filesPerDataset > self.filesPerNamespace"
            ),
            _within(
                "bytesPerDataset",
                "bytesPerNamespace",
                above="isQuantity(string(self.bytesPerDataset)) && isQuantity(string(self.bytesPerNamespace)) && "
                "quantity(string(self.bytesPerDataset)).isGreaterThan(quantity(string(self.bytesPerNamespace)))",
            ),
        )
    )

    files: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Files and folders of all sources of this CacheCluster together: a file counts once for every GiB of it, and a
    folder, also one in the key of an object, once, and once more for every 256 bytes of its path. Left out, 10,000,000.
    How many of them Alluxio's own clients see depends on the heap of its master, see the condition Exported."""
    files_per_dataset: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Files and folders of one source, counted as for `files`; left out, as many as of all."""
    bytes_per_dataset: _Bytes | None = None
    """Bytes of all files of one source; left out, any number."""
    files_per_namespace: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Files of all sources that the Datasets of one namespace read, counted as for `files`; left out, as many as of
    all. A source that several namespaces read counts for each of them, and may be as large as any of them may have
    it."""
    bytes_per_namespace: _Bytes | None = None
    """The same of their bytes; left out, any number."""


class CacheClusterSpec(Model):
    """What the cache shall look like."""

    engine: Annotated[
        Engine,
        Field(
            json_schema_extra=rules(
                rule(
                    "self == oldSelf", "cannot be changed: create another CacheCluster, and move its Datasets"
                )
            )
        ),
    ] = "Alluxio"
    """Alluxio: a master, and a worker next to each agent, know of all that is cached, so that Alluxio's own clients can
    read it. Native: the agents alone are the cache; no master, no worker and no JVM runs, the operator lists sources
    itself, and what Alluxio needs (profile, properties, journal, master, worker, image) is not used. It cannot be
    changed later."""
    replicas: Annotated[int, Field(ge=1, le=EVERY_NODE)] = EVERY_NODE
    """Cache workers asked for, one a node, and no more than nodes match: with the default, the most nodes that a
    cluster can have, every node that matches has one. kubectl scale and a HorizontalPodAutoscaler set it."""
    node_selector: NodeSelector = Field(default={})
    """Labels of the nodes that cache data and run jobs; empty: all nodes whose taints are tolerated."""
    tolerations: Annotated[
        list[Toleration], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """Taints of cache nodes that the pods put up with."""
    priority_class_name: (
        Annotated[
            str,
            Field(min_length=1, max_length=253, json_schema_extra=rules(object_name_rule("PriorityClass"))),
        ]
        | None
    ) = None
    """The PriorityClass of the cache's pods: master, workers with their agents, FUSE clients; left out, the cluster's
    default. With system-node-critical a worker is not preempted, and goes on during the first part of its node's
    graceful shutdown. A change restarts them."""
    storage: Storage = defaulted(
        Storage,
        **rules(
            rule(
                # The server tries the rule on the default, too, before that is filled in: there are no tiers then.
                "!has(self.tiers) || !has(oldSelf.tiers) || "
                "self.tiers.map(tier, has(tier.path) ? tier.path : '') == "
                "oldSelf.tiers.map(tier, has(tier.path) ? tier.path : '')",
                "the path of a tier cannot be changed, because blocks and the views of running pods are there: create "
                "another CacheCluster",
            )
        ),
    )
    """Where the nodes keep cached blocks."""
    profile: Profile = "Tuned"
    """Which settings Alluxio runs with: Tuned are those for training, which the how-to on cache clusters explains;
    Stock leaves Alluxio's own defaults wherever it works with them, for comparison."""
    scaling: Scaling = defaulted(Scaling, **rules(*SCALING_RULES))
    """How the number of workers changes, and who says so."""
    quotas: Annotated[list[CacheQuota], Field(max_length=64, json_schema_extra=list_map("name"))] = Field(
        default=[]
    )
    """How much of the cache the Datasets of some namespaces may take together. What is beyond a quota is not cached,
    and is read from the source; what is pinned and there already stays."""
    source_folders: Annotated[
        list[SourceFolder], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=[])
    """Folders, the same on every cache node (an NFS mount, say), from which Datasets of every namespace may read with
    file:// URIs: short for a rule of sources without a selector. The cache's pods mount them read-only; a change
    restarts them."""
    folder_access: FolderAccess = defaulted(FolderAccess)
    """As whom the cache reads these folders, and those of the rules of sources."""
    sources: Annotated[list[SourceRule], Field(max_length=64, json_schema_extra=list_map("name"))] = Field(
        default=[]
    )
    """Which namespaces may use which stores, buckets and folders. Without a rule every namespace may use any S3 store
    that is not inside the cluster, nor on a loopback or link-local address, and no folder but sourceFolders. With rules
    only what they allow. A Dataset that is not allowed any more is unmounted."""
    limits: Limits = defaulted(
        Limits,
        **rules(
            rule(
                "!has(self.files) || !(has(self.filesPerDataset) && self.filesPerDataset > self.files || "
                "has(self.filesPerNamespace) && self.filesPerNamespace > self.files)",
                "filesPerDataset and filesPerNamespace must not be above files, which bounds all together",
                field=".files",
            )
        ),
    )
    """How many files and bytes the sources of Datasets may have. They are counted while they are listed."""
    journal: Journal = defaulted(
        Journal,
        **rules(
            rule(
                "self == oldSelf",
                "cannot be changed, because the volume of a StatefulSet cannot: create another CacheCluster",
            )
        ),
    )
    """The volume of Alluxio's master. It cannot be changed later."""
    properties: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]],
        Field(
            max_length=256,
            json_schema_extra=rules(
                rule(
                    "self.all(key, key.startsWith('alluxio.'))",
                    "every key must be an Alluxio property, which begins with 'alluxio.'",
                )
            ),
        ),
    ] = Field(default={})
    """Alluxio properties of master, workers and FUSE clients; they win over the built-in ones."""
    image: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=512,
                json_schema_extra=rules(
                    rule(r"self.matches('^[^ \\t\\n]+$')", "must be an image, without blanks"),
                    rule(IS_IMAGE, NO_IMAGE),
                ),
            ),
        ]
        | None
    ) = None
    """The image of all three parts; left out, the one the operator was installed with."""
    master: Component = defaulted(Component)
    """The pod of Alluxio's master. How many files it knows depends on its heap (jvmOptions), see Exported."""
    worker: Component = defaulted(Component)
    """The workers' pods."""
    agent: AgentComponent = defaulted(AgentComponent)
    """The agents in the workers' pods: they bring blocks from the sources and to each other."""
    fuse: Component = defaulted(Component)
    """The pods of Alluxio's FUSE clients, which the profile Stock has."""

    @property
    def all_folders(self) -> list[str]:
        """The folders of file sources that some namespace may use: those that are in none of the others."""
        folders = {*self.source_folders, *(folder for rule in self.sources for folder in rule.folders)}
        return sorted(
            folder for folder in folders if not any(folder.startswith(f"{outer}/") for outer in folders)
        )


class CacheWorker(StatusModel):
    """One cache worker."""

    node: str
    """The node it runs on."""
    state: WorkerState
    """Pending: its agent has not answered yet. Ready: holds blocks. Draining: it leaves, and what only it holds is
    moved to others before. Lost: its heartbeats stopped."""
    capacity_bytes: Measure = 0
    """What it may hold."""
    used_bytes: Measure = 0
    """What it holds."""
    target: str | None = None
    """The best target that the node's processor runs, as its agent says it, such as x86-64-v3; left out where that is
    not known. `kubectl label node NODE tdcs.io/target=...` makes it known to schedulers."""
    last_copy_bytes: int | None = None
    """While it drains: bytes that no staying worker holds yet."""
    idle_since: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """With spec.scaling.followJobs: since when nothing calls for it. It drains once that has lasted for
    scaleDownDelay."""


class CacheClusterStatus(StatusModel):
    """What the cache looks like."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    message: str | None = None
    """How it stands with it, in a sentence: that of the condition Ready. For display only."""
    conditions: Conditions = Field(default=[])
    """Ready: the agents of all wanted workers answer. While it is being deleted, what it waits for.
    FollowsJobs, with spec.scaling.followJobs: every node with pods that read data of the cache has a worker.
    WithinQuotas, with spec.quotas: no quota is less than the pinned data that it counts takes already. NetworkIsolated,
    with the chart's networkPolicy: a pod that no policy admits could connect to none of its ports. Trusted,
    with trust.enabled: each of its pods has a certificate that is valid, and until when. Exported, with engine Alluxio:
    its master answers, and its heap has room for all that is cached; only Alluxio's own clients need that."""
    replicas: Measure = 0
    """Workers that there are, by their pods, those that drain included; with selector, what an autoscaler reads."""
    desired_replicas: Measure = 0
    """Workers that there shall be: as many as spec.replicas asks for, and no more than nodes match."""
    ready_replicas: Measure = 0
    """Workers that are registered and alive."""
    selector: str = ""
    """Label selector of the worker pods, for autoscalers."""
    capacity_bytes: Measure = 0
    """Bytes that all live workers may hold; those that drain left out."""
    used_bytes: Measure = 0
    """Bytes that all live workers hold; those that drain left out."""
    used: str | None = None
    """usedBytes and capacityBytes in readable units, such as 6.4 GiB of 24 GiB; for display only."""
    used_ratio: Share = 0.0
    """usedBytes over capacityBytes, between 0 and 1."""
    wanted_bytes: Measure = 0
    """Bytes that the cache needs for data that is read, waited for or pinned, or has a time that is not over; each copy
    that is asked for counted, and idle data not. Above capacityBytes the cache is too small for its jobs."""
    datasets: int = 0
    """Datasets whose data it holds, of all namespaces. It is deleted when there is none any more."""
    workers: Annotated[list[CacheWorker], Field(json_schema_extra=one_value()), WrittenAlways()] = Field(
        default=[]
    )
    """Every worker, those that drain included."""


class CacheCluster(Model):
    """A cache on the nodes that train: a worker on every cache node, with engine Alluxio a master next to them. Many
    datasets share it."""

    spec: CacheClusterSpec = defaulted(CacheClusterSpec, **rules(ONE_OWNER, *NATIVE_RULES))
    """What the cache shall look like."""
    status: Annotated[CacheClusterStatus | None, OnceSeen] = None
    """What the cache looks like; written by the operator."""
