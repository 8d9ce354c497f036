"""Whom to ask first for a block: the order of the agents that have it, and of those that can read its source. Pure."""

from tdcs.engine.holder_table import HolderTable
from tdcs.model.nearness import crosses_zone, steps
from tdcs.model.slots import SLOTS


def slot_holders(table: HolderTable, *, slot: int, node: str) -> tuple[str, ...]:
    """Addresses of the agents that may have a block of a slot, those that have all of the slot first.

    Of each kind the nearest agents are first, of those another one for each slot, and this node's own is last: what it
    has was looked for on the disk before.
    """
    place, bit = slot >> 3, 0x80 >> (slot & 7)
    complete = [holder for holder in table.holders if holder.complete[place] & bit]
    partial = [
        holder for holder in table.holders if holder.present[place] & bit and not holder.complete[place] & bit
    ]
    ordered = []
    for kind in (complete, partial):
        turn = slot % len(kind) if kind else 0
        turned = [*kind[turn:], *kind[:turn]]
        ordered += sorted(turned, key=lambda holder: (holder.node == node, steps(table.here, holder.place)))
    return tuple(holder.address for holder in ordered)


def source_readers(table: HolderTable, *, slot: int, node: str) -> tuple[str, ...]:
    """Addresses of the agents that can read the source, the nearest first, of those another one for each slot. Where
    reads fill the cache, this node's own is first while it keeps what it reads, then the others that do."""
    able = [holder for holder in table.holders if holder.reads_source]
    turn = slot * len(able) // SLOTS
    turned = [*able[turn:], *able[:turn]]
    turned.sort(
        key=lambda holder: (
            not (holder.fills and holder.node == node),
            not holder.fills,
            steps(table.here, holder.place),
        )
    )
    return tuple(holder.address for holder in turned)


def across_zones(table: HolderTable) -> frozenset[str]:
    """Addresses of the agents in other zones than this node's: what comes from them costs money in most clouds."""
    return frozenset(
        holder.address for holder in table.holders if crosses_zone(table.here, holder.place, level=table.zone)
    )
