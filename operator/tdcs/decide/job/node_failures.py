"""Nodes on which a job fails again and again, and which its pods avoid.

A program that is wrong fails wherever it runs, a node that is broken fails whatever runs there. So a node is avoided
after `REPEATEDLY` failures there, unless the job has failed so on many of its nodes, or does not fit without it.
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
"""Reason of the event that a job runs on nodes again which it avoided."""

SHARE = 4
"""One of so many of a job's nodes may be avoided, but at least one: where more fail it, it is the program."""


def counted(known: Sequence[NodeFailures], *, node: str) -> list[NodeFailures]:
    """With one more failure on a node, the newest last; the oldest are forgotten."""
    if not node:
        return list(known)
    before = next((each.failures for each in known if each.node == node), 0)
    others = [each for each in known if each.node != node]
    return [*others, NodeFailures(node=node, failures=before + 1)][-NODE_FAILURES_LIMIT:]


def avoided_nodes(
    failures: Sequence[NodeFailures], *, used: int, fits_without: Callable[[Collection[str]], bool]
) -> list[str]:
    """The nodes that the pods of a job avoid from now on, by name.

    Args:
        failures: of the job, by node.
        used: on how many nodes the job runs.
        fits_without: whether all its pods could run on other nodes than these, were they empty.
    """
    blamed = sorted(each.node for each in failures if each.failures >= REPEATEDLY)
    if not blamed or len(blamed) > max(used // SHARE, 1) or not fits_without(blamed):
        return []
    return blamed


def needed(nodes: Sequence[str]) -> str:
    """That a job does not avoid these nodes any more, and what to do."""
    those = _named(nodes)
    return (
        f"the job has no room without {those}, where it failed repeatedly (status.nodeFailures), so it avoids "
        f"{'it' if len(nodes) == 1 else 'them'} no longer: examine {those}, or add nodes that the job may use"
    )


def left_out(seen: Observed, reason: Reason) -> str:
    """What to add to the word that a job waits for room: which nodes do not count, and what to do."""
    nodes = seen.known.avoided_nodes
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
        each.model_copy(update={"template": _avoiding(each.template, sorted(nodes))})
        for each in spec.replica_specs
    ]
    return spec.model_copy(update={"replica_specs": replicas})


def _avoiding(template: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    pod = template["spec"]
    affinity = dict(pod.get("affinity") or {})
    of_node = dict(affinity.get("nodeAffinity") or {})
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    # The API takes one name for each requirement on metadata.name.
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = (of_node.get(field) or {}).get("nodeSelectorTerms") or ()
    wanted = [_narrowed(term, others) for term in terms] or [{"matchFields": others}]
    of_node[field] = {"nodeSelectorTerms": wanted}
    return {**template, "spec": {**pod, "affinity": {**affinity, "nodeAffinity": of_node}}}


def _narrowed(term: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return dict(term)  # an empty term matches no node
    return {**term, "matchFields": [*(term.get("matchFields") or ()), *others]}
