"""What of one mount lies here, what shall, and what is to be done next: columns over the blocks of its manifest.

No I/O and no clock: times are seconds that only grow, given by the caller. Not thread-safe: the owner holds a lock
around each call. A block is known by its number in the manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import (
    NO_SLOTS,
    Assignment,
    MountState,
    PartState,
)
from tdcs.model.manifest import Manifest
from tdcs.model.manifest_format import decoded
from tdcs.model.printable_text import printable
from tdcs.node.agent.mount.failed_fetches import BlockFailures, FailedBlock, Failure, Mask, Numbers

_log: Final = logging.getLogger(__name__)

_WINDOW: Final = 1 << 16
UNANSWERED_PAUSE: Final = 15.0
"""Seconds after which a block is tried again at the latest that a source did not answer for."""


class Ledger:
    """The blocks of one version of a mount.

    Attributes:
        in_spool, registered: blocks that lie in the spool, and in the worker's folder.
        claimed: blocks that somebody is bringing, registering or dropping.
        looked_at: whether a look at the folders was made; before that it is not known what is missing.
        changes: grows with every change, so that nothing has to be counted anew while there was none.
    """

    def __init__(self, manifest: Manifest) -> None:
        count = manifest.blocks
        self.manifest: Final = manifest
        self.assignment: Assignment | None = None
        self.changes = 0
        self.looked_at = False
        self.in_spool: Mask = np.zeros(count, dtype=np.bool_)
        self.registered: Mask = np.zeros(count, dtype=np.bool_)
        self.claimed: Mask = np.zeros(count, dtype=np.bool_)
        self._from_source: Mask = np.zeros(count, dtype=np.bool_)
        self._from_peers: Mask = np.zeros(count, dtype=np.bool_)
        self._may_read: Mask = np.zeros(count, dtype=np.bool_)
        self._offered: Mask = np.zeros(count, dtype=np.bool_)
        self._wanted: Mask = np.zeros(count, dtype=np.bool_)
        self._touched: Mask | None = None
        self._dropped: Mask = np.zeros(count, dtype=np.bool_)
        self.failures: Final = BlockFailures(count)
        self._parts: dict[str, tuple[Mask, Mask, bool]] = {}
        self._cursors: dict[str, int] = {}
        lengths = np.diff(manifest.block_ends, prepend=np.uint32(0))
        self._files_with_blocks: Final = np.flatnonzero(lengths)
        firsts = (manifest.block_ends - lengths)[self._files_with_blocks]
        self._first: Final[Numbers] = firsts.astype(np.int64)
        self._slot_blocks: Final = np.bincount(manifest.block_slots, minlength=slots.SLOTS)

    @property
    def _unwelcome(self) -> Mask:
        """Blocks that shall not lie here: those that the assignment lets go, and wrong ones."""
        return np.asarray(self._dropped | self.failures.refused)

    @property
    def held(self) -> Mask:
        return np.asarray(self.in_spool | self.registered)

    @property
    def _awaited(self) -> Mask:
        """Blocks that are to come from peers. What the source may not give, and no peer offers, is no work."""
        return np.asarray(self._from_peers & (self._may_read | self._offered))

    def assign(self, assignment: Assignment) -> None:
        """Work by an assignment from now on. What failed is tried at once when the access to the source is another."""
        self.changes += 1
        before, self.assignment = self.assignment, assignment
        if before is not None and before.source != assignment.source:
            self.failures.retry()
        same = before is not None and _placement(before) == _placement(assignment)
        by_slot = self.manifest.block_slots
        if before is None or not same or _offers(before) != _offers(assignment):
            self._offered = np.zeros(self.manifest.blocks, dtype=np.bool_)
            for peer in assignment.peers:
                self._offered |= slots.mask_of(peer.slots)[by_slot]
        if same:
            return
        self._parts = {}
        everything = np.zeros(self.manifest.blocks, dtype=np.bool_)
        brought, from_peers = everything.copy(), everything.copy()
        for part in assignment.parts:
            files = self.manifest.selected(part.paths)[0]
            blocks = slots.mask_of(part.slots)[by_slot] & self.manifest.blocks_in(files)
            self._parts[part.name] = (blocks, files, bool(part.slots[0] & 0x80))
            everything |= blocks
            if part.pull == "All":
                brought |= blocks
            if part.pull == "Peers":
                from_peers |= blocks
        origin = slots.mask_of(assignment.origin)[by_slot]
        self._wanted = everything
        self._may_read = brought
        self._from_source = brought & origin
        self._from_peers = (brought & ~origin) | (from_peers & ~(brought & origin))
        self._dropped = slots.mask_of(assignment.drop)[by_slot] & ~everything
        self.failures.keep(everything)

    def missing_slots(self, *, from_peers: bool) -> bytes:
        """Slots with blocks that are to be brought, from peers or from the source."""
        missing = (self._awaited if from_peers else self._from_source) & ~self.held & ~self.failures.refused
        found = np.zeros(slots.SLOTS, dtype=np.bool_)
        found[self.manifest.block_slots[missing]] = True
        return slots.of_mask(found)

    def ready(self, *, now: float, from_peers: bool) -> int:
        """How many of them may be taken now."""
        return int(np.count_nonzero(self._takeable(slice(None), now=now, from_peers=from_peers)))

    def take(
        self,
        *,
        now: float,
        most: int,
        most_bytes: int,
        from_peers: bool = False,
        among: Mask | None = None,
        cursor: str = "",
    ) -> list[int]:
        """Claim the next blocks to bring, in the order of the manifest; at least one block if any is to be had.

        Args:
            most, most_bytes: how many at most. A block that is larger than `most_bytes` comes alone.
            from_peers: of those that come from peers, not from the source.
            among: only these.
            cursor: each name has its own place, from which it goes on, and round again.
        """
        count = self.manifest.blocks
        begin = self._cursors.get(cursor, 0)
        begin = begin if begin < count else 0
        taken: list[int] = []
        size = 0
        for low, high in _windows(begin=begin, count=count):
            part = slice(low, high)
            free = self._takeable(part, now=now, from_peers=from_peers)
            if among is not None:
                free = free & among[part]
            found = np.flatnonzero(free)[:most] + low
            for block in found.tolist():
                length = int(self.manifest.block_lengths[block])
                if taken and size + length > most_bytes:
                    return self._claim(taken, cursor=cursor)
                taken.append(block)
                size += length
                if len(taken) == most:
                    return self._claim(taken, cursor=cursor)
        return self._claim(taken, cursor=cursor)

    def release(self, blocks: Sequence[int]) -> None:
        self.changes += 1
        self.claimed[blocks] = False

    def located(self, block: int, *, spooled: bool, registered: bool) -> None:
        """A claimed block lies in these folders now, and is given back."""
        self.changes += 1
        self.in_spool[block] = spooled
        self.registered[block] = registered
        self.claimed[block] = False
        if self._touched is not None:
            self._touched[block] = True
        if spooled or registered:
            self.failures.brought(block)

    def from_source_instead(self, block: int) -> bool:
        """No peer can give this block: it is to be read from the source. False: the source may not be read for it."""
        self.changes += 1
        if not self._may_read[block]:
            return False
        if self._from_peers[block]:
            self._from_peers[block] = False
            self._from_source[block] = True
        return True

    def slots_from_source(self, lonely: bytes) -> bool:
        """No peer answers for these slots: what the source may give of them is read there; whether there is any."""
        moved = self._from_peers & self._may_read & slots.mask_of(lonely)[self.manifest.block_slots]
        if not moved.any():
            return False
        self.changes += 1
        self._from_peers = self._from_peers & ~moved
        self._from_source = self._from_source | moved
        return True

    def no_peer_has(self, empty: bytes) -> bool:
        """No peer has more of these slots: what only peers may give of them is no work; whether there is any.

        It is awaited again when the peers of an assignment, or their slots, are others.
        """
        ended = (
            self._from_peers
            & ~self._may_read
            & self._offered
            & slots.mask_of(empty)[self.manifest.block_slots]
        )
        if not ended.any():
            return False
        self.changes += 1
        self._offered = self._offered & ~ended
        return True

    def failed(self, block: int, failure: Failure, *, now: float) -> None:
        """A claimed block could not be brought; it is tried again after a pause that grows."""
        self.changes += 1
        self.failures.note(block, failure, now=now)
        self.claimed[block] = False

    def postponed(self, block: int, *, now: float) -> None:
        """A claimed block was not answered: it is tried again after a short pause, and has not failed."""
        self.changes += 1
        self.failures.postpone(block, now=now, most=UNANSWERED_PAUSE)
        self.claimed[block] = False

    def failed_again(self, block: int, *, now: float) -> None:
        """A claimed block that has failed could not be tried: the reason stays, the pause grows."""
        self.changes += 1
        self.failures.postpone(block, now=now)
        self.claimed[block] = False

    def failed_blocks(self, *, most: int) -> tuple[FailedBlock, ...]:
        return self.failures.noted(self.manifest, most=most)

    def restore_failures(self, noted: Sequence[FailedBlock]) -> None:
        self.changes += 1
        self.failures.restore(self.manifest, noted)

    def refuse(self, blocks: Sequence[int], *, refused: bool = True) -> None:
        """These blocks are wrong: they are dropped, and not brought again; with `refused` false they may be."""
        self.changes += 1
        self.failures.refused[blocks] = refused

    def refused_blocks(self, *, part: str = "") -> list[int]:
        """Blocks of this part (empty: all) that are neither held nor brought, because they were found wrong."""
        found = self.failures.refused & self._in_part(part) if part else self.failures.refused
        return [int(block) for block in np.flatnonzero(found)]

    def adopt(self, before: Ledger) -> None:
        """Take over what the ledger of another version knows of blocks that both have."""
        for mine, theirs in ((self.in_spool, before.in_spool), (self.registered, before.registered)):
            numbers = self.manifest.blocks_at(before.manifest.block_ids[theirs])
            mine[numbers[numbers >= 0]] = True
        failed = np.flatnonzero(before.failures.failed)
        numbers = self.manifest.blocks_at(before.manifest.block_ids[failed])
        both = numbers >= 0
        self.failures.adopt(before.failures, mine=numbers[both], theirs=failed[both])
        if before._touched is not None:  # a look has begun that does not know what was brought since
            numbers = self.manifest.blocks_at(before.manifest.block_ids[before._touched])
            self._touched = np.zeros(self.manifest.blocks, dtype=np.bool_)
            self._touched[numbers[numbers >= 0]] = True

    def look(self) -> None:
        """A look at the folders begins: what changes from now on is known better here than it finds."""
        self._touched = self.claimed.copy()

    def observe(self, *, spooled: Numbers, registered: Numbers) -> Numbers:
        """What the look has found, as numbers of blocks; those that appeared since the one before it."""
        known = self.claimed if self._touched is None else self.claimed | self._touched
        self._touched = None
        self.looked_at = True
        before = self.held
        for column, found in ((self.in_spool, spooled), (self.registered, registered)):
            seen = np.zeros(self.manifest.blocks, dtype=np.bool_)
            seen[found] = True
            np.copyto(column, seen, where=~known)
        held = self.held
        self.changes += 1
        self.failures.keep(~held)
        return np.flatnonzero(held & ~before)

    def to_register(self, *, most: int, skip: Numbers) -> list[int]:
        """Claim blocks that lie in the spool alone, but not those in `skip`."""
        free = self.in_spool & ~self.registered & ~self.claimed & ~self._unwelcome
        free[skip] = False
        return self._claim(np.flatnonzero(free)[:most].tolist(), cursor="")

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
        free = self._droppable(all_blocks=all_blocks, kept=kept)
        if spooled_only:
            free &= self.in_spool & ~self.registered
        free[skip] = False
        return self._claim(np.flatnonzero(free)[:most].tolist(), cursor="")

    def drops(self, *, all_blocks: bool, kept: Mask | None = None) -> bool:
        """Whether blocks lie here that are to be dropped; see `to_drop`."""
        return bool(self._droppable(all_blocks=all_blocks, kept=kept).any())

    def _droppable(self, *, all_blocks: bool, kept: Mask | None) -> Mask:
        free = self.held & ~self.claimed
        if all_blocks:
            return np.asarray(free)
        dropped = self._dropped if kept is None else self._dropped & ~kept[self.manifest.block_slots]
        return np.asarray(free & (dropped | self.failures.refused))

    def chosen(self, *, slots: int, part: str) -> list[int]:
        """Blocks that lie here, of the first so many slots, and of this part (empty: all)."""
        found = self.held & ~self.failures.refused & (self.manifest.block_slots < slots)
        if part:
            found &= self._in_part(part)
        return [int(block) for block in np.flatnonzero(found)]

    def first_of_file(self, block: int) -> bool:
        return self.manifest.blocks_of(self.manifest.file_of(block)).start == block

    def absent(self, block: int) -> bool:
        """Whether a block does not lie here, is not being brought, and may be."""
        here = self.in_spool[block] or self.registered[block]
        return not (here or self.claimed[block] or self.failures.refused[block])

    def claim(self, blocks: Sequence[int]) -> list[int]:
        return self._claim([block for block in blocks if not self.claimed[block]], cursor="")

    def registers(self) -> bool:
        return bool((self.in_spool & ~self.registered & ~self.claimed & ~self._unwelcome).any())

    def left(self) -> bool:
        """Whether something is still being brought, registered or dropped."""
        held = self.held
        missing = (self._from_source | self._awaited) & ~held & ~self.failures.failed & ~self.failures.refused
        return bool(
            missing.any()
            or (self.in_spool & ~self.registered).any()
            or (held & self._unwelcome).any()
            or self.claimed.any()
        )

    def done(self) -> bool:
        """Whether nothing is left to do, and nothing has failed."""
        return not self.left() and not self.failures.failed.any()

    def held_bytes(self) -> int:
        return int(self.manifest.block_lengths[self.held].sum())

    def state(self) -> MountState:
        """All of a mount's state but what was transferred and compared."""
        manifest, assignment = self.manifest, self.assignment
        refused = self.failures.refused
        held, lengths = self.held & ~refused, manifest.block_lengths
        by_slot = np.bincount(manifest.block_slots[held], minlength=slots.SLOTS)
        failed = (self.failures.failed & ~held) | refused
        failing = np.zeros(slots.SLOTS, dtype=np.bool_)
        failing[manifest.block_slots[failed]] = True
        return MountState(
            mount=manifest.path,
            version=assignment.version if assignment else 0,
            manifest=manifest.digest,
            held_bytes=int(lengths[held].sum()),
            complete=slots.of_mask(by_slot == self._slot_blocks),
            present=slots.of_mask(by_slot > 0) if held.any() else NO_SLOTS,
            registered_bytes=int(lengths[self.registered & ~refused].sum()),
            parts=tuple(self._part(name, held=held, failed=failed) for name in self._parts),
            failures=self.failures.counts(manifest, failed),
            failing=slots.of_mask(failing),
            failed=self.failures.named(manifest=manifest, failed=failed, path=self.path),
            busy=self.left(),
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

    def _in_part(self, name: str) -> Mask:
        """The blocks of a part; none of a part that is not assigned."""
        found = self._parts.get(name)
        return found[0] if found is not None else np.zeros(self.manifest.blocks, dtype=np.bool_)

    def _part(self, name: str, *, held: Mask, failed: Mask) -> PartState:
        blocks, files, first_slot = self._parts[name]
        lengths = self.manifest.block_lengths
        # A file counts where its first block belongs; those without blocks in slot 0, as in the manifest's totals.
        with_blocks = files[self._files_with_blocks]
        firsts = self._first[with_blocks]
        firsts = firsts[blocks[firsts]]
        empty = int(np.count_nonzero(files)) - int(np.count_nonzero(with_blocks)) if first_slot else 0
        return PartState(
            name=name,
            wanted_bytes=int(lengths[blocks].sum()),
            held_bytes=int(lengths[blocks & held].sum()),
            wanted_files=len(firsts) + empty,
            held_files=int(np.count_nonzero(held[firsts])) + empty,
            failed_bytes=int(lengths[blocks & failed].sum()),
        )

    def _takeable(self, part: slice, *, now: float, from_peers: bool) -> Mask:
        wanted = (self._from_peers if from_peers else self._from_source)[part]
        free = wanted & ~(self.in_spool[part] | self.registered[part] | self.claimed[part])
        return np.asarray(free & self.failures.may_try(part, now=now))

    def _claim(self, blocks: list[int], *, cursor: str) -> list[int]:
        if blocks:
            self.changes += 1
            self.claimed[blocks] = True
            if cursor:
                self._cursors[cursor] = blocks[-1] + 1
        return blocks


def _placement(assignment: Assignment) -> tuple[object, ...]:
    return assignment.parts, assignment.origin, assignment.drop


def _offers(assignment: Assignment) -> tuple[object, ...]:
    return tuple((peer.node, peer.slots) for peer in assignment.peers)


def _windows(*, begin: int, count: int) -> list[tuple[int, int]]:
    """Stretches of all blocks, from `begin` round to it again."""
    ends = [*range(begin + _WINDOW, count, _WINDOW), count] if begin < count else []
    before = [*range(_WINDOW, begin, _WINDOW), begin] if begin else []
    first = list(zip([begin, *ends[:-1]], ends, strict=True)) if ends else []
    return first + (list(zip([0, *before[:-1]], before, strict=True)) if before else [])
