"""What the models of all kinds share: camel-case names, schema extensions, small reusable values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.alias_generators import to_camel

ModelT = TypeVar("ModelT", bound=BaseModel)


class Model(BaseModel):
    """Base of every model of the API.

    Lenient on purpose (`extra="ignore"`): an operator that is older than the installed CRD must not stumble
    over a field that it does not know yet. The API server prunes and refuses unknown fields.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True, slots=True)
class WrittenAlways:
    """Mark of a status field that is written when it is zero or empty, too, see `Measure`."""


Measure = Annotated[int, WrittenAlways()]
"""A number of a status that a column prints, or that scripts and autoscalers compare: written at zero, too."""

Share = Annotated[float, WrittenAlways()]
"""A share, of which the same holds."""


UNSEEN: Final[Mapping[str, Any]] = {"observedGeneration": -1}
"""The status of an object that the operator has not looked at yet, which the server fills in. Tools that wait for
objects (kstatus of Flux and Helm) take one without a status for ready, one with another generation for under way."""


def _without_unseen(status: object) -> object:
    return None if status == UNSEEN else status


OnceSeen = BeforeValidator(_without_unseen)
"""Of a status: none until the operator has looked at the object."""


class StatusModel(Model):
    """Base of a status and of its parts: what is zero, empty or false by default is not written, as in the statuses of
    Kubernetes' own kinds. Fields with the mark `WrittenAlways` are written always."""

    @model_serializer(mode="wrap")
    def _without_empty(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if (
                value
                or field.is_required()
                or any(isinstance(mark, WrittenAlways) for mark in field.metadata)
            ):
                continue
            if value == field.get_default(call_default_factory=True):
                written.pop(name, None)
                written.pop(field.serialization_alias or name, None)
        return written


def rule(
    expression: str,
    message: str,
    *,
    field: str | None = None,
    reason: str | None = None,
    subject: str | None = None,
) -> dict[str, str]:
    """One CEL rule of a schema (`x-kubernetes-validations`), with the sentence a user reads when it fails.

    Args:
        subject: a CEL expression of what the message is about, where the path of the field does not say it.
    """
    validation = {"rule": expression, "message": message}
    if subject:
        validation["messageExpression"] = f"{subject} + ' {message}'"
    if reason:
        validation["reason"] = reason
    if field:
        validation["fieldPath"] = field
    return validation


def own_namespace_rule(meaning: str) -> dict[str, str]:
    """The rule of a name that stands for `meaning`, an object of the same namespace: it names no namespace."""
    return rule("!self.contains('/')", f"must be {meaning}, without 'namespace/'")


def object_name_rule(kind: str) -> dict[str, str]:
    """The rule of a name that an object of a kind can have; one with a namespace has its own rule."""
    return rule(
        f"self.contains('/') || self.matches('{OBJECT_NAME_PATTERN}')",
        f"no {kind} can have this name: names are of lower-case letters, digits, '-' and '.'",
    )


IS_IMAGE = "!self.contains('://') && !self.endsWith(':') && self.matches('^[^\\\\s]+$')"
"""CEL: of what an image has at least; the kubelet and the registry know the rest."""

NO_IMAGE = "is no image, such as registry.example/team/train:1.2, without blanks and without https://"


def rules(*cel_rules: dict[str, str], **more: Any) -> dict[str, Any]:
    """Schema extras that hold CEL rules and whatever else is given."""
    return {"x-kubernetes-validations": list(cel_rules), **more}


def list_map(*keys: str, **more: Any) -> dict[str, Any]:
    """Schema extras of a list with `keys` that identify its items, so that appliers merge items."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys), **more}


def one_value(**more: Any) -> dict[str, Any]:
    """Schema extras of a list that has one writer, and is replaced as a whole. For each item of a list map the API
    server records who wrote which field, which takes more than a short item itself."""
    return {"x-kubernetes-list-type": "atomic", **more}


def defaulted(model: type[ModelT], **extra: Any) -> Any:
    """A nested object that may be left out; the server then fills it in, defaults included."""
    return Field(default_factory=model, json_schema_extra={"default": {}, **extra})


PATH_RULE = rule(
    r"self.matches('^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$')",
    "must be an absolute path on the nodes, such as /var/lib/tdcs/cache, without '..' or blanks",
)
"""Rule of a folder on the nodes."""

TOLERATION_RULES = (
    rule(
        "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
        "operator Exists compares no value: remove value, or use Equal",
        field=".value",
    ),
    rule(
        "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
        "without a key operator must be Exists, which tolerates every taint",
    ),
    rule(
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds belongs to effect NoExecute",
        field=".tolerationSeconds",
    ),
)
"""Rules of a toleration, in a pod template or of the cache's pods."""

OBJECT_NAME_PATTERN = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""Of the name of an object of Kubernetes."""

LABEL_VALUE_PATTERN = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"

LABEL_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def worded(pattern: str, sentence: str) -> dict[str, Any]:
    """A pattern of a `Field`, of which the API server says a sentence in place of the regular expression."""
    return {"pattern": pattern, "json_schema_extra": rules(rule(f"self.matches(r'{pattern}')", sentence))}


LABEL_VALUE = worded(
    LABEL_VALUE_PATTERN,
    "must be of letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
)
LABEL = worded(LABEL_PATTERN, "must be of lower-case letters, digits and '-'")

LABEL_KEY = (
    "self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')"
)
"""CEL: a text that can be the key of a label, a taint or an annotation."""

NO_LABEL_KEY = (
    "must be the key of a label: letters, digits, '-', '_' and '.', 63 at most, and before a slash a domain"
)

LABEL_KEYS = rule(f"self.all(key, {LABEL_KEY.replace('self', 'key')})", f"a key {NO_LABEL_KEY}")
"""Rule of labels by their keys."""

NodeSelector = Annotated[
    dict[str, Annotated[str, Field(max_length=63, **LABEL_VALUE)]],
    Field(max_length=64, json_schema_extra=rules(LABEL_KEYS, **{"x-kubernetes-map-type": "atomic"})),
]
"""Labels that a node must carry."""

JsonObject = Annotated[
    dict[str, Any], Field(json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
"""An object of Kubernetes' own API that is passed on and checked by the server when it is used."""
