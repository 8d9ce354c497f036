"""Slots: the unit of every decision about where data is.

Every block of a mount belongs to one of 4,096 slots by a stable hash of its file's path and its number in the file.
Operator and agents speak of sets of slots as bitmaps of 512 bytes; slot 0 is the highest bit of the first byte.

- What is held of a dataset that does not fit is a prefix of the slots 0..4095: a smaller prefix is a subset of a
  larger one. The hash spreads files evenly over the slots, so a prefix is a fair sample of them.
- A partition gives every slot to one node by weighted rendezvous hashing (Thaler and Ravishankar 1998; weights as
  -w / ln h, Schindelhauer and Schomaker 2005), with loads bounded as by Mirrokni, Thorup and Zadimoghaddam 2018.
  Another node takes its share from all others, and little else moves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

SLOTS: Final = 4096
"""How many slots a mount has. It never changes: agents would take every block for misplaced."""

SLOT_BITS: Final = 12

BITMAP_BYTES: Final = SLOTS // 8

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


def slot_of(path: bytes, block: int) -> int:
    """The slot of a block: xxh3_64 of the path, seeded with the block's number in its file, modulo 4,096.

    Args:
        path: of the file, relative to its mount, as raw bytes.
        block: 0 for the first block of the file.
    """
    return xxhash.xxh3_64_intdigest(path, seed=block) % SLOTS


def bitmap(slots: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
    """The bitmap of some slots."""
    mask = np.zeros(SLOTS, dtype=bool)
    mask[np.fromiter(slots, dtype=np.int64) if not isinstance(slots, np.ndarray) else slots] = True
    return of_mask(mask)


def of_mask(mask: npt.NDArray[np.bool_]) -> bytes:
    """The bitmap of 4,096 booleans."""
    return np.packbits(mask).tobytes()


def mask_of(slots: bytes) -> npt.NDArray[np.bool_]:
    """A bitmap as 4,096 booleans; raises ValueError when it has another length."""
    if len(slots) != BITMAP_BYTES:
        raise ValueError(f"a bitmap of slots has {BITMAP_BYTES} bytes, this one has {len(slots)}")
    return np.unpackbits(np.frombuffer(slots, dtype=np.uint8)).view(np.bool_)


def members(slots: bytes) -> npt.NDArray[np.int64]:
    """The slots in a bitmap, ascending."""
    return np.flatnonzero(mask_of(slots)).astype(np.int64, copy=False)


def count(slots: bytes) -> int:
    """How many slots are in a bitmap."""
    return int.from_bytes(slots, "big").bit_count()


def union(*bitmaps: bytes) -> bytes:
    """The slots that are in any of the bitmaps."""
    found = 0
    for each in bitmaps:
        found |= int.from_bytes(each, "big")
    return found.to_bytes(BITMAP_BYTES, "big")


def intersection(first: bytes, *others: bytes) -> bytes:
    """The slots that are in all of the bitmaps."""
    found = int.from_bytes(first, "big")
    for each in others:
        found &= int.from_bytes(each, "big")
    return found.to_bytes(BITMAP_BYTES, "big")


def difference(slots: bytes, *without: bytes) -> bytes:
    """The slots of the first bitmap that are in none of the others."""
    found = int.from_bytes(slots, "big")
    for each in without:
        found &= ~int.from_bytes(each, "big")
    return found.to_bytes(BITMAP_BYTES, "big")


def is_subset(slots: bytes, of: bytes) -> bool:
    """Whether all slots of a bitmap are in another one."""
    return difference(slots, of) == bytes(BITMAP_BYTES)


def prefix(length: int) -> bytes:
    """The bitmap of the first `length` slots; raises ValueError unless 0 <= length <= 4096."""
    if not 0 <= length <= SLOTS:
        raise ValueError(f"a prefix has 0 to {SLOTS} slots, not {length}")
    return (((1 << length) - 1) << (SLOTS - length)).to_bytes(BITMAP_BYTES, "big")


def prefix_within(sizes: Sizes, limit: float) -> int:
    """Length of the longest prefix that has at most `limit` bytes."""
    return int(np.searchsorted(np.cumsum(sizes), limit, side="right"))


def bytes_in(slots: bytes, sizes: Sizes) -> int:
    """Bytes of the slots in a bitmap."""
    return int(sizes[mask_of(slots)].sum())


def bytes_of(parts: Sequence[bytes], sizes: Sizes) -> list[int]:
    """Bytes of the slots in each of some bitmaps."""
    distinct = list(dict.fromkeys(parts))
    bits = np.unpackbits(np.frombuffer(b"".join(distinct), dtype=np.uint8)).view(np.bool_)
    found = np.flatnonzero(bits)
    # The sums are exact: they stay far below 2**53.
    sums = np.bincount(found >> SLOT_BITS, weights=sizes[found & (SLOTS - 1)], minlength=len(distinct))
    known = dict(zip(distinct, sums.astype(np.int64).tolist(), strict=True))
    return [known[part] for part in parts]


def of_owners(owners: npt.NDArray[np.int64], *, count: int) -> list[bytes]:
    """The bitmap of each of so many nodes, from the number of the node of each slot; -1 is none."""
    owned = np.zeros((count, SLOTS), dtype=bool)
    given = np.flatnonzero(owners >= 0)
    owned[owners[given], given] = True
    return [each.tobytes() for each in np.packbits(owned, axis=1)]


def partition(*, mount: str, capacities: Mapping[str, int], sizes: Sizes) -> dict[str, bytes]:
    """One node for every slot, in proportion to the nodes' capacities.

    The result depends on nothing but the arguments. Of n + 1 equal nodes, the one that was added takes about
    1 / (n + 1) of the bytes, and few others move (some 10 % of that more with ten nodes, to keep loads within
    their bounds). No node has more than its share and 2 %, or than its share and the largest slot.

    Args:
        mount: the mount's path; another mount is spread in another way.
        capacities: bytes that each node may hold, by its name; nodes with 0 get nothing.
        sizes: bytes in each slot. Slots without bytes are given away, too, but do not count; for a dataset that is
            held in part, pass 0 for the slots that are not held.

    Raises:
        ValueError: No node has any capacity.
    """
    names, found = owners(mount=mount, capacities=capacities, sizes=sizes)
    return {
        **dict.fromkeys(capacities, bytes(BITMAP_BYTES)),
        **dict(zip(names, of_owners(found, count=len(names)), strict=True)),
    }


def owners(
    *, mount: str, capacities: Mapping[str, int], sizes: Sizes
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The partition as names of nodes and, for each slot, the number of its node in these. See `partition`."""
    names = sorted(name for name, capacity in capacities.items() if capacity > 0)
    if not names:
        raise ValueError(f"the slots of {mount} cannot be given to nodes: none of them has any capacity")
    seeds = [xxhash.xxh3_64_intdigest(f"{mount}\0{name}".encode()) for name in names]
    spread = _Spread(
        seeds=np.array(seeds, dtype=np.uint64),
        weights=np.array([capacities[name] for name in names], dtype=np.float64),
        sizes=sizes,
    )
    return names, spread.owners()


