"""Where a Dataset's data is at home: spec.source."""

import re
from typing import Annotated, Final

from pathspec import GitIgnoreSpec
from pydantic import AfterValidator, Field, model_validator

from tdcs.api.base import (
    LABEL,
    Model,
    defaulted,
    object_name_rule,
    own_namespace_rule,
    rule,
    rules,
    worded,
)
from tdcs.api.durations import DURATION_RULE, IS_DURATION, Duration, Time
from tdcs.api.selection import Bandwidth
from tdcs.api.source_uri import REGION, canonical_source_uri, endpoint_of

_URI_RULES = rules(
    rule(
        "self.matches('^(s3|gs|az|abfss?|file|https?|hf|pvc)://')",
        "the scheme must be s3, gs, az, abfss, file, http, https, hf or pvc: write s3://bucket/prefix (an "
        "S3-compatible store is named by options.endpoint), gs://bucket/prefix for Google Cloud Storage, "
        "az://account/container/prefix for Azure, https://host/folder, hf://datasets/owner/name, pvc://claim/folder or "
        "file:///folder",
    ),
    rule(
        "!self.startsWith('http') || "
        "self.matches('^https?://([a-zA-Z0-9._-]+|[[][0-9a-fA-F:.]+[]])(:[1-9][0-9]{0,4})?(/.*)?$')",
        "a web server is named as https://host[:port]/folder, without a user before the host",
    ),
    rule(
        "!self.startsWith('hf://') || self.matches('^hf://((datasets|models|spaces)/)?[A-Za-z0-9][A-Za-z0-9._-]*/"
        "[A-Za-z0-9][A-Za-z0-9._-]*(/[^@]*)?$') && !self.matches('^hf://(datasets|models|spaces)/[^/]*/?$')",
        "a repository of the Hugging Face Hub is named as hf://datasets/owner/name[/folder], or hf://owner/name for a "
        "model; its revision stands in options.revision",
    ),
    rule(
        "!self.startsWith('pvc://') || self.matches('^pvc://[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(/.*)?$')",
        "a PersistentVolumeClaim of the Dataset's own namespace is named as pvc://claim[/folder]",
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
        "!self.startsWith('gs://') || self.matches('^gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?$')",
        "a bucket of Google Cloud Storage is named as gs://bucket/prefix, by lower-case letters, digits, dots, dashes "
        "and underscores",
    ),
    rule(
        "!self.startsWith('az://') || "
        "self.matches('^az://[a-z0-9]{3,24}/([a-z0-9][a-z0-9-]{1,61}[a-z0-9]|[$]root|[$]web)(/.*)?$')",
        "a container of Azure is named as az://account/container/prefix, the account by 3 to 24 lower-case letters and "
        "digits, the container by 3 to 63 lower-case letters, digits and dashes",
    ),
    rule(
        "!self.startsWith('abfs') || self.matches('^abfss?://([a-z0-9][a-z0-9-]{1,61}[a-z0-9]|[$]root|[$]web)@"
        "[a-z0-9]{3,24}[.](dfs|blob)[.]core[.]windows[.]net(/.*)?$')",
        "a container of Azure is named as abfss://container@account.dfs.core.windows.net/prefix, or as "
        "az://account/container/prefix; a store in another domain is named by options.endpoint",
    ),
    rule(
        "!self.startsWith('file://') || self.startsWith('file:///')",
        "the folder must be absolute: write file:///folder, with three slashes",
    ),
    rule(
        "!self.startsWith('file:///') || self.matches('^file:///[^/].*$')",
        "the folder is missing after the three slashes: write file:///folder",
    ),
    rule(
        # Few and short expressions: the API server bounds what a rule may cost.
        "!self.matches('[?#\\\\\\\\\\\\x00-\\\\x1f\\\\x7f]|%(2[fF]|5[cC]|[01][0-9a-fA-F]|7[fF])') && "
        "!self.matches('/( |%20)*(\\\\.|%2[eE]){1,2}( |%20)*(/|$)')",
        "must be a plain s3://bucket/prefix, https://host/folder or file:///folder, without '..', '.' as a folder, "
        "'?', '#', backslashes, "
        "control characters or percent signs that stand for them",
    ),
    rule(
        "!self.matches('[\\\\p{Cc}\\\\p{Cf}\\\\p{Co}\\\\p{Zl}\\\\p{Zp}]')",
        "must have no characters that cannot be seen, such as U+200B or U+202E: write the name again",
    ),
)


