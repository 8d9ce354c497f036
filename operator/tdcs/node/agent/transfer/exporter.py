"""Has Alluxio know the files that are here, behind everything else: they are read and moved without it.

What was exported says the disk: a block's file and its name in the worker's folder are one inode. So nothing is noted
but the master's journal, and a journal that is lost, a worker that lost its folder, and a process that was killed are
all the same case: a file that is here has no name there, and is exported.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import grpc
import numpy as np

from tdcs.alluxio.exported_files import ExportedFiles, for_alluxio
from tdcs.alluxio.master_room import MasterRoom
from tdcs.alluxio.plain_reason import plain_reason
from tdcs.alluxio.rpc import RpcFailureError
from tdcs.alluxio.worker_blocks import OpenBlockError, PresentBlockError, UnknownBlockError, WorkerBlocks
from tdcs.model.manifest_format import decoded
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.mount_blocks import MountBlocks

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE: Final = 256
_TAKEN_BACK_AT_ONCE: Final = 4096
_CHUNKS: Final = 64
"""So many times in one step versions are asked for files of what waits."""
_LARGEST_ID: Final = (1 << 63) - 1
_LANES: Final = 8
_TICK: Final = 1.0
_MOST_PAUSE: Final = 60.0
_JOURNAL_SECONDS: Final = 5.0
_OF_ONE_FILE: Final = (
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
)
"""Another node has made, replaced or removed the file meanwhile."""
_UNFINISHED_SECONDS: Final = 30.0
"""So old a file that was not completed is nobody's work any more."""
QUIET_SECONDS: Final = 20.0
"""So long nothing is exported to a master with another journal: until then each agent has taken back what has ids of
the journal before, which are given again."""
_WAITING_SECONDS: Final = 10.0
"""So long the exports go on with what one look has found: a look takes as long as there are names."""
_LOOK_SECONDS: Final = 30.0
"""Between two looks while no name changes: versions may list what none listed before."""
_ROOM_SECONDS: Final = 10.0
_FULL_SECONDS: Final = 30.0
"""Between two questions for the master's room, while there is something to export; and while it has none."""


class Export(NamedTuple):
    """A file to be exported, by the id of its first block."""

    identity: int
    length: int
    path: str
    tag: str


