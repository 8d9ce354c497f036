"""What of one mount is here, what shall, and what is to be done next: a row for each block that an agent has to do
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
from tdcs.model.agent_state import NO_SLOTS, Assignment, MountState
from tdcs.model.block_identity import same_blocks
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import decoded
from tdcs.model.printable_text import printable
from tdcs.node.agent.mount import slot_counts as kinds
from tdcs.node.agent.mount.assigned_blocks import AssignedBlocks
from tdcs.node.agent.mount.block_rows import (
    CLAIMED,
    FAILED,
    HELD,
    LATER,
    PEERS,
    REFUSED,
    SOURCE,
    TOUCHED,
    WANTED,
    Mask,
    Numbers,
)
from tdcs.node.agent.mount.counted_rows import CountedRows
from tdcs.node.agent.mount.failed_fetches import UNANSWERED_PAUSE, BlockFailures, FailedBlock, Failure
from tdcs.node.agent.mount.slot_counts import rows_of_kind
from tdcs.node.agent.mount.slot_index import SlotIndex
from tdcs.node.extents import ExtentPlace, extent_place

_log: Final = logging.getLogger(__name__)


class Blocks(Protocol):
    """Blocks that somebody has."""

    def among(self, blocks: Numbers) -> Mask:
        """Which of these, ascending, are some of them."""
        ...


class Ledger:
    """The blocks of one version of a mount.

    Args:
        index_folder: where a large version's index by slot may be kept (`SlotIndex`).

    Attributes:
        looked_at: whether a look at the folders was made; before that it is not known what is missing.
        assigned: what the last assignment says of the blocks.
    """

    def __init__(self, manifest: Manifest, *, index_folder: Path | None = None) -> None:
        self.manifest: Final = manifest
        self.looked_at = False
        self._counted: Final = CountedRows(manifest)
        self._rows: Final = self._counted.rows
        self._counts: Final = self._counted.counts
        self._failures: Final = BlockFailures(manifest, self._counted)
        self._by_slot: Final = SlotIndex(manifest, folder=index_folder)
        self.assigned: Final = AssignedBlocks(
            manifest, counted=self._counted, failures=self._failures, by_slot=self._by_slot
        )
        self._looking = False
        self._cursors: dict[str, int] = {}
        self._begin = 0

    def __len__(self) -> int:
        """Blocks that it has to do with."""
        return len(self._rows)

    @property
    def changes(self) -> int:
        """Grows with every change, so that nothing has to be counted again while there was none."""
        return self._counted.changes

    def assign(self, assignment: Assignment) -> None:
        """Work by an assignment from now on. What failed is tried at once when the access to the source is another."""
        before = self.assigned.assignment
        if before is not None and before.source != assignment.source:
            self.retry()
        self.assigned.assign(assignment)

    # What is to be brought.

    def ready(self, *, now: float, from_peers: bool) -> int:
        """How many of them may be taken now."""
        self._failures.come(now=now)
        if not from_peers:
            return self._counts.total[kinds.READY_SOURCE]
        return self._counts.total[kinds.READY_READ] + self.assigned.offered_of(kinds.READY_ONLY)

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
            cursor: each name has its own place, from which it goes on, and round again; `read_on` moves all of them.
        """
        self._failures.come(now=now)
        rows, way = self._rows, PEERS if from_peers else SOURCE
        flags = np.uint16(way | HELD | CLAIMED | REFUSED | LATER)

        def free(part: slice) -> Mask:
            mask = (rows.flags[part] & flags) == way
            if among is not None and mask.any():
                mask = mask & among.among(rows.numbers[part])
            return np.asarray(mask)

        free_rows: list[int] = []
        size = 0
        for row in self._scan(free, most=most, cursor=cursor):
            length = rows.length_view[row]
            if free_rows and size + length > most_bytes:
                break
            free_rows.append(row)
            size += length
        return self._claim(free_rows, cursor=cursor)

    def read_on(self, block: int) -> None:
        """Pods read this block and go on from there: what is brought next, by whichever cursor, follows it."""
        self._begin = block
        self._cursors.clear()

    def _scan(self, free: Callable[[slice], Mask], *, most: int, cursor: str) -> Iterator[int]:
        """The first so many rows from a cursor on, and round again, of which this is true."""
        return self._counted.scan(free, begin=self._cursors.get(cursor, self._begin), most=most)

    def _claim(self, free_rows: Sequence[int], *, cursor: str = "") -> list[int]:
        """Claim rows; their blocks."""
        if not free_rows:
            return []
        self._counted.changes += 1
        rows = self._rows
        for row in free_rows:
            self._counted.set(row, (rows.flag_view[row] | CLAIMED) & ~LATER)
        blocks = [rows.number_view[row] for row in free_rows]
        if cursor:
            self._cursors[cursor] = blocks[-1] + 1
        return blocks

    def claim(self, blocks: Sequence[int]) -> list[int]:
        rows = [self._rows.add(block) for block in blocks]
        return self._claim([row for row in rows if not self._rows.flag_view[row] & CLAIMED])

    def release(self, blocks: Sequence[int]) -> None:
        self._counted.changes += 1
        for block in blocks:
            row = self._rows.at(block)
            if row >= 0:
                self._counted.set(row, self._rows.flag_view[row] & ~CLAIMED)

    def located(self, block: int, *, is_here: bool) -> None:
        """A claimed block is here now, or does not, and is given back."""
        self._counted.changes += 1
        row = self._rows.add(block)
        flags = self._rows.flag_view[row] & ~(CLAIMED | HELD)
        flags |= HELD * is_here | TOUCHED * self._looking
        if is_here:
            flags = self._failures.brought(row, flags)
        self._counted.set(row, flags)

    # What failed, and what is wrong.

    @property
    def failure_changes(self) -> int:
        """Grows with every change of what failed and why."""
        return self._failures.changes

    def failed(self, block: int, failure: Failure, *, now: float) -> None:
        """A claimed block could not be brought; it is tried again after a pause that grows."""
        self._counted.changes += 1
        self._failures.note(self._rows.add(block), failure, now=now, given_back=CLAIMED)

    def postponed(self, block: int, *, now: float) -> None:
        """A claimed block was not answered: it is tried again after a short pause, and has not failed."""
        self._counted.changes += 1
        self._failures.postpone(self._rows.add(block), now=now, given_back=CLAIMED, most=UNANSWERED_PAUSE)

    def failed_again(self, block: int, *, now: float) -> None:
        """A claimed block that has failed could not be tried: the reason stays, the pause grows."""
        self._counted.changes += 1
        self._failures.postpone(self._rows.add(block), now=now, given_back=CLAIMED)

    def forgive(self, blocks: Sequence[int]) -> None:
        """These blocks have not failed: what was said of them holds for all, and is no fault of theirs."""
        self._counted.changes += 1
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
        self._counted.count()

    def failed_blocks(self, *, most: int) -> tuple[FailedBlock, ...]:
        return self._failures.noted(most=most)

    def restore_failures(self, noted: Sequence[FailedBlock]) -> None:
        self._counted.changes += 1
        self._failures.restore(noted)

    def refuse(self, blocks: Sequence[int], *, refused: bool = True) -> None:
        """These blocks are wrong: they are dropped, and not brought again; with `refused` false they may be."""
        self._counted.changes += 1
        for block in blocks:
            row = self._rows.add(block)
            flags = self._rows.flag_view[row]
            self._counted.set(row, flags | REFUSED if refused else flags & ~REFUSED)

    def refused_blocks(self, *, part: str = "") -> list[int]:
        """Blocks of this part (empty: all) that are neither held nor brought, because they were found wrong."""
        rows = self._rows
        return sorted(rows.numbers[((rows.flags & REFUSED) != 0) & self.assigned.in_part(part)].tolist())

    # Looks at the folders, and other versions.

    def adopt(self, before: Ledger) -> None:
        """Take over what the ledger of another version knows of blocks that both have: the same part of the same file,
        under the same id."""
        theirs, rows = before._rows, self._rows
        known_rows = np.flatnonzero(theirs.flags & (HELD | FAILED | TOUCHED))
        numbers = same_blocks(self.manifest, before.manifest, theirs.numbers[known_rows])
        in_both = numbers >= 0
        known_rows, numbers = known_rows[in_both], numbers[in_both]
        rows.have(np.sort(numbers))
        mine = rows.of(numbers)
        rows.flags[mine] |= theirs.flags[known_rows] & np.uint16(HELD | (TOUCHED if before._looking else 0))
        failed = (theirs.flags[known_rows] & FAILED) != 0
        self._failures.adopt(before._failures, mine=mine[failed], theirs=known_rows[failed])
        self._looking = before._looking  # a look that has begun does not know what was brought since
        self._counted.count()

    def look(self) -> None:
        """A look at the folders begins: what changes from now on is known better here than it finds."""
        self._looking = True
        flags = self._rows.flags
        flags[:] &= np.uint16(~TOUCHED & 0xFFFF)
        flags[(flags & CLAIMED) != 0] |= np.uint16(TOUCHED)

    def observe(self, blocks: Numbers) -> Numbers:
        """What the look has found, as ascending numbers of blocks; those that appeared since the one before it."""
        rows = self._rows
        rows.have(blocks)
        flags = np.zeros(len(rows), dtype=np.uint16)
        flags[rows.of(blocks)] = HELD
        changed = (rows.flags & (CLAIMED | (TOUCHED if self._looking else 0))) == 0
        fresh = rows.numbers[changed & (flags != 0) & ((rows.flags & HELD) == 0)]
        rows.flags[changed] = (rows.flags[changed] & np.uint16(~HELD & 0xFFFF)) | flags[changed]
        rows.flags[:] &= np.uint16(~TOUCHED & 0xFFFF)
        self._looking, self.looked_at = False, True
        self._counted.changes += 1
        self._failures.keep((rows.flags & HELD) == 0)
        self._counted.count()
        return np.asarray(fresh)

    # What is to be dropped.

    def to_drop(
        self, *, most: int, skip: Numbers, all_blocks: bool = False, handover: Mask | None = None
    ) -> list[int]:
        """Claim blocks that are here and shall not, but not those in `skip`; with `all_blocks` all that are here.

        Args:
            handover: slots that stay for now, but for what is wrong in them.
        """
        if not self.drops(all_blocks=all_blocks, handover=handover):
            return []
        rows = self._rows
        dropped = self.assigned.dropped if handover is None else self.assigned.dropped & ~handover

        def free(part: slice) -> Mask:
            flags = rows.flags[part]
            mask = ((flags & HELD) != 0) & ((flags & CLAIMED) == 0)
            if not all_blocks:
                unwanted = dropped[rows.slots[part]] & ((flags & WANTED) == 0)
                mask &= unwanted | ((flags & REFUSED) != 0)
            return np.asarray(mask & ~np.isin(rows.numbers[part], skip))

        return self._claim(list(self._scan(free, most=most, cursor="drop")), cursor="drop")

    def drops(self, *, all_blocks: bool, handover: Mask | None = None) -> bool:
        """Whether blocks are here that are to be dropped; see `to_drop`."""
        total = self._counts.total
        if all_blocks:
            return bool(total[kinds.ANY_IDLE])
        return bool(
            total[kinds.WRONG_IDLE] or self.assigned.dropped_of(kinds.UNWANTED_IDLE, handover=handover)
        )

    # What is known of blocks.

    def chosen(self, *, slots: int, part: str) -> list[int]:
        """Blocks that are here, of the first so many slots, and of this part (empty: all)."""
        rows = self._rows
        held_rows = rows_of_kind(rows, kinds.HERE)
        held_rows = held_rows[(rows.slots[held_rows] < slots) & self.assigned.in_part(part)[held_rows]]
        return sorted(rows.numbers[held_rows].tolist())

    def first_of_file(self, block: int) -> bool:
        return self.manifest.blocks_of(self.manifest.file_of(block)).start == block

    def place(self, block: int) -> ExtentPlace | None:
        """Where a block belongs in a file that it shares with others on the disk; None: it has a file for itself."""
        return extent_place(self.manifest, block)

    def is_here(self, block: int) -> bool:
        row = self._rows.at(block)
        return row >= 0 and bool(self._rows.flag_view[row] & HELD)

    def in_work(self, block: int) -> bool:
        """Whether somebody is bringing or dropping a block."""
        row = self._rows.at(block)
        return row >= 0 and bool(self._rows.flag_view[row] & CLAIMED)

    def absent(self, block: int) -> bool:
        """Whether a block is not here, is not being brought, and may be."""
        row = self._rows.at(block)
        return row < 0 or not self._rows.flag_view[row] & (HELD | CLAIMED | REFUSED)

    @property
    def blocks_in_work(self) -> int:
        """Blocks that somebody is bringing or dropping."""
        return self._counts.total[kinds.IN_WORK]

    @property
    def blocks_here(self) -> int:
        return self._counts.total[kinds.ANY_HERE]

    def held_bytes(self) -> int:
        return self._counts.held_bytes

    def right_blocks(self) -> Numbers:
        """The blocks that are here, ascending, but for wrong ones."""
        rows = self._rows
        return np.sort(rows.numbers[rows_of_kind(rows, kinds.HERE)])

    def a_right_block(self) -> int | None:
        """Some block that is here and is right."""
        return next(iter(self.right_blocks()[:1].tolist()), None) if self._counts.total[kinds.HERE] else None

    def left(self) -> bool:
        """Whether something is still being brought or dropped."""
        total = self._counts.total
        return bool(
            total[kinds.OPEN]
            or total[kinds.WRONG]
            or total[kinds.IN_WORK]
            or self.assigned.offered_of(kinds.OPEN_ONLY)
            or self.assigned.dropped_of(kinds.UNWANTED)
        )

    def done(self) -> bool:
        """Whether nothing is left to do, and nothing has failed."""
        return not self.left() and not self._counts.total[kinds.FAILED_ONCE]

    def state(self) -> MountState:
        """All of a mount's state but what was transferred and compared."""
        assignment, held_by_slot = self.assigned.assignment, self._counts.of(kinds.HERE)
        failures, named = self._failures.files(self.path) if self._counts.total[kinds.FAILING] else ({}, ())
        return MountState(
            mount=self.manifest.path,
            version=assignment.version if assignment else 0,
            echo=self.assigned.echo,
            manifest=self.manifest.digest,
            held_bytes=self._counts.held_bytes - self._wrong_bytes(),
            complete=slots.of_mask(held_by_slot == self._by_slot.counts),
            present=slots.of_mask(held_by_slot > 0),
            parts=tuple(self._counted.sums[part.paths].state(part) for part in self.assigned.parts.values()),
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
        single = len(blocks) == 1
        _log.warning(
            "%d %s of %s %s not as long as its manifest says, as after a loss of power: what was cut off is removed, "
            "and brought again if it is wanted. The first one is of %s",
            len(blocks),
            "block" if single else "blocks",
            mount,
            "is" if single else "are",
            self.path(blocks[0]),
        )

    def path(self, block: int) -> str:
        """Path of the file that a block is of, relative to the mount, as people can read it."""
        return printable(decoded(self.manifest.file_path(self.manifest.file_of(block))))

    def awaited(self, blocks: Numbers) -> Numbers:
        """Those of these blocks that are to come from peers, ascending."""
        peer_rows = self._rows.of(blocks)
        peer_rows = peer_rows[peer_rows >= 0]
        awaited = peer_rows[(self._rows.flags[peer_rows] & PEERS) != 0]
        return np.asarray(np.sort(self._rows.numbers[awaited]))
