"""Whose share of the cluster a namespace's jobs take, and with which weight."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.model.kube_objects import Key, Object

OF_ITS_OWN = "namespace/"
"""Begins the name of the share of a namespace without the label: no value of a label has a slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOwners:
    """Who takes turns.

    Attributes:
        label: of namespaces: those with one value of it share; empty: each namespace has a share of its own.
        weights: by value of the label, or by namespace where there is no label; 1 where none is named.
    """

    label: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)

    def of(self, namespaces: Mapping[Key, Object], name: str) -> str:
        """Whose share a namespace's jobs take."""
        if not self.label:
            return name
        metadata = namespaces.get(("", name), {}).get("metadata") or {}
        value = (metadata.get("labels") or {}).get(self.label)
        return str(value) if value else OF_ITS_OWN + name

    def weights_in(self, namespaces: Mapping[Key, Object]) -> dict[str, float]:
        """The weights of all shares. A namespace with a share of its own may have one by its annotation, which comes
        before that of the chart; a namespace that shares cannot choose that of the others."""
        weights = dict(self.weights)
        for (_, name), namespace in namespaces.items():
            owner = self.of(namespaces, name)
            weight = _annotated(namespace)
            if weight is not None and owner in {name, OF_ITS_OWN + name} and not self._is_shared(owner):
                weights[owner] = weight
        return weights

    def _is_shared(self, owner: str) -> bool:
        return bool(self.label) and not owner.startswith(OF_ITS_OWN)


def wrong_weight(namespace: Object) -> str:
    """What is wrong with the annotation of a namespace; empty where nothing is."""
    text = (namespace["metadata"].get("annotations") or {}).get(names.ANNOTATION_SHARE_WEIGHT)
    if text is None or _weight(text) is not None:
        return ""
    return (
        f"the annotation {names.ANNOTATION_SHARE_WEIGHT} of namespace {namespace['metadata']['name']} is {text!r} and "
        "does not count: write a number that is not below 0, such as 2 or 0.5"
    )


def parsed_weights(texts: Iterable[str]) -> dict[str, float]:
    """Weights that were written as NAME=WEIGHT.

    Raises:
        ValueError: one is none.
    """
    return dict(map(_parsed, texts))


def checked_weight(text: str) -> str:
    """The same text, which is a NAME=WEIGHT.

    Raises:
        ValueError: it is none.
    """
    _parsed(text)
    return text


def _parsed(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    weight = _weight(value)
    if not name or weight is None:
        raise ValueError(f"{text!r} is no NAME=WEIGHT with a number that is not below 0, such as team-a=2")
    return name, weight


def _annotated(namespace: Object) -> float | None:
    """The weight that a namespace has by its annotation; None: it has none, or none that can be understood."""
    text = (namespace["metadata"].get("annotations") or {}).get(names.ANNOTATION_SHARE_WEIGHT)
    return None if text is None else _weight(text)


def _weight(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if math.isfinite(weight) and weight >= 0 else None
