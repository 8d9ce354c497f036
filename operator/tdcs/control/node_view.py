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
        self._seen: dict[str, tuple[object, object, NodeView]] = {}
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
        same = len(nodes) == len(self._seen)
        labelled = not same
        for (_, name), node in nodes.items():
            taken, known = usage.taken(name), self._seen.get(name)
            if known is not None and known[0] is node and known[1] is taken:
                continue
            labels = node["metadata"].get("labels", {})
            place = place_of(labels, self._topology_labels)
            view = NodeView(
                name=name,
                labels=labels,
                place=place,
                zone=zone_of(place, level=self._zone_level),
                free_gpus=max(gpus_of(node) - taken.get(names.GPU_RESOURCE, 0), 0),
            )
            if known is not None and known[2] == view:
                view = known[2]
            else:
                same = False
                labelled = labelled or known is None or known[2].labels != view.labels
            self._seen[name] = (node, taken, view)
        if not same:
            there = {name for _, name in nodes}
            self._seen = {name: one for name, one in self._seen.items() if name in there}
            self._views = {name: one[2] for name, one in self._seen.items()}
        self._labelled += labelled
        return self._views

    def labelled(self, *, nodes: Store, usage: Usage) -> int:
        """How often a node came or went, or was labelled otherwise."""
        self.of(nodes=nodes, usage=usage)
        return self._labelled


def gpus_of(node: Mapping[str, Any]) -> int:
    return amounts((node.get("status") or {}).get("allocatable")).get(names.GPU_RESOURCE, 0)
