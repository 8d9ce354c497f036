"""Which blocks of a mount could not be brought: why, how often, and when each is tried again.

No I/O and no clock: times are seconds that only grow, given by the caller. A block is known by its number.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import FailureCode, FailureCount, FileFailure
from tdcs.model.manifest import Manifest
from tdcs.node.agent.backoff import MOST_SECONDS, pause
from tdcs.node.agent.mount.block_rows import FAILED, LATER, REFUSED, Mask, Numbers
from tdcs.node.agent.mount.counted_rows import CountedRows
from tdcs.node.agent.mount.slot_counts import FAILING, rows_of_kind


class FailedBlock(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A block, by its id.

    Attributes:
        reason: empty where only the number of such files is said.
    """

    block: int
    code: FailureCode
    attempts: int
    reason: str = ""


class FailedBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Those of a mount, as they are kept on the disk."""

    mount: str
    blocks: tuple[FailedBlock, ...]


NAMED_FAILURES: Final = 50
"""Files that cannot be had that are named in a state; the others are counted."""
_CODES: Final[tuple[FailureCode, ...]] = (
    "Unreadable",
    "Missing",
    "Changed",
    "Denied",
    "BadName",
    "NoRoom",
    "Wrong",
    "SourceAway",
)
_WRONG_CODE: Final = _CODES.index("Wrong")
_OF_ONE_NODE: Final = [_CODES.index("Unreadable"), _CODES.index("SourceAway")]
"""What the way of one node to the source may have caused."""
_LISTED_AGAIN: Final = [_CODES.index("Missing"), _CODES.index("Changed")]
_MOST_ATTEMPTS: Final = 255
_WRONG: Final = "the copy here differs from the source, also when it was loaded again"

UNANSWERED_PAUSE: Final = 15.0
"""Seconds after which a block is tried again at the latest that a source did not answer for."""
_STEPS_A_SECOND: Final = 4
_DUE_AT_ONCE: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a block could not be brought."""

    code: FailureCode
    reason: str


