"""TrainingJob: a distributed training run that is placed where its data lies."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tdcs.api.base import JsonObject, Model, defaulted, list_map, rule, rules
from tdcs.api.conditions import Conditions

Framework = Literal["TensorFlow", "None"]
JobState = Literal["Waiting", "Suspended", "Starting", "Running", "Succeeded", "Failed"]

NAME_LIMIT = 50
"""The longest name whose pods' host names, NAME-worker-12345, still fit a DNS label of 63 characters."""


def _open_object(description: str, **more: Any) -> dict[str, Any]:
    """An object whose fields the API server checks when the pods are made, those in `more` apart."""
    return {
        "type": "object",
        "description": description,
        "x-kubernetes-preserve-unknown-fields": True,
        **more,
    }


def _objects(description: str, *, limit: int, **items: Any) -> dict[str, Any]:
    """A list of such objects; null is an empty list, as in the pods' own API."""
    listed = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **items}
    return {
        "type": "array",
        "description": description,
        "maxItems": limit,
        "nullable": True,
        "items": listed,
    }


def _text_map(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "nullable": True,
        "additionalProperties": {"type": "string"},
    }


_CONTAINER: dict[str, Any] = {
    "required": ["name", "image"],
    "properties": {
        "name": {"type": "string", "description": "The container's name.", "minLength": 1, "maxLength": 63},
        "image": {
            "type": "string",
            "description": "The container's image.",
            "minLength": 1,
            "maxLength": 1024,
        },
        "env": _objects("Its variables; they win over those that are added.", limit=1024),
        "volumeMounts": _objects("What it mounts; the datasets are added.", limit=256),
    },
}

_POD_SPEC: dict[str, Any] = {
    "required": ["containers"],
    "properties": {
        "containers": {
            **_objects("The containers; each gets the datasets mounted.", limit=64, **_CONTAINER),
            "minItems": 1,
            "nullable": False,
        },
        "initContainers": _objects(
            "What runs before them; each gets the datasets mounted.", limit=64, **_CONTAINER
        ),
        "volumes": _objects("The pods' volumes; those of the datasets are added.", limit=256),
        "restartPolicy": {
            "type": "string",
            "description": "Never (default) or OnFailure.",
            "maxLength": 16,
            "x-kubernetes-validations": [
                rule(
                    "self == 'Never' || self == 'OnFailure'",
                    "must be Never or OnFailure: a training pod ends",
                )
            ],
        },
    },
}

_POD_TEMPLATE: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["spec"],
    "properties": {
        "metadata": _open_object(
            "Labels and annotations of the pods; TDCS adds its own.",
            nullable=True,
            properties={
                "labels": _text_map("Labels of the pods."),
                "annotations": _text_map("Annotations of the pods."),
            },
        ),
        "spec": _open_object(
            "The pod's spec. Volumes of the datasets and the rendezvous environment are added.", **_POD_SPEC
        ),
    },
}


class _ContainerShape(Model):
    env: list[dict[str, Any]] | None = None
    volume_mounts: list[dict[str, Any]] | None = None


class _PodShape(Model):
    containers: Annotated[list[_ContainerShape], Field(min_length=1)]
    init_containers: list[_ContainerShape] | None = None
    volumes: list[dict[str, Any]] | None = None


class _MetadataShape(Model):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _TemplateShape(Model):
    """What of a pod template TDCS itself reads and adds to."""

    metadata: _MetadataShape | None = None
    spec: _PodShape


def _well_shaped(template: dict[str, Any]) -> dict[str, Any]:
    """The template itself; the schema says the same, but objects may be older than the schema.

    Raises:
        ValidationError: TDCS could not add to it; pydantic reports it as the field's own error.
    """
    _TemplateShape.model_validate(template)
    return template


_MOUNT_RULES = rules(
    rule(
        "self.startsWith('/') && size(self) > 1", "must be an absolute path in the container, such as /data"
    ),
    rule("!self.contains(':')", "must not contain ':'"),
    rule(
        "!self.contains('/../') && !self.endsWith('/..') && !self.contains('//')",
        "must be a plain path, without '..' and '//'",
    ),
    rule("!self.endsWith('/')", "must not end with '/'"),
)


class ReplicaSpec(Model):
    """The pods of one role."""

    replicas: Annotated[
        int,
        Field(le=1000, json_schema_extra=rules(rule("self >= 1", "must be at least 1: a job needs a pod"))),
    ] = 1
    """How many pods."""
    template: Annotated[JsonObject, AfterValidator(_well_shaped), Field(json_schema_extra=_POD_TEMPLATE)]
    """The pods, as in a Job. schedulerName defaults to the scheduler that was installed with TDCS."""


class ReplicaSpecs(Model):
    """The roles of the job."""

    worker: Annotated[ReplicaSpec, Field(alias="Worker")]
    """The workers: every job has them."""