def _checked_uri(uri: str) -> str:
    """The URI as it was written; what the rules above refuse is refused here too, should it slip past them."""
    try:
        canonical_source_uri(uri)
    except ValueError as error:
        raise ValueError(f"{uri!r}: {error}") from error
    return uri


def _checked_region(region: str) -> str:
    if not REGION.fullmatch(region):
        raise ValueError(f"{region!r} is no region: write letters, digits and dashes, such as us-east-1")
    return region


_NAME_BELOW: Final = r"^[^/\\?#\x00-\x1f\x7f][^\\?#\x00-\x1f\x7f]*$"
"""A path below a folder; steps to other folders are refused where names are taken in."""

_MANY_STARS = "has more than three * between two slashes: write several patterns"
_MANY_FOLDERS = "has more than three **: write several patterns"
_FILE_PATTERN: Final = r"^!?[^\s#!\x00-\x1f][^\x00-\x1f\x7f]*$"
_PATTERN_RULES = rules(
    rule("!self.matches('([*][^/]*){4}')", _MANY_STARS),
    rule("size(self.split('**')) <= 4", _MANY_FOLDERS),
    rule(
        f"self.matches(r'{_FILE_PATTERN}')",
        "must be a pattern as in .gitignore, without a blank or # at its beginning",
    ),
)
"""Each * may end at every place of a name: where all of these are tried, as programs of gitignore do, the time that a
long name takes is multiplied by its length for each."""


def _checked_pattern(pattern: str) -> str:
    if any(part.count("*") > 3 for part in pattern.split("/")):
        raise ValueError(f"{pattern!r} {_MANY_STARS}")
    if pattern.count("**") > 3:
        raise ValueError(f"{pattern!r} {_MANY_FOLDERS}")
    try:
        GitIgnoreSpec.from_lines([pattern])
    except (ValueError, re.error) as error:  # the second, which is no ValueError, for ranges such as [z-a]
        raise ValueError(f"{pattern!r} is no pattern of gitignore: {error}") from error
    return pattern


