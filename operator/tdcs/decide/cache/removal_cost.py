"""What would go with which cache workers: for whoever decides over workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

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
        version: digest of the manifest by which that was counted: what lies there of another version is another thing.
    """

    held_bytes: int = 0
    complete: bytes = NONE
    present: bytes = NONE
    version: str = ""


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
        staying = [
            held
            for name, held in self.nodes.items()
            if name != node and name not in draining and held.version == own.version
        ]
        alone = slots.difference(own.complete, *(held.complete for held in staying))
        partial = slots.difference(own.present, own.complete)
        partial_alone = slots.difference(partial, *(held.present for held in staying))
        whole = slots.bytes_in(partial, self.sizes)
        rest = max(own.held_bytes - slots.bytes_in(own.complete, self.sizes), 0)
        share = slots.bytes_in(partial_alone, self.sizes) / whole if whole else 0.0
        return slots.bytes_in(alone, self.sizes) + int(rest * share)


class HeldSlots(Protocol):
    """The slots of a mount that lie on a node as a whole, and those of which at least one block does."""

    @property
    def complete(self) -> bytes: ...

    @property
    def present(self) -> bytes: ...


def last_holders(
    held: Mapping[str, HeldSlots], *, sizes: slots.Sizes, leaving: frozenset[str]
) -> frozenset[str]:
    """The nodes with bytes of a mount that lie on no other node but those that leave: those of which
    `MountLedger.last_copies` is above zero, of all nodes at once.

    Args:
        held: what lies on each node.
        sizes: bytes of each slot.
        leaving: the nodes whose workers leave.
    """
    if not held:
        return frozenset()
    nodes = list(held)
    filled = np.packbits(sizes > 0)
    complete = _rows([held[node].complete for node in nodes]) & filled
    present = _rows([held[node].present for node in nodes]) & filled
    stays = np.array([node not in leaving for node in nodes])
    alone = (complete & ~_elsewhere(complete, stays)) | (present & ~complete & ~_elsewhere(present, stays))
    return frozenset(nodes[row] for row in np.flatnonzero(alone.any(axis=1)))


_Rows = npt.NDArray[np.uint8]


def _rows(bitmaps: list[bytes]) -> _Rows:
    return np.frombuffer(b"".join(bitmaps), dtype=np.uint8).reshape(len(bitmaps), slots.BITMAP_BYTES)


def _elsewhere(rows: _Rows, stays: npt.NDArray[np.bool_]) -> _Rows:
    """Of each row, the slots that lie on a staying node that is another one."""
    staying = rows[stays]
    if not len(staying):
        return np.zeros_like(rows)
    so_far: _Rows = np.bitwise_or.accumulate(staying, axis=0)
    twice: _Rows = np.bitwise_or.reduce(staying[1:] & so_far[:-1], axis=0)
    # What lies on one staying node lies elsewhere for all nodes but that one.
    return np.where(stays[:, np.newaxis], twice, so_far[-1])
