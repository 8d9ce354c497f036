"""Namespaces chosen by their labels."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tdcs.api.base import LABEL_KEYS, Model, rule, rules

LabelValue = Annotated[str, Field(max_length=63)]


class LabelTerm(Model):
    """A condition on a label."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                "In and NotIn need values, and Exists and DoesNotExist have none",
            )
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How it is compared."""
    values: Annotated[
        list[LabelValue], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """With In and NotIn: the values."""


class NamespaceSelector(Model):
    """Labels of namespaces; all must hold. Empty: every namespace."""

    match_labels: Annotated[
        dict[str, LabelValue], Field(max_length=64, json_schema_extra=rules(LABEL_KEYS))
    ] = Field(default={})
    """Labels with their values."""
    match_expressions: Annotated[
        list[LabelTerm], Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = Field(default=[])
    """Conditions on labels."""

    @property
    def terms(self) -> list[Mapping[str, Any]]:
        """All conditions in one form."""
        plain = [
            {"key": key, "operator": "In", "values": [value]} for key, value in self.match_labels.items()
        ]
        return [*plain, *(term.model_dump() for term in self.match_expressions)]

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(meets(labels, term) for term in self.terms)


def meets(labels: Mapping[str, str], requirement: Mapping[str, Any]) -> bool:
    """Whether labels meet a requirement as `metav1.LabelSelectorRequirement` defines it.

    Args:
        labels: values by key.
        requirement: `key`, `operator` and `values`; no labels meet one with another operator.
    """
    value, values = labels.get(requirement["key"]), requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
