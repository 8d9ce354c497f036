"""Slots: the unit of every decision about where data is.

Every block of a mount belongs to one of 4,096 slots by a stable hash of its file's path and its number in the file.
Operator and agents speak of sets of slots as bitmaps of 512 bytes; slot 0 is the highest bit of the first byte.

- What is held of a dataset that does not fit is a prefix of the slots 0..4095: a smaller prefix is a subset of a
  larger one. The hash spreads files evenly over the slots, so a prefix is a fair sample of them.
- A partition gives every slot to one node by weighted rendezvous hashing (Thaler and Ravishankar 1998; weights as
  -w / ln h, Schindelhauer and Schomaker 2005), with loads bounded as by Mirrokni, Thorup and Zadimoghaddam 2018.
  Another node takes its share from all others, and little else moves.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

SLOTS: Final = 4096
"""How many slots a mount has. It never changes: agents would take every block for misplaced."""

BITMAP_BYTES: Final = SLOTS // 8

TOLERANCE: Final = 0.02
"""A node's part of a partition may exceed its share by this fraction, or by one slot where that is more."""

Sizes = npt.NDArray[np.int64]
"""Bytes (or files) in each slot; 4,096 values."""

_ROUNDS: Final = 24
_WORK: Final = 2400
"""Nodes times rounds at most: hundreds of nodes are balanced less well, within the same bounds."""
_STEP: Final = 0.7
_LEAST: Final = 0.2
_INCREMENT: Final = np.uint64(0x9E3779B97F4A7C15)
_MIXERS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


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
    names = sorted(name for name, capacity in capacities.items() if capacity > 0)
    if not names:
        raise ValueError(f"the slots of {mount} cannot be given to nodes: none of them has any capacity")
    weights = np.array([capacities[name] for name in names], dtype=np.float64)
    shares = weights / weights.sum() * float(sizes.sum())
    costs = np.log(_costs(mount=mount, names=names)) - np.log(weights)[:, None]
    owners = _bounded(costs=_balanced(costs=costs, shares=shares, sizes=sizes), shares=shares, sizes=sizes)
    return {
        **dict.fromkeys(capacities, bytes(BITMAP_BYTES)),
        **{name: of_mask(owners == number) for number, name in enumerate(names)},
    }


def _costs(*, mount: str, names: list[str]) -> npt.NDArray[np.float64]:
    """A number above 0 for each node and slot, exponentially distributed: the node of the smallest one wins."""
    seeds = np.array(
        [xxhash.xxh3_64_intdigest(f"{mount}\0{name}".encode()) for name in names], dtype=np.uint64
    )
    counters = np.arange(1, SLOTS + 1, dtype=np.uint64)
    mixed = seeds[:, None] + counters[None, :] * _INCREMENT  # splitmix64
    for shift, factor in zip((30, 27), _MIXERS, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    mixed ^= mixed >> np.uint64(31)
    uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(uniform)


def _balanced(
    *, costs: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], sizes: Sizes
) -> npt.NDArray[np.float64]:
    """The costs with an addend for each node that brings the loads near the shares.

    By chance alone the loads of n nodes differ by some sqrt(n / 4096). Making the costs of a loaded node a little
    higher moves the slots that were nearly another node's; a hard bound alone would leave gaps in other nodes.
    """
    if not shares.any() or len(shares) == 1:
        return costs
    best, smallest = costs, np.inf
    addend = np.zeros(len(shares))
    for number in range(max(4, min(_ROUNDS, _WORK // len(shares)))):
        adjusted = costs + addend[:, None]
        loads = np.bincount(np.argmin(adjusted, axis=0), weights=sizes, minlength=len(shares))
        excess = float(np.abs(loads / shares - 1).max())
        if excess < smallest:
            best, smallest = adjusted, excess
        if excess < TOLERANCE / 2:
            break
        addend += _STEP * 0.93**number * np.log(np.maximum(loads / shares, _LEAST))
    return best


def _bounded(
    *, costs: npt.NDArray[np.float64], shares: npt.NDArray[np.float64], sizes: Sizes
) -> npt.NDArray[np.int64]:
    """The node of each slot: the cheapest that has room, and one has: a bound is a share and the largest slot."""
    owners: npt.NDArray[np.int64] = np.argmin(costs, axis=0)
    bounds = np.maximum(shares * (1 + TOLERANCE), shares + float(sizes.max()))
    loads = np.bincount(owners, weights=sizes, minlength=len(shares))
    for node in np.flatnonzero(loads > bounds):
        # What the node wins by the least goes first.
        own = np.flatnonzero((owners == node) & (sizes > 0))
        others = np.where(np.arange(len(shares))[:, None] == node, np.inf, costs[:, own])
        for slot in own[np.argsort(others.min(axis=0) - costs[node, own], kind="stable")]:
            if loads[node] <= bounds[node]:
                break
            room = np.where(loads + sizes[slot] <= bounds, costs[:, slot], np.inf)
            room[node] = np.inf
            taker = int(np.argmin(room))
            if not np.isfinite(room[taker]):
                continue
            owners[slot] = taker
            loads[node] -= sizes[slot]
            loads[taker] += sizes[slot]
    return owners
