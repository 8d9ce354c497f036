"""The pod templates of a TrainingJob: what TDCS itself reads of them and adds to them.

The rest of a template is passed on as it is. Its fields are those of a pod, by their names: with another one the API
server refuses the job at `kubectl apply`, as it does with a pod. What they hold it checks when the pods are made.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tdcs.api import names
from tdcs.api.base import LABEL_VALUE_PATTERN, JsonObject, Model, rule, rules


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


def _labels(description: str) -> dict[str, Any]:
    value = {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE_PATTERN}
    return {**_text_map(description), "additionalProperties": value}


def _seconds(description: str, *, least: int) -> dict[str, Any]:
    return {
        "type": "integer",
        "format": "int64",
        "description": description,
        "minimum": least,
        "nullable": True,
    }


_QUANTITY = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
"""Exponents have two digits at most: the API server would compute with a billion of them in a pod."""

_ONE_QUANTITY: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": _QUANTITY,
    "maxLength": 32,
}


def _quantities(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "nullable": True,
        "additionalProperties": _ONE_QUANTITY,
    }


_WHOLE_GPUS = rule(
    f"!('{names.GPU_RESOURCE}' in self) || type(self['{names.GPU_RESOURCE}']) == int || "
    f"self['{names.GPU_RESOURCE}'].matches('^[0-9]+$')",
    f"{names.GPU_RESOURCE} is a whole number of GPUs, such as 1",
)


def _one_of(description: str, *values: str) -> dict[str, Any]:
    """One of a few words, or none. A pattern and no enumeration: beside the error of an enumeration the API server says
    that it did not look at the rules."""
    return {
        "type": "string",
        "description": description,
        "maxLength": 253,
        "nullable": True,
        "pattern": f"^({'|'.join(values)})?$",
    }


def _resources(*found: dict[str, str]) -> dict[str, Any]:
    """What something asks for; `found`: rules of limits and of requests."""
    more = {**rules(*found), "maxProperties": 64} if found else {}
    return _open_object(
        "What it asks for; the queue counts it.",
        nullable=True,
        properties={
            "limits": {**_quantities("At most so much."), **more},
            "requests": {**_quantities("At least so much."), **more},
        },
    )


_RESOURCES = _resources()

_CONTAINER: dict[str, Any] = {
    "required": ["name", "image"],
    "properties": {
        "resources": _resources(_WHOLE_GPUS),
        "name": {
            "type": "string",
            "description": "The container's name.",
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "minLength": 1,
            "maxLength": 63,
        },
        "imagePullPolicy": _one_of("When the image is pulled.", "Always", "IfNotPresent", "Never"),
        "image": {
            "type": "string",
            "description": "The container's image.",
            "minLength": 1,
            "maxLength": 1024,
        },
        "env": _objects(
            "Its variables; they win over those that are added.",
            limit=1024,
            required=["name"],
            properties={
                "name": {"type": "string", "description": "The variable's name.", "maxLength": 1024},
                "value": {
                    "type": "string",
                    "description": "Its value, a text: numbers are quoted in YAML.",
                    "nullable": True,
                },
            },
        ),
        "volumeMounts": _objects("What it mounts; the datasets are added.", limit=256),
    },
}

_TEXTS: dict[str, Any] = {
    "type": "array",
    "nullable": True,
    "description": "The values.",
    "maxItems": 1024,
    "items": {"type": "string"},
}

_REQUIREMENTS = _objects(
    "Conditions on labels or fields, all of which must hold.",
    limit=256,
    required=["key", "operator"],
    properties={
        "key": {"type": "string", "description": "The label or field.", "maxLength": 317},
        "operator": {
            "type": "string",
            "description": "In, NotIn, Exists, DoesNotExist, Gt, Lt.",
            "maxLength": 16,
        },
        "values": _TEXTS,
    },
)

_NODE_AFFINITY = _open_object(
    "On which nodes the pods may run, and which they prefer.",
    nullable=True,
    properties={
        "requiredDuringSchedulingIgnoredDuringExecution": _open_object(
            "Nodes that the pods may run on: one of the terms must hold.",
            nullable=True,
            properties={
                "nodeSelectorTerms": _objects(
                    "The terms.",
                    limit=256,
                    properties={"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS},
                )
            },
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": _objects("Nodes that the pods prefer.", limit=256),
    },
)


def _text(description: str, *, limit: int = 253) -> dict[str, Any]:
    return {"type": "string", "description": description, "maxLength": limit, "nullable": True}


_TOLERATIONS = _objects(
    "Taints of nodes that the pods bear.",
    limit=256,
    properties={
        "key": _text("The taint's key.", limit=317),
        "operator": _one_of("Exists or Equal (default).", "Exists", "Equal"),
        "value": _text("The taint's value."),
        "effect": _one_of(
            "The taint's effect; left out: all.", "NoSchedule", "PreferNoSchedule", "NoExecute"
        ),
    },
)

_POD_SPEC: dict[str, Any] = {
    "required": ["containers"],
    "properties": {
        "resources": _RESOURCES,
        "nodeSelector": _labels("Labels that a node must have."),
        "dnsPolicy": _one_of(
            "How names are found.", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"
        ),
        "terminationGracePeriodSeconds": _seconds("How long pods may take to end.", least=0),
        "activeDeadlineSeconds": _seconds(
            "How long a pod may run; runPolicy.activeDeadlineSeconds bounds the job.", least=1
        ),
        "affinity": _open_object(
            "Which nodes, and which pods, the pods are to be near.",
            nullable=True,
            properties={"nodeAffinity": _NODE_AFFINITY},
        ),
        "tolerations": _TOLERATIONS,
        "nodeName": _text("The node, where no scheduler is to choose it."),
        "schedulerName": _text("Which scheduler places the pods."),
        "hostUsers": {
            "type": "boolean",
            "description": "false: the pods have a user namespace, in which no dataset can be mounted.",
        },
        "runtimeClassName": _text("The RuntimeClass, with what it adds to the pods."),
        "priorityClassName": {
            "type": "string",
            "description": "The PriorityClass: that of scheduling.priorityClassName, which is the better place for it.",
            "maxLength": 253,
        },
        "overhead": _quantities("What the pods take beside their containers."),
        "containers": {
            **_objects("The containers; each gets the datasets mounted.", limit=64, **_CONTAINER),
            "minItems": 1,
            "nullable": False,
        },
        "initContainers": _objects(
            "What runs before them; each gets the datasets mounted.", limit=64, **_CONTAINER
        ),
        "volumes": _objects(
            "The pods' volumes; those of the datasets are added.",
            limit=256,
            properties={
                "emptyDir": _open_object(
                    "A folder of the pod's own.",
                    nullable=True,
                    properties={
                        "sizeLimit": {**_ONE_QUANTITY, "description": "At most so much.", "nullable": True}
                    },
                ),
                "ephemeral": _open_object(
                    "A volume of the pod's own.",
                    nullable=True,
                    properties={
                        "volumeClaimTemplate": _open_object(
                            "Its claim.",
                            nullable=True,
                            properties={
                                "spec": _open_object("Its spec.", properties={"resources": _RESOURCES})
                            },
                        )
                    },
                ),
            },
        ),
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

AS_IN_A_POD = "As in a Pod."
"""Describes a field of which nothing but its name is known here."""

_ANY: dict[str, Any] = {
    "x-kubernetes-preserve-unknown-fields": True,
    "nullable": True,
    "description": AS_IN_A_POD,
}

_OPEN = "x-kubernetes-preserve-unknown-fields"


@cache
def _pod_fields() -> Mapping[str, Mapping[str, Any]]:
    """The fields of a pod by their types, as the newest Kubernetes client knows them: of an object the name of its
    type, of a list of objects that name in a list, of all else nothing."""
    found: dict[str, dict[str, Any]] = json.loads(
        files("tdcs.api").joinpath("pod_fields.json").read_text(encoding="utf-8")
    )
    return found


def _closed(schema: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """The schema of an object that has no field but those of its type."""
    known = schema.get("properties", {})
    properties = {name: _field(known.get(name), type_=inner) for name, inner in _pod_fields()[type_].items()}
    more = {name: value for name, value in schema.items() if name not in (_OPEN, "properties")}
    return {"type": "object", "description": AS_IN_A_POD, **more, "properties": properties}


def _field(schema: Mapping[str, Any] | None, *, type_: Any) -> dict[str, Any]:
    """The schema of a field; `schema`: what is said of it here."""
    if not type_:
        return dict(schema or _ANY)
    if isinstance(type_, str):
        return _closed(schema or {"nullable": True}, type_)
    listed = dict(schema or {"type": "array", "nullable": True, "description": AS_IN_A_POD})
    items = _closed(listed.get("items", {}), type_[0])
    items.pop("description", None)
    return {**listed, "items": items}


POD_TEMPLATE: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": _closed(
            {
                "description": "Labels and annotations of the pods; TDCS adds its own.",
                "nullable": True,
                "properties": {
                    "labels": _labels("Labels of the pods."),
                    "annotations": _text_map("Annotations of the pods."),
                },
            },
            "ObjectMeta",
        ),
        "spec": _closed(
            {
                "description": "The pod's spec. Volumes of the datasets and the rendezvous environment are added.",
                **_POD_SPEC,
            },
            "PodSpec",
        ),
    },
}


def _quantity(value: float | str) -> float | str:
    if not re.fullmatch(_QUANTITY, str(value)):
        raise ValueError(f"{value!r} is not a quantity such as 4, 500m or 10Gi")
    return value


Quantities = dict[str, Annotated[int | float | str, AfterValidator(_quantity)]]


class _Resources(Model):
    limits: Quantities | None = None
    requests: Quantities | None = None


class _Variable(Model):
    name: str


class _Container(Model):
    name: Annotated[str, Field(min_length=1)]
    image: Annotated[str, Field(min_length=1)]
    resources: _Resources | None = None
    env: list[_Variable] | None = None
    volume_mounts: list[dict[str, Any]] | None = None


class _Requirement(Model):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(Model):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _RequiredNodes(Model):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Model):
    required_during_scheduling_ignored_during_execution: _RequiredNodes | None = None
    preferred_during_scheduling_ignored_during_execution: list[dict[str, Any]] | None = None


class _Affinity(Model):
    node_affinity: _NodeAffinity | None = None


class _Toleration(Model):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Pod(Model):
    containers: Annotated[list[_Container], Field(min_length=1)]
    init_containers: list[_Container] | None = None
    volumes: list[dict[str, Any]] | None = None
    resources: _Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[_Toleration] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    overhead: Quantities | None = None
    restart_policy: str | None = None


class _Metadata(Model):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Model):
    """What of a pod template TDCS itself reads and adds to."""

    metadata: _Metadata | None = None
    spec: _Pod


def well_shaped(template: dict[str, Any]) -> dict[str, Any]:
    """The template itself; the schema says the same, but a file that `tdcs plan` reads has met no schema.

    Raises:
        ValidationError: TDCS could not add to it; pydantic reports it as the field's own error.
    """
    _Template.model_validate(template)
    return template


PodTemplate = Annotated[
    JsonObject,
    AfterValidator(well_shaped),
    Field(json_schema_extra=POD_TEMPLATE),
]
"""A pod template as in a Job, with at least one container."""


def container_names(template: Mapping[str, Any]) -> list[str]:
    """Of the containers and init containers of a template."""
    spec = template["spec"]
    return [
        each["name"]
        for kind in ("initContainers", "containers")
        for each in spec.get(kind) or ()
        if "name" in each
    ]
