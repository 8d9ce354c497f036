"""Nodes as the planners see them. Pure, except that it reads the live views."""

from collections.abc import Iterable, Mapping
from typing import Any

from tdcs.api import names
from tdcs.api.quantities import parse_quantity
from tdcs.controllers.context import Store
from tdcs.controllers.dataset.plan import NodeView
from tdcs.kube.api import Object

FINISHED = frozenset({"Succeeded", "Failed"})


def node_views(*, nodes: Store, pods: Store) -> dict[str, NodeView]:
    """All nodes by name, with the GPUs that no pod of a TrainingJob holds."""
    held = gpus_held(pods.values())
    return {
        name: NodeView(
            name=name,
            labels=node["metadata"].get("labels", {}),
            free_gpus=max(_gpus(node.get("status", {}).get("allocatable")) - held.get(name, 0), 0),
        )
        for (_, name), node in nodes.items()
    }


def gpus_held(pods: Iterable[Object]) -> dict[str, int]:
    """GPUs by node that unfinished pods have asked for."""
    held: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod.get("status", {}).get("phase") not in FINISHED:
            asked = sum(
                _gpus(container.get("resources", {}).get("limits"))
                for container in pod["spec"].get("containers", ())
            )
            held[node] = held.get(node, 0) + asked
    return held


def _gpus(resources: Mapping[str, Any] | None) -> int:
    return int(parse_quantity((resources or {}).get(names.GPU_RESOURCE, 0)))
