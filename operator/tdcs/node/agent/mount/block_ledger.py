"""What of one mount lies here, what shall, and what is to be done next: a row for each block that an agent has to do
with, and counts by slot.

No clock, and no I/O but of the index by slot: times are seconds that only grow, given by the caller. Not thread-safe:
the owner holds a lock around each call. A block is known by its number in the manifest. What is asked for all the time
takes as long as there are slots; an assignment, a look and a new version take as long as there are rows.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS, Assignment, MountState, Part
from tdcs.model.block_identity import same_blocks
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import decoded
from tdcs.model.printable_text import printable
from tdcs.node.agent.mount import slot_counts as kinds
from tdcs.node.agent.mount.block_rows import (
    ASSIGNED,
    CLAIMED,
    FAILED,
    HELD,
    LATER,
    PEERS,
    READ,
    REFUSED,
    REGISTERED,
    SOURCE,
    SPOOL,
    STAYS,
    TOUCHED,
    WANTED,
    BlockRows,
    Mask,
    Numbers,
)
from tdcs.node.agent.mount.failed_fetches import UNANSWERED_PAUSE, BlockFailures, FailedBlock, Failure
from tdcs.node.agent.mount.part_sums import PathSums
from tdcs.node.agent.mount.slot_counts import SlotCounts, Tally, rows_of_kind
from tdcs.node.agent.mount.slot_index import SlotIndex
from tdcs.node.extents import ExtentPlace, extent_place

_log: Final = logging.getLogger(__name__)

_WINDOW: Final = 1 << 16
_PULLED_BY: Final = {"All": READ, "Peers": PEERS}


class Blocks(Protocol):
    """Blocks that somebody has."""

    def among(self, blocks: Numbers) -> Mask:
        """Which of these, ascending, are some of them."""
        ...


class Ledger:
    """The blocks of one version of a mount.

    Args:
        exported: whether a worker is told of the blocks that lie here, after they are readable.
        index_folder: where a large version's index by slot may be kept (`SlotIndex`).

    Attributes:
        looked_at: whether a look at the folders was made; before that it is not known what is missing.
        changes: grows with every change, so that nothing has to be counted anew while there was none.
        placements: grows whenever other blocks are assigned.
    """

    def __init__(
        self, manifest: Manifest, *, exported: bool = True, index_folder: Path | None = None
    ) -> None:
        self.manifest: Final = manifest
        self._exported: Final = exported
        self.assignment: Assignment | None = None
        self.changes = 0
        self.placements = 0
        self.looked_at = False
        self._rows: Final = BlockRows(manifest)
        self._counts: Final = SlotCounts()
        self._failures: Final = BlockFailures(manifest, self._rows, self._set)
        self._sums: dict[tuple[str, ...], PathSums] = {}
        self._parts: dict[str, Part] = {}
        self._covered: dict[tuple[str, ...], Mask] = {}
        """Slots of which all blocks under some paths have rows."""
        self._offered: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self._dropped: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self._looking = False
        self._cursors: dict[str, int] = {}
        self._by_slot: Final = SlotIndex(manifest, folder=index_folder)

    def __len__(self) -> int:
        """Blocks that it has to do with."""
        return len(self._rows)

    def _set(self, row: int, flags: int) -> None:
        rows = self._rows
        before = rows.flag_view[row]
        if flags == before:
            return
        rows.flag_view[row] = flags
        slot, length = rows.slot_view[row], rows.length_view[row]
        self._counts.step(before=before, after=flags, slot=slot, length=length)
        for sums in self._sums.values():
            sums.step(block=rows.number_view[row], before=before, after=flags, slot=slot, length=length)

    def _count(self) -> None:
        """Count all rows anew, and leave out those with which there is nothing to do any more."""
        rows = self._rows
        idle = (rows.flags & (ASSIGNED | STAYS | FAILED)) == 0
        if idle.any():
            rows.keep(~idle)
        tally = Tally(rows)
        self._counts.count(tally)
        for sums in self._sums.values():
            sums.count(rows, tally)

    # Assignments.

    def assign(self, assignment: Assignment) -> None:
        """Work by an assignment from now on. What failed is tried at once when the access to the source is another."""
        self.changes += 1
        before, self.assignment = self.assignment, assignment
        if before is not None and before.source != assignment.source:
            self.retry()
        same = before is not None and _placement(before) == _placement(assignment)
        if before is None or not same or _offers(before) != _offers(assignment):
            offers = [peer.slots for peer in assignment.peers]
            self._offered = slots.mask_of(slots.union(*offers)) if offers else np.zeros_like(self._offered)
        if not same:
            self._place(assignment)

    def _place(self, assignment: Assignment) -> None:
        self.placements += 1
        self._parts = {part.name: part for part in assignment.parts}
        selections = {part.paths for part in assignment.parts}
        self._sums = {
            paths: self._sums.get(paths) or PathSums(self.manifest, paths, empty_files=self._rows.empty_files)
            for paths in sorted(selections)
        }
        rows, masks = self._rows, {part.name: slots.mask_of(part.slots) for part in assignment.parts}
        wanted = {
            paths: np.logical_or.reduce([masks[one.name] for one in assignment.parts if one.paths == paths])
            for paths in self._sums
        }
        refused_here = rows.numbers[(rows.flags & (FAILED | SOURCE)) == (FAILED | SOURCE)]
        rows.flags[:] &= np.uint16(~ASSIGNED & 0xFFFF)
        stays = (rows.flags & (STAYS | FAILED | LATER)) != 0
        for paths, sums in self._sums.items():
            mine = wanted[paths][rows.slots]
            stays |= mine & sums.among(rows.numbers) if paths else mine
        rows.keep(stays)
        for paths, sums in self._sums.items():
            fresh = wanted[paths] & ~self._covered.get(paths, np.zeros_like(wanted[paths]))
            if fresh.any():
                rows.have(self._by_slot.blocks(fresh, sums.ranges))
        self._covered = wanted
        places = rows.slots.astype(np.intp)  # once: numpy makes them of smaller ones each time
        for paths, sums in self._sums.items():
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
        own = read & slots.mask_of(assignment.origin)[places]
        rows.flags[:] |= read * np.uint16(PEERS)
        rows.flags[:] ^= own * np.uint16(PEERS | SOURCE)
        # What this node could not read at the source may be on its way from another one that can.
        again = ((rows.flags & PEERS) != 0) & np.isin(rows.numbers, refused_here)
        rows.flags[again] &= np.uint16(~LATER & 0xFFFF)
        self._dropped = slots.mask_of(assignment.drop)
        self._failures.keep((rows.flags & WANTED) != 0)
        self._count()

    def from_source_instead(self, block: int) -> bool:
        """No peer can give this block: it is to be read from the source. False: the source may not be read for it."""
        self.changes += 1
        row = self._rows.at(block)
        flags = self._rows.flag_view[row] if row >= 0 else 0
        if not flags & READ:
            return False
        if flags & PEERS:
            self._set(row, (flags & ~PEERS) | SOURCE)
        return True

    def slots_from_source(self, lonely: bytes) -> bool:
        """No peer answers for these slots: what the source may give of them is read there; whether there is any."""
        mine = slots.mask_of(lonely)
        if not self._counts.of(kinds.MISSING_READ)[mine].any():
            return False
        self.changes += 1
        rows = self._rows
        moved = ((rows.flags & (PEERS | READ)) == (PEERS | READ)) & mine[rows.slots]
        rows.flags[moved] = (rows.flags[moved] & np.uint16(~PEERS & 0xFFFF)) | np.uint16(SOURCE)
        self._count()
        return True

    def no_peer_has(self, empty: bytes) -> bool:
        """No peer has more of these slots: what only peers may give of them is no work; whether there is any.

        It is awaited again when the peers of an assignment, or their slots, are others.
        """
        ended = (self._counts.of(kinds.MISSING_ONLY) > 0) & self._offered & slots.mask_of(empty)
        if not ended.any():
            return False
        self.changes += 1
        self._offered = self._offered & ~ended
        return True

    # What is to be brought.

    def missing_slots(self, *, from_peers: bool) -> bytes:
        """Slots with blocks that are to be brought, from peers or from the source. What the source may not give, and no
        peer offers, is no work."""
        of = self._counts.of
        if not from_peers:
            return slots.of_mask(of(kinds.MISSING_SOURCE) > 0)
        return slots.of_mask((of(kinds.MISSING_READ) > 0) | ((of(kinds.MISSING_ONLY) > 0) & self._offered))

    def misses(self) -> bool:
        """Whether something is to be brought."""
        total = self._counts.total
        return bool(
            total[kinds.MISSING_SOURCE] or total[kinds.MISSING_READ] or self._offered_of(kinds.MISSING_ONLY)
        )

    def ready(self, *, now: float, from_peers: bool) -> int:
        """How many of them may be taken now."""
        self._failures.come(now=now)
        if not from_peers:
            return self._counts.total[kinds.READY_SOURCE]
        return self._counts.total[kinds.READY_READ] + self._offered_of(kinds.READY_ONLY)

    def _offered_of(self, kind: int) -> int:
        return int(self._counts.of(kind)[self._offered].sum()) if self._counts.total[kind] else 0

    def take(
        self,
        *,
        now: float,
        most: int,
        most_bytes: int,
        from_peers: bool = False,
        among: Blocks | None = None,
        cursor: str = "",
    ) -> list[int]:
        """Claim the next blocks to bring, in the order of the manifest; at least one block if any is to be had.

        Args:
            most, most_bytes: how many at most. A block that is larger than `most_bytes` comes alone.
            from_peers: of those that come from peers, not from the source.
            among: only these.
            cursor: each name has its own place, from which it goes on, and round again.
        """
        self._failures.come(now=now)
        rows, way = self._rows, PEERS if from_peers else SOURCE
        known = np.uint16(way | HELD | CLAIMED | REFUSED | LATER)

        def free(part: slice) -> Mask:
            found = (rows.flags[part] & known) == way
            if among is not None and found.any():
                found = found & among.among(rows.numbers[part])
            return np.asarray(found)

        taken: list[int] = []
        size = 0
        for row in self._scan(free, most=most, cursor=cursor):
            length = rows.length_view[row]
            if taken and size + length > most_bytes:
                break
            taken.append(row)
            size += length
        return self._claim(taken, cursor=cursor)

    def _scan(self, free: Callable[[slice], Mask], *, most: int, cursor: str) -> Iterator[int]:
        """The first so many rows from a cursor on, and round again, of which this is true."""
        rows = self._rows
        begin = rows.place(self._cursors.get(cursor, 0))
        for low, high in _windows(begin=begin, count=len(rows)):
            found = (np.flatnonzero(free(slice(low, high)))[:most] + low).tolist()
            yield from found
            most -= len(found)
            if most <= 0:
                return

    def _claim(self, taken: Sequence[int], *, cursor: str = "") -> list[int]:
        """Claim rows; their blocks."""
        if not taken:
            return []
        self.changes += 1
        rows = self._rows
        for row in taken:
            self._set(row, (rows.flag_view[row] | CLAIMED) & ~LATER)
        blocks = [rows.number_view[row] for row in taken]
        if cursor:
            self._cursors[cursor] = blocks[-1] + 1
        return blocks

    def claim(self, blocks: Sequence[int]) -> list[int]:
        rows = [self._rows.add(block) for block in blocks]
        return self._claim([row for row in rows if not self._rows.flag_view[row] & CLAIMED])

    def release(self, blocks: Sequence[int]) -> None:
        self.changes += 1
        for block in blocks:
            row = self._rows.at(block)
            if row >= 0:
                self._set(row, self._rows.flag_view[row] & ~CLAIMED)

    def located(self, block: int, *, spooled: bool, registered: bool) -> None:
        """A claimed block lies in these folders now, and is given back."""
        self.changes += 1
        row = self._rows.add(block)
        flags = self._rows.flag_view[row] & ~(CLAIMED | HELD)
        flags |= SPOOL * spooled | REGISTERED * registered | TOUCHED * self._looking
        if spooled or registered:
            flags = self._failures.brought(row, flags)
        self._set(row, flags)

    # What failed, and what is wrong.

    @property
    def failure_changes(self) -> int:
        """Grows with every change of what failed and why."""
        return self._failures.changes

    def failed(self, block: int, failure: Failure, *, now: float) -> None:
        """A claimed block could not be brought; it is tried again after a pause that grows."""
        self.changes += 1
        self._failures.note(self._rows.add(block), failure, now=now, given_back=CLAIMED)

    def postponed(self, block: int, *, now: float) -> None:
        """A claimed block was not answered: it is tried again after a short pause, and has not failed."""
        self.changes += 1
        self._failures.postpone(self._rows.add(block), now=now, given_back=CLAIMED, most=UNANSWERED_PAUSE)

    def failed_again(self, block: int, *, now: float) -> None:
        """A claimed block that has failed could not be tried: the reason stays, the pause grows."""
        self.changes += 1
        self._failures.postpone(self._rows.add(block), now=now, given_back=CLAIMED)

    def forgive(self, blocks: Sequence[int]) -> None:
        """These blocks have not failed: what was said of them holds for all, and is no fault of theirs."""
        self.changes += 1
        for block in blocks:
            if self.has_failed(block):
                self._failures.forgive(self._rows.at(block))

    def begin_anywhere(self, cursor: str) -> None:
        """Have a cursor go on from a random block."""
        self._cursors[cursor] = random.randrange(max(len(self.manifest.block_ids), 1))  # noqa: S311 - no secret

    def has_failed(self, block: int) -> bool:
        row = self._rows.at(block)
        return row >= 0 and bool(self._rows.flag_view[row] & FAILED)

    def retry(self) -> None:
        """Try all that failed at once: the source has other credentials, or another address."""
        self._failures.retry()
        self._count()

    def failed_blocks(self, *, most: int) -> tuple[FailedBlock, ...]:
        return self._failures.noted(most=most)

    def restore_failures(self, noted: Sequence[FailedBlock]) -> None:
        self.changes += 1
        self._failures.restore(noted)

    def refuse(self, blocks: Sequence[int], *, refused: bool = True) -> None:
        """These blocks are wrong: they are dropped, and not brought again; with `refused` false they may be."""
        self.changes += 1
        for block in blocks:
            row = self._rows.add(block)
            flags = self._rows.flag_view[row]
            self._set(row, flags | REFUSED if refused else flags & ~REFUSED)

    def refused_blocks(self, *, part: str = "") -> list[int]:
        """Blocks of this part (empty: all) that are neither held nor brought, because they were found wrong."""
        rows = self._rows
        return sorted(rows.numbers[((rows.flags & REFUSED) != 0) & self._in_part(part)].tolist())

    # Looks at the folders, and other versions.

    def adopt(self, before: Ledger) -> None:
        """Take over what the ledger of another version knows of blocks that both have: the same part of the same file,
        under the same id."""
        theirs, rows = before._rows, self._rows
        known = np.flatnonzero(theirs.flags & (HELD | FAILED | TOUCHED))
        numbers = same_blocks(self.manifest, before.manifest, theirs.numbers[known])
        both = numbers >= 0
        known, numbers = known[both], numbers[both]
        rows.have(np.sort(numbers))
        mine = rows.of(numbers)
        rows.flags[mine] |= theirs.flags[known] & np.uint16(HELD | (TOUCHED if before._looking else 0))
        failed = (theirs.flags[known] & FAILED) != 0
        self._failures.adopt(before._failures, mine=mine[failed], theirs=known[failed])
        self._looking = before._looking  # a look that has begun does not know what was brought since
        self._count()

    def look(self) -> None:
        """A look at the folders begins: what changes from now on is known better here than it finds."""
        self._looking = True
        flags = self._rows.flags
        flags[:] &= np.uint16(~TOUCHED & 0xFFFF)
        flags[(flags & CLAIMED) != 0] |= np.uint16(TOUCHED)

    def observe(self, *, spooled: Numbers, registered: Numbers) -> Numbers:
        """What the look has found, as numbers of blocks; those that appeared since the one before it."""
        rows = self._rows
        found = np.union1d(spooled, registered).astype(np.int64)
        rows.have(found)
        seen = np.zeros(len(rows), dtype=np.uint16)
        seen[rows.of(np.asarray(spooled, dtype=np.int64))] |= np.uint16(SPOOL)
        seen[rows.of(np.asarray(registered, dtype=np.int64))] |= np.uint16(REGISTERED)
        changed = (rows.flags & (CLAIMED | (TOUCHED if self._looking else 0))) == 0
        fresh = rows.numbers[changed & (seen != 0) & ((rows.flags & HELD) == 0)]
        rows.flags[changed] = (rows.flags[changed] & np.uint16(~HELD & 0xFFFF)) | seen[changed]
        rows.flags[:] &= np.uint16(~TOUCHED & 0xFFFF)
        self._looking, self.looked_at = False, True
        self.changes += 1
        self._failures.keep((rows.flags & HELD) == 0)
        self._count()
        return np.asarray(fresh)

    def spooled_of(self, blocks: Numbers) -> Mask:
        """Which of these blocks lie in the spool."""
        rows = self._rows.of(blocks)
        return (
            np.asarray((rows >= 0) & ((self._rows.flags[rows] & SPOOL) != 0))
            if len(self._rows)
            else rows >= 0
        )

    # What is to be registered and dropped.

    def to_register(self, *, most: int, skip: Numbers) -> list[int]:
        """Claim blocks that lie in the spool alone, but not those in `skip`."""
        if not self.registers():
            return []
        rows, known = self._rows, np.uint16(HELD | CLAIMED | REFUSED)

        def free(part: slice) -> Mask:
            found = (rows.flags[part] & known) == SPOOL
            unwelcome = self._dropped[rows.slots[part]] & ((rows.flags[part] & WANTED) == 0)
            return np.asarray(found & ~unwelcome & ~np.isin(rows.numbers[part], skip))

        return self._claim(list(self._scan(free, most=most, cursor="register")), cursor="register")

    def registers(self) -> bool:
        total = self._counts.total
        return self._exported and bool(
            total[kinds.REGISTERS]
            or total[kinds.REGISTERS_UNWANTED] > self._dropped_of(kinds.REGISTERS_UNWANTED)
        )

    def _dropped_of(self, kind: int, *, kept: Mask | None = None) -> int:
        """Rows of a kind in slots that the assignment lets go, but for those that are kept for now."""
        if not self._counts.total[kind]:
            return 0
        dropped = self._dropped if kept is None else self._dropped & ~kept
        return int(self._counts.of(kind)[dropped].sum())

    def to_drop(
        self,
        *,
        most: int,
        skip: Numbers,
        all_blocks: bool = False,
        spooled_only: bool = False,
        kept: Mask | None = None,
    ) -> list[int]:
        """Claim blocks that lie here and shall not; with `all_blocks` all that lie here.

        Args:
            spooled_only: only what the worker does not know.
            kept: slots that stay for now, but for what is wrong in them.
        """
        if not self.drops(all_blocks=all_blocks, kept=kept):
            return []
        rows = self._rows
        dropped = self._dropped if kept is None else self._dropped & ~kept

        def free(part: slice) -> Mask:
            flags = rows.flags[part]
            found = ((flags & HELD) != 0) & ((flags & CLAIMED) == 0)
            if not all_blocks:
                unwanted = dropped[rows.slots[part]] & ((flags & WANTED) == 0)
                found &= unwanted | ((flags & REFUSED) != 0)
            if spooled_only:
                found &= (flags & HELD) == SPOOL
            return np.asarray(found & ~np.isin(rows.numbers[part], skip))

        return self._claim(list(self._scan(free, most=most, cursor="drop")), cursor="drop")

    def drops(self, *, all_blocks: bool, kept: Mask | None = None) -> bool:
        """Whether blocks lie here that are to be dropped; see `to_drop`."""
        total = self._counts.total
        if all_blocks:
            return bool(total[kinds.ANY_IDLE])
        return bool(total[kinds.WRONG_IDLE] or self._dropped_of(kinds.UNWANTED_IDLE, kept=kept))

    # What is known of blocks.

    def chosen(self, *, slots: int, part: str) -> list[int]:
        """Blocks that lie here, of the first so many slots, and of this part (empty: all)."""
        rows = self._rows
        here = rows_of_kind(rows, kinds.HERE)
        here = here[(rows.slots[here] < slots) & self._in_part(part)[here]]
        return sorted(rows.numbers[here].tolist())

    def first_of_file(self, block: int) -> bool:
        return self.manifest.blocks_of(self.manifest.file_of(block)).start == block

    def place(self, block: int) -> ExtentPlace | None:
        """Where a block belongs in a file that it shares with others on the disk; None: it has a file for itself."""
        return None if self._exported else extent_place(self.manifest, block)

    def lies_here(self, block: int) -> bool:
        row = self._rows.at(block)
        return row >= 0 and bool(self._rows.flag_view[row] & HELD)

    def in_work(self, block: int) -> bool:
        """Whether somebody is bringing, registering or dropping a block."""
        row = self._rows.at(block)
        return row >= 0 and bool(self._rows.flag_view[row] & CLAIMED)

    def absent(self, block: int) -> bool:
        """Whether a block does not lie here, is not being brought, and may be."""
        row = self._rows.at(block)
        return row < 0 or not self._rows.flag_view[row] & (HELD | CLAIMED | REFUSED)

    @property
    def claims(self) -> int:
        """Blocks that somebody is bringing, registering or dropping."""
        return self._counts.total[kinds.IN_WORK]

    @property
    def blocks_here(self) -> int:
        return self._counts.total[kinds.ANY_HERE]

    def held_bytes(self) -> int:
        return self._counts.held_bytes

    def right_blocks(self) -> Numbers:
        """The blocks that lie here, ascending, but for wrong ones."""
        rows = self._rows
        return np.sort(rows.numbers[rows_of_kind(rows, kinds.HERE)])

    def a_right_block(self) -> int | None:
        """Some block that lies here and is right."""
        return next(iter(self.right_blocks()[:1].tolist()), None) if self._counts.total[kinds.HERE] else None

    def left(self) -> bool:
        """Whether something is still being brought, registered or dropped."""
        total = self._counts.total
        return bool(
            total[kinds.OPEN]
            or (self._exported and total[kinds.UNREGISTERED])
            or total[kinds.WRONG]
            or total[kinds.IN_WORK]
            or self._offered_of(kinds.OPEN_ONLY)
            or self._dropped_of(kinds.UNWANTED)
        )

    def done(self) -> bool:
        """Whether nothing is left to do, and nothing has failed."""
        return not self.left() and not self._counts.total[kinds.FAILED_ONCE]

    def state(self) -> MountState:
        """All of a mount's state but what was transferred and compared."""
        assignment, here = self.assignment, self._counts.of(kinds.HERE)
        failures, named = self._failures.files(self.path) if self._counts.total[kinds.FAILING] else ({}, ())
        return MountState(
            mount=self.manifest.path,
            version=assignment.version if assignment else 0,
            manifest=self.manifest.digest,
            held_bytes=self._counts.held_bytes - self._wrong_bytes(),
            complete=slots.of_mask(here == self._by_slot.counts),
            present=slots.of_mask(here > 0),
            registered_bytes=self._counts.registered_bytes,
            parts=tuple(self._sums[part.paths].state(part) for part in self._parts.values()),
            failures=failures,
            failing=slots.of_mask(self._counts.of(kinds.FAILING) > 0),
            failing_here=self._failures.of_this_node() if failures else NO_SLOTS,
            failed=named,
            busy=self.left(),
        )

    def _wrong_bytes(self) -> int:
        rows = self._rows
        return (
            int(rows.lengths[rows_of_kind(rows, kinds.WRONG)].sum()) if self._counts.total[kinds.WRONG] else 0
        )

    def warn_of_cut_off(self, mount: str, blocks: Sequence[int]) -> None:
        """Log which blocks of a mount have another length than the manifest's; at least one."""
        one = len(blocks) == 1
        _log.warning(
            "%d %s of %s %s not as long as its manifest says, as after a loss of power: what was cut off is removed, "
            "and brought again if it is wanted. The first one is of %s",
            len(blocks),
            "block" if one else "blocks",
            mount,
            "is" if one else "are",
            self.path(blocks[0]),
        )

    def path(self, block: int) -> str:
        """Path of the file that a block is of, relative to the mount, as people can read it."""
        return printable(decoded(self.manifest.file_path(self.manifest.file_of(block))))

    def awaited(self, blocks: Numbers) -> Numbers:
        """Those of these blocks that are to come from peers, ascending."""
        found = self._rows.of(blocks)
        found = found[found >= 0]
        awaited = found[(self._rows.flags[found] & PEERS) != 0]
        return np.asarray(np.sort(self._rows.numbers[awaited]))

    def _in_part(self, name: str) -> Mask:
        """The rows of a part (empty: all); none of a part that is not assigned."""
        rows, part = self._rows, self._parts.get(name)
        if not name:
            return np.ones(len(rows), dtype=np.bool_)
        if part is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.asarray(slots.mask_of(part.slots)[rows.slots] & self._sums[part.paths].among(rows.numbers))


def _placement(assignment: Assignment) -> tuple[object, ...]:
    return assignment.parts, assignment.origin, assignment.drop


def _offers(assignment: Assignment) -> tuple[object, ...]:
    return tuple((peer.node, peer.slots) for peer in assignment.peers)


def _windows(*, begin: int, count: int) -> list[tuple[int, int]]:
    """Stretches of all rows, from `begin` round to it again."""
    ends = [*range(begin + _WINDOW, count, _WINDOW), count] if begin < count else []
    before = [*range(_WINDOW, begin, _WINDOW), begin] if begin else []
    first = list(zip([begin, *ends[:-1]], ends, strict=True)) if ends else []
    return first + (list(zip([0, *before[:-1]], before, strict=True)) if before else [])
