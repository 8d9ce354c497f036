"""What nodes had when pods of a job were placed: those that they got, and those that would have suited better."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role
from tdcs.api.trainingjob_status import CONSIDERED_NODES_LIMIT, Consideration, ConsideredNode
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_eligibility import may_run
from tdcs.decide.place.node_score import bytes_on_node, node_scores
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import CPU, PODS, Amounts, pod_requests

OWN_NODES = CONSIDERED_NODES_LIMIT // 2
"""Nodes of the job's own pods that are kept: the others are about those that it did not get."""

ONE_PLACEMENT_SECONDS = 60.0
"""Pods that get their nodes within this time are placed together: the first of them tell what there was."""


def is_of_another_placement(before: Consideration, *, now: str) -> bool:
    """Whether pods that are seen on their nodes now were placed at another time than those of a record."""
    return seconds_between(before.time, now) > ONE_PLACEMENT_SECONDS


def consider(
    *,
    placed_on: Collection[str],
    templates: Mapping[Role, Mapping[str, Any]],
    held: Sequence[CopyOnNodes],
    wanted_copies: Sequence[CopyOnNodes],
    node_of: Callable[[str], Object | None],
    free: Callable[[str, Object], Amounts],
    now: str,
) -> Consideration:
    """What there was when pods were placed.

    Args:
        placed_on: the nodes that they got.
        templates: the pod specs of the roles that read data.
        held: the copies of the job's datasets, by node.
        wanted_copies: the same as the extender sees it.
        node_of: gives a node; None where there is none any more.
        free: gives what a node had left for these pods.
        now: the time.
    """
    scores = node_scores(wanted_copies)
    ranked = sorted(scores, key=lambda node: (-scores[node], node))
    own_nodes = sorted(set(placed_on), key=lambda node: (-scores.get(node, 0), node))[:OWN_NODES]
    other_nodes = [node for node in ranked if node not in set(placed_on)]
    resources = {resource for spec in templates.values() for resource in pod_requests(spec)} - {PODS}
    considered = []
    for name in [*own_nodes, *other_nodes[: CONSIDERED_NODES_LIMIT - len(own_nodes)]]:
        node = node_of(name)
        if node is None:
            continue
        free_amounts = free(name, node)
        considered.append(
            ConsideredNode(
                name=name,
                cached_bytes=bytes_on_node(node=name, copies=held),
                score=scores.get(name, 0),
                free={
                    resource: quantity(resource, max(free_amounts.get(resource, 0), 0))
                    for resource in sorted(resources)
                },
                closed_to=[role for role, spec in templates.items() if not may_run(spec, node)],
            )
        )
    omitted = len(other_nodes) - (CONSIDERED_NODES_LIMIT - len(own_nodes))
    return Consideration(time=now, nodes=considered, nodes_omitted=omitted if omitted > 0 else None)


def quantity(resource: str, value: int) -> str:
    """An amount as Kubernetes writes it."""
    return (
        f"{value}m" if resource == CPU and value % 1000 else str(value // 1000 if resource == CPU else value)
    )
