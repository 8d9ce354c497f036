"""What is on the disk, by looking at the folders, only when names in them have changed; and by what each file says of
itself, when it is new.

A name says nothing: only a file that says that it is what the version lists under its id is a block of the version.
What it is under another id, or under none, is adopted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tdcs.model.block_identity import mount_key, prints_of_blocks
from tdcs.model.manifest import Manifest
from tdcs.model.sorted_numbers import distinct, union
from tdcs.node.agent.blocks.strangers import Strangers
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk, Place
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.block_rows import Mask, Numbers
from tdcs.node.agent.mount.mount_blocks import MountBlocks
from tdcs.node.file_facts import Facts, blocks_with, prints_of_facts

_log: Final = logging.getLogger(__name__)

_SHARE: Final = 5
"""A look is made again after this many times its own length at the earliest."""
_MOST_SECONDS: Final = 3.0
"""But so long after it has begun at the latest, or after half its length: what others do in the folders is to be known
within 5 s, with the second until somebody looks at the folders' times, and what is then made of it."""
_AT_ONCE: Final = 1 << 16
"""Files that are asked at a time what they are."""
_COMPARED_FOR_ONE: Final = 64
"""Blocks of a version whose prints are made in the time that it takes to ask one file."""
_COMPARED_AT_ONCE: Final = 1 << 20

NOBODY: Final = b""
"""Owner of files that do not say what they are."""

NEW: Final = -1
"""Number of a file that was not looked up yet."""
NONE: Final = -2
"""Number of a file that its mount's version does not list."""
ROWS: Final = np.dtype(
    [
        ("place", "u1"),
        ("name", "<i8"),
        ("owner", "<u4"),
        ("print", "<u8"),
        ("size", "<i8"),
        ("number", "<i8"),
    ]
)
"""A file: its folder, its name there, the number of the mount that it says it is of, what it is, its bytes, and the
number of its block in that mount's ledger."""
Rows = npt.NDArray[np.void]