FilePattern = Annotated[
    str,
    # The pattern before the function: behind one it is checked, and is no part of the schema.
    Field(
        min_length=1,
        max_length=256,
        pattern=_FILE_PATTERN,
        json_schema_extra=_PATTERN_RULES,
    ),
    AfterValidator(_checked_pattern),
]


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
                    ),
                    rule(
                        "self.matches('^[a-zA-Z]+://([a-zA-Z0-9._-]+|[[][0-9a-fA-F:.]+[]])(:[1-9][0-9]{0,4})?/?$')",
                        "must be a plain http://HOST[:PORT] or https://HOST[:PORT], without user, path or query",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """URL of an S3-compatible store; left out, it is Amazon S3. Of gs sources the URL of Google Cloud Storage's API,
    such as a private endpoint or an emulator; left out, it is https://storage.googleapis.com. Of az sources the URL of
    another cloud's Blob service (https://account.blob.core.usgovcloudapi.net), or of an emulator, in whose paths the
    account stands; left out, it is https://account.blob.core.windows.net. Of hf sources the Hub or a mirror of it, as
    HF_ENDPOINT names it; left out, it is https://huggingface.co. An http source has none, as its URI names the server,
    and a pvc source has none."""
    region: (
        Annotated[
            str,
            AfterValidator(_checked_region),
            Field(
                min_length=1,
                max_length=64,
                json_schema_extra=rules(
                    rule(
                        "self.matches('^[A-Za-z0-9-]+$')",
                        "must be a region of letters, digits and dashes, such as us-east-1",
                    )
                ),
            ),
        ]
        | None
    ) = None
    """Region of the bucket, such as us-east-1."""
    path_style: bool | None = None
    """Whether the bucket stands in the path (http://store/bucket) and not in the host name; left out, it does with an
    endpoint, and with dots in the bucket's name, before which no certificate of Amazon's is valid."""
    requester_pays: bool | None = None
    """Whether the account of the keys pays for what is read, as buckets with requester pays ask for."""

    index: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=512,
                **worded(_NAME_BELOW, "must be relative to uri, without ?, # and backslashes"),
            ),
        ]
        | None
    ) = None
    """Of http sources: the document below uri that names the files: an HTML page, whose links to folders below it are
    followed; lines of names; lines as sha256sum writes them; or JSON, a list or a line for each file, of objects with
    path, size and sha256. Left out, it is the page at uri itself."""
    files: Annotated[
        list[
            Annotated[
                str,
                Field(
                    min_length=1,
                    max_length=512,
                    **worded(_NAME_BELOW, "must be relative to uri, without ?, # and backslashes"),
                ),
            ]
        ],
        Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = Field(default=[])
    """Of http sources: the names of the files below uri, where no document names them."""
    revision: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=128,
                **worded(
                    r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
                    "must be a branch, a tag or a commit",
                ),
            ),
        ]
        | None
    ) = None
    """Of hf sources: a branch, a tag or a commit. Left out, it is main. With a commit the Dataset never changes."""
    as_of: Time | None = None
    """Of s3 sources whose bucket keeps versions: a time in the past, such as 2026-11-01T00:00:00Z. The Dataset has each
    object in the version that it had then, whatever becomes of it later."""
    run_as_user: Annotated[int, Field(ge=1, le=2147483647)] | None = None
    """Of pvc sources: the number of the user as whom the claim's files are read, who must be able to read them all.
    Left out, it is 65532, a user without any rights of its own."""
    run_as_group: Annotated[int, Field(ge=1, le=2147483647)] | None = None
    """Of pvc sources: the number of that user's group; left out, it is the same number."""


