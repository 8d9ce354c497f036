"""What nodes have left for a pod, and why it is not on one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tdcs.api import names
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import ConsideredNode
from tdcs.decide.place.node_eligibility import may_run
from tdcs.decide.queue.wait_message import shown
from tdcs.model.kube_objects import Object, pod_has_ended
from tdcs.model.pod_resources import PODS, added, amounts, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Placer:
    """Who decides on the node of a pod.

    Attributes:
        stranger: the scheduler, if it does not know where data is; else empty.
        named: whether the pod, or its template, names its node itself (spec.nodeName): no scheduler is asked then.
        placed: whether the pod has a node.
    """

    stranger: str = ""
    named: bool = False
    placed: bool = True


def names_its_node(pod: Object) -> bool:
    """Whether a pod was created with its node, so that no scheduler chose it.

    A scheduler sets spec.nodeName as well, but by a Binding, which no entry of metadata.managedFields records. Without
    these entries the answer is no.
    """
    entries = pod["metadata"].get("managedFields") or ()
    return any(
        "f:nodeName" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in entries
        if not entry.get("subresource")
    )


def why_not(
    *,
    spec: Mapping[str, Any],
    requested: Mapping[str, int],
    node: Object | None,
    free: Mapping[str, int] | None,
    listed: bool,
    by: Placer,
    better: bool = True,
) -> str:
    """Why a pod is not on a node, in words.

    Args:
        spec: the pod's.
        requested: what it asks for.
        node: None when there is no such node any more.
        free: what the node has left; None when that cannot be known.
        listed: whether nodes could be listed at all.
        better: whether the node has a higher score than the pod's.
    """
    if by.named:
        return "the pod names its node itself (spec.nodeName): no scheduler is asked"
    if not listed:
        return "whether it had room is unknown: you may not list nodes"
    if node is None:
        return "there is no such node any more"
    if not may_run(spec, node):
        return "its labels or taints keep the pod away"
    if free is None:
        return "whether it had room is unknown: you may not list the pods of all namespaces"
    for resource, amount in sorted(requested.items(), key=lambda item: item[0] != names.GPU_RESOURCE):
        if free.get(resource, 0) < amount:
            free_amount = max(free.get(resource, 0), 0)
            return f"it has {shown(resource, free_amount)} free for the {shown(resource, amount)} that the pod asks for"
    if not by.placed:
        return "it has room now; the pod has not been placed yet"
    if by.stranger:
        return f"it has room now; the pod was placed by {by.stranger}, which does not know where the data is"
    if not better:
        return "it has room, and no higher score than the pod's own node: the scheduler's other preferences decide"
    return (
        "it has room now; when the pod was placed it may have been full, without the data, or left to pods that waited "
        "for other data there, or the extender may not have answered kube-scheduler in time"
    )


def why_not_then(
    *,
    role: Role,
    requested: Mapping[str, int],
    node: ConsideredNode,
    taken_by_job: Mapping[str, int],
    by: Placer,
    better: bool,
) -> str:
    """Why a pod was not placed on a node, by what the node had when that was decided.

    Args:
        role: the pod's.
        requested: what it asks for.
        node: what the status of its job says of the node.
        taken_by_job: what other pods of the job took there.
        by: who placed it.
        better: whether the node had a higher score than the pod's.
    """
    if by.named:
        return "the pod names its node itself (spec.nodeName): no scheduler was asked"
    if role in node.closed_to:
        return "its labels or taints kept the pod away"
    free = amounts(node.free)
    for resource, amount in sorted(requested.items(), key=lambda item: item[0] != names.GPU_RESOURCE):
        if resource not in free:
            continue
        if free[resource] < amount:
            free_text = shown(resource, free[resource])
            return f"it had {free_text} free for the {shown(resource, amount)} that the pod asks for"
        if free[resource] - taken_by_job.get(resource, 0) < amount:
            return f"other pods of the job took its {shown(resource, free[resource])} that were free"
    if by.stranger:
        return f"it had room; the pod was placed by {by.stranger}, which does not know where the data is"
    if not better:
        return "it had room, and no higher score than the pod's own node: the scheduler's other preferences decided"
    return (
        "it had room; it was left to pods that waited for other data there, or another rule of the scheduler (ports, "
        "volumes, spreading) kept the pod away, or the extender did not answer kube-scheduler in time"
    )


def free_room(
    *, nodes: Sequence[Object] | None, pods: Sequence[Object] | None
) -> dict[str, dict[str, int]] | None:
    """What each node has left; None when that cannot be known."""
    if nodes is None or pods is None:
        return None
    taken_on: dict[str, dict[str, int]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and not pod_has_ended(pod):
            taken_on[node] = added((taken_on.get(node, {}), pod_requests(pod["spec"])))
    return {
        (name := node["metadata"]["name"]): {
            resource: value - taken_on.get(name, {}).get(resource, 0)
            for resource, value in {
                PODS: 110,
                **amounts((node.get("status") or {}).get("allocatable")),
            }.items()
        }
        for node in nodes
    }
