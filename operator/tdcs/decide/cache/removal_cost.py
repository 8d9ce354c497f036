"""Data that would be lost with cache workers, for decisions about scaling in."""

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
    """Data of a mount on one node.

    Attributes:
        held_bytes: bytes on the node.
        complete: slots that are complete on the node.
        present: slots with at least one block on the node.
        version: digest of the manifest that was used for counting; blocks of other versions do not count.
    """

    held_bytes: int = 0
    complete: bytes = NONE
    present: bytes = NONE
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountLedger(Generic[Reader]):
    """Location of one mount's data.

    Attributes:
        sizes: bytes of each slot.
        nodes: the mount's data on each node.
        draining: the workers that its placement left out.
        live: the workers that were reachable then.
        busy: whether loads or copies are still to be done.
        moving: whether data is still to be copied away from draining workers.
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
        """Bytes on a node, including those that other nodes hold too."""
        return self.nodes[node].held_bytes if node in self.nodes else 0

    def last_copies(self, *, node: str, draining: frozenset[str]) -> int:
        """Bytes on a node that only this node and draining ones hold.

        A slot that is incomplete on the node counts as held elsewhere if a staying node has any of its blocks: which
        blocks those are is unknown here (`moving` tells when no more can be copied).
        """
        holding = self.nodes.get(node)
        if holding is None or not holding.held_bytes:
            return 0
        staying = [
            held
            for name, held in self.nodes.items()
            if name != node and name not in draining and held.version == holding.version
        ]
        alone = slots.difference(holding.complete, *(held.complete for held in staying))
        partial = slots.difference(holding.present, holding.complete)
        partial_alone = slots.difference(partial, *(held.present for held in staying))
        whole = slots.bytes_in(partial, self.sizes)
        partial_bytes = max(holding.held_bytes - slots.bytes_in(holding.complete, self.sizes), 0)
        share = slots.bytes_in(partial_alone, self.sizes) / whole if whole else 0.0
        return slots.bytes_in(alone, self.sizes) + int(partial_bytes * share)


class HeldSlots(Protocol):
    """The slots of a mount that are complete on a node, and those with at least one block there."""

    @property
    def complete(self) -> bytes: ...

    @property
    def present(self) -> bytes: ...


def last_holders(
    held: Mapping[str, HeldSlots], *, sizes: slots.Sizes, leaving: frozenset[str]
) -> frozenset[str]:
    """The nodes with bytes of a mount that no other staying node holds: those whose `MountLedger.last_copies` is above
    zero, computed for all nodes at once.

    Args:
        held: the mount's slots on each node.
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
    """For each row, the slots that another staying node holds."""
    staying = rows[stays]
    if not len(staying):
        return np.zeros_like(rows)
    so_far: _Rows = np.bitwise_or.accumulate(staying, axis=0)
    twice: _Rows = np.bitwise_or.reduce(staying[1:] & so_far[:-1], axis=0)
    # A slot that one staying node holds is held elsewhere for all nodes but that one.
    return np.where(stays[:, np.newaxis], twice, so_far[-1])
