"""Nodes as the planners see them. Pure, except that it reads the live views."""

from collections.abc import Mapping
from typing import Any

from tdcs.api import names
from tdcs.controllers.context import Store
from tdcs.controllers.resources import amounts
from tdcs.controllers.usage import Usage
from tdcs.planning.placement import NodeView


def node_views(*, nodes: Store, usage: Usage) -> dict[str, NodeView]:
    """All nodes by name, with the GPUs that no pod holds, whether of a TrainingJob or of others."""
    return {
        name: NodeView(
            name=name,
            labels=node["metadata"].get("labels", {}),
            free_gpus=max(gpus_of(node) - usage.taken(name).get(names.GPU_RESOURCE, 0), 0),
        )
        for (_, name), node in nodes.items()
    }


def gpus_of(node: Mapping[str, Any]) -> int:
    """GPUs that a node offers."""
    return amounts((node.get("status") or {}).get("allocatable")).get(names.GPU_RESOURCE, 0)
