"""The Workload of Kueue that stands for a TrainingJob, all roles together.

Kueue decides about it as about any other (KEP-2349); the operator makes it and follows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tdcs.api import names
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.control.job.job_children import pod_template, spec_digest
from tdcs.decide.kueue.kueue_nodes import pod_set_name, topology_request
from tdcs.decide.kueue.workload_standing import local_queue
from tdcs.kube.apply import digest_of, owner_reference
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS

PRIORITY: Final = "kueue.x-k8s.io/priority-class"
"""Label of a job: a WorkloadPriorityClass."""

JOB_UID: Final = "kueue.x-k8s.io/job-uid"

DEACTIVATED: Final = f"{names.GROUP}/suspended-by-user"
"""Annotation of a Workload that is inactive because its job's user suspended it. Without it somebody else made it so
(Kueue for a rejected check or one of its limits, an administrator), and it is not for the operator to undo that."""

_LONGEST: Final = 63
_KUEUE_GROUP: Final = WORKLOAD_PRIORITY_CLASSES.api_version.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPriority:
    """In which order Kueue admits a job.

    Attributes:
        value: larger is admitted first.
        group: API group of the class that it is from; empty: there is no such class.
        name: of the class.
    """

    value: int = 0
    group: str = ""
    name: str = ""

    def fields(self) -> dict[str, Any]:
        """Of the spec of a Workload."""
        if not self.group:
            return {"priority": self.value}
        kind = WORKLOAD_PRIORITY_CLASSES if self.group == _KUEUE_GROUP else PRIORITY_CLASSES
        ref = {"group": self.group, "kind": kind.kind, "name": self.name}
        return {"priority": self.value, "priorityClassRef": ref}


def workload_name(job: str) -> str:
    return names.dns_label(f"trainingjob-{job}", limit=_LONGEST)


def workload_of(
    owner: Object,
    spec: TrainingJobSpec,
    *,
    scheduler_name: str,
    priority: "WorkloadPriority",
    gated: bool,
    preferred: list[Object] | None = None,
) -> Object:
    """A TrainingJob's Workload, as it is created.

    Args:
        owner: the job.
        spec: its parsed spec.
        priority: of the job.
        gated: whether its data is not there yet: Kueue does not look at it before.
        preferred: terms of preferred node affinity, in mode Affinity: Topology Aware Scheduling may follow them.
    """
    metadata = owner["metadata"]
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": workload_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_TRAINING_JOB: metadata["name"],
                JOB_UID: metadata["uid"],
            },
            "annotations": {
                **({names.KUEUE_GATED_BY: names.KUEUE_CONTROLLER} if gated else {}),
                **({DEACTIVATED: "true"} if spec.run_policy.suspend else {}),
                names.ANNOTATION_SPEC_DIGEST: digest_of([spec_digest(spec, role) for role in spec.by_role()]),
            },
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "queueName": local_queue(owner, kueue=True),
            **priority.fields(),
            "active": not spec.run_policy.suspend,
            "podSets": [
                _pod_set(owner, spec, role=role, scheduler_name=scheduler_name, preferred=preferred)
                for role in spec.by_role()
            ],
        },
    }


def is_outdated(live: Object, *, wanted_workload: Object) -> bool:
    """Whether a Workload asks for other pods, or in another queue, than the one that would be created now."""
    live_spec, spec, digest = live.get("spec") or {}, wanted_workload["spec"], names.ANNOTATION_SPEC_DIGEST
    wanted_digest = wanted_workload["metadata"]["annotations"][digest]
    return (
        live_spec.get("queueName") != spec["queueName"]
        or (live["metadata"].get("annotations") or {}).get(digest, wanted_digest) != wanted_digest
        or _counts(live_spec) != _counts(spec)
    )


def _counts(spec: Mapping[str, Any]) -> dict[str, int]:
    """The pods of each set. The digest leaves out the workers of an elastic job: it may change their number."""
    return {str(pod_set["name"]): int(pod_set.get("count", 1)) for pod_set in spec.get("podSets") or ()}


def changes(
    live: Object,
    *,
    owner: Object,
    suspended: bool,
    gated: bool,
    wanted_workload: Object,
    preferred: bool = False,
) -> dict[str, Any]:
    """What to merge into a Workload that exists: the queue and its pods while it has no quota, whether it is active,
    its gate.

    Its pods are changed only in the version that was read: Kueue may reserve quota for the old ones at any moment.

    `wanted_workload`: as it would be created now. `preferred`: once its data is there, its pods know which nodes they
    prefer.
    """
    live_spec = live.get("spec") or {}
    present = live["metadata"].get("annotations") or {}
    spec: dict[str, Any] = {}
    annotations: dict[str, str | None] = {}
    if suspended and live_spec.get("active", True):
        spec["active"] = False
        annotations[DEACTIVATED] = "true"
    elif not suspended and DEACTIVATED in present:
        spec["active"] = True
        annotations[DEACTIVATED] = None
    waits = not (live.get("status") or {}).get("admission")
    spec |= _new_priority(live_spec, wanted_spec=wanted_workload["spec"], waits=waits)
    if waits and is_outdated(live, wanted_workload=wanted_workload):
        spec["queueName"] = local_queue(owner, kueue=True)
        annotations[names.ANNOTATION_SPEC_DIGEST] = wanted_workload["metadata"]["annotations"][
            names.ANNOTATION_SPEC_DIGEST
        ]
        spec["podSets"] = wanted_workload["spec"]["podSets"]
    if not gated and names.KUEUE_GATED_BY in present:
        annotations[names.KUEUE_GATED_BY] = None
        if preferred:
            spec["podSets"] = wanted_workload["spec"]["podSets"]
    version = live["metadata"].get("resourceVersion") if "podSets" in spec else None
    metadata: dict[str, Any] = {
        **({"annotations": annotations} if annotations else {}),
        **({"resourceVersion": version} if version else {}),
    }
    return {**({"spec": spec} if spec else {}), **({"metadata": metadata} if metadata else {})}


def _new_priority(
    live_spec: Mapping[str, Any], *, wanted_spec: Mapping[str, Any], waits: bool
) -> dict[str, Any]:
    """The priority of a job that has got another class; what somebody has written to the Workload of one that has not
    stays. Kueue lets the class of a Workload with quota change only to another one of its own kind."""
    before, after = (spec_part.get("priorityClassRef") for spec_part in (live_spec, wanted_spec))
    own_group = all((class_ref or {}).get("group") == _KUEUE_GROUP for class_ref in (before, after))
    if before == after or not (waits or own_group):
        return {}
    return {"priority": wanted_spec["priority"], "priorityClassRef": after}


def _pod_set(
    owner: Object,
    spec: TrainingJobSpec,
    *,
    role: Role,
    scheduler_name: str,
    preferred: list[Object] | None,
) -> Object:
    role_spec = spec.by_role()[role]
    template = pod_template(
        owner=owner, spec=spec, role=role, scheduler_name=scheduler_name, preferred=preferred
    )
    # With fewer workers than asked for it goes on, and gets the others later.
    least: Mapping[str, int] = {}
    if role == "Worker" and spec.elastic is not None and spec.is_elastic_gang:
        least = (
            {"minCount": spec.elastic.min_replicas} if spec.elastic.min_replicas < role_spec.replicas else {}
        )
    return {
        "name": pod_set_name(role),
        "count": role_spec.replicas,
        **least,
        **topology_request(template),
        "template": template,
    }
