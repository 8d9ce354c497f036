"""Which blocks of a manifest could not be brought: why, how often, and when each is tried again.

No I/O and no clock: times are seconds that only grow, given by the caller. A block is known by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tdcs.model.agent_state import FailureCode, FailureCount, FileFailure
from tdcs.model.manifest import Manifest
from tdcs.node.agent.backoff import MOST_SECONDS, pause


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


Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

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
_LISTED_ANEW: Final = [_CODES.index("Missing"), _CODES.index("Changed")]
_MOST_ATTEMPTS: Final = 255
_WRONG: Final = "the copy here differs from the source, also when it was loaded again"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a block could not be brought."""

    code: FailureCode
    reason: str


class BlockFailures:
    """The failures of one version of a mount.

    Attributes:
        failed: blocks of which the last attempt failed.
        refused: blocks that a comparison found wrong: they are neither held nor brought.
        changes: grows with every change of what failed and why.
    """

    def __init__(self, count: int) -> None:
        self.failed: Mask = np.zeros(count, dtype=np.bool_)
        self.refused: Mask = np.zeros(count, dtype=np.bool_)
        self._attempts = np.zeros(count, dtype=np.uint8)
        self._codes = np.zeros(count, dtype=np.uint8)
        self._retry_at = np.zeros(count, dtype=np.float64)
        self._reasons: dict[int, str] = {}
        self.changes = 0

    def note(self, block: int, failure: Failure, *, now: float) -> None:
        """A block could not be brought; it is tried again after a pause that grows."""
        self.postpone(block, now=now)
        self._set(block, failure)

    def _set(self, block: int, failure: Failure) -> None:
        self.changes += 1
        self.failed[block] = True
        self._codes[block] = _CODES.index(failure.code)
        if block in self._reasons or len(self._reasons) < NAMED_FAILURES:
            self._reasons[block] = failure.reason

    def postpone(self, block: int, *, now: float, most: float = MOST_SECONDS) -> None:
        attempts = min(int(self._attempts[block]) + 1, _MOST_ATTEMPTS)
        self._attempts[block] = attempts
        self._retry_at[block] = now + pause(attempts, most=most)

    def brought(self, block: int) -> None:
        self.changes += bool(self.failed[block])
        self.failed[block] = False
        self._attempts[block] = 0
        self._retry_at[block] = 0.0
        self._reasons.pop(block, None)

    def keep(self, wanted: Mask) -> None:
        self.changes += bool((self.failed & ~wanted).any())
        self.failed &= wanted
        self._reasons = {block: text for block, text in self._reasons.items() if self.failed[block]}

    def adopt(self, before: BlockFailures, *, mine: Numbers, theirs: Numbers) -> None:
        """Take over what failed in the version before, for blocks with these numbers here and there."""
        failed = before.failed[theirs]
        mine, theirs = mine[failed], theirs[failed]
        for column, other in (
            (self.failed, before.failed),
            (self._attempts, before._attempts),
            (self._codes, before._codes),
            (self._retry_at, before._retry_at),
        ):
            column[mine] = other[theirs]
        # A new version was listed since: what is said to be gone or to have changed may be there again.
        self._retry_at[mine[np.isin(self._codes[mine], _LISTED_ANEW)]] = 0.0
        self._reasons.update(
            (one, before._reasons[other])
            for one, other in zip(mine.tolist(), theirs.tolist(), strict=True)
            if other in before._reasons
        )
        self.changes += 1

    def noted(self, manifest: Manifest, *, most: int) -> tuple[FailedBlock, ...]:
        return tuple(
            FailedBlock(
                block=int(manifest.block_ids[number]),
                code=_CODES[self._codes[number]],
                attempts=int(self._attempts[number]),
                reason=self._reasons.get(number, ""),
            )
            for number in np.flatnonzero(self.failed)[:most].tolist()
        )

    def restore(self, manifest: Manifest, noted: Sequence[FailedBlock]) -> None:
        """Take up what an earlier process has noted; all of it may be tried at once."""
        numbers = manifest.blocks_at(np.array([one.block for one in noted], dtype=np.int64))
        for number, one in zip(numbers.tolist(), noted, strict=True):
            if number >= 0:
                self._set(number, Failure(code=one.code, reason=one.reason))
                self._attempts[number] = min(one.attempts, _MOST_ATTEMPTS)

    def retry(self) -> None:
        """Try all of them at once: the source has other credentials, or another address."""
        self._retry_at[:] = 0.0

    def may_try(self, part: slice, *, now: float) -> Mask:
        return np.asarray((self._retry_at[part] <= now) & ~self.refused[part])

    def counts(self, manifest: Manifest, failed: Mask) -> dict[FailureCode, FailureCount]:
        """Files that these failed blocks are of, and the blocks' bytes, by code."""
        blocks = np.flatnonzero(failed)
        if not len(blocks):
            return {}
        codes = np.where(self.refused[blocks], _WRONG_CODE, self._codes[blocks])
        _, first = np.unique(manifest.files_of(blocks), return_index=True)
        file_counts = np.bincount(codes[first], minlength=len(_CODES))
        byte_counts = np.bincount(codes, weights=manifest.block_lengths[blocks], minlength=len(_CODES))
        return {
            code: FailureCount(files=int(file_counts[number]), bytes=int(byte_counts[number]))
            for number, code in enumerate(_CODES)
            if file_counts[number] or byte_counts[number]
        }

    def named(
        self, *, manifest: Manifest, failed: Mask, path: Callable[[int], str]
    ) -> tuple[FileFailure, ...]:
        """The first files that these failed blocks are of."""
        blocks = np.flatnonzero(failed)
        _, first = np.unique(manifest.files_of(blocks), return_index=True)
        return tuple(
            FileFailure(path=path(block), code="Wrong", reason=_WRONG)
            if self.refused[block]
            else FileFailure(
                path=path(block), code=_CODES[self._codes[block]], reason=self._reasons.get(block, "")
            )
            for block in blocks[first][:NAMED_FAILURES].tolist()
        )