class _Spread:
    """One partition under way.

    The cost of a node for a slot is the logarithm of an exponentially distributed number, less that of the node's
    weight; the cheapest node wins the slot.
    """

    def __init__(
        self, *, seeds: npt.NDArray[np.uint64], weights: npt.NDArray[np.float64], sizes: Sizes
    ) -> None:
        self._seeds = seeds
        self._weights = weights
        self._sizes = sizes
        self._shares = weights / weights.sum() * float(sizes.sum())

    def owners(self) -> npt.NDArray[np.int64]:
        """The node of each slot."""
        count = len(self._seeds)
        if count == 1:
            return np.zeros(SLOTS, dtype=np.int64)
        every = np.arange(SLOTS, dtype=np.uint64)
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
        counters = np.arange(1, SLOTS + 1, dtype=np.uint64) * _INCREMENT
        nodes, slots, hashes = [], [], []
        for begin in range(0, len(self._seeds), _ROWS):
            rows = slice(begin, begin + _ROWS)
            mixed = _mixed(self._seeds[rows, None] + counters)
            found = np.flatnonzero(mixed > least[rows, None])
            nodes.append((found >> SLOT_BITS) + begin)
            slots.append(found & (SLOTS - 1))
            hashes.append(mixed.ravel()[found])
        node, slot, mixed = np.concatenate(nodes), np.concatenate(slots), np.concatenate(hashes)
        costs = _log_exponential(mixed) - np.log(self._weights)[node]
        missing = np.flatnonzero(np.bincount(slot, minlength=SLOTS) == 0)
        if len(missing):
            node = np.concatenate([node, np.repeat(np.arange(len(self._seeds)), len(missing))])
            slot = np.concatenate([slot, np.tile(missing, len(self._seeds))])
            costs = np.concatenate([costs, self._costs(missing.astype(np.uint64)).ravel()])
        order = np.argsort(slot.astype(np.uint16), kind="stable")
        return _Offers(nodes=node[order], slots=slot[order], costs=costs[order])

    def _costs(self, slots: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
        """What every node costs for some slots: nodes x slots."""
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
            own = np.flatnonzero((owners == node) & (sizes > 0))
            costs = self._costs(own.astype(np.uint64)) + addend[:, None]
            mine = costs[node].copy()
            costs[node] = np.inf
            for number in np.argsort(costs.min(axis=0) - mine, kind="stable"):
                slot = own[number]
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
        self._starts = np.searchsorted(slots, np.arange(SLOTS))

    def winners(self, addend: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The cheapest node of each slot, when so much is added to the costs of each node."""
        costs = self._costs + addend[self._nodes]
        least = np.minimum.reduceat(costs, self._starts)
        rows = np.flatnonzero(costs == least[self._slots])
        if len(rows) > SLOTS:  # of equal costs the first node's
            rows = rows[np.searchsorted(self._slots[rows], np.arange(SLOTS))]
        return self._nodes[rows]


class _AllOffers:
    """What every node costs for every slot: nodes x slots."""

    def __init__(self, costs: npt.NDArray[np.float64]) -> None:
        self._costs = costs

    def winners(self, addend: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """As those of `_Offers`."""
        least = self._costs[0] + addend[0]
        owners = np.zeros(SLOTS, dtype=np.int64)
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
    found: npt.NDArray[np.float64] = np.log(-np.log(uniform))
    return found
