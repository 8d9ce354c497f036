"""Where Kueue's admission has the pods of a pod set run, and what of their Job's template follows from it.

With Topology Aware Scheduling Kueue assigns a domain (a node, a rack) to each pod. Its controller carries that over to
the pods: it finds them by the names of their Workload and pod set, gives each the labels of its domain and takes the
scheduling gate away with which they are made.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tdcs.api import names
from tdcs.api.trainingjob import Role
from tdcs.model.kube_objects import Object

WORKLOAD: Final = "kueue.x-k8s.io/workload"
"""Annotation of a pod with an assigned domain: its Workload."""

POD_SET: Final = "kueue.x-k8s.io/podset"
"""Label of such a pod: its pod set."""

TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""Scheduling gate of such a pod, until Kueue has given it the labels of its domain."""

UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"

REQUESTS: Final[Mapping[str, str]] = {
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
    UNCONSTRAINED: "unconstrained",
}
"""Annotations of a pod template that ask for a topology, and the fields of a pod set's request."""

GIVEN_BY_CHECKS: Final = f"{names.GROUP}/given-by-checks"
"""Annotation of a template: the keys of labels and annotations that AdmissionChecks have given it."""

INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
"""By it Kueue orders pods, so that neighbours in rank are neighbours in the topology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetPlacement:
    """What a pod set got.

    Attributes:
        node_labels: of the nodes of its flavors.
        tolerations: of its flavors.
        labels, annotations: that AdmissionChecks want its pods to carry (`pod_set_updates`); their node selectors and
            tolerations are among those of the flavors.
        workload: name of the Workload with its assigned domains; empty: it has none.
    """

    node_labels: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...] = ()
    workload: str = ""
    pod_set: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def topology_request(template: Object) -> dict[str, Any]:
    """What a pod set of Kueue has to ask for, by the annotations of its template."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    for annotation, name in REQUESTS.items():
        if annotation in annotations:
            value = annotations[annotation]
            request = {name: value.lower() == "true" if annotation == UNCONSTRAINED else value}
            return {"topologyRequest": {**request, "podIndexLabel": INDEX_LABEL}}
    return {"topologyRequest": {"podIndexLabel": INDEX_LABEL}}


def template_changes(
    live: Object, *, template: Object, place: PodSetPlacement | None
) -> dict[str, dict[str, Any]]:
    """What of a live pod template has to change, as a merge patch. Without a placement, nothing.

    Args:
        live: the template of a suspended Job.
        template: that of the role in the TrainingJob.
        place: where its pods may run from now on.
    """
    if place is None:
        return {}
    wanted_spec, present = template["spec"], live["spec"]
    spec: dict[str, Any] = {}
    selector = {**(wanted_spec.get("nodeSelector") or {}), **place.node_labels}
    current_selector = present.get("nodeSelector") or {}
    if selector != current_selector:
        spec["nodeSelector"] = {**dict.fromkeys(current_selector.keys() - selector.keys()), **selector}
    gate = [{"name": TOPOLOGY_GATE}] if place.workload else []
    lists: Mapping[str, list[Any]] = {"tolerations": list(place.tolerations), "schedulingGates": gate}
    for name, added in lists.items():
        own_items = list(wanted_spec.get(name) or ())
        wanted_items = [*own_items, *(item for item in added if item not in own_items)]
        if wanted_items != (present.get(name) or []):
            spec[name] = wanted_items
    metadata = _metadata_changes(
        live.get("metadata") or {}, template=template.get("metadata") or {}, place=place
    )
    return {
        **({"metadata": metadata} if metadata else {}),
        **({"spec": spec} if spec else {}),
    }


def _metadata_changes(live: Object, *, template: Object, place: PodSetPlacement) -> dict[str, Any]:
    own_annotations = template.get("annotations") or {}
    marks: Mapping[str, Mapping[str, str]] = {"labels": {}, "annotations": {}}
    if place.workload:
        # Without a request Kueue has assigned domains all the same, where all flavors of its queue have a topology.
        implied = {} if own_annotations.keys() & REQUESTS.keys() else {UNCONSTRAINED: "true"}
        marks = {"labels": {POD_SET: place.pod_set}, "annotations": {WORKLOAD: place.workload, **implied}}
    before = _given_before(live)
    changes: dict[str, Any] = {}
    for part, managed, update in (
        ("labels", {POD_SET}, place.labels),
        ("annotations", {WORKLOAD, UNCONSTRAINED}, place.annotations),
    ):
        own_values, present = template.get(part) or {}, live.get(part) or {}
        keys = managed | before.get(part, set()) | update.keys()
        goal = {key: {**own_values, **marks[part], **update}.get(key) for key in keys}
        changed = {key: value for key, value in goal.items() if present.get(key) != value}
        if changed:
            changes[part] = changed
    record = {
        part: sorted(of) for part, of in (("labels", place.labels), ("annotations", place.annotations)) if of
    }
    noted = json.dumps(record, sort_keys=True) if record else None
    if (live.get("annotations") or {}).get(GIVEN_BY_CHECKS) != noted:
        changes.setdefault("annotations", {})[GIVEN_BY_CHECKS] = noted
    return changes


def _given_before(live: Object) -> dict[str, set[str]]:
    """The keys that checks of an earlier admission have given the template: another admission may have others."""
    try:
        recorded = json.loads((live.get("annotations") or {}).get(GIVEN_BY_CHECKS) or "{}")
        return {part: {str(key) for key in keys} for part, keys in recorded.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # somebody has changed it


def pod_set_name(role: Role) -> str:
    return role.lower()
