"""Dataset: data of an object store or a shared folder, held in a cache cluster on chosen nodes."""

from typing import Annotated, Final, Literal

from pydantic import Field

from tdcs.api import names
from tdcs.api.base import (
    LABEL_PATTERN,
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
from tdcs.api.conditions import Conditions
from tdcs.api.dataset_source import ONE_HOME, ONE_IDENTITY, SourceSpec
from tdcs.api.failures import FAILED_FILES_KEPT, FailedFile
from tdcs.api.selection import ONE_OF_TWO, Amount, Bandwidth, Selection, StartTime
from tdcs.api.sharing import ACCESS_RULES, EVICTION_RULES, Access, Eviction, SharedWith

PlacementMode = Literal["Auto", "Partition", "Replicate"]
PlacementZones = Literal["Auto", "Together", "Spread"]
DatasetState = Literal[
    "Pending", "Mounting", "Scheduled", "Loading", "Ready", "Degraded", "Evicted", "Failed", "Deleting"
]

KEPT_PRELOADS = 16
"""Of so many completed Preloads a Dataset keeps what they brought."""

USES_KEPT = 16
USERS_NAMED = 3
"""Of so many uses a Dataset keeps the time."""

KEPT_BYTES = 512 * 1024
"""The most room that they take in its status: an object of more than 1.5 MB cannot be stored."""


class Preload(Selection):
    """What is brought into the cache before jobs read it, and when."""

    enabled: bool = True
    """True: the operator loads the data onto the nodes that it chooses. False: only what jobs read is cached."""
    start_time: StartTime = None
    """When loading begins, such as 2030-01-31T20:00:00Z; left out or in the past, at once."""
    bandwidth: Bandwidth = None
    """The most bytes a second that this preload reads from the source, over all nodes, such as 100M; left out, no
    limit."""
    failed_files: Literal["Count", "Ignore"] = "Count"
    """Whether files that cannot be had (status.failedFiles) count in status.loadedRatio, with which a job's readiness
    is compared. Count: they are missing, so that 100 percent is reached when all files are there. Ignore: it is
    reached when all others are."""


class Placement(Model):
    """On which nodes the data is."""

    mode: PlacementMode = "Auto"
    """Partition spreads one copy over the nodes, Replicate puts all of it on each, Auto replicates when every
    chosen node has room for all of it."""
    copies: Annotated[int, Field(ge=1, le=16)] = 1
    """How many copies, each on nodes of its own."""
    node_count: Annotated[int, Field(ge=1, le=5000)] | None = None
    """How many nodes hold each copy; left out, the fewest that can, or with Replicate every node that can."""
    zones: PlacementZones = "Auto"
    """How its nodes are in zones (label topology.kubernetes.io/zone). Auto keeps a partitioned copy in one zone where
    it fits, and spreads replicas and further copies over the zones; Together keeps all copies in one zone where they
    fit; Spread puts the nodes of each copy into all zones in turn. What is cached already stays where it is."""
    node_selector: NodeSelector = Field(default={})
    """Labels of the nodes that may hold it; empty: every node of the cache cluster."""


class CacheClusterRef(Model):
    """A CacheCluster, which lives in the operator's namespace."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=20,
            json_schema_extra=rules(
                object_name_rule("CacheCluster"),
                rule(
                    "self == oldSelf", "cannot be changed: create another Dataset in the other cache cluster"
                ),
            ),
        ),
    ] = names.DEFAULT_CACHE_CLUSTER
    """Its name."""


class DatasetSpec(Model):
    """What is cached, where from, and where."""

    source: Annotated[
        SourceSpec,
        Field(
            json_schema_extra=rules(
                rule("has(self.uri) != has(self.datasetRef)", ONE_HOME, field=".uri"),
                rule(
                    "!has(self.datasetRef) || (!has(self.secretRef) && !has(self.serviceAccountName) && "
                    "!has(self.options.endpoint) && "
                    "!has(self.options.region) && !has(self.options.pathStyle) && "
                    "!has(self.options.requesterPays) && !has(self.options.index) && "
                    "!has(self.options.revision) && (!has(self.options.files) || size(self.options.files) == 0) && "
                    "(!has(self.include) || size(self.include) == 0) && !has(self.exclude))",
                    "with datasetRef the source, its keys, options, include and exclude are those of the other "
                    "Dataset: remove them",
                    field=".datasetRef",
                ),
                rule(
                    "!has(self.options.requesterPays) || !self.options.requesterPays || has(self.secretRef) || "
                    "has(self.serviceAccountName)",
                    "with options.requesterPays the account of the keys pays: name a Secret of the Dataset's namespace "
                    "that holds accessKeyId and secretAccessKey",
                    field=".secretRef",
                    reason="FieldValueRequired",
                ),
                rule(
                    "!has(self.uri) || !self.uri.startsWith('file://') || (!has(self.secretRef) && "
                    "!has(self.options.endpoint) && !has(self.options.region) && !has(self.options.pathStyle) && "
                    "!has(self.options.requesterPays))",
                    "a file source has neither secretRef nor options: remove them",
                ),
                rule(
                    "!has(self.uri) || !self.uri.matches('^(gs|az|abfss?|https?|hf|pvc)://') || "
                    "(!has(self.options.region) && !has(self.options.pathStyle) && !has(self.options.requesterPays) && "
                    "(!self.uri.matches('^(http|pvc)') || !has(self.options.endpoint)))",
                    "region, pathStyle and requesterPays are options of s3 sources, and endpoint one of s3, gs, az and "
                    "hf sources: remove them",
                    field=".options",
                ),
                rule(
                    "(self.uri.startsWith('hf') || !has(self.options.revision)) && (self.uri.startsWith('http') || "
                    "(!has(self.options.index) && (!has(self.options.files) || size(self.options.files) == 0)))",
                    "index and files are options of http sources, and revision is one of hf sources: remove them",
                    field=".options",
                ),
                rule(
                    "!has(self.serviceAccountName) || (!has(self.secretRef) && has(self.uri) && "
                    "self.uri.matches('^(s3|gs|az|abfss?)://'))",
                    ONE_IDENTITY,
                    field=".serviceAccountName",
                ),
                rule(
                    "has(self.uri) && self.uri.startsWith('pvc') ? !has(self.secretRef) : "
                    "!has(self.options.runAsUser) && !has(self.options.runAsGroup)",
                    "a pvc source has no secretRef, and runAsUser and runAsGroup are options of pvc sources alone: "
                    "remove them",
                ),
                rule(
                    "!has(self.options.asOf) || (has(self.uri) && self.uri.startsWith('s3'))",
                    "asOf is an option of s3 sources, whose buckets can keep versions; of hf sources options.revision "
                    "names one: remove asOf",
                    field=".options",
                ),
                rule(
                    "!has(self.options.index) || !has(self.options.files) || size(self.options.files) == 0",
                    "either index or files says which files there are: remove one of the two",
                    field=".options",
                ),
                rule(
                    "has(self.uri) == has(oldSelf.uri) && (!has(self.uri) || self.uri == oldSelf.uri) && "
                    "(!has(self.datasetRef) || self.datasetRef == oldSelf.datasetRef)",
                    "cannot be changed, because volumes and cached blocks belong to it: "
                    "create another Dataset for another source",
                    field=".uri",
                ),
                rule(
                    "self.include == oldSelf.include && has(self.exclude) == has(oldSelf.exclude) && "
                    "(!has(self.exclude) || self.exclude == oldSelf.exclude)",
                    "include and exclude cannot be changed, because volumes and cached blocks belong to them: "
                    "create another Dataset",
                ),
                rule(
                    "self.options == oldSelf.options",
                    "cannot be changed, because volumes and cached blocks belong to them: "
                    "create another Dataset",
                    field=".options",
                ),
            )
        ),
    ]
    """Where the data is at home."""
    cache_cluster_ref: CacheClusterRef = defaulted(CacheClusterRef)
    """The CacheCluster that holds the data."""
    preload: Preload = defaulted(
        Preload,
        **rules(
            ONE_OF_TWO,
            rule(
                "!has(self.enabled) || self.enabled || !(has(self.percent) || has(self.amount) || "
                "has(self.startTime) || has(self.bandwidth) || has(self.paths) && size(self.paths) > 0)",
                "with enabled false nothing is loaded ahead: remove the other fields, or set enabled to true",
                field=".enabled",
            ),
        ),
    )
    """Whether the data is brought into the cache before jobs read it."""
    placement: Placement = defaulted(
        Placement,
        **rules(
            rule(
                # With has(): the server also checks the rule against the bare default, {}.
                "!has(self.copies) || self.copies == 1 || !has(self.mode) || self.mode != 'Replicate' || "
                "has(self.nodeCount)",
                "several copies with mode Replicate need nodeCount, because without it one copy is on every "
                "node already: set nodeCount, or copies to 1",
                field=".copies",
            )
        ),
    )
    """On which nodes the data is."""
    access: Access = defaulted(Access, **rules(*ACCESS_RULES))
    """How many jobs may read it at once."""
    eviction: Eviction = defaulted(Eviction, **rules(*EVICTION_RULES))
    """When it leaves the cache."""
    shared_with: Annotated[
        list[SharedWith], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """Namespaces whose Datasets may read this source with its keys, by spec.source.datasetRef. What is taken out of it
    is revoked: Datasets that read by it are withdrawn, and no new pod gets their volumes."""
    claim_size: Amount | None = None
    """The size that the PersistentVolumeClaim asks for and its volume has, such as 1Mi where a ResourceQuota or a
    LimitRange would refuse the size of the data; left out: the size of the data. It limits nothing, and counts when the
    claim is made: delete the claim to have it made again with another size."""


NOT_BELOW_COPIES = rule(
    "!has(self.access) || !has(self.access.maxCopies) || !has(self.placement) || !has(self.placement.copies) || "
    "self.placement.copies <= self.access.maxCopies",
    "maxCopies counts all copies, and spec.placement.copies asks for more: raise access.maxCopies, or lower "
    "placement.copies",
    field=".access.maxCopies",
)
"""Of two bounds of the copies the one must not be below the other."""

CLONES_OF_PRELOADED = rule(
    "!has(self.access) || !has(self.access.onLimit) || self.access.onLimit != 'Clone' || !has(self.preload) || "
    "!has(self.preload.enabled) || self.preload.enabled",
    "a clone is a copy of what spec.preload brings, and preload.enabled is false: set preload.enabled to true, or "
    "access.onLimit to Suspend",
    field=".access.onLimit",
)
"""Where nothing is preloaded there is nothing to clone."""


class NodeBytes(StatusModel):
    """What one node holds of a copy, or is to hold."""

    name: str
    """The node."""
    bytes: int
    """Bytes of the copy that are there."""
    arriving: int | None = None
    """Bytes of the copy that it lacks and that are to be loaded onto it; left out when there are none."""


class Copy(StatusModel):
    """One whole set of the dataset's cached blocks."""

    id: str
    """It stays the same for as long as there is this copy, whatever becomes of the others; `clone-1` and so on for
    further copies that spec.access made; `preloads` for what is on the nodes to which Preloads brought some of the
    data."""
    nodes: Annotated[list[NodeBytes], Field(json_schema_extra=one_value()), WrittenAlways()] = Field(
        default=[]
    )
    """The nodes it is on, and those that it is to be on."""
    idle_since: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Of a clone: since when no job reads it, nor waits for it."""


class Kept(Model):
    """What a completed Preload asked for. Without the rules of a spec: the operator wrote it."""

    name: str
    """The Preload."""
    paths: Annotated[list[str], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})] = Field(
        default=[]
    )
    """Its folders or files; empty: all."""
    percent: int | None = None
    """Its share of these, in percent."""
    amount: int | None = None
    """Its bytes of these."""
    generation: int
    """The Dataset's generation then: a later change of the spec frees what only the Preload wanted."""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When it completed: of more Preloads than can be kept, the newest are."""
    copies: int | None = None
    """Its copies."""
    nodes: Annotated[list[str], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})] = Field(
        default=[]
    )
    """Its nodes."""