class Found(NamedTuple):
    """Blocks of a mount, by their ascending numbers in a ledger, that this process did not bring."""

    mount: MountBlocks
    ledger: Ledger
    blocks: Numbers

    @property
    def ids(self) -> list[int]:
        ids: list[int] = self.ledger.manifest.block_ids[self.blocks].tolist()
        return ids


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
        self._folder_times: tuple[int, ...] | None = None
        self._again = True
        self._earliest = 0.0
        self._owners: Final[dict[bytes, int]] = {NOBODY: 0}
        self._rows = np.zeros(0, dtype=ROWS)
        self._strangers: Final = Strangers(np.zeros(0, dtype=ROWS), key=_keys)
        self.complete = False
        """Whether a look was made: before that it is not known what is missing."""
        self.looks = 0
        """How many were made."""
        self.generation = 0
        """Grows whenever blocks have gone."""
        self.appeared: Final = deque[Found]()
        """What looks have found that was not known before, for whoever measures it."""
        self._ledgers: dict[str, Ledger] = {}
        """By which the last look has looked up what it found."""
        disk.believe_nothing()

    @property
    def strangers(self) -> Rows:
        """Files that are in no ledger."""
        return self._strangers.rows

    def owner(self, mount: str) -> int:
        """How the rows name a mount; -1 while none is of it."""
        return self._owners.get(mount_key(mount), -1)

    def has_looked_by(self, ledger: Ledger, *, mount: str) -> bool:
        """Whether the strangers are those that a look by this ledger of a mount has found."""
        return self._ledgers.get(mount) is ledger

    def removed(self, rows: Rows) -> None:
        """These strangers are gone."""
        size = self._strangers.strike(rows)
        with self._lock:
            self._room.removed(size)

    def due(self) -> bool:
        """Whether names have changed since the last look, or just before it (times of files are coarse)."""
        if self._clock() < self._earliest:
            return False
        now = self._disk.changed_at()
        if now != self._folder_times:
            self._folder_times, self._again = now, True
            return True
        again, self._again = self._again, False
        return again

    def require(self) -> None:
        self._folder_times, self._earliest = None, 0.0

    def look(self, mounts: Sequence[MountBlocks]) -> None:
        """Read the folders and bring ledgers, room and lists of readable blocks up to date. Run it in a thread."""
        began = self._clock()
        self._disk.look()
        for mount in mounts:
            with mount.lock:
                if mount.ledger is not None:
                    mount.ledger.look()
        rows = self._read()
        order = np.argsort(rows["owner"], kind="stable")
        rows = rows[order]
        strange = np.ones(len(rows), dtype=np.bool_)
        ledgers: dict[str, Ledger] = {}
        appeared: list[Found] = []
        for mount in mounts:
            owner = self.owner(mount.path)
            of_mount = slice(*np.searchsorted(rows["owner"], (owner, owner + 1)).tolist())
            with mount.lock:
                ledger = mount.ledger
            if ledger is not None:
                strange[of_mount] = self._observe(mount, ledger, rows[of_mount], appeared)
                ledgers[mount.path] = ledger
        self._rows["number"][order] = rows["number"]
        self._note(rows, strange)
        # Only now they are given to who asks for them, and whoever waits for the list asks at once.
        for blocks in appeared:
            blocks.mount.readable.add(blocks.ids)
        self.appeared.extend(appeared)
        self._ledgers = ledgers  # last: strangers of the look before are none by these
        with self._lock:  # one moment for all of them: nothing is brought or dropped meanwhile
            held_bytes = sum(mount.ledger.held_bytes() for mount in mounts if mount.ledger is not None)
            self._room.observe(held_bytes + int(self._strangers.rows["size"].sum()))
        self.complete = True
        self.looks += 1
        took = self._clock() - began
        self._earliest = self._clock() + min(max(_MOST_SECONDS - took, took / 2), took * _SHARE)

    # What is here.

    def _read(self) -> Rows:
        """A row for each file, ordered by folder and name; those that are new are asked what they are."""
        ids_by_place = [self._disk.ids_at(place) for place in Place]
        rows = np.zeros(sum(map(len, ids_by_place)), dtype=ROWS)
        rows["place"] = np.repeat(np.arange(len(ids_by_place)), [len(ids) for ids in ids_by_place])
        rows["name"] = np.concatenate(ids_by_place)
        rows["number"] = NEW
        earlier, fresh = self._rows, np.ones(len(rows), dtype=np.bool_)
        if len(earlier):
            places, keys = np.searchsorted(_keys(earlier), _keys(rows)), _keys(rows)
            places = np.minimum(places, len(earlier) - 1)
            is_earlier = _keys(earlier)[places] == keys
            rows[is_earlier] = earlier[places[is_earlier]]
            fresh = ~is_earlier
            if len(earlier) > np.count_nonzero(is_earlier) and len(
                np.setdiff1d(earlier["name"], rows["name"])
            ):
                self.generation += 1
        for part in _stretches(np.flatnonzero(fresh)):
            self._ask(rows, part)
        self._rows = rows
        return rows

    def _ask(self, rows: Rows, part: Numbers) -> None:
        for place in Place:
            of_place = part[rows["place"][part] == place]
            if not len(of_place):
                continue
            facts = self._disk.facts_at(place, rows["name"][of_place].tolist())
            rows["print"][of_place] = prints_of_facts(facts)
            rows["size"][of_place] = facts["length"].astype(np.int64)
            keys, indices = np.unique(
                np.ascontiguousarray(facts["mount"]).view("V16").reshape(-1), return_inverse=True
            )
            numbers = [self._owners.setdefault(key.tobytes(), len(self._owners)) for key in keys]
            rows["owner"][of_place] = np.array(numbers, dtype=np.uint32)[indices]
            silent = of_place[facts["form"] == 0]
            rows["owner"][silent] = 0
            for at in silent.tolist():
                rows["size"][at] = self._disk.size_at(place, int(rows["name"][at]))

    # What of it is whose.

    def _observe(self, mount: MountBlocks, ledger: Ledger, rows: Rows, added: list[Found]) -> Mask:
        """Bring a mount's ledger up to date by the files that say that they are of it, and add what appeared to
        `added`; those that are strangers."""
        if self._ledgers.get(mount.path) is not ledger:
            rows["number"] = NEW
        fresh = np.flatnonzero(rows["number"] == NEW)
        self._look_up(ledger, rows, fresh)
        spooled = distinct(rows["number"][(rows["number"] >= 0) & (rows["place"] == Place.SPOOL)])
        adopted = self._adopt(mount, ledger, rows, fresh, spooled=spooled)
        with mount.lock:
            if mount.ledger is not ledger:  # it is looked at again
                self.require()
                return np.asarray(rows["number"] < 0)
            appeared = ledger.observe(union(spooled, adopted))
        if len(appeared):
            added.append(Found(mount, ledger, appeared))
        return np.asarray(rows["number"] < 0)

    @staticmethod
    def _look_up(ledger: Ledger, rows: Rows, fresh: Numbers) -> None:
        """Find the blocks that these files are by their names, as far as they say that they are them."""
        manifest = ledger.manifest
        spooled = fresh[rows["place"][fresh] == Place.SPOOL]
        places, numbers = manifest.blocks_among(rows["name"][spooled])
        matching = prints_of_blocks(manifest, numbers) == rows["print"][spooled[places]]
        rows["number"][spooled[places[matching]]] = numbers[matching]

    def _adopt(
        self, mount: MountBlocks, ledger: Ledger, rows: Rows, fresh: Numbers, *, spooled: Numbers
    ) -> Numbers:
        """Give files that are blocks of the version under other ids the right ones; the blocks."""
        candidates = fresh[rows["number"][fresh] == NEW]
        rows["number"][candidates] = NONE
        candidates = candidates[_may_be_of(ledger.manifest, rows["print"][candidates])]
        numbers_here = set(spooled.tolist()) if len(candidates) else set[int]()
        adopted: list[int] = []
        refused = self._disk.refused.of(mount.path)
        for part in _stretches(candidates):
            numbers = np.full(len(part), -1, dtype=np.int64)
            for place in Place:
                of_place = rows["place"][part] == place
                if of_place.any():
                    facts: Facts = self._disk.facts_at(place, rows["name"][part[of_place]].tolist())
                    numbers[of_place] = blocks_with(ledger.manifest, facts)
            for at, number in zip(part[numbers >= 0].tolist(), numbers[numbers >= 0].tolist(), strict=True):
                place, name = Place(rows["place"][at]), int(rows["name"][at])
                block = int(ledger.manifest.block_ids[number])
                with mount.lock:
                    missing = number not in numbers_here and ledger.absent(number)
                if not missing or block in refused or name in refused:
                    continue
                try:
                    self._disk.adopt(place, name, block=block)
                except OSError as error:
                    _log.warning("block %d of %s cannot be adopted: %s", block, mount.path, error.strerror)
                    continue
                adopted.append(number)
                numbers_here.add(number)
                rows["number"][at] = number
        if adopted:
            _log.info("%d blocks of %s were here under other ids", len(adopted), mount.path)
            self._again = True
        return distinct(np.array(adopted, dtype=np.int64))

    def _note(self, rows: Rows, strange: Mask) -> None:
        strangers = rows[strange]
        self._strangers.replace(strangers)
        self._disk.believe(all_but=set(strangers["name"][strangers["place"] == Place.SPOOL].tolist()))


def _may_be_of(manifest: Manifest, printed: npt.NDArray[np.uint64]) -> Mask:
    """Whether files with these prints can be blocks of a version: for most, to ask each file again takes longer than to
    compare its print with those of all blocks."""
    if manifest.blocks > len(printed) * _COMPARED_FOR_ONE:
        return np.ones(len(printed), dtype=np.bool_)
    mask = np.zeros(len(printed), dtype=np.bool_)
    for begin in range(0, manifest.blocks, _COMPARED_AT_ONCE):
        blocks = np.arange(begin, min(begin + _COMPARED_AT_ONCE, manifest.blocks), dtype=np.int64)
        mask |= np.isin(printed, prints_of_blocks(manifest, blocks), kind="sort")
    return mask


def _keys(rows: Rows) -> npt.NDArray[np.int64]:
    """A number for each folder and name, in their order; names have less than 61 bits."""
    return np.asarray(rows["name"] | (rows["place"].astype(np.int64) << 61))


def _stretches(numbers: Numbers) -> Iterator[Numbers]:
    for begin in range(0, len(numbers), _AT_ONCE):
        yield numbers[begin : begin + _AT_ONCE]
