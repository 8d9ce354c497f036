"""From pydantic models to structural schemas of `apiextensions.k8s.io/v1`.

pydantic writes JSON Schema 2020-12; the API server accepts a subset of OpenAPI 3.0, and refuses references,
null types, `const` and more. The generator avoids what it can, the inliner rewrites the rest and raises on
anything it does not know, so that a CRD is never silently weaker than its model.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from tdcs.api.base import rule

Schema = dict[str, Any]

_KEPT = frozenset(
    {
        "type", "description", "properties", "required", "items", "enum", "format", "pattern", "default",
        "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties",
        "minProperties", "additionalProperties", "anyOf", "nullable",
    }
)  # fmt: skip
"""Keywords of a structural schema that the models use; `x-kubernetes-*` are kept as well."""

_OPEN = "x-kubernetes-preserve-unknown-fields"

_RULES = "x-kubernetes-validations"

_DROPPED = frozenset({"title"})


class CrdJsonSchema(GenerateJsonSchema):
    """JSON Schema without null: in a custom resource an absent field and a null one are the same."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """The schema of the value itself: optional means that the field may be left out."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Without `default: null`, which the server would prune."""
        found = super().default_schema(schema)
        if found.get("default", ...) is None:
            found.pop("default")
        return found


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model.

    Raises:
        ValueError: the model is recursive, or uses a keyword that a custom resource cannot have.
    """
    raw = model.model_json_schema(by_alias=True, schema_generator=CrdJsonSchema, mode="validation")
    definitions = raw.pop("$defs", {})
    return _rewrite(raw, definitions=definitions, path=model.__name__, inside=())


_WISHES = frozenset({"default", "x-kubernetes-validations"})
"""What makes sense of a wish only: the server must not invent a status, and need not judge what the operator says.

(The estimated cost of rules on lists in lists is above the server's budget soon.)
"""


def as_told(schema: Schema) -> Schema:
    """The schema of a status: with no defaults and no rules anywhere."""
    return {
        key: {name: as_told(value) for name, value in found.items()}
        if key == "properties"
        else as_told(found)
        if key in {"items", "additionalProperties"} and isinstance(found, dict)
        else found
        for key, found in schema.items()
        if key not in _WISHES
    }


def _rewrite(
    schema: Schema, *, definitions: Mapping[str, Schema], path: str, inside: tuple[str, ...]
) -> Schema:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name in inside:
            raise ValueError(
                f"{path}: {name} contains itself; a custom resource's schema cannot be recursive"
            )
        inside = (*inside, name)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        schema = _joined(definitions[name], siblings)
        if "$ref" in schema:
            return _rewrite(schema, definitions=definitions, path=path, inside=inside)
    found: Schema = {}
    for key, value in schema.items():
        where = f"{path}.{key}"
        if key in _DROPPED:
            continue
        if key == "const":
            found["enum"] = [value]
        elif key == "properties":
            found[key] = {
                name: _rewrite(inner, definitions=definitions, path=f"{path}.{name}", inside=inside)
                for name, inner in value.items()
            }
        elif key == "items" or (key == "additionalProperties" and isinstance(value, dict)):
            found[key] = _rewrite(value, definitions=definitions, path=where, inside=inside)
        elif key == "additionalProperties":
            if _OPEN not in schema:
                raise ValueError(f"{where}: say x-kubernetes-preserve-unknown-fields instead")
        elif key == "description":
            found[key] = " ".join(str(value).split())
        elif key in _KEPT or key.startswith("x-kubernetes-"):
            found[key] = value
        else:
            raise ValueError(f"{where}: a custom resource's schema cannot have the keyword {key!r}")
    if _OPEN in found:
        found.pop("additionalProperties", None)
        if not found[_OPEN]:
            del found[_OPEN]  # An object of Kubernetes' own with a schema that has all of its fields.
    found = _with_bounds_in_words(found)
    pattern = found.get("pattern", "")
    if pattern and any(pattern in rule["rule"] for rule in found.get("x-kubernetes-validations", ())):
        del found["pattern"]  # The rule says in words what is wrong; the pattern would show itself.
    return found


def _with_bounds_in_words(schema: Schema) -> Schema:
    """A number with its bounds as a rule. Next to the error of a bound the API server writes a second one, which says
    nothing of the object: that it did not look at the rules."""
    if schema.get("type") != "integer" or not {"minimum", "maximum"} & schema.keys():
        return schema
    least, most = schema.get("minimum"), schema.get("maximum")
    unbounded = {key: value for key, value in schema.items() if key not in {"minimum", "maximum"}}
    other_rules = unbounded.get(_RULES, ())
    if most is None and any(each["rule"] == f"self >= {least}" for each in other_rules):
        return unbounded
    if least is None:
        bound = rule(f"self <= {most}", f"must be {most} or less")
    elif most is None:
        bound = rule(f"self >= {least}", f"must be {least} or more")
    else:
        bound = rule(f"self >= {least} && self <= {most}", f"must be between {least} and {most}")
    return {**unbounded, _RULES: [bound, *other_rules]}


def _joined(definition: Schema, siblings: Schema) -> Schema:
    """A definition with what stands next to its reference: rules add up, everything else is replaced."""
    joined = {**definition, **siblings}
    if _RULES in definition and _RULES in siblings:
        joined[_RULES] = [*definition[_RULES], *siblings[_RULES]]
    return joined
