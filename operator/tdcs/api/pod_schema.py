"""The schema of a pod template: what the API server refuses of it at `kubectl apply`.

Its fields are those of a pod, by their names and kinds. What these may hold is in `pod_values`; the rest is checked
when the pods are made.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from tdcs.api import names
from tdcs.api.base import IS_IMAGE, LABEL, LABEL_KEYS, LABEL_VALUE, NO_IMAGE, TOLERATION_RULES, rule, rules
from tdcs.api.pod_values import OBJECTS, REQUIRED, VALUES, WITHHELD
from tdcs.api.targets import TARGETS


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
    value = {"type": "string", "maxLength": 63, **LABEL_VALUE["json_schema_extra"]}
    return {**_text_map(description), "maxProperties": 64, "additionalProperties": value, **rules(LABEL_KEYS)}


def _seconds(description: str, *, least: int) -> dict[str, Any]:
    return {
        "type": "integer",
        "format": "int64",
        "description": description,
        "minimum": least,
        "nullable": True,
    }


QUANTITY = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
"""Exponents have two digits at most: the API server would compute with a billion of them in a pod."""

NO_QUANTITY = "is no quantity, such as 4, 500m or 2Gi"

_ONE_QUANTITY: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "maxLength": 32,
    **rules(
        rule(
            f"type(self) == int ? self >= 0 : self.matches(r'{QUANTITY}')",
            NO_QUANTITY,
            subject="string(self)",
        )
    ),
}


def _quantities(description: str, quantity: Mapping[str, Any] = _ONE_QUANTITY) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "nullable": True,
        "maxProperties": 64,
        "additionalProperties": dict(quantity),
    }


_WHOLE_GPUS = rule(
    f"!('{names.GPU_RESOURCE}' in self) || type(self['{names.GPU_RESOURCE}']) == int || "
    f"self['{names.GPU_RESOURCE}'].matches('^[0-9]+$')",
    f"{names.GPU_RESOURCE} is a whole number of GPUs, such as 1",
)


_ASKED = (
    f"!has(self.requests) || !('{names.GPU_RESOURCE}' in self.requests) || (has(self.limits) && "
    f"'{names.GPU_RESOURCE}' in self.limits && "
    f"string(self.limits['{names.GPU_RESOURCE}']) == string(self.requests['{names.GPU_RESOURCE}']))"
)
"""Devices are not overcommitted."""

_GPUS_IN_LIMITS = rule(
    _ASKED, f"{names.GPU_RESOURCE} belongs in limits; requests leave it out, or have the same number"
)


def _at_most(resource: str) -> dict[str, str]:
    request, most = f"string(self.requests['{resource}'])", f"string(self.limits['{resource}'])"
    return rule(
        f"!has(self.requests) || !has(self.limits) || !('{resource}' in self.requests) || "
        f"!('{resource}' in self.limits) || !isQuantity({request}) || !isQuantity({most}) || "
        f"quantity({request}).compareTo(quantity({most})) <= 0",
        f"requests of {resource} must not be above its limits",
    )


_WHOLE_BYTES = rule(
    "!('memory' in self) || type(self['memory']) == int || !self['memory'].endsWith('m')",
    "memory in m is in thousandths of a byte: write Mi",
)

_WHOLE_DEVICES = rule(
    "self.all(name, !name.contains('/') || type(self[name]) == int || !self[name].matches('[.num]'))",
    "a device, with a domain in its name, is asked for by a whole number",
)

_RESOURCE_NAMES = rule(
    "self.all(name, name.matches('^[^/]+/[^/]+$') || name in ['cpu', 'memory', 'ephemeral-storage'] || "
    "name.startsWith('hugepages-'))",
    "has a name that no resource has: cpu, memory, ephemeral-storage, hugepages-SIZE, or a device with its domain, "
    f"such as {names.GPU_RESOURCE}",
)


def _one_of(description: str, *values: str) -> dict[str, Any]:
    """One of a few words, or none. A rule and no enumeration: next to the error of an enumeration the API server says
    that it did not look at the rules."""
    listed = ", ".join(f"'{value}'" for value in ("", *values))
    return {
        "type": "string",
        "description": description,
        "maxLength": 253,
        "nullable": True,
        **rules(rule(f"self in [{listed}]", f"must be {', '.join(values[:-1])} or {values[-1]}")),
    }


_CLAIMED_QUANTITY: dict[str, Any] = {
    **{key: value for key, value in _ONE_QUANTITY.items() if key != "x-kubernetes-validations"},
    "pattern": QUANTITY,
}
"""The same where rules would cost too much: of claims, of which a pod may have many."""


def _resources(
    *quantity_rules: dict[str, str], quantity: Mapping[str, Any] = _ONE_QUANTITY
) -> dict[str, Any]:
    """What something asks for; `quantity_rules`: those of limits and of requests."""
    more = rules(*quantity_rules) if quantity_rules else {}
    return _open_object(
        "What it asks for; the queue counts it.",
        nullable=True,
        **(rules(_GPUS_IN_LIMITS, _at_most("cpu"), _at_most("memory")) if quantity_rules else {}),
        properties={
            "limits": {**_quantities("At most so much.", quantity), **more},
            "requests": {**_quantities("At least so much.", quantity), **more},
        },
    )


_RESOURCES = _resources()

_CONTAINER: dict[str, Any] = {
    "required": ["name", "image"],
    "properties": {
        "resources": _resources(_WHOLE_GPUS, _WHOLE_DEVICES, _WHOLE_BYTES, _RESOURCE_NAMES),
        "name": {
            "type": "string",
            "description": "The container's name.",
            "maxLength": 63,
            **LABEL["json_schema_extra"],
        },
        "imagePullPolicy": _one_of("When the image is pulled.", "Always", "IfNotPresent", "Never"),
        "image": {
            "type": "string",
            "description": "The container's image.",
            "minLength": 1,
            "maxLength": 1024,
            **rules(rule(IS_IMAGE, NO_IMAGE)),
        },
        "env": _objects(
            "Its variables; they win over those that are added.",
            limit=1024,
            required=["name"],
            properties={
                "name": {
                    "type": "string",
                    "description": "The variable's name.",
                    "minLength": 1,
                    "maxLength": 1024,
                },
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
        "operator": _one_of("How it is compared.", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
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
                    limit=64,
                    properties={"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS},
                )
            },
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": _objects("Nodes that the pods prefer.", limit=64),
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
    **rules(*TOLERATION_RULES),
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
        "overhead": _quantities("What the pods take next to their containers."),
        "containers": {
            **_objects("The containers; each gets the datasets mounted.", limit=64, **_CONTAINER),
            **rules(
                rule(
                    "self.all(one, self.exists_one(other, other.name == one.name))",
                    "two containers have the same name: give each its own",
                )
            ),
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
                "name": {
                    "type": "string",
                    "description": "The volume's name.",
                    "maxLength": 63,
                    **LABEL["json_schema_extra"],
                },
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
                                "spec": _open_object(
                                    "Its spec.",
                                    properties={"resources": _resources(quantity=_CLAIMED_QUANTITY)},
                                )
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

_RULES = "x-kubernetes-validations"


@cache
def _pod_fields() -> Mapping[str, Mapping[str, Any]]:
    """The fields of a pod by their types, as the newest Kubernetes client knows them: of an object the name of its
    type, of a text, a number or a truth its kind, of many of one of these that in a list or, by name, in an object, of
    all else nothing. Names of required fields end in "!"."""
    fields_by_type: dict[str, dict[str, Any]] = json.loads(
        files("tdcs.api").joinpath("pod_fields.json").read_text(encoding="utf-8")
    )
    return fields_by_type


def _closed(schema: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """The schema of an object that has no field but those of its type."""
    described, values = schema.get("properties", {}), VALUES.get(type_, {})
    withheld = WITHHELD.get(type_, ())
    fields = {name.rstrip("!"): inner for name, inner in _pod_fields()[type_].items()}
    properties = {
        name: _with_rules(_field(described.get(name), type_=inner), values.get(name, {}))
        for name, inner in fields.items()
        if name not in withheld
    }
    required = {name.rstrip("!") for name in _pod_fields()[type_] if name.endswith("!")}
    required.update(schema.get("required", ()), REQUIRED.get(type_, ()))
    more = {name: value for name, value in schema.items() if name not in (_OPEN, "properties", "required")}
    closed = {"type": "object", "description": AS_IN_A_POD, **more, "properties": properties}
    if type_ in OBJECTS:
        closed = _with_rules(closed, rules(*OBJECTS[type_]))
    return {**closed, "required": sorted(required)} if required else closed


def _with_rules(schema: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with more of it; its own rules stay, and are the first."""
    all_rules = [*schema.get(_RULES, ()), *more.get(_RULES, ())]
    return {**schema, **more, **({_RULES: all_rules} if all_rules else {})}


