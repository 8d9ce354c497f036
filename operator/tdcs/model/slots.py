"""Slots: the unit of every decision about where data is.

Every block of a mount belongs to one of 4,096 slots by a stable hash of its file's path and its number in the file.
Operator and agents speak of sets of slots as bitmaps of 512 bytes; slot 0 is the highest bit of the first byte.

- What is held of a dataset that does not fit is a prefix of the slots 0..4095: a smaller prefix is a subset of a
  larger one. The hash spreads files evenly over the slots, so a prefix is a fair sample of them.
- A partition gives every slot to one node by weighted rendezvous hashing (`tdcs.model.rendezvous`). Another node takes
  its share from all others, and little else moves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from tdcs.model.rendezvous import Sizes as Sizes
from tdcs.model.rendezvous import Spread

SLOTS: Final = 4096
"""How many slots a mount has. It never changes: agents would take every block for misplaced."""

SLOT_BITS: Final = 12

BITMAP_BYTES: Final = SLOTS // 8


def slot_of(path: bytes, block: int) -> int:
    """The slot of a block: xxh3_64 of the path, seeded with the block's number in its file, modulo 4,096.

    Args:
        path: of the file, relative to its mount, as raw bytes.
        block: 0 for the first block of the file.
    """
    return xxhash.xxh3_64_intdigest(path, seed=block) % SLOTS


def bitmap(slots: Iterable[int] | npt.NDArray[np.integer]) -> bytes:
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
    return np.flatnonzero(mask_of(slots)).astype(np.int64, copy=False)


def count(slots: bytes) -> int:
    return int.from_bytes(slots, "big").bit_count()


def union(*bitmaps: bytes) -> bytes:
    bits = 0
    for bitmap in bitmaps:
        bits |= int.from_bytes(bitmap, "big")
    return bits.to_bytes(BITMAP_BYTES, "big")


def intersection(first: bytes, *bitmaps: bytes) -> bytes:
    bits = int.from_bytes(first, "big")
    for bitmap in bitmaps:
        bits &= int.from_bytes(bitmap, "big")
    return bits.to_bytes(BITMAP_BYTES, "big")


def difference(slots: bytes, *without: bytes) -> bytes:
    """The slots of the first bitmap that are in none of the others."""
    bits = int.from_bytes(slots, "big")
    for bitmap in without:
        bits &= ~int.from_bytes(bitmap, "big")
    return bits.to_bytes(BITMAP_BYTES, "big")


def prefix(length: int) -> bytes:
    """The bitmap of the first `length` slots; raises ValueError unless 0 <= length <= 4096."""
    if not 0 <= length <= SLOTS:
        raise ValueError(f"a prefix has 0 to {SLOTS} slots, not {length}")
    return (((1 << length) - 1) << (SLOTS - length)).to_bytes(BITMAP_BYTES, "big")


def prefix_within(sizes: Sizes, limit: float) -> int:
    """Length of the longest prefix that has at most `limit` bytes."""
    return int(np.searchsorted(np.cumsum(sizes), limit, side="right"))


def bytes_in(slots: bytes, sizes: Sizes) -> int:
    return int(sizes[mask_of(slots)].sum())


def bytes_of(parts: Sequence[bytes], sizes: Sizes) -> list[int]:
    distinct = list(dict.fromkeys(parts))
    bits = np.unpackbits(np.frombuffer(b"".join(distinct), dtype=np.uint8)).view(np.bool_)
    set_bits = np.flatnonzero(bits)
    # The sums are exact: they stay far below 2**53.
    sums = np.bincount(set_bits >> SLOT_BITS, weights=sizes[set_bits & (SLOTS - 1)], minlength=len(distinct))
    bytes_by_part = dict(zip(distinct, sums.astype(np.int64).tolist(), strict=True))
    return [bytes_by_part[part] for part in parts]


def of_owners(owners: npt.NDArray[np.int64], *, count: int) -> list[bytes]:
    """The bitmap of each of so many nodes, from the number of the node of each slot; -1 is none."""
    owned = np.zeros((count, SLOTS), dtype=bool)
    owned_slots = np.flatnonzero(owners >= 0)
    owned[owners[owned_slots], owned_slots] = True
    return [row.tobytes() for row in np.packbits(owned, axis=1)]


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
    names, slot_owners = owners(mount=mount, capacities=capacities, sizes=sizes)
    return {
        **dict.fromkeys(capacities, bytes(BITMAP_BYTES)),
        **dict(zip(names, of_owners(slot_owners, count=len(names)), strict=True)),
    }


def owners(
    *, mount: str, capacities: Mapping[str, int], sizes: Sizes
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The partition as names of nodes and, for each slot, the number of its node in these. See `partition`."""
    names = sorted(name for name, capacity in capacities.items() if capacity > 0)
    if not names:
        raise ValueError(f"the slots of {mount} cannot be given to nodes: none of them has any capacity")
    seeds = [xxhash.xxh3_64_intdigest(f"{mount}\0{name}".encode()) for name in names]
    spread = Spread(
        seeds=np.array(seeds, dtype=np.uint64),
        weights=np.array([capacities[name] for name in names], dtype=np.float64),
        sizes=sizes,
    )
    return names, spread.owners()
