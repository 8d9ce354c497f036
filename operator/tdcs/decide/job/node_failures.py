"""Nodes on which a job fails repeatedly, and which its pods avoid.

A faulty program fails on every node; a faulty node fails every program. So a job avoids a node after `REPEATEDLY`
failures there, unless many of its nodes have as many, or the job does not fit without the node.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_status import NODE_FAILURES_LIMIT, NodeFailures
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.pod_admission import Reason

REPEATEDLY = 2
"""Failures of a job on a node after which its pods avoid it."""

AVOIDED_NODES_NEEDED = "AvoidedNodesNeeded"
"""Reason of the event that a job may use its avoided nodes again."""

SHARE = 4
"""A job avoids at most one node in this many, and at least one: if it fails on more, the program is at fault."""


def counted(failures: Sequence[NodeFailures], *, node: str) -> list[NodeFailures]:
    """The failures with one more on a node, the newest last; the oldest are dropped."""
    if not node:
        return list(failures)
    before = next((entry.failures for entry in failures if entry.node == node), 0)
    other_nodes = [entry for entry in failures if entry.node != node]
    return [*other_nodes, NodeFailures(node=node, failures=before + 1)][-NODE_FAILURES_LIMIT:]


def avoided_nodes(
    failures: Sequence[NodeFailures], *, used: int, fits_without: Callable[[Collection[str]], bool]
) -> list[str]:
    """The nodes that the job's pods avoid from now on, by name.

    Args:
        failures: the job's failures on each node.
        used: on how many nodes the job runs.
        fits_without: whether all pods would fit on the other nodes if those were empty.
    """
    blamed = sorted(entry.node for entry in failures if entry.failures >= REPEATEDLY)
    if not blamed or len(blamed) > max(used // SHARE, 1) or not fits_without(blamed):
        return []
    return blamed


def needed(nodes: Sequence[str]) -> str:
    """The message that a job no longer avoids these nodes, and what to do."""
    avoided = _named(nodes)
    return (
        f"the job has no room without {avoided}, where it failed repeatedly (status.nodeFailures), so it avoids "
        f"{'it' if len(nodes) == 1 else 'them'} no longer: examine {avoided}, or add nodes that the job may use"
    )


def left_out(observed: Observed, reason: Reason) -> str:
    """Addition to the message of a job that waits for room: which nodes it avoids, and why."""
    nodes = observed.status.avoided_nodes
    if not nodes or reason not in {Reason.NO_ROOM, Reason.NEVER, Reason.NO_MATCH}:
        return ""
    why = "where the job failed repeatedly (status.nodeFailures)"
    return f"; without {_named(nodes)}, {why}: it waits for the other nodes"


def _named(nodes: Sequence[str]) -> str:
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}"


def avoiding(spec: TrainingJobSpec, nodes: Collection[str]) -> TrainingJobSpec:
    """The spec of a job whose pods may not run on these nodes."""
    if not nodes:
        return spec
    replicas = [
        replica_spec.model_copy(update={"template": _avoiding(replica_spec.template, sorted(nodes))})
        for replica_spec in spec.replica_specs
    ]
    return spec.model_copy(update={"replica_specs": replicas})


def _avoiding(template: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    pod = template["spec"]
    affinity = dict(pod.get("affinity") or {})
    of_node = dict(affinity.get("nodeAffinity") or {})
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    # The API takes one name for each requirement on metadata.name.
    exclusions = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = (of_node.get(field) or {}).get("nodeSelectorTerms") or ()
    new_terms = [_narrowed(term, exclusions) for term in terms] or [{"matchFields": exclusions}]
    of_node[field] = {"nodeSelectorTerms": new_terms}
    return {**template, "spec": {**pod, "affinity": {**affinity, "nodeAffinity": of_node}}}


def _narrowed(term: Mapping[str, Any], exclusions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return dict(term)  # an empty term matches no node
    return {**term, "matchFields": [*(term.get("matchFields") or ()), *exclusions]}
