"""Preload: one directive to bring a part of a Dataset into the cache, run once."""

from typing import Annotated, Literal

from pydantic import Field

from tdcs.api.base import (
    LABEL_PATTERN,
    Measure,
    Model,
    OnceSeen,
    StatusModel,
    list_map,
    object_name_rule,
    own_namespace_rule,
    rule,
    rules,
)
from tdcs.api.conditions import Conditions
from tdcs.api.failures import FAILED_FILES_KEPT, FailedFile
from tdcs.api.selection import ONE_OF_TWO, Bandwidth, Selection, StartTime

Verify = Literal["None", "Sampled", "All"]
PreloadState = Literal["Pending", "Scheduled", "Loading", "Verifying", "Suspended", "Complete", "Failed"]

_FROZEN = ("datasetRef", "paths", "percent", "amount", "copies", "nodes", "startTime")


def _frozen(field: str) -> dict[str, str]:
    return rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        "cannot be changed: delete the Preload and create it again",
        field=f".{field}",
    )


class DatasetRef(Model):
    """A Dataset of the same namespace."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            json_schema_extra=rules(
                own_namespace_rule("a Dataset of the Preload's own namespace"), object_name_rule("Dataset")
            ),
        ),
    ]
    """Its name."""


class PreloadSpec(Selection):
    """What is loaded, when, where and how fast."""

    dataset_ref: DatasetRef
    """The Dataset that is loaded."""
    copies: Annotated[int, Field(ge=1, le=16)] | None = None
    """How many copies, each on nodes of its own; left out, as many as the Dataset's placement has."""
    nodes: Annotated[
        list[
            Annotated[
                str, Field(min_length=1, max_length=253, json_schema_extra=rules(object_name_rule("Node")))
            ]
        ],
        Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=[])
    """The cache nodes that shall hold it, in the mode of the Dataset's placement: with Replicate, or with Auto where
    each has room for all of it, all of it on each. Left out, the Dataset's placement chooses."""
    start_time: StartTime = None
    """When loading begins, such as 2030-01-31T20:00:00Z; left out or in the past, at once."""
    bandwidth: Bandwidth = None
    """The most bytes a second that are read from the source, over all nodes, such as 100M; left out, no limit."""
    verify: Verify = "None"
    """Whether the content of what is on the nodes is compared with the source at the end: All reads every file of it
    again, Sampled a twentieth of the bytes, at least some ten files. Copies that differ are loaded again once."""
    suspend: bool = False
    """True stops loading and keeps what was loaded; false goes on with what is missing."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """Seconds after its end at which the Preload is deleted; left out, it stays. What it loaded is kept."""


class PreloadStatus(StatusModel):
    """How far it is."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    state: PreloadState | None = None
    """The conditions in one word, for display only."""
    message: str | None = None
    """How it stands with it, in a sentence: how far it is, or what is wrong and what to do. For display only."""
    conditions: Conditions = Field(default=[])
    """Complete: every wanted byte was found on its node. Failed: some could not be loaded, and no more is tried.
    Suspended: spec.suspend holds it."""
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When loading began."""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When it completed or failed."""
    bytes_total: Measure = 0
    """Bytes that were asked for, every copy counted, also those for which there is no room."""
    bytes_done: Measure = 0
    """Those that are there."""
    files_total: Measure = 0
    """Files that are meant."""
    files_done: Measure = 0
    """Those that are whole on all of their nodes; counted by the listing after each load."""
    bytes_per_second: int = 0
    """Bytes a second that the running load reads from the source, over all nodes; after the end, as last reported."""
    copied_bytes_per_second: int = 0
    """Bytes a second that nodes copy from each other meanwhile; after the end, as last reported."""
    progress: str | None = None
    """bytesDone over bytesTotal as a whole percentage; left out while nothing is known of it, and 99% at most of a
    Preload that has failed. For display only."""
    rate: str | None = None
    """bytesPerSecond in a readable unit, and next to it copiedBytesPerSecond, such as 12 MiB/s + 24 MiB/s copied; left
    out after the end. For display only."""
    verified_bytes: int = 0
    """Bytes of copies that were compared with the source."""
    failed_files: Annotated[
        list[FailedFile], Field(max_length=FAILED_FILES_KEPT, json_schema_extra=list_map("path"))
    ] = Field(default=[])
    """The first of the files that could not be loaded, or that differ from the source."""
    nodes: Annotated[list[str], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})] = Field(
        default=[]
    )
    """The nodes that hold it, or shall."""
    dataset_generation: int = 0
    """The Dataset's generation when it completed; what was loaded is kept until the Dataset's spec changes."""
    dataset_uid: str = ""
    """The uid of the Dataset that it ended for. It runs again for another one that is made under that name, unless it
    is complete and what it brings would not be kept."""


class Preload(Model):
    """One directive to bring a part of a Dataset into the cache: run once, with progress. Deleting it while it runs
    cancels it, and frees what nothing else wants; what a finished one loaded is kept."""

    spec: Annotated[
        PreloadSpec,
        Field(
            json_schema_extra=rules(
                ONE_OF_TWO,
                rule(
                    "!has(self.copies) || !has(self.nodes) || size(self.nodes) == 0",
                    "copies and nodes exclude each other: name the nodes, or say how many copies",
                    field=".copies",
                ),
                *(_frozen(field) for field in _FROZEN),
            )
        ),
    ]
    """What is loaded, when, where and how fast."""
    status: Annotated[PreloadStatus | None, OnceSeen] = None
    """How far it is; written by the operator."""


NAME_RULE = rule(
    f"self.metadata.name.matches('{LABEL_PATTERN}') && size(self.metadata.name) <= 63",
    "metadata.name must be at most 63 lower-case letters, digits and dashes",
)
"""Rule on the whole object: the schema of metadata itself belongs to the API server."""
