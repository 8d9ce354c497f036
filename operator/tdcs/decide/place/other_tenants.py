"""Bytes of a mount that nodes hold for Datasets of other namespaces: a namespace sees how many, and no names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tdcs.decide.cache.wants import namespace_of
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.model import slots
from tdcs.model.agent_state import MountState


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTenants:
    """The other namespaces with Datasets of a source.

    Attributes:
        namespaces: how many.
        node_bytes: bytes on each node that only they use.
    """

    namespaces: int = 0
    node_bytes: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.node_bytes.values())


def other_tenants(
    *,
    namespace: str,
    datasets: Iterable[str],
    placements: Iterable[WantPlacement],
    states: Mapping[str, MountState],
    sizes: slots.Sizes,
) -> OtherTenants:
    """What others than a namespace have of a mount.

    Slots that the namespace wants on a node are its own there, whoever else wants them; those of which a node has a
    part only do not count for others yet.

    Args:
        datasets: the Datasets of the mount, by the keys of their own wants.
        placements: what is wanted of it, by all of them.
        states: of the agents that can be reached, by node, about the version that is placed.
        sizes: bytes of each slot.
    """
    other_namespaces = {namespace_of(key) for key in datasets} - {namespace}
    if not other_namespaces:
        return OtherTenants(node_bytes={})
    nobody = bytes(slots.BITMAP_BYTES)
    own_masks: dict[str, bytes] = {}
    foreign: dict[str, bytes] = {}
    for placement in placements:
        masks = own_masks if namespace_of(placement.want.key) == namespace else foreign
        for copy in placement.copies:
            for node, mask in copy.nodes.items():
                masks[node] = slots.union(masks.get(node, nobody), mask)
    foreign_bytes = {}
    for node, mask in foreign.items():
        if node not in states:
            continue
        present = slots.mask_of(slots.intersection(mask, states[node].complete))
        size = int(sizes[present & ~slots.mask_of(own_masks.get(node, nobody))].sum())
        if size:
            foreign_bytes[node] = size
    return OtherTenants(namespaces=len(other_namespaces), node_bytes=foreign_bytes)
