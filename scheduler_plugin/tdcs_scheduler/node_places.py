"""Where nodes are in the topology, as their labels say: fed by an informer, read by scores and affinities."""

from collections.abc import Sequence
from typing import Any, Final

from tdcs.decide.place.near_nodes import NodePlaces
from tdcs.kube.api import KubeApi
from tdcs.kube.informer import Informer
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import NODES
from tdcs.model.nearness import Place, place_of

# Kubelets write the status of each node every few minutes. News of a second is new enough: labels hardly change.
_GATHER_SECONDS: Final = 1.0


class TopologyView:
    """The places of all nodes. Updates and reads happen in one thread.

    `keys`: the topology labels, the nearest level first.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys: Final = tuple(keys)
        self._of: Final[dict[str, Place]] = {}
        self._places: NodePlaces | None = None

    def on_node(self, key: Key, node: Object | None) -> None:
        """Take the new state of a node; None: it is gone."""
        place = () if node is None else place_of(node["metadata"].get("labels"), self._keys)
        if place == self._of.get(key[1], ()):
            return
        if place:
            self._of[key[1]] = place
        else:
            del self._of[key[1]]
        self._places = None

    def places(self) -> NodePlaces:
        if self._places is None:
            self._places = NodePlaces(keys=self._keys, of=dict(self._of))
        return self._places


def node_informer(*, api: KubeApi, topology: TopologyView, keys: Sequence[str]) -> Informer:
    """What keeps the view of the nodes."""

    def labels_alone(node: Object) -> Object:
        metadata: dict[str, Any] = node["metadata"]
        labels = metadata.get("labels") or {}
        return {
            "metadata": {
                "name": metadata.get("name", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
                "labels": {key: labels[key] for key in keys if key in labels},
            }
        }

    return Informer(
        api=api,
        resource=NODES,
        keep=labels_alone,
        on_change=lambda key, _, node: topology.on_node(key, node),
        gather=_GATHER_SECONDS,
    )
