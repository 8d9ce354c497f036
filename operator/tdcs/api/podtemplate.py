"""The pod templates of a TrainingJob: what TDCS itself reads of them and adds to them.

The rest of a template is passed on as it is; the API server checks it when the pods are made.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tdcs.api.base import JsonObject, Model, rule


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

POD_TEMPLATE: dict[str, Any] = {
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


def well_shaped(template: dict[str, Any]) -> dict[str, Any]:
    """The template itself; the schema says the same, but objects may be older than the schema.

    Raises:
        ValidationError: TDCS could not add to it; pydantic reports it as the field's own error.
    """
    _TemplateShape.model_validate(template)
    return template


PodTemplate = Annotated[
    JsonObject,
    AfterValidator(well_shaped),
    Field(
        json_schema_extra={
            **POD_TEMPLATE,
            "x-kubernetes-validations": [
                rule(
                    "self == oldSelf",
                    "cannot be changed once created: delete the TrainingJob and create it anew",
                )
            ],
        }
    ),
]
"""A pod template as in a Job, with at least one container."""
