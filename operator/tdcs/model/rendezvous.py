"""Weighted rendezvous hashing of slots to nodes, with bounded loads, fast for hundreds of nodes.

Thaler and Ravishankar 1998; weights as -w / ln h, Schindelhauer and Schomaker 2005; bounds as by Mirrokni, Thorup and
Zadimoghaddam 2018.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

TOLERANCE: Final = 0.02
"""A node's part of a partition may exceed its share by this fraction, or by one slot where that is more."""

Sizes = npt.NDArray[np.int64]
"""Bytes (or files) in each slot; 4,096 values."""

_ROUNDS: Final = 16
_STEP: Final = 0.7
_LEAST: Final = 0.2
_INCREMENT: Final = np.uint64(0x9E3779B97F4A7C15)
_MIXERS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_FEW_NODES: Final = 12
"""For more nodes than these only the cheapest ones of each slot are compared."""
_CHEAPEST: Final = 6.0
"""So many nodes are compared for each slot, about."""
_ROWS: Final = 4
"""Nodes that are hashed at a time: what that takes stays in the processor's cache."""


class Spread:
    """The spreading of slots over nodes.

    The cost of a node for a slot is the logarithm of an exponentially distributed number, less that of the node's
    weight; the cheapest node wins the slot.

    Args:
        seeds: of each node: a hash of its name and of what is spread.
        weights: of the nodes, above 0.
        sizes: bytes in each slot.
    """

    def __init__(
        self, *, seeds: npt.NDArray[np.uint64], weights: npt.NDArray[np.float64], sizes: Sizes
    ) -> None:
        self._seeds = seeds
        self._weights = weights
        self._sizes = sizes
        self._slots = len(sizes)
        self._shares = weights / weights.sum() * float(sizes.sum())

    def owners(self) -> npt.NDArray[np.int64]:
        count = len(self._seeds)
        if count == 1:
            return np.zeros(self._slots, dtype=np.int64)
        every = np.arange(self._slots, dtype=np.uint64)
        offers = _AllOffers(self._costs(every)) if count <= _FEW_NODES else self._cheapest()
        addend = self._balance(offers)
        owners = offers.winners(addend)
        self._bound(owners, addend)
        return owners

    def _cheapest(self) -> "_Offers":
        """What the cheapest nodes cost for each slot: with many nodes all others have no chance.

        The smallest of the numbers behind a slot's costs exceeds t with a probability of exp(-t * all weights), so a
        bound in terms of that leaves a few nodes for nearly every slot. Slots without any are looked at in full.
        """
        bounds = np.exp(-_CHEAPEST * self._weights / self._weights.sum())
        least = (bounds * 2.0**64).clip(0, 2.0**64 - 2.0**11).astype(np.uint64)
        counters = np.arange(1, self._slots + 1, dtype=np.uint64) * _INCREMENT
        nodes, slots, hashes = [], [], []
        for begin in range(0, len(self._seeds), _ROWS):
            rows = slice(begin, begin + _ROWS)
            mixed = _mixed(self._seeds[rows, None] + counters)
            indexes = np.flatnonzero(mixed > least[rows, None])
            nodes.append(indexes // self._slots + begin)
            slots.append(indexes % self._slots)
            hashes.append(mixed.ravel()[indexes])
        node, slot, mixed = np.concatenate(nodes), np.concatenate(slots), np.concatenate(hashes)
        costs = _log_exponential(mixed) - np.log(self._weights)[node]
        missing = np.flatnonzero(np.bincount(slot, minlength=self._slots) == 0)
        if len(missing):
            node = np.concatenate([node, np.repeat(np.arange(len(self._seeds)), len(missing))])
            slot = np.concatenate([slot, np.tile(missing, len(self._seeds))])
            costs = np.concatenate([costs, self._costs(missing.astype(np.uint64)).ravel()])
        order = np.argsort(slot.astype(np.uint16), kind="stable")
        return _Offers(nodes=node[order], slots=slot[order], costs=costs[order])

    def _costs(self, slots: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
        mixed = _mixed(self._seeds[:, None] + (slots + np.uint64(1)) * _INCREMENT)
        return _log_exponential(mixed) - np.log(self._weights)[:, None]

    def _balance(self, offers: "_Offers | _AllOffers") -> npt.NDArray[np.float64]:
        """An addend to the costs of each node that brings the loads near the shares.

        By chance alone the loads of n nodes differ by some sqrt(n / 4096). Making the costs of a loaded node a little
        higher moves the slots that were nearly another node's; a hard bound alone would leave gaps in other nodes.
        """
        shares = self._shares
        addend = np.zeros(len(shares))
        if not shares.any():
            return addend
        largest = float(self._sizes.max())
        near = np.maximum(shares * TOLERANCE / 2, np.minimum(2 * largest, shares / 8))
        best, smallest = addend, np.inf
        for number in range(_ROUNDS):
            loads = np.bincount(offers.winners(addend), weights=self._sizes, minlength=len(shares))
            excess = float((np.abs(loads - shares) / near).max())
            if excess < smallest:
                best, smallest = addend, excess
            if excess < 1:
                break
            step = (
                _STEP * 0.93**number * 0.9 ** max(number - 2, 0)
            )  # smaller and smaller: else it goes to and fro
            addend = addend + step * np.log(np.maximum(loads / shares, _LEAST))
        return best

    def _bound(self, owners: npt.NDArray[np.int64], addend: npt.NDArray[np.float64]) -> None:
        """Give slots of nodes with too many to the cheapest that has room, and one has: a bound is a share and the
        largest slot."""
        shares, sizes = self._shares, self._sizes
        bounds = np.maximum(shares * (1 + TOLERANCE), shares + float(sizes.max()))
        loads = np.bincount(owners, weights=sizes, minlength=len(shares))
        for node in np.flatnonzero(loads > bounds):
            # What the node wins by the least goes first.
            node_slots = np.flatnonzero((owners == node) & (sizes > 0))
            costs = self._costs(node_slots.astype(np.uint64)) + addend[:, None]
            mine = costs[node].copy()
            costs[node] = np.inf
            for number in np.argsort(costs.min(axis=0) - mine, kind="stable"):
                slot = node_slots[number]
                if loads[node] <= bounds[node]:
                    break
                room = np.where(loads + sizes[slot] <= bounds, costs[:, number], np.inf)
                taker = int(np.argmin(room))
                if not np.isfinite(room[taker]):
                    continue
                owners[slot] = taker
                loads[node] -= sizes[slot]
                loads[taker] += sizes[slot]


class _Offers:
    """What nodes cost for slots: one row for each pair, in the order of the slots, of which each has at least one."""

    def __init__(
        self,
        *,
        nodes: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
        costs: npt.NDArray[np.float64],
    ) -> None:
        self._nodes = nodes
        self._slots = slots
        self._costs = costs
        self._every = np.arange(slots[-1] + 1)
        self._starts = np.searchsorted(slots, self._every)

    def winners(self, addend: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The cheapest node of each slot, when so much is added to the costs of each node."""
        costs = self._costs + addend[self._nodes]
        least = np.minimum.reduceat(costs, self._starts)
        rows = np.flatnonzero(costs == least[self._slots])
        if len(rows) > len(self._every):  # of equal costs the first node's
            rows = rows[np.searchsorted(self._slots[rows], self._every)]
        return self._nodes[rows]


class _AllOffers:
    """What every node costs for every slot: nodes x slots."""

    def __init__(self, costs: npt.NDArray[np.float64]) -> None:
        self._costs = costs

    def winners(self, addend: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        least = self._costs[0] + addend[0]
        owners = np.zeros(len(least), dtype=np.int64)
        for node in range(1, len(addend)):
            costs = self._costs[node] + addend[node]
            cheaper = costs < least
            np.copyto(owners, node, where=cheaper)
            np.minimum(least, costs, out=least)
        return owners


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The numbers, thoroughly mixed: the finalizer of splitmix64, in place."""
    shifted = np.empty_like(numbers)
    for shift, factor in zip((30, 27), _MIXERS, strict=True):
        np.right_shift(numbers, np.uint64(shift), out=shifted)
        numbers ^= shifted
        numbers *= factor
    np.right_shift(numbers, np.uint64(31), out=shifted)
    numbers ^= shifted
    return numbers


def _log_exponential(mixed: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """The logarithms of exponentially distributed numbers, from evenly distributed integers."""
    uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    logarithms: npt.NDArray[np.float64] = np.log(-np.log(uniform))
    return logarithms