@dataclass(eq=False, slots=True, kw_only=True)
class Exporter:
    """The exports of one agent. All in one event loop.

    Args:
        journal: asks the master for its journal's identity; raises RpcFailureError.
        room: asks the master how many files it has room for; raises RpcFailureError.
        mounts: of the agent.
        rests: whether others leave a processor free.
    """

    disk: Disk
    files: ExportedFiles
    worker: WorkerBlocks
    journal: Callable[[], Awaitable[str]]
    room: Callable[[], Awaitable[MasterRoom]]
    mounts: Callable[[], Collection[MountBlocks]]
    rests: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    exported: int = 0
    """Files that this process has exported."""
    _failures: dict[int, tuple[int, float]] = field(default_factory=dict, init=False)
    """Exports that failed, by the file's id: how often in a row, and when they are tried again."""
    _held: dict[int, tuple[int, float]] = field(default_factory=dict, init=False)
    """The same for blocks of the worker's that could not be taken back."""
    _waiting: list[int] = field(default_factory=list, init=False)
    """Ids of what is here and is not exported, in any order."""
    _waiting_until: float = field(default=-math.inf, init=False)
    _ask_at: float = field(default=-math.inf, init=False)
    _quiet_until: float = field(default=-math.inf, init=False)
    _allowed: int = field(default=0, init=False)
    """Further files that may be made at the master before it is asked again for its room."""
    _room_at: float = field(default=-math.inf, init=False)
    _full: bool = field(default=False, init=False)
    _unproved: set[int] | None = field(default=None, init=False)
    """Blocks that earlier processes lent to the worker; None before the first look."""
    _again_at: float = field(default=-math.inf, init=False)
    _folder_times: tuple[int, ...] | None = field(default=None, init=False)
    _seen_twice: bool = field(default=False, init=False)
    _journal: str = field(default="", init=False)
    """The master's journal; empty while it is not known."""

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                busy = await self.step()
                failures = 0
            except RpcFailureError as failure:
                busy, failures = False, failures + 1
                if failures == 1:
                    why = plain_reason(failure.text)
                    _log.info("nothing is exported to Alluxio for now: %s (%s)", failure.code.name, why)
            except Exception:
                busy, failures = False, failures + 1
                _log.exception("nothing is exported to Alluxio for now")  # and all others go on
            if not busy:
                await asyncio.sleep(max(_TICK, pause(failures, most=_MOST_PAUSE) if failures else 0.0))

    async def step(self) -> bool:
        """Export, and take back, some of what is to be; whether there was something."""
        if self.clock() >= self._ask_at:
            await self._enter_journal(await self._asked())
        now, exports, taken_back = self.clock(), list[Export](), list[bool]()
        if (not self._waiting or now >= self._waiting_until) and self._due():
            lent_blocks = await asyncio.to_thread(self._compare, now)
            # Without a master, too: there is to be room.
            taken_back = await self._each(self._take_back, lent_blocks)
        ready = bool(self._journal) and self.rests()
        if ready and self._unproved:
            waiting = (block for block in self._unproved if self._may_take_back(block))
            await self._each(self._prove, list(itertools.islice(waiting, _AT_ONCE)))
        if ready and now >= self._quiet_until and self._waiting and await self._has_room():
            exports = self._next_exports()
            await self._each(self._export, exports)
        return bool(any(taken_back) or exports)

    def _due(self) -> bool:
        """Whether names have changed, or the last look has left something."""
        folders = (self.disk.spool, self.disk.large.folders.whole, self.disk.lent)
        times = tuple(os.stat(folder).st_mtime_ns if folder.exists() else 0 for folder in folders)
        if times == self._folder_times and self._seen_twice and self.clock() < self._again_at:
            return False
        # Times of folders are coarse: what changes in the moment of a look is seen by the next one.
        self._folder_times, self._seen_twice = times, times == self._folder_times
        return True

    # What is to be done.

    def _compare(self, now: float) -> list[int]:
        """Note what is to be exported; blocks of the worker's that are to be taken back."""
        spooled, lent = self._look()
        if self._unproved is None:
            self._unproved = set(lent)
        spooled_inodes, lent_inodes = set(spooled.values()), set(lent.values())
        self._failures = {block: failure for block, failure in self._failures.items() if block in spooled}
        self._held = {block: hold for block, hold in self._held.items() if block in lent}
        lent_blocks = [
            block
            for block, inode in lent.items()
            if inode not in spooled_inodes and self._may_take_back(block)
        ]
        again = [at for _, at in (*self._failures.values(), *self._held.values())]
        if self._journal and now >= self._quiet_until:
            self._waiting = [
                block
                for block, inode in spooled.items()
                if inode not in lent_inodes and now >= self._failures.get(block, (0, 0.0))[1]
            ]
            random.shuffle(self._waiting)  # several nodes that hold the same begin with different files
            self._waiting_until = now + _WAITING_SECONDS
        elif self._journal:
            again.append(self._quiet_until)
        if len(lent_blocks) > _TAKEN_BACK_AT_ONCE:
            again.append(now)
        self._again_at = min(again, default=math.inf)
        self._again_at = min(max(self._again_at, now), now + _LOOK_SECONDS)
        return lent_blocks[:_TAKEN_BACK_AT_ONCE]

    def _look(self) -> tuple[dict[int, int], dict[int, int]]:
        """Inodes of the blocks that are here, and of the blocks of Alluxio's that are exports."""
        lent = _inodes(str(self.disk.lent))
        spooled = _inodes(str(self.disk.spool)) | _inodes(str(self.disk.large.folders.whole))
        spooled_inodes = set(spooled.values())
        foreign = [
            block for block, inode in lent.items() if inode not in spooled_inodes and not self._is_ours(block)
        ]
        for block in foreign:
            del lent[block]
        return spooled, lent

    def _is_ours(self, block: int) -> bool:
        """Whether a file of the worker's says that it is a block of the store: others are Alluxio's own."""
        return self.disk.facts.read(f"{self.disk.lent}/{block}") is not None

    def _next_exports(self) -> list[Export]:
        """The next of what waits, as far as versions list it."""
        exports: list[Export] = []
        for _ in range(_CHUNKS):
            size = min(_AT_ONCE, self._allowed) - len(exports)
            if not self._waiting or size <= 0:
                break
            exports += self._exports_of(self._waiting[-size:])
            del self._waiting[-size:]
        return exports

    def _exports_of(self, waiting: Collection[int]) -> list[Export]:
        """These blocks, as far as versions list them as whole files."""
        exports: list[Export] = []
        ids = np.fromiter(waiting, dtype=np.int64, count=len(waiting))
        for mount in self.mounts():
            ledger = mount.ledger
            if ledger is None or mount.forgotten or mount.early_files:
                continue  # what is of no version may be refused yet
            manifest = ledger.manifest
            numbers = manifest.blocks_at(ids)
            for number in numbers[numbers >= 0].tolist():
                file = manifest.file_of(number)
                if manifest.blocks_of(file).start != number or ledger.in_work(number):
                    continue  # a file of several blocks is known by its first one, and here when it is whole
                name = for_alluxio(decoded(manifest.file_path(file)))
                exports.append(
                    Export(
                        identity=int(manifest.block_ids[number]),
                        length=int(manifest.lengths[file]),
                        path=f"{manifest.path}/{name}",
                        tag=manifest.file_id(file).hex(),
                    )
                )
        return exports

    @staticmethod
    async def _each(action: Callable[[T], Awaitable[R]], items: Collection[T]) -> list[R]:
        """What an action says of each of these, in any order."""
        waiting, results = list(reversed(list(items))), list[R]()

        async def lane() -> None:
            while waiting:
                results.append(await action(waiting.pop()))

        lanes = [asyncio.create_task(lane()) for _ in range(min(_LANES, len(waiting)))]
        try:
            await asyncio.gather(*lanes)
        finally:
            for task in lanes:
                task.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        return results

    # Exporting.

    async def _export(self, export: Export) -> None:
        try:
            await self._tell(export)
        except (FileNotFoundError, PresentBlockError):
            self._wait(export.identity)  # it is gone, or comes again: the next look says
        except RpcFailureError as failure:
            self._wait(export.identity)
            if failure.code not in _OF_ONE_FILE:
                raise
        else:
            self._failures.pop(export.identity, None)
            self.exported += 1

    async def _tell(self, export: Export) -> None:
        file = await self.files.find(export.path)
        same_version = file is not None and file.tag == export.tag
        if file is not None and same_version and not file.is_whole and file.age_seconds < _UNFINISHED_SECONDS:
            self._wait(export.identity)  # another node is telling of it
            return
        if file is not None and same_version and file.is_whole and file.length == export.length:
            await self._lend(export, file.block)
            return
        self._allowed -= 1
        block = await self.files.create(export.path, tag=export.tag, instead=file is not None)
        await self._lend(export, block)
        try:
            await self.files.complete(export.path)
        except BaseException:
            if not await self._take_back(block) and self._unproved is not None:
                self._unproved.add(block)
            raise

    async def _lend(self, export: Export, block: int) -> None:
        def place(path: str) -> None:
            self.disk.lend(export.identity, worker_file=path)
            if os.stat(path).st_size != export.length:  # a worker compares nothing
                raise FileNotFoundError(errno.ENOENT, "it is no whole file", path)

        await self.worker.create(block_id=block, length=export.length, place=place)

    def _wait(self, identity: int) -> None:
        failures = self._failures.get(identity, (0, 0.0))[0] + 1
        self._failures[identity] = (failures, self._pause(failures))

    def _pause(self, failures: int) -> float:
        """When something is tried again that has failed so often; there is a look then."""
        until = self.clock() + pause(failures, most=_MOST_PAUSE)
        self._again_at = min(self._again_at, until)
        return until

    async def _prove(self, block: int) -> None:
        """Compare a block that an earlier process lent with what the master has: it may have ended in between."""
        facts = await asyncio.to_thread(self.disk.facts.read, f"{self.disk.lent}/{block}")
        path = await self.files.path_of(block) if facts is not None else None
        file = await self.files.find(path) if path is not None else None
        proved = True
        if facts is None:
            pass  # it was taken back meanwhile
        elif path is None or file is None or file.block != block or file.tag != facts.identity.file.hex():
            proved = await self._take_back(block)
        elif not file.is_whole:
            try:
                await self.files.complete(path)
            except RpcFailureError as failure:
                if failure.code not in _OF_ONE_FILE:
                    raise
                proved = await self._take_back(block)
        if proved and self._unproved is not None:
            self._unproved.discard(block)

    async def _has_room(self) -> bool:
        """Whether the master's heap has room for further files. Raises RpcFailureError."""
        if self.clock() >= self._room_at:
            room = await self.room()
            self._allowed = room.share
            if self._full and self._allowed:
                _log.info("Alluxio's master has room for files again: exports go on")
            elif not self._full and not self._allowed:
                _log.warning(
                    "further files are not exported to Alluxio, and are read without it: its master knows %d files and "
                    "folders, and its heap has room for %d. To export all, give it a larger one "
                    "(spec.master.jvmOptions of the CacheCluster)",
                    *(room.paths, room.most),
                )
            self._full = not self._allowed
            self._room_at = self.clock() + (_FULL_SECONDS if self._full else _ROOM_SECONDS)
        return self._allowed > 0

    # Taking back.

    def _may_take_back(self, block: int) -> bool:
        """Whether it was not tried a moment ago."""
        return self.clock() >= self._held.get(block, (0, 0.0))[1]

    async def _take_back(self, block: int) -> bool:
        """Remove a block of the worker's; False while a reader holds it open.

        A file that no worker has any more is removed by the operator (`ExportSweep`): no agent may do that.
        """
        try:
            await self.worker.remove(block)
        except OpenBlockError:
            failures = self._held.get(block, (0, 0.0))[0] + 1
            self._held[block] = (failures, self._pause(failures))
            return False
        except (UnknownBlockError, RpcFailureError):
            with suppress(FileNotFoundError):  # room is to be had without the worker
                os.unlink(f"{self.disk.lent}/{block}")
        self._held.pop(block, None)
        return True

    async def _asked(self) -> str:
        """The master's journal; empty when it does not say."""
        self._ask_at = self.clock() + _JOURNAL_SECONDS
        try:
            return await self.journal()
        except RpcFailureError as failure:
            if self._journal:
                _log.info("nothing is exported for now: Alluxio's master is away (%s)", failure.code.name)
            return ""

    async def _enter_journal(self, journal: str) -> None:
        """Take back what has ids of another journal than the master has now.

        The master's is not known, and nothing is exported, while some of that is still open: another file may have its
        id by now, and the next process is to know that it is of another journal.
        """
        if not journal:
            self._journal = ""
            return
        earlier = self._journal or await asyncio.to_thread(self._noted)
        if journal == earlier:
            if not self._journal:
                self._again_at = -math.inf
            self._journal = journal
            return
        self._journal, self._waiting = "", []
        _, lent = await asyncio.to_thread(self._look)
        await self._each(self._take_back, [block for block in lent if self._may_take_back(block)])
        if still := self._held.keys() & lent.keys():
            if any(self._held[block][0] == 1 for block in still):
                _log.info(
                    "nothing is exported for now: %d blocks of the journal before, such as %d, are still read",
                    *(len(still), min(still)),
                )
            return
        self._failures.clear()
        self._unproved = set()
        self._folder_times = None
        if earlier:
            self._quiet_until = self.clock() + QUIET_SECONDS
            _log.info("Alluxio's master has another journal: what is here is exported again")
        await asyncio.to_thread(self._note, journal)
        self._journal = journal

    def _noted(self) -> str:
        with suppress(FileNotFoundError):
            return self.disk.exported_journal.read_text().strip()
        return ""

    def _note(self, journal: str) -> None:
        draft = self.disk.exported_journal.with_suffix(".new")
        draft.write_text(f"{journal}\n")
        os.replace(draft, self.disk.exported_journal)


def _inodes(folder: str) -> dict[int, int]:
    """Inodes of the files of a folder that are named by ids."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return {
            block: entry.inode()
            for entry in entries
            if entry.name.isdecimal() and (block := int(entry.name)) <= _LARGEST_ID
        }
    return {}
