"""What the last assignment says of a mount's blocks: which are wanted, where each comes from, and what is let go."""

from __future__ import annotations

from typing import Final

import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import Assignment, Part, echo_of
from tdcs.model.manifest import Manifest
from tdcs.node.agent.mount import slot_counts as kinds
from tdcs.node.agent.mount.block_rows import (
    ASSIGNED,
    FAILED,
    LATER,
    PEERS,
    READ,
    SOURCE,
    STAYS,
    WANTED,
    Mask,
)
from tdcs.node.agent.mount.counted_rows import CountedRows
from tdcs.node.agent.mount.failed_fetches import BlockFailures
from tdcs.node.agent.mount.part_sums import PathSums
from tdcs.node.agent.mount.slot_index import SlotIndex

_PULLED_BY: Final = {"All": READ, "Peers": PEERS}


class AssignedBlocks:
    """The assignment of one version of a mount, as flags of its rows.

    Attributes:
        assignment: the last one; None before the first.
        echo: which that is, see `echo_of`.
        parts: its parts by name.
        placements: grows whenever other blocks are assigned.
        dropped: slots that it lets go.
    """

    def __init__(
        self, manifest: Manifest, *, counted: CountedRows, failures: BlockFailures, by_slot: SlotIndex
    ) -> None:
        self._manifest: Final = manifest
        self._counted: Final = counted
        self._rows: Final = counted.rows
        self._counts: Final = counted.counts
        self._failures: Final = failures
        self._by_slot: Final = by_slot
        self._covered: dict[tuple[str, ...], Mask] = {}
        """Slots of which all blocks under some paths have rows."""
        self._offered: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self.dropped: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self.assignment: Assignment | None = None
        self.echo = ""
        self.parts: dict[str, Part] = {}
        self.placements = 0

    def assign(self, assignment: Assignment) -> None:
        """Work by an assignment from now on."""
        self._counted.changes += 1
        before, self.assignment = self.assignment, assignment
        self.echo = echo_of(assignment)
        same_placement = before is not None and _placement(before) == _placement(assignment)
        if before is None or not same_placement or _offers(before) != _offers(assignment):
            offers = [peer.slots for peer in assignment.peers]
            self._offered = slots.mask_of(slots.union(*offers)) if offers else np.zeros_like(self._offered)
        if not same_placement:
            self._place(assignment)

    def _place(self, assignment: Assignment) -> None:
        self.placements += 1
        self.parts = {part.name: part for part in assignment.parts}
        selections = {part.paths for part in assignment.parts}
        self._counted.sums = {
            paths: self._counted.sums.get(paths)
            or PathSums(self._manifest, paths, empty_files=self._rows.empty_files)
            for paths in sorted(selections)
        }
        rows, masks = self._rows, {part.name: slots.mask_of(part.slots) for part in assignment.parts}
        slots_by_paths = {
            paths: np.logical_or.reduce(
                [masks[part.name] for part in assignment.parts if part.paths == paths]
            )
            for paths in self._counted.sums
        }
        refused_here = rows.numbers[(rows.flags & (FAILED | SOURCE)) == (FAILED | SOURCE)]
        rows.flags[:] &= np.uint16(~ASSIGNED & 0xFFFF)
        stays = (rows.flags & (STAYS | FAILED | LATER)) != 0
        for paths, sums in self._counted.sums.items():
            mine = slots_by_paths[paths][rows.slots]
            stays |= mine & sums.among(rows.numbers) if paths else mine
        rows.keep(stays)
        for paths, sums in self._counted.sums.items():
            fresh = slots_by_paths[paths] & ~self._covered.get(paths, np.zeros_like(slots_by_paths[paths]))
            if fresh.any():
                rows.have(self._by_slot.blocks(fresh, sums.ranges))
        self._covered = slots_by_paths
        places = rows.slots.astype(np.intp)  # once: numpy makes them of smaller ones each time
        for paths, sums in self._counted.sums.items():
            flags = np.zeros(slots.SLOTS, dtype=np.uint16)
            for part in assignment.parts:
                if part.paths == paths:
                    flags[masks[part.name]] |= np.uint16(WANTED | _PULLED_BY.get(part.pull, 0))
            assigned = flags[places]
            if paths:
                assigned[~sums.among(rows.numbers)] = 0
            rows.flags[:] |= assigned
        # What may be read from the source comes from there where this agent reads for all, and from peers elsewhere.
        read = (rows.flags & READ) != 0
        from_origin = read & slots.mask_of(assignment.origin)[places]
        rows.flags[:] |= read * np.uint16(PEERS)
        rows.flags[:] ^= from_origin * np.uint16(PEERS | SOURCE)
        # What this node could not read at the source may be on its way from another one that can.
        again = ((rows.flags & PEERS) != 0) & np.isin(rows.numbers, refused_here)
        rows.flags[again] &= np.uint16(~LATER & 0xFFFF)
        self.dropped = slots.mask_of(assignment.drop)
        self._failures.keep((rows.flags & WANTED) != 0)
        self._counted.count()

    def from_source_instead(self, block: int) -> bool:
        """No peer can give this block: it is to be read from the source. False: the source may not be read for it."""
        self._counted.changes += 1
        row = self._rows.at(block)
        flags = self._rows.flag_view[row] if row >= 0 else 0
        if not flags & READ:
            return False
        if flags & PEERS:
            self._counted.set(row, (flags & ~PEERS) | SOURCE)
        return True

    def slots_from_source(self, lonely: bytes) -> bool:
        """No peer answers for these slots: what the source may give of them is read there; whether there is any."""
        mine = slots.mask_of(lonely)
        if not self._counts.of(kinds.MISSING_READ)[mine].any():
            return False
        self._counted.changes += 1
        rows = self._rows
        moved = ((rows.flags & (PEERS | READ)) == (PEERS | READ)) & mine[rows.slots]
        rows.flags[moved] = (rows.flags[moved] & np.uint16(~PEERS & 0xFFFF)) | np.uint16(SOURCE)
        self._counted.count()
        return True

    def no_peer_has(self, empty: bytes) -> bool:
        """No peer has more of these slots: what only peers may give of them is no work; whether there is any.

        It is awaited again when the peers of an assignment, or their slots, are others.
        """
        ended = (self._counts.of(kinds.MISSING_ONLY) > 0) & self._offered & slots.mask_of(empty)
        if not ended.any():
            return False
        self._counted.changes += 1
        self._offered = self._offered & ~ended
        return True

    def missing_slots(self, *, from_peers: bool) -> bytes:
        """Slots with blocks that are to be brought, from peers or from the source. What the source may not give, and no
        peer offers, is no work."""
        of = self._counts.of
        if not from_peers:
            return slots.of_mask(of(kinds.MISSING_SOURCE) > 0)
        return slots.of_mask((of(kinds.MISSING_READ) > 0) | ((of(kinds.MISSING_ONLY) > 0) & self._offered))

    def misses(self) -> bool:
        """Whether some block is to be brought."""
        total = self._counts.total
        return bool(
            total[kinds.MISSING_SOURCE] or total[kinds.MISSING_READ] or self.offered_of(kinds.MISSING_ONLY)
        )

    def offered_of(self, kind: int) -> int:
        """Rows of a kind in slots that peers offer."""
        return int(self._counts.of(kind)[self._offered].sum()) if self._counts.total[kind] else 0

    def dropped_of(self, kind: int, *, handover: Mask | None = None) -> int:
        """Rows of a kind in slots that the assignment lets go, but for those that are kept for now."""
        if not self._counts.total[kind]:
            return 0
        dropped = self.dropped if handover is None else self.dropped & ~handover
        return int(self._counts.of(kind)[dropped].sum())

    def in_part(self, name: str) -> Mask:
        """The rows of a part (empty: all); none of a part that is not assigned."""
        rows, part = self._rows, self.parts.get(name)
        if not name:
            return np.ones(len(rows), dtype=np.bool_)
        if part is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.asarray(
            slots.mask_of(part.slots)[rows.slots] & self._counted.sums[part.paths].among(rows.numbers)
        )


def _placement(assignment: Assignment) -> tuple[object, ...]:
    return assignment.parts, assignment.origin, assignment.drop


def _offers(assignment: Assignment) -> tuple[object, ...]:
    return tuple((peer.node, peer.slots) for peer in assignment.peers)