class RetryTimes:
    """Blocks by the quarter of a second in which they may be tried again."""

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._times: list[int] = []

    def add(self, block: int, *, at: float) -> None:
        time = -int(-at * _STEPS_A_SECOND // 1)
        blocks = self._blocks.get(time)
        if blocks is None:
            blocks = self._blocks[time] = array("q")
            heapq.heappush(self._times, time)
        blocks.append(block)

    def due(self, *, now: float) -> list[int]:
        """Take some of those that may be tried now."""
        due: list[int] = []
        while self._times and self._times[0] <= now * _STEPS_A_SECOND and len(due) < _DUE_AT_ONCE:
            blocks = self._blocks[self._times[0]]
            most = _DUE_AT_ONCE - len(due)
            due += blocks[:most]
            if most < len(blocks):
                self._blocks[self._times[0]] = blocks[most:]
            else:
                del self._blocks[heapq.heappop(self._times)]
        return due

    def clear(self) -> None:
        self._blocks.clear()
        self._times.clear()


class BlockFailures:
    """The failures of one version of a mount, in columns of its rows.

    Attributes:
        changes: grows with every change of what failed and why.
    """

    def __init__(self, manifest: Manifest, counted: CountedRows) -> None:
        self._manifest: Final = manifest
        self._rows: Final = counted.rows
        self._set: Final = counted.set
        self._times: Final = RetryTimes()
        self._reasons: dict[int, str] = {}
        self.changes = 0

    def note(self, row: int, failure: Failure, *, now: float, given_back: int) -> None:
        """A block could not be brought; it is tried again after a pause that grows.

        Args:
            given_back: flags that the row loses with that.
        """
        self.postpone(row, now=now, given_back=given_back)
        self._mark(row, failure)

    def _mark(self, row: int, failure: Failure) -> None:
        self.changes += 1
        rows, block = self._rows, int(self._rows.numbers[row])
        rows.codes[row] = _CODES.index(failure.code)
        self._set(row, rows.flag_view[row] | FAILED)
        if block in self._reasons or len(self._reasons) < NAMED_FAILURES:
            self._reasons[block] = failure.reason

    def postpone(self, row: int, *, now: float, given_back: int, most: float = MOST_SECONDS) -> None:
        rows = self._rows
        attempts = min(int(rows.attempts[row]) + 1, _MOST_ATTEMPTS)
        rows.attempts[row] = attempts
        at = now + pause(attempts, most=most)
        rows.retry_at[row] = at
        self._set(row, (rows.flag_view[row] & ~given_back) | LATER)
        self._times.add(rows.number_view[row], at=at)

    def come(self, *, now: float) -> None:
        """Let those be tried whose time has come."""
        rows = self._rows
        for block in self._times.due(now=now):
            row = rows.at(block)
            # It may have been postponed again since.
            if row >= 0 and rows.flag_view[row] & LATER and rows.retry_at[row] <= now:
                self._set(row, rows.flag_view[row] & ~LATER)

    def brought(self, row: int, flags: int) -> int:
        """The flags of a row whose block has come."""
        rows = self._rows
        self.changes += bool(flags & FAILED)
        rows.attempts[row] = 0
        self._reasons.pop(rows.number_view[row], None)
        return flags & ~(FAILED | LATER)

    def forgive(self, row: int) -> None:
        """A block has not failed, and waits as before for its next try."""
        self.changes += 1
        self._reasons.pop(self._rows.number_view[row], None)
        self._set(row, self._rows.flag_view[row] & ~FAILED)

    def keep(self, rows_to_keep: Mask) -> None:
        """Forget what failed of other rows; the rows are counted again after that."""
        rows = self._rows
        forgotten = ((rows.flags & FAILED) != 0) & ~rows_to_keep
        if not forgotten.any():
            return
        self.changes += 1
        rows.flags[forgotten] &= np.uint16(~FAILED & 0xFFFF)
        failing = set(rows.numbers[(rows.flags & FAILED) != 0].tolist()) if self._reasons else set()
        self._reasons = {block: text for block, text in self._reasons.items() if block in failing}

    def retry(self) -> None:
        """Try all of them at once; the rows are counted again after that."""
        self._rows.flags[:] &= np.uint16(~LATER & 0xFFFF)
        self._rows.retry_at[:] = 0.0
        self._times.clear()

    def adopt(self, before: BlockFailures, *, mine: Numbers, theirs: Numbers) -> None:
        """Take over what failed in the version before, for these rows here and there; they are counted after that."""
        rows, earlier = self._rows, before._rows
        rows.flags[mine] |= np.uint16(FAILED | LATER)
        rows.attempts[mine], rows.codes[mine] = earlier.attempts[theirs], earlier.codes[theirs]
        # A new version was listed since: what is said to be gone or to have changed may be there again.
        again = np.isin(rows.codes[mine], _LISTED_AGAIN)
        rows.retry_at[mine] = np.where(again, 0.0, earlier.retry_at[theirs])
        for block, at in zip(rows.numbers[mine].tolist(), rows.retry_at[mine].tolist(), strict=True):
            self._times.add(block, at=at)
        self._reasons.update(
            (number, before._reasons[earlier_number])
            for number, earlier_number in zip(
                rows.numbers[mine].tolist(), earlier.numbers[theirs].tolist(), strict=True
            )
            if earlier_number in before._reasons
        )
        self.changes += 1

    def noted(self, *, most: int) -> tuple[FailedBlock, ...]:
        rows = self._rows
        return tuple(
            FailedBlock(
                block=int(self._manifest.block_ids[rows.numbers[row]]),
                code=_CODES[rows.codes[row]],
                attempts=int(rows.attempts[row]),
                reason=self._reasons.get(int(rows.numbers[row]), ""),
            )
            for row in np.flatnonzero(rows.flags & FAILED)[:most].tolist()
        )

    def restore(self, noted: Sequence[FailedBlock]) -> None:
        """Take up what an earlier process has noted; all of it may be tried at once."""
        ids = np.array([note.block for note in noted], dtype=np.int64)
        for number, note in zip(self._manifest.blocks_at(ids).tolist(), noted, strict=True):
            if number >= 0:
                row = self._rows.add(number)
                self._mark(row, Failure(code=note.code, reason=note.reason))
                self._rows.attempts[row] = min(note.attempts, _MOST_ATTEMPTS)

    def of_this_node(self) -> bytes:
        """Slots with blocks that cannot be had here, and that another node may have all the same."""
        rows, mask = self._rows, np.zeros(slots.SLOTS, dtype=np.bool_)
        failing = rows_of_kind(rows, FAILING)
        of_one_node = np.isin(rows.codes[failing], _OF_ONE_NODE) & ((rows.flags[failing] & REFUSED) == 0)
        mask[rows.slots[failing][of_one_node]] = True
        return slots.of_mask(mask)

    def files(
        self, path: Callable[[int], str]
    ) -> tuple[dict[FailureCode, FailureCount], tuple[FileFailure, ...]]:
        """The files that cannot be had and their missing bytes by code, and the first of the files."""
        rows = self._rows
        failing = rows_of_kind(rows, FAILING)
        if not len(failing):
            return {}, ()
        failing = failing[np.argsort(rows.numbers[failing], kind="stable")]
        numbers, ends = rows.numbers[failing], self._manifest.block_ends
        codes = np.where(rows.flags[failing] & REFUSED, _WRONG_CODE, rows.codes[failing])
        files = np.searchsorted(ends, numbers.astype(ends.dtype), side="right")
        first = np.flatnonzero(np.diff(files, prepend=-1))
        file_counts = np.bincount(codes[first], minlength=len(_CODES))
        byte_counts = np.bincount(codes, weights=rows.lengths[failing], minlength=len(_CODES))
        counts = {
            code: FailureCount(files=int(file_counts[number]), bytes=int(byte_counts[number]))
            for number, code in enumerate(_CODES)
            if file_counts[number] or byte_counts[number]
        }
        named = tuple(
            FileFailure(
                path=path(block),
                code=_CODES[code],
                reason=_WRONG if code == _WRONG_CODE else self._reasons.get(block, ""),
            )
            for block, code in zip(
                numbers[first][:NAMED_FAILURES].tolist(), codes[first][:NAMED_FAILURES].tolist(), strict=True
            )
        )
        return counts, named
