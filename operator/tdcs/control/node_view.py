"""Nodes as the planners see them. Pure, except that it reads the live views."""

from collections.abc import Mapping, Sequence
from typing import Any

from tdcs.api import names
from tdcs.control.context import Store
from tdcs.control.node_usage import Usage
from tdcs.decide.place.slot_nodes import NodeView
from tdcs.model.kube_objects import Object
from tdcs.model.nearness import level_of_zones, place_of, zone_of
from tdcs.model.pod_resources import amounts


class NodeDirectory:
    """The nodes as planners see them, made again only where something has changed.

    A pass over one object does not look into hundreds of nodes for that: equal views are the same objects.

    Args:
        topology_labels: labels that say where nodes are, the nearest level first.
    """

    def __init__(self, *, topology_labels: Sequence[str] = ()) -> None:
        self._topology_labels = topology_labels
        self._zone_level = level_of_zones(topology_labels)
        self._cache: dict[str, tuple[object, object, NodeView]] = {}
        self._views: Mapping[str, NodeView] = {}
        self._labelled = 0
        self._last: tuple[list[Object], Usage | None, int] = ([], None, 0)

    def of(self, *, nodes: Store, usage: Usage) -> Mapping[str, NodeView]:
        """All nodes by name, with the GPUs that no pod holds, whether of a TrainingJob or of others."""
        # Nothing has changed, most of the time: identity is compared first, at a fraction of what a look at each costs.
        last = (list(nodes.values()), usage, usage.changes)
        if last == self._last:
            return self._views
        self._last = last
        is_same = len(nodes) == len(self._cache)
        labelled = not is_same
        for (_, name), node in nodes.items():
            amounts, cached = usage.taken(name), self._cache.get(name)
            if cached is not None and cached[0] is node and cached[1] is amounts:
                continue
            labels = node["metadata"].get("labels", {})
            place = place_of(labels, self._topology_labels)
            view = NodeView(
                name=name,
                labels=labels,
                place=place,
                zone=zone_of(place, level=self._zone_level),
                free_gpus=max(gpus_of(node) - amounts.get(names.GPU_RESOURCE, 0), 0),
            )
            if cached is not None and cached[2] == view:
                view = cached[2]
            else:
                is_same = False
                labelled = labelled or cached is None or cached[2].labels != view.labels
            self._cache[name] = (node, amounts, view)
        if not is_same:
            node_names = {name for _, name in nodes}
            self._cache = {name: entry for name, entry in self._cache.items() if name in node_names}
            self._views = {name: entry[2] for name, entry in self._cache.items()}
        self._labelled += labelled
        return self._views

    def labelled(self, *, nodes: Store, usage: Usage) -> int:
        """How often a node came or went, or was labelled otherwise."""
        self.of(nodes=nodes, usage=usage)
        return self._labelled


def gpus_of(node: Mapping[str, Any]) -> int:
    return amounts((node.get("status") or {}).get("allocatable")).get(names.GPU_RESOURCE, 0)
