"""What of one mount is on this node: its ledger, and what is assigned, dropped and found wrong of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import Assignment, FileFailure
from tdcs.model.block_identity import same_blocks
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.block_rows import Mask, Numbers
from tdcs.node.agent.mount.readable import ReadableBlocks

_ROOM_PAUSE: Final = 2.0


class Handover:
    """Since when each slot of a mount has moved away, by the assignments."""

    def __init__(self) -> None:
        self._moved: Mask = np.zeros(slots.SLOTS, dtype=np.bool_)
        self._until: Final = np.zeros(slots.SLOTS)
        self._last = 0.0

    def assign(self, assignment: Assignment, *, now: float) -> None:
        """Take another assignment; a slot that was moved by the one before it waits no longer for that."""
        moved = slots.mask_of(assignment.moved)
        self._until[moved & ~self._moved] = now + assignment.handover_seconds
        self._moved = moved
        self._last = float(self._until[moved].max(initial=0.0))

    def kept(self, *, now: float) -> Mask | None:
        """Slots that stay for now; None when there are none."""
        if now >= self._last:
            return None
        return np.asarray(self._moved & (self._until > now))


@dataclass
class MountBlocks:
    """The blocks of a mount, wherever they come from. Every access to the ledger holds `lock`.

    Attributes:
        lock: one for all mounts of the agent; what is here and the room that it takes change together under it.
        ledger: None until the manifest is here.
        forgotten: everything of it is to be dropped.
        early_files: see `MountState`.
        room_until: pulling rests until then.
        refused: ids of blocks that a comparison found wrong.
    """

    path: str
    lock: threading.RLock
    room: Room
    clock: Callable[[], float] = time.monotonic
    ledger: Ledger | None = None
    assignment: Assignment | None = None
    forgotten: bool = False
    early_files: int = 0
    readable: ReadableBlocks = field(default_factory=ReadableBlocks)
    room_until: float = 0.0
    room_failure: FileFailure | None = None
    refused: set[int] = field(default_factory=set)
    _handover: Handover = field(default_factory=Handover)
    _rest_at: tuple[int, int] | None = None

    def assign(self, assignment: Assignment) -> None:
        """Work by this assignment; its manifest is that of the ledger, or follows."""
        with self.lock:
            self.assignment = assignment
            self.forgotten, self.early_files = False, assignment.early_files
            self._handover.assign(assignment, now=self.clock())
            if self.ledger is not None and self.ledger.manifest.digest == assignment.manifest:
                self.ledger.assign(assignment)

    # What those who bring blocks say.

    def brought(self, ledger: Ledger, block: int) -> None:
        """A claimed block, for which room was reserved, is in the spool now."""
        length = int(ledger.manifest.block_lengths[block])
        with self.lock:
            if self._note(ledger, block, is_here=True):
                self.room.cancel(length)  # a look at the folders has counted it
            else:
                self.room.keep(length)
            self.room_failure = None
        self.readable.add((int(ledger.manifest.block_ids[block]),))

    def dropped(self, ledger: Ledger, block: int) -> None:
        """A claimed block is not here any more."""
        with self.lock:
            if self._note(ledger, block, is_here=False):
                self.room.removed(int(ledger.manifest.block_lengths[block]))

    def _note(self, ledger: Ledger, block: int, *, is_here: bool) -> bool:
        """Note whether a block is here, also in the ledger of a newer version; whether it was counted already."""
        before = ledger.is_here(block)
        ledger.located(block, is_here=is_here)
        current = self.ledger
        if current is not None and current is not ledger:
            number = int(same_blocks(current.manifest, ledger.manifest, np.array([block]))[0])
            if number >= 0:
                before = current.is_here(number)
                current.located(number, is_here=is_here)
        return before

    def no_room(self, ledger: Ledger, blocks: Iterable[int], reason: str) -> None:
        """Blocks do not fit for now: they are given back, and tried in a moment."""
        with self.lock:
            numbers = list(blocks)
            ledger.release(numbers)
            self.room_until = self.clock() + _ROOM_PAUSE
            path = ledger.path(numbers[0]) if numbers else ""
            self.room_failure = FileFailure(path=path, code="NoRoom", reason=reason)

    def busy(self, ledger: Ledger, block: int) -> None:
        """A block cannot be written for now, others can: it is given back, and tried in a moment."""
        with self.lock:
            ledger.postponed(block, now=self.clock())

    def waits_for_room(self, ledger: Ledger) -> bool:
        """Whether a block that is to be brought may find no room still: the pause goes on, or it can be tried."""
        if not ledger.assigned.misses():
            return False
        now = self.clock()
        return (
            now < self.room_until
            or bool(ledger.blocks_in_work)
            or any(ledger.ready(now=now, from_peers=peers) for peers in (False, True))
        )

    # What comparisons find.

    def refuse(self, ids: Iterable[int]) -> None:
        """Copies of these blocks are wrong: they are dropped, and no others are brought."""
        with self.lock:
            new = set(ids)
            self.refused |= new
            if self.ledger is not None and new:
                self.ledger.refuse(self._numbers(new))

    def admit(self, ids: Iterable[int]) -> None:
        with self.lock:
            admitted = self.refused.intersection(ids)
            self.refused -= admitted
            if self.ledger is not None:
                self.ledger.refuse(self._numbers(admitted), refused=False)

    def refused_here(self) -> set[int]:
        """Ids of refused blocks of which a copy is here, or may: before a look at the folders that is not known."""
        with self.lock:
            if self.ledger is None or not self.ledger.looked_at:
                return set(self.refused)
            ledger = self.ledger
            numbers = [
                number
                for number in self._numbers(self.refused)
                if ledger.is_here(number) or ledger.in_work(number)
            ]
            return set(ledger.manifest.block_ids[numbers].tolist())

    def opened(self, ledger: Ledger) -> None:
        """Count by this ledger from now on; it takes over what the one before it knows."""
        with self.lock:
            before, self.ledger = self.ledger, ledger
            if before is not None:
                ledger.adopt(before)
            if self.assignment is not None and self.assignment.manifest == ledger.manifest.digest:
                ledger.assign(self.assignment)
            # What is no part of this version has other blocks in it, and is removed as a stranger.
            numbers = self._numbers(self.refused)
            self.refused.intersection_update(ledger.manifest.block_ids[numbers].tolist())
            ledger.refuse(numbers)
            # What was held before this version is news to no look at the folders. Under the lock: what others bring
            # from now on comes after it.
            self.readable.restart(ledger.manifest.block_ids[ledger.right_blocks()].tolist())

    def _numbers(self, ids: Iterable[int]) -> list[int]:
        if self.ledger is None:
            return []
        numbers = self.ledger.manifest.blocks_at(np.array(sorted(ids), dtype=np.int64))
        return [int(number) for number in numbers[numbers >= 0]]

    # What is to be done.

    def to_drop(self, *, most: int, skip: Numbers) -> list[int]:
        """Claim blocks that are here and shall not, those left out that are handed over; see `Ledger.to_drop`."""
        with self.lock:
            if self.ledger is None:
                return []
            return self.ledger.to_drop(
                most=most, skip=skip, all_blocks=self.forgotten, handover=self._handed_over()
            )

    def drops(self) -> bool:
        with self.lock:
            if self.ledger is None or not (self.forgotten or self.assignment is not None or self.refused):
                return False
            return self.ledger.drops(all_blocks=self.forgotten, handover=self._handed_over())

    def _handed_over(self) -> Mask | None:
        """Slots that stay until those who read them know where they are now, as long as there is room."""
        has_no_room = self.room_failure is not None
        return None if has_no_room or self.forgotten else self._handover.kept(now=self.clock())

    def at_rest(self) -> bool:
        """Whether nothing is to be done; looked at again only after a change."""
        ledger = self.ledger
        if ledger is None or self.forgotten or self.assignment is None:
            return False
        if self.assignment.manifest != ledger.manifest.digest:
            return False
        with self.lock:
            now = (id(ledger), ledger.changes)
            if self._rest_at != now:
                self._rest_at = now if ledger.done() else None
            return self._rest_at == now