class Grant(StatusModel):
    """What of a dataset may be in the cache."""

    bytes: Measure = 0
    """Bytes of all copies."""
    slots: Measure = 0
    """Of the 4096 slots that the data is divided into, those that may be on some node."""
    reason: str = ""
    """Why it is no more: as the reason of the condition Granted."""


class OtherNamespaces(StatusModel):
    """What a Dataset shares with other namespaces."""

    namespaces: int
    """How many other namespaces have a Dataset of the same source with the same rights. Blocks that several want on a
    node are there once."""
    bytes: Measure = 0
    """Bytes that are on nodes for them alone. Their quotas count these; jobs of this Dataset can read them, too."""


LOST_NODES_NAMED: Final = 8
"""So many nodes of workers that left are named."""


class WorkerLoss(StatusModel):
    """What left the cache with workers that were taken out, and found no room on those that stay."""

    bytes: Measure = 0
    """Bytes of all copies that are missing since, summed over the workers that left one after the other."""
    wanted_bytes: Measure = 0
    """wantedBytes before the first of them left: with as much room nothing is missing any more."""
    workers: int = 0
    """How many workers left."""
    nodes: Annotated[
        list[str], Field(max_length=LOST_NODES_NAMED, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """The first of their nodes, by name."""


class DatasetStatus(StatusModel):
    """What of the data is cached, and where."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    state: DatasetState | None = None
    """The conditions in one word, for display only."""
    reason: str | None = None
    """Why it is not simply Ready, as the reason of a condition; left out where the state says it already. For display
    only."""
    message: str | None = None
    """How it stands with it, in a sentence: how far it is, or what is wrong and what to do. For display only."""
    conditions: Conditions = Field(default=[])
    """Mounted: the source can be read through the cache. SourceReachable: the last look at the source and its keys
    succeeded. Granted: the cache manager gives it all the room that it asks for. Placed: as many nodes as asked for
    hold it, and all of it found room. Loaded: what was to be cached was brought to its nodes; it stays True with the
    reason Reloading while some of it is loaded again, as nodes, the source or its share of the cache have changed.
    Ready: what was to be cached is there, as far as it can be had and fits, or has left the cache; jobs read it as soon
    as it is mounted."""
    total_bytes: Measure = 0
    """Size of the data at its source."""
    total_files: Measure = 0
    """Number of its files."""
    cached_bytes: Measure = 0
    """Bytes that are cached somewhere, each counted once, also where another Dataset of the same source wants them:
    jobs can read those too. What is on this Dataset's own nodes is in `loadedBytes` and `copies`."""
    physical_bytes: Measure = 0
    """Bytes in the cache, every copy of a block counted, those of other Datasets of the same source in this namespace
    too. What is there for other namespaces alone is in `otherNamespaces`."""
    other_namespaces: OtherNamespaces | None = None
    """Other namespaces with the same source, by their number; left out when there is none."""
    cached_ratio: Share = 0.0
    """cachedBytes over totalBytes, between 0 and 1: each byte counts once, however many nodes hold it."""
    wanted_bytes: Measure = 0
    """Bytes that spec.preload and spec.placement want in the cache, every copy counted: all of the data on each
    node when replicated, once for each copy when partitioned, less what found no room, and less the files that cannot
    be had where spec.preload.failedFiles is Ignore."""
    loaded_bytes: Measure = 0
    """Those of the wanted bytes that are on the nodes where they are wanted."""
    loaded_ratio: Share = 0.0
    """loadedBytes over wantedBytes, between 0 and 1. A job's readiness percent is compared with it."""
    loaded: str | None = None
    """loadedRatio as a whole percentage, rounded down; left out where none of the data is wanted. For display only."""
    bytes_per_second: int = 0
    """Bytes a second that the running load reads from the source, over all nodes; 0 when nothing is being loaded."""
    copied_bytes_per_second: int = 0
    """Bytes a second that nodes copy from each other meanwhile: the source sends each byte about once, however many
    copies there are."""
    left_with_workers: WorkerLoss | None = None
    """What left the cache with workers that were taken out; left out where all that is wanted has room."""
    rate: str | None = None
    """bytesPerSecond in a readable unit, while something is being loaded, and next to it copiedBytesPerSecond, such as
    12 MiB/s + 24 MiB/s copied; for display only."""
    cached: str | None = None
    """cachedRatio as a whole percentage, rounded down, such as 95%; for display only."""
    size: str | None = None
    """totalBytes in a readable unit, such as 1.2 MiB; for display only."""
    copies: Annotated[list[Copy], Field(json_schema_extra=list_map("id"))] = Field(default=[])
    """The copies that spec.placement asks for, and on which nodes they are; after them, as one, what is on the nodes
    to which Preloads of this Dataset brought some of the data."""
    copy_count: Measure = 0
    """How many of the copies that spec.placement asks for have data on a node; what reads brought, where nothing is
    preloaded, is one copy. With selector, what an autoscaler of the scale subresource reads."""
    selector: str = ""
    """Selects pods with the label tdcs.io/dataset-name of this Dataset, which TDCS puts on none: the scale subresource
    needs a selector."""
    failed_file_count: int = 0
    """Files that cannot be loaded for now: unreadable ones, names that the source refuses, those that vanished. They
    are tried again, and the rest is loaded all the same."""
    failed_files: Annotated[
        list[FailedFile], Field(max_length=FAILED_FILES_KEPT, json_schema_extra=list_map("path"))
    ] = Field(default=[])
    """The first of them, with the reasons."""
    last_source_check_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the source was last listed for changes. A check that found nothing new is reported once an hour only, so
    that Datasets at rest cause no writes: the last one may be up to an hour newer than this. Whether it succeeded
    is in the condition SourceReachable."""
    keys_refused_since: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Since when the source takes no keys of this Dataset, or it has none; left out when it takes them. After an hour
    nothing stays cached for it."""
    refreshed: str | None = None
    """The value of the annotation tdcs.io/refresh that was last acted upon."""
    kept: Annotated[list[Kept], Field(max_length=KEPT_PRELOADS, json_schema_extra=list_map("name"))] = Field(
        default=[]
    )
    """What finished Preloads loaded next to spec.preload: the newest 16, and fewer when their paths and nodes take more
    than 512 KiB. It is kept until spec changes."""
    active_jobs: Measure = 0
    """TrainingJobs of this Dataset that were admitted and have not ended."""
    waiting_jobs: Measure = 0
    """TrainingJobs of this Dataset that wait: for its data, for a place at it, or for room on nodes."""
    last_used_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When a pod last mounted the claim; while one does, when that began."""
    uses: Annotated[
        list[Annotated[str, Field(json_schema_extra={"format": "date-time"})]],
        Field(max_length=USES_KEPT, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=[])
    """When jobs began to read it, the newest 16."""
    in_use: bool = False
    """Whether a pod mounts the claim."""
    used_by: Annotated[
        list[str], Field(max_length=USERS_NAMED, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """The first pods, by name, that mount the claim and that no TrainingJob made. While there is one, the Dataset is
    deleted only with the annotation tdcs.io/delete-in-use. Pods that have ended do not count, nor do those that are
    being deleted and that no controller makes again."""
    used_elsewhere: int = 0
    """How many other namespaces have pods that read this source by spec.sharedWith. They could not read on without it:
    while there is one, the Dataset is deleted only with the annotation tdcs.io/delete-in-use."""
    source_bandwidth: int | None = None
    """Bytes a second that its loads may read from the source now: their share of spec.source.bandwidth, or of what was
    measured while nobody was held back. Left out while nothing limits them."""
    load_seconds: int | None = None
    """How long the last load took that brought at least half of what is wanted."""
    grant: Grant | None = None
    """What the cache manager grants it."""
    claim_name: str = ""
    """The PersistentVolumeClaim through which any pod of the namespace can read the data."""
    mount_path: str = ""
    """Where the data is mounted inside the cache cluster."""


class Dataset(Model):
    """Data of an object store or a shared folder, held in a cache cluster on the nodes that train on it, and
    readable by any pod through a PersistentVolumeClaim of the same name."""

    spec: Annotated[DatasetSpec, Field(json_schema_extra=rules(NOT_BELOW_COPIES, CLONES_OF_PRELOADED))]
    """What is cached, where from, and where."""
    status: Annotated[DatasetStatus | None, OnceSeen] = None
    """What of the data is cached, and where; written by the operator."""


NAME_RULE = rule(
    f"self.metadata.name.matches('{LABEL_PATTERN}') && size(self.metadata.name) <= 63",
    "metadata.name must be at most 63 lower-case letters, digits and dashes: volumes are named after it",
)
"""Rule on the whole object: the schema of metadata itself belongs to the API server."""