def _field(schema: Mapping[str, Any] | None, *, type_: Any) -> dict[str, Any]:
    """The schema of a field; `schema`: what is said of it here."""
    if isinstance(type_, str):
        if type_[:1].isupper():
            return _closed(schema or {"nullable": True}, type_)
        return dict(schema or (_plain(type_) if type_ else _ANY))
    if isinstance(type_, dict):
        many = {"type": "object", "additionalProperties": {"type": type_[""]}}
        return dict(schema or {**many, "nullable": True, "description": AS_IN_A_POD})
    listed = dict(schema or {"type": "array", "nullable": True, "description": AS_IN_A_POD})
    if not type_[0][:1].isupper():
        return {**listed, "items": listed.get("items", {"type": type_[0]})}
    items = _closed(listed.get("items", {}), type_[0])
    items.pop("description", None)
    return {**listed, "items": items}


def _plain(kind: str) -> dict[str, Any]:
    wide = {"format": "int64"} if kind == "integer" else {}
    return {"type": kind, **wide, "nullable": True, "description": AS_IN_A_POD}


RESOURCES: dict[str, Any] = {
    **_closed(_resources(_WHOLE_BYTES, _RESOURCE_NAMES), "ResourceRequirements"),
    _OPEN: False,
}

_TARGET = rule(
    f"!('{names.TARGET}' in self) || self['{names.TARGET}'] in {list(TARGETS)}",
    f"{names.TARGET} must be one of {', '.join(TARGETS)}",
)

POD_TEMPLATE: dict[str, Any] = {
    "type": "object",
    _OPEN: False,
    "required": ["spec"],
    "properties": {
        "metadata": _closed(
            {
                "description": "Labels and annotations of the pods; TDCS adds its own.",
                "nullable": True,
                "properties": {
                    "labels": {**_labels("Labels of the pods."), **rules(LABEL_KEYS, _TARGET)},
                    "annotations": {**_text_map("Annotations of the pods."), **rules(_TARGET)},
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
