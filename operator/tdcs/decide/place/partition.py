"""A partition of a copy over nodes with limits: each slot on one node, and no node with more than it may take."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tdcs.decide.place.copy_nodes import CopyPlan, Mode, NodeBudget, node_bytes
from tdcs.model import slots

NOWHERE = -1
"""In a table of the node of each slot: none."""


def partition_within(
    *, mount: str, chosen: bytes, sizes: slots.Sizes, weights: Mapping[str, int], limits: Mapping[str, int]
) -> dict[str, bytes]:
    """Give each slot to one node, in proportion to the weights and within the limits.

    What has no room is left out, from the end of the order of slots.

    Args:
        sizes: bytes of each slot.
        limits: bytes that each may take.
    """
    mask = slots.mask_of(chosen)
    fitting = slots.prefix_within(np.where(mask, sizes, 0), sum(limits.values()))
    mask = mask & slots.mask_of(slots.prefix(fitting))
    masked = np.where(mask, sizes, 0)
    shares = node_bytes(
        CopyPlan(
            mode=Mode.PARTITION,
            nodes=tuple(
                NodeBudget(name=name, weight=weights[name], limit_bytes=limits[name]) for name in weights
            ),
            dataset_bytes=int(masked.sum()),
            fits=True,
        )
    )
    limited = any(limits[name] <= share for name, share in shares.items())
    capacities = shares if limited and masked.any() else weights
    if not any(capacities.values()):
        return dict.fromkeys(weights, bytes(slots.BITMAP_BYTES))
    names = sorted(weights)
    owner_names, owners = slots.owners(mount=mount, capacities=capacities, sizes=masked)
    owners = np.where(mask, np.searchsorted(names, owner_names)[owners], NOWHERE)
    _keep_limits(owners, sizes=masked, limits=np.array([limits[name] for name in names], dtype=np.int64))
    bitmaps = dict(zip(names, slots.of_owners(owners, count=len(names)), strict=True))
    return {name: bitmaps[name] for name in weights}


def _keep_limits(owners: npt.NDArray[np.int64], *, sizes: slots.Sizes, limits: npt.NDArray[np.int64]) -> None:
    """Move slots from nodes that have more than their limit to those with room; what finds none is left out.

    Args:
        owners: the number of the node of each slot; changed.
        sizes: bytes of each slot.
        limits: bytes that each node may take.
    """
    assigned = np.flatnonzero(owners != NOWHERE)
    held = np.bincount(owners[assigned], weights=sizes[assigned], minlength=len(limits))
    room = limits - held.astype(np.int64)
    loose: list[int] = []
    for node in np.flatnonzero(room < 0):
        for slot in np.flatnonzero((owners == node) & (sizes > 0))[::-1]:
            if room[node] >= 0:
                break
            owners[slot] = NOWHERE
            room[node] += sizes[slot]
            loose.append(int(slot))
    for slot in sorted(loose):
        taker = len(room) - 1 - int(np.argmax(room[::-1]))  # of equal ones the last
        if room[taker] >= sizes[slot]:
            owners[slot] = taker
            room[taker] -= sizes[slot]
