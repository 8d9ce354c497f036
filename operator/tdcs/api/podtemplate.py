"""The pod templates of a TrainingJob: what TDCS itself reads of them and adds to them.

The rest of a template is passed on as it is. Its fields are those of a pod, by their names: with another one the API
server refuses the job at `kubectl apply`, as it does with a pod. What they hold it checks when the pods are made.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tdcs.api.base import JsonObject, Model
from tdcs.api.pod_schema import NO_QUANTITY, POD_TEMPLATE, QUANTITY, RESOURCES
from tdcs.api.targets import target_of


def _quantity(value: float | str) -> float | str:
    if not re.fullmatch(QUANTITY, str(value)):
        raise ValueError(f"{value!r} {NO_QUANTITY}")
    return value


Quantities = dict[str, Annotated[int | float | str, AfterValidator(_quantity)]]


class _Resources(Model):
    limits: Quantities | None = None
    requests: Quantities | None = None


Resources = Annotated[
    JsonObject,
    AfterValidator(lambda resources: _Resources.model_validate(resources) and resources),
    Field(json_schema_extra=RESOURCES),
]
"""CPU and memory of a container, as in a pod."""


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
    target_of(template)
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
        container["name"]
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or ()
        if "name" in container
    ]