class Readiness(Model):
    """How much of a dataset must be cached before the job starts."""

    fraction: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the bytes, between 0 and 1. A dataset of which everything that fits is loaded, or that is not
    preloaded, never holds the job back."""


class DatasetUse(Model):
    """A dataset that the job reads."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """A Dataset in the job's namespace."""
    mount_path: Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=_MOUNT_RULES)]
    """Where the containers see it, read-only."""
    readiness: Readiness = defaulted(Readiness)
    """How much of it must be cached before the job starts."""


class RunPolicy(Model):
    """How the job runs, ends and is cleaned up."""

    suspend: bool = False
    """True: no pod exists, running ones are removed; set to false to start or go on."""
    backoff_limit: Annotated[int, Field(ge=0, le=1000)] | None = None
    """How many failed pods are replaced before the job fails; 6 when left out."""
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds after its start at which a job that still runs fails."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)] | None = None
    """Seconds after its end at which the TrainingJob and its pods are deleted; left out, they are kept."""


class TrainingJobSpec(Model):
    """What runs, on which data."""

    framework: Framework = "None"
    """Whose rendezvous environment the pods get: TensorFlow gets TF_CONFIG, None gets nothing."""
    replica_specs: Annotated[
        ReplicaSpecs,
        Field(
            json_schema_extra=rules(
                rule(
                    "self == oldSelf",
                    "cannot be changed once created: delete the TrainingJob and create it anew",
                )
            )
        ),
    ]
    """The roles of the job, each with its number of pods and their template."""
    datasets: Annotated[
        list[DatasetUse],
        Field(
            max_length=16,
            json_schema_extra=list_map(
                "name",
                **rules(
                    rule(
                        "self.all(one, self.exists_one(other, other.mountPath == one.mountPath))",
                        "two datasets have the same mountPath: give each its own",
                    ),
                    rule(
                        "self == oldSelf",
                        "cannot be changed once created: delete the TrainingJob and create it anew",
                    ),
                ),
            ),
        ),
    ] = Field(default=[])
    """The datasets that the job reads."""
    run_policy: RunPolicy = defaulted(RunPolicy)
    """How the job runs, ends and is cleaned up."""


class ReplicaStatus(Model):
    """The pods of one role, counted."""

    active: int = 0
    """Pods that are pending or run."""
    ready: int = 0
    """Pods that run and are ready."""
    succeeded: int = 0
    """Pods that ended well."""
    failed: int = 0
    """Pods that failed."""


class ReplicaStatuses(Model):
    """The pods of each role."""

    worker: Annotated[ReplicaStatus, Field(alias="Worker")]
    """The workers."""


class PodPlacement(Model):
    """Where one pod of the job runs, or ran."""

    pod: str
    """The pod."""
    node: str
    """Its node."""
    cached_bytes: int
    """Bytes of the job's datasets on that node when the pod was first seen there."""


class CopyUse(Model):
    """Which copy of a dataset the job reads."""

    dataset: str
    """The Dataset."""
    copy_id: Annotated[str, Field(alias="copy")]
    """The copy's id."""


class TrainingJobStatus(Model):
    """How far the job is, and where it runs."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    state: JobState | None = None
    """The conditions in one word, for display only."""
    conditions: Conditions = Field(default=[])
    """DataReady: its datasets are mounted and cached as far as asked. Admitted: its pods may exist. Running: all
    pods are ready. Succeeded and Failed: how it ended."""
    replica_statuses: ReplicaStatuses | None = None
    """The pods of each role, counted."""
    placement: Annotated[list[PodPlacement], Field(json_schema_extra=list_map("pod"))] = Field(default=[])
    """Where the pods run, or ran."""
    locality: float | None = None
    """Mean over the pods of: bytes of the data on the pod's node over the most such bytes on any node. 1 means
    that no pod could have been placed better."""
    local_share: float | None = None
    """Mean over the pods of the share of the data that lies on the pod's own node."""
    copies: Annotated[list[CopyUse], Field(json_schema_extra=list_map("dataset"))] = Field(default=[])
    """Which copy of each dataset the job reads."""
    start_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the pods were first allowed to exist."""
    completion_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the job ended."""


class TrainingJob(Model):
    """A distributed training run whose pods are placed on the nodes that hold its data."""

    spec: TrainingJobSpec
    """What runs, on which data."""
    status: TrainingJobStatus | None = None
    """How far the job is, and where it runs; written by the operator."""


NAME_RULE = rule(
    f"self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= {NAME_LIMIT}",
    f"metadata.name must begin with a letter and be at most {NAME_LIMIT} lower-case letters, digits and dashes, "
    "so that the pods' host names, NAME-worker-0 and on, fit 63 characters",
)
"""Rule on the whole object: the schema of metadata itself belongs to the API server."""
