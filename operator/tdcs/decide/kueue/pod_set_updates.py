"""What the AdmissionChecks of a Workload want its pods to carry (`podSetUpdates`), as Kueue's own jobs take it on.

Kueue (pkg/podset, Merge) adds it to what the flavors give, and starts no job where two of them, or one and the job's
template, want another value of the same key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tdcs.api import names
from tdcs.decide.kueue.kueue_nodes import PodSetPlacement
from tdcs.model.kube_objects import Object

_FIELDS: Final = (("nodeSelector", "node selector"), ("labels", "label"), ("annotations", "annotation"))


class PodSetConflictError(ValueError):
    """Two want another value of the same key. The text names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetUpdate:
    """What all checks together want the pods of one pod set to carry.

    Attributes:
        given_by: the check that wants it, by field and key.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    given_by: Mapping[tuple[str, str], str] = field(default_factory=dict)


def updates_of(workload: Object) -> dict[str, PodSetUpdate]:
    """By pod set, what the checks of a Workload want. The annotation of what pods read is left out: the operator
    chooses the copies of a TrainingJob itself.

    Raises:
        PodSetConflictError: it cannot all be given.
    """
    templates = {
        str(pod_set.get("name")): pod_set.get("template") or {}
        for pod_set in (workload.get("spec") or {}).get("podSets") or ()
    }
    updates: dict[str, PodSetUpdate] = {}
    for check in (workload.get("status") or {}).get("admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            pods = str(update.get("name"))
            updates[pods] = _with(
                updates.get(pods, PodSetUpdate()),
                update,
                pods=pods,
                template=templates.get(pods) or {},
                check=f"AdmissionCheck {check.get('name')}",
            )
    return updates


def with_update(place: PodSetPlacement, update: PodSetUpdate | None) -> PodSetPlacement:
    """Where pods run by their flavors, and by what the checks want.

    Raises:
        PodSetConflictError: the flavors have other labels than a check wants.
    """
    if update is None:
        return place
    for key, value in update.node_selector.items():
        if place.node_labels.get(key, value) != value:
            raise _conflict(
                update.given_by["nodeSelector", key],
                pods=place.pod_set,
                value_text=f"node selector {key}={value}",
                contradiction=f"the ResourceFlavor has {key}={place.node_labels[key]}",
            )
    new = tuple(toleration for toleration in update.tolerations if toleration not in place.tolerations)
    return replace(
        place,
        node_labels={**place.node_labels, **update.node_selector},
        tolerations=(*place.tolerations, *new),
        labels=update.labels,
        annotations=update.annotations,
    )


def _with(
    update_before: PodSetUpdate,
    update: Mapping[str, Any],
    *,
    pods: str,
    template: Mapping[str, Any],
    check: str,
) -> PodSetUpdate:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    template_values: Mapping[str, Mapping[str, str]] = {
        "nodeSelector": spec.get("nodeSelector") or {},
        "labels": metadata.get("labels") or {},
        "annotations": metadata.get("annotations") or {},
    }
    merged = {
        "nodeSelector": dict(update_before.node_selector),
        "labels": dict(update_before.labels),
        "annotations": dict(update_before.annotations),
    }
    given_by = dict(update_before.given_by)
    for name, word in _FIELDS:
        for key, value in (update.get(name) or {}).items():
            if key == names.ANNOTATION_DATASETS:
                continue
            before = merged[name].get(key, template_values[name].get(key, value))
            if before != value:
                author = given_by.get((name, key), "the job's template")
                contradiction = f"{author} has {key}={before}"
                raise _conflict(
                    check, pods=pods, value_text=f"{word} {key}={value}", contradiction=contradiction
                )
            merged[name][key] = value
            given_by[name, key] = check
    new = [
        toleration
        for toleration in update.get("tolerations") or ()
        if toleration not in update_before.tolerations
    ]
    return PodSetUpdate(
        node_selector=merged["nodeSelector"],
        labels=merged["labels"],
        annotations=merged["annotations"],
        tolerations=(*update_before.tolerations, *new),
        given_by=given_by,
    )


def _conflict(check: str, *, pods: str, value_text: str, contradiction: str) -> PodSetConflictError:
    return PodSetConflictError(
        f"{check} wants the {value_text} on the pods of pod set {pods}, and {contradiction}: correct the "
        "configuration of the check (podSetUpdates), or what it contradicts"
    )
