"""What lies on the disk, by looking at the folders: only when names in them have changed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk, Ids
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.block_rows import Mask, Numbers
from tdcs.node.agent.mount.mount_work import MountWork

_NONE: Final = np.zeros(0, dtype=np.int64)
_SHARE: Final = 5
"""A look is made again after this many times its own length at the earliest."""
_MOST_SECONDS: Final = 3.0
"""But so long after it has begun at the latest, or after half its length: what others do in the folders is to be known
within 5 s, with the second until somebody looks at the folders' times, and what is then made of it."""


@dataclass(frozen=True, kw_only=True)
class Look:
    spooled: Ids
    registered: Ids


class Found(NamedTuple):
    """Blocks of a mount, by their numbers in a ledger, that this process did not bring; sorted by where they lie."""

    mount: MountWork
    ledger: Ledger
    spooled: Numbers
    registered: Numbers


class Inventory:
    """Keeps the ledgers true to the folders.

    Args:
        room: is given the bytes that are used.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        room: Room,
        lock: threading.RLock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disk: Final = disk
        self._room: Final = room
        self._lock: Final = lock
        self._clock: Final = clock
        self._seen: tuple[int, int] | None = None
        self._again = True
        self._earliest = 0.0
        self._strangers: dict[int, int] = {}
        self.complete = False
        """Whether a look was made: before that it is not known what is missing."""
        self.looks = 0
        """How many were made."""
        self.generation = 0
        """Grows whenever blocks have gone."""
        self.appeared: Final = deque[Found]()
        """What looks have found that was not known before, for whoever measures it."""
        self._ids = np.empty(0, dtype=np.int64)
        self._owned: dict[str, tuple[Ledger, Ids, Numbers]] = {}
        """Of each mount the ids that the last look has found of it, and their blocks' numbers."""
        self._last = Look(spooled=np.empty(0, dtype=np.int64), registered=np.empty(0, dtype=np.int64))

    @property
    def strangers(self) -> dict[int, int]:
        """Blocks that lie here and belong to no ledger: ids and bytes."""
        return self._strangers

    @property
    def stray_spooled(self) -> Ids:
        """Those of them that lie in the spool: the worker never knew them."""
        spooled = self._last.spooled
        return spooled[np.isin(spooled, np.fromiter(self._strangers, dtype=np.int64))]

    def due(self) -> bool:
        """Whether names have changed since the last look, or just before it (times of files are coarse)."""
        if self._clock() < self._earliest:
            return False
        now = self._disk.changed_at()
        if now != self._seen:
            self._seen, self._again = now, True
            return True
        again, self._again = self._again, False
        return again

    def require(self) -> None:
        self._seen, self._earliest = None, 0.0

    def look(self, mounts: Sequence[MountWork]) -> None:
        """Read the folders and bring ledgers, room and lists of readable blocks up to date. Run it in a thread."""
        began = self._clock()
        for mount in mounts:
            with mount.lock:
                if mount.ledger is not None:
                    mount.ledger.look()
        # The spool first: a block goes from there to the worker's folder, and is in one of them at any time.
        spooled = self._disk.spooled()
        registered = self._disk.registered_ids()
        self._last = Look(spooled=spooled, registered=registered)
        found = _united(spooled, registered)
        if len(np.setdiff1d(self._ids, found, assume_unique=True)):
            self.generation += 1
        self._ids = found
        in_spool, in_worker = np.isin(found, spooled), np.isin(found, registered)
        strange = np.ones(len(found), dtype=np.bool_)
        placed = self._placed_before(mounts, found, strange)
        for mount in mounts:
            with mount.lock:
                ledger = mount.ledger
                if ledger is None:
                    continue
                before_places, before_numbers = placed.get(mount.path, (_NONE, _NONE))
                if mount.path in self._owned and self._owned[mount.path][0] is not ledger:
                    strange[before_places] = True  # a new version has begun meanwhile, with other numbers
                    before_places, before_numbers = _NONE, _NONE
                # No two mounts have blocks in common.
                rest = np.flatnonzero(strange)
                new_places, new_numbers = ledger.manifest.blocks_among(found[rest])
                places = np.concatenate([before_places, rest[new_places]])
                numbers = np.concatenate([before_numbers, new_numbers])
                strange[rest[new_places]] = False
                self._owned[mount.path] = (ledger, found[places], numbers)
                fresh = ledger.observe(
                    spooled=np.sort(numbers[in_spool[places]]),
                    registered=np.sort(numbers[in_worker[places]]),
                )
                ids = ledger.manifest.block_ids[fresh].tolist()
                spooled_here = ledger.spooled_of(fresh)
            if ids:
                mount.readable.add(ids)
                self.appeared.append(Found(mount, ledger, fresh[spooled_here], fresh[~spooled_here]))
        before = self._strangers
        self._strangers = {
            identity: before[identity] if identity in before else self._disk.size(identity)
            for identity in found[strange].tolist()
        }
        with self._lock:  # one moment for all of them: nothing is brought or dropped meanwhile
            known = sum(mount.ledger.held_bytes() for mount in mounts if mount.ledger is not None)
            self._room.observe(known + sum(self._strangers.values()))
        self.complete = True
        self.looks += 1
        took = self._clock() - began
        self._earliest = self._clock() + min(max(_MOST_SECONDS - took, took / 2), took * _SHARE)

    def _placed_before(
        self, mounts: Sequence[MountWork], found: Ids, strange: Mask
    ) -> dict[str, tuple[Numbers, Numbers]]:
        """Of each mount the places of ids that its last look knew to be its, and their blocks' numbers: only what has
        appeared since then is looked up in manifests. They are struck out of `strange`."""
        ledgers = {mount.path: mount.ledger for mount in mounts}
        self._owned = {path: each for path, each in self._owned.items() if ledgers.get(path) is each[0]}
        placed = {}
        for path, (_, ids, numbers) in self._owned.items():
            places = np.minimum(np.searchsorted(found, ids), max(len(found) - 1, 0))
            here = found[places] == ids if len(found) else np.zeros(len(ids), dtype=np.bool_)
            placed[path] = (places[here], numbers[here])
            strange[places[here]] = False
        return placed


def _united(one: Ids, other: Ids) -> Ids:
    if not len(one) or not len(other):
        return other if not len(one) else one
    both = np.concatenate([one, other])
    both.sort(kind="stable")
    first: Ids = both[np.concatenate([[True], both[1:] != both[:-1]])]
    return first
