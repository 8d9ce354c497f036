"""What would go with which cache workers: for whoever decides over workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from tdcs.model import slots

NONE = bytes(slots.BITMAP_BYTES)

Reader = TypeVar("Reader", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHolding:
    """What of a mount lies on one node.

    Attributes:
        held_bytes: all of it.
        complete: slots that lie there as a whole.
        present: slots of which at least one block lies there.
    """

    held_bytes: int = 0
    complete: bytes = NONE
    present: bytes = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLedger(Generic[Reader]):
    """What of one mount lies where.

    Attributes:
        sizes: bytes of each slot.
        nodes: what lies on each node.
        draining: the workers that it was placed without.
        live: the workers that could be reached then.
        busy: whether something is still to be brought somewhere.
        moving: whether something is still to be brought away from the workers that leave.
    """

    path: str
    readers: frozenset[Reader] = frozenset()
    sizes: slots.Sizes = field(default_factory=lambda: np.zeros(slots.SLOTS, dtype=np.int64), compare=False)
    nodes: Mapping[str, NodeHolding] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    busy: bool = False
    moving: bool = False

    def bytes_on(self, node: str) -> int:
        """Bytes that lie on a node, whether elsewhere too or not."""
        return self.nodes[node].held_bytes if node in self.nodes else 0

    def last_copies(self, *, node: str, draining: frozenset[str]) -> int:
        """Bytes on a node that lie nowhere but on it and on others that leave.

        Of a slot that lies on the node in part it counts whether a staying node has some of it: which blocks these are
        is not known here (`moving` says when no more can be brought).
        """
        own = self.nodes.get(node)
        if own is None or not own.held_bytes:
            return 0
        staying = [held for name, held in self.nodes.items() if name != node and name not in draining]
        alone = slots.difference(own.complete, *(held.complete for held in staying))
        partial = slots.difference(own.present, own.complete)
        partial_alone = slots.difference(partial, *(held.present for held in staying))
        whole = slots.bytes_in(partial, self.sizes)
        rest = max(own.held_bytes - slots.bytes_in(own.complete, self.sizes), 0)
        share = slots.bytes_in(partial_alone, self.sizes) / whole if whole else 0.0
        return slots.bytes_in(alone, self.sizes) + int(rest * share)
