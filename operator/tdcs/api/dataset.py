"""Dataset: data of an object store, held in a cache cluster on chosen nodes."""

from typing import Annotated, Literal

from pydantic import Field

from tdcs.api import names
from tdcs.api.base import LABEL_PATTERN, Model, NodeSelector, defaulted, list_map, rule, rules
from tdcs.api.conditions import Conditions

PlacementMode = Literal["Auto", "Partition", "Replicate"]
DatasetState = Literal["Pending", "Mounting", "Loading", "Ready", "Degraded", "Failed", "Deleting"]

_URI_RULES = rules(
    rule(
        "self.startsWith('s3://')",
        "the scheme must be s3, as in s3://bucket/prefix (an S3-compatible store is named by options.endpoint)",
    ),
    rule(
        "!self.startsWith('s3://') || size(self.split('/')[2]) > 0",
        "the bucket is missing: write s3://bucket/prefix",
    ),
    rule(
        "!self.startsWith('s3://') || size(self.split('/')[2]) == 0 || "
        "self.split('/')[2].matches('^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$')",
        "the bucket's name must be 3 to 63 lower-case letters, digits, dots and dashes; "
        "write s3://bucket/prefix, without user, port or query",
    ),
    rule(
        "!self.contains('/../') && !self.endsWith('/..') && !self.contains('?') && !self.contains('#')",
        "must be a plain s3://bucket/prefix, without '..', '?' or '#'",
    ),
)


KEYS_NEEDED = (
    "name a Secret of the Dataset's namespace that holds accessKeyId and secretAccessKey; "
    "public buckets without credentials are not supported yet"
)


class SourceOptions(Model):
    """How the object store is reached."""

    endpoint: (
        Annotated[
            str,
            Field(
                max_length=1024,
                json_schema_extra=rules(
                    rule(
                        "isURL(self) && (url(self).getScheme() == 'http' || url(self).getScheme() == 'https')",
                        "must be a URL such as http://store.example:9000",
                    )
                ),
            ),
        ]
        | None
    ) = None
    """URL of an S3-compatible store; left out, it is Amazon S3."""
    region: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Region of the bucket, such as us-east-1."""
    path_style: bool | None = None
    """Whether the bucket stands in the path (http://store/bucket) and not in the host name."""


class SecretRef(Model):
    """A Secret in the Dataset's own namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name. It holds the keys accessKeyId and secretAccessKey."""


class Source(Model):
    """Where the data is at home."""

    uri: Annotated[str, Field(min_length=1, max_length=2048, json_schema_extra=_URI_RULES)]
    """Bucket and prefix, as s3://bucket/prefix. It cannot be changed later."""
    options: SourceOptions = defaulted(SourceOptions)
    """How the object store is reached. They cannot be changed later."""
    secret_ref: SecretRef | None = None
    """The Secret with the keys of the store. Every source needs one: without it the cache would read with the
    credentials of its node."""


class Preload(Model):
    """Whether the data is brought into the cache before jobs read it."""

    enabled: bool = True
    """True: the operator loads the data onto the nodes that it chooses. False: only what jobs read is cached."""


class Placement(Model):
    """On which nodes the data lies."""

    mode: PlacementMode = "Auto"
    """Partition spreads one copy over the nodes, Replicate puts all of it on each, Auto replicates when every
    chosen node has room for all of it."""
    node_count: Annotated[int, Field(ge=1, le=5000)] | None = None
    """How many nodes hold the copy; left out, the fewest that can."""
    node_selector: NodeSelector = Field(default={})
    """Labels of the nodes that may hold it; empty: every node of the cache cluster."""


class DatasetSpec(Model):
    """What is cached, where from, and where."""

    source: Annotated[
        Source,
        Field(
            json_schema_extra=rules(
                rule(
                    "has(self.secretRef)",
                    KEYS_NEEDED,
                    field=".secretRef",
                    reason="FieldValueRequired",
                ),
                rule(
                    "self.uri == oldSelf.uri",
                    "cannot be changed, because volumes and cached blocks belong to it: "
                    "create another Dataset for another source",
                    field=".uri",
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
    cache_cluster: Annotated[
        str,
        Field(
            min_length=1,
            max_length=20,
            json_schema_extra=rules(
                rule(
                    "self == oldSelf", "cannot be changed: create another Dataset in the other cache cluster"
                )
            ),
        ),
    ] = names.DEFAULT_CACHE_CLUSTER
    """The CacheCluster that holds the data."""
    preload: Preload = defaulted(Preload)
    """Whether the data is brought into the cache before jobs read it."""
    placement: Placement = defaulted(Placement)
    """On which nodes the data lies."""


class NodeBytes(Model):
    """What one node holds of a copy."""

    name: str
    """The node."""
    bytes: int
    """Bytes of the copy that lie there."""


class Copy(Model):
    """One whole set of the dataset's cached blocks."""

    id: str
    """Its number, counted from 0."""
    nodes: Annotated[list[NodeBytes], Field(json_schema_extra=list_map("name"))] = Field(default=[])
    """The nodes it lies on."""


class DatasetStatus(Model):
    """What of the data is cached, and where."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    state: DatasetState | None = None
    """The conditions in one word, for display only."""
    conditions: Conditions = Field(default=[])
    """Mounted: the source can be read through the cache. Loaded: what was to be cached is on its nodes. Ready:
    jobs can use it as it was asked for."""
    total_bytes: int = 0
    """Size of the data at its source."""
    total_files: int = 0
    """Number of its files."""
    cached_bytes: int = 0
    """Bytes that are cached somewhere, each counted once."""
    physical_bytes: int = 0
    """Bytes in the cache, every copy of a block counted."""
    cached_ratio: float = 0.0
    """cachedBytes over totalBytes, between 0 and 1."""
    cached: str | None = None
    """cachedRatio as a whole percentage, rounded down, such as 95%; for display only."""
    size: str | None = None
    """totalBytes in a readable unit, such as 1.2 MB; for display only."""
    copies: Annotated[list[Copy], Field(json_schema_extra=list_map("id"))] = Field(default=[])
    """The copies, and on which nodes they lie."""
    claim_name: str = ""
    """The PersistentVolumeClaim through which any pod of the namespace can read the data."""
    mount_path: str = ""
    """Where the data is mounted inside the cache cluster."""


class Dataset(Model):
    """Data of an object store, held in a cache cluster on the nodes that train on it, and readable by any pod
    through a PersistentVolumeClaim of the same name."""

    spec: DatasetSpec
    """What is cached, where from, and where."""
    status: DatasetStatus | None = None
    """What of the data is cached, and where; written by the operator."""


NAME_RULE = rule(
    f"self.metadata.name.matches('{LABEL_PATTERN}') && size(self.metadata.name) <= 63",
    "metadata.name must be at most 63 lower-case letters, digits and dashes: volumes are named after it",
)
"""Rule on the whole object: the schema of metadata itself belongs to the API server."""