class SecretRef(Model):
    """A Secret in the Dataset's own namespace."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            json_schema_extra=rules(
                own_namespace_rule("a Secret of the Dataset's own namespace"), object_name_rule("Secret")
            ),
        ),
    ]
    """Its name. It holds the keys accessKeyId and secretAccessKey, and for temporary ones sessionToken; of gs sources
    key.json, the key file of a service account, or token, an access token; of az sources accountKey, or sasToken, a
    shared access signature, or token; of http and hf sources token, or username and password."""


ONE_HOME: Final = (
    "needs either uri, or datasetRef for the source of another namespace's Dataset, and not both"
)


ONE_IDENTITY: Final = (
    "an s3, gs or az source is read either with the keys of secretRef or as serviceAccountName, and other sources know "
    "no ServiceAccounts: remove serviceAccountName, or secretRef"
)


def _checked_account(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", name):
        raise ValueError(
            f"serviceAccountName {name!r} is no name of a ServiceAccount of the Dataset's namespace"
        )
    return name


class DatasetRef(Model):
    """A Dataset of another namespace."""

    namespace: Annotated[str, Field(min_length=1, max_length=63, **LABEL)]
    """Its namespace."""
    name: Annotated[
        str, Field(min_length=1, max_length=253, json_schema_extra=rules(object_name_rule("Dataset")))
    ]
    """Its name."""


class SourceSpec(Model):
    """Where the data is at home."""

    uri: Annotated[
        str, AfterValidator(_checked_uri), Field(min_length=1, max_length=2048, json_schema_extra=_URI_RULES)
    ] = Field(default_factory=str)
    """Bucket and prefix, as s3://bucket/prefix, or gs://bucket/prefix of Google Cloud Storage, or
    az://account/container/prefix of Azure; a folder of a web server, as https://host/folder; a repository of the
    Hugging Face Hub, as hf://datasets/owner/name; a PersistentVolumeClaim of the Dataset's namespace, or a folder in
    it, as pvc://claim/folder; or a folder that every cache node sees at the same place (NFS, say), as file:///folder.
    gs, az, http, https, hf and pvc need a CacheCluster with engine Native. The CacheCluster's sources and
    sourceFolders say which of them the namespace may use. It cannot be changed later."""
    dataset_ref: DatasetRef | None = None
    """Instead of uri: the Dataset of another namespace whose source this one reads, with its keys, where its
    spec.sharedWith names this namespace. Both share what is cached; this one has its own placement and pays with its
    namespace's quota. It cannot be changed later."""
    options: SourceOptions = defaulted(SourceOptions)
    """How the object store is reached. They cannot be changed later."""
    include: Annotated[
        list[FilePattern], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """Which files the Dataset has, as patterns of gitignore of their paths below uri, such as train/**/*.tfrecord;
    empty: all. They cannot be changed later."""
    exclude: (
        Annotated[
            list[FilePattern], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
        ]
        | None
    ) = None
    """Which of them it does not have, by the same kind of patterns; one that begins with ! takes files back in. Left
    out, folders are taken without what file systems and filers keep in them for themselves (.snapshot/, .zfs/,
    lost+found/, @eaDir/, ...), and buckets whole; an empty list leaves out nothing. They cannot be changed later."""
    secret_ref: SecretRef | None = None
    """The Secret with the keys of the store. Left out, a source is read without keys, as public buckets can be, and
    never with those of a node. File and pvc sources have none. To other hosts than the source's own it is never
    sent."""
    service_account_name: (
        Annotated[
            str,
            AfterValidator(_checked_account),
            Field(
                min_length=1,
                max_length=253,
                json_schema_extra=rules(
                    own_namespace_rule("a ServiceAccount of the Dataset's own namespace"),
                    object_name_rule("ServiceAccount"),
                ),
            ),
        ]
        | None
    ) = None
    """Instead of secretRef: a ServiceAccount of the Dataset's own namespace, as which the store is read (workload
    identity). Its annotations name the role of Amazon's (eks.amazonaws.com/role-arn), the application of Azure's
    (azure.workload.identity/client-id, and tenant-id) or Google's service account (iam.gke.io/gcp-service-account).
    Of s3, gs and az sources."""
    bandwidth: Bandwidth = None
    """The most bytes a second that all loads of the namespace together read from the store (the endpoint, or the file
    system), such as 1G; of several of its Datasets of a store the least counts, and for data that other namespaces
    read, too, the highest of theirs. It is shared so that waiting jobs lose least: most goes to the load of which they
    wait for fewest bytes. Left out, what the store gives is measured and shared; a load alone is not limited then.
    spec.preload.bandwidth limits one load."""
    check_interval: Annotated[
        Duration,
        Field(
            json_schema_extra=rules(
                DURATION_RULE,
                rule(
                    f"!{IS_DURATION} || duration(self) == duration('0s') || duration(self) >= duration('10s')",
                    "must be at least 10s, such as 30s, 5m or 1h, or 0s for never",
                ),
            )
        ),
    ] = "5m"
    """How often the source is listed for files that were added, changed or removed, such as 30s, 5m or 1h; at
    least 10s, and 0s for never. A new value of the annotation tdcs.io/refresh has it listed at once. Large
    sources are listed for at most a twentieth of the time, so they may be checked less often."""
    loss_percent: Annotated[int, Field(ge=0, le=100)] = 90
    """The share of its files, or of their bytes, that the source may have lost since the version that is served. When
    it has lost more, or all, that version stays (SourceShrunk) until the source has been the same for an hour, or for
    a day when it is empty, or until the annotation tdcs.io/accept-loss has the digest that the condition names. 100:
    whatever the source has is taken over at once. Of several Datasets of a source the least counts."""

    @model_validator(mode="after")
    def _has_one_home(self) -> "SourceSpec":
        if bool(self.uri) == (self.dataset_ref is not None):
            raise ValueError(ONE_HOME)
        return self

    @model_validator(mode="after")
    def _is_read_as_one(self) -> "SourceSpec":
        if self.service_account_name is not None and (
            self.secret_ref is not None or not re.match("(s3|gs|az|abfss?)://", self.uri)
        ):
            raise ValueError(ONE_IDENTITY)
        return self

    @property
    def endpoint(self) -> str | None:
        """URL of the store; None for a folder, and for Amazon S3."""
        return endpoint_of(self.uri, named=self.options.endpoint)
