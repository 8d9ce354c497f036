"""Nodes as the planners see them. Pure, except that it reads the live views."""

from collections.abc import Iterable, Mapping
from typing import Any

from tdcs.api import names
from tdcs.controllers.context import Store
from tdcs.controllers.dataset.plan import NodeView
from tdcs.controllers.resources import amounts, pod_requests
from tdcs.kube.api import Object
from tdcs.kube.objects import pod_has_ended


def node_views(*, nodes: Store, pods: Store) -> dict[str, NodeView]:
    """All nodes by name, with the GPUs that no pod of a TrainingJob holds."""
    held = gpus_held(pods.values())
    return {
        name: NodeView(
            name=name,
            labels=node["metadata"].get("labels", {}),
            free_gpus=max(gpus_of(node) - held.get(name, 0), 0),
        )
        for (_, name), node in nodes.items()
    }


def gpus_held(pods: Iterable[Object]) -> dict[str, int]:
    """GPUs by node that unfinished pods have asked for."""
    held: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and not pod_has_ended(pod):
            held[node] = held.get(node, 0) + pod_requests(pod["spec"]).get(names.GPU_RESOURCE, 0)
    return held


def gpus_of(node: Mapping[str, Any]) -> int:
    """GPUs that a node offers."""
    return amounts((node.get("status") or {}).get("allocatable")).get(names.GPU_RESOURCE, 0)
