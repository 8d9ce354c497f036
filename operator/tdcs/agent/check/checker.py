"""Compares what lies on the disk with the source.

A copy that differs is refused at once: that is noted on the disk, and the copy is dropped and given to no reader. Then
it is loaded again, beside what is readable, and compared; only when it equals the source it becomes readable. Otherwise
it stays refused, over a restart too, until the comparison is not asked for any more.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import math
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import xxhash
from msgspec.structs import replace

from tdcs.agent.backoff import pause
from tdcs.agent.check.findings import Findings, FindingsFolder
from tdcs.agent.disk.room import Room
from tdcs.agent.disk.tier import Disk, DiskError, hash_of
from tdcs.agent.mount.ledger import Ledger
from tdcs.agent.mount.mount import MountWork
from tdcs.agent.source.reader import SourceFailureError
from tdcs.agent.transfer.source_puller import PIECE_BYTES, extent_of
from tdcs.agent.worker.registrar import Registrar
from tdcs.engine.agents import Check, CheckState, FailureCode, FileFailure
from tdcs.policy.slots import SLOTS

_log: Final = logging.getLogger(__name__)

LANES: Final = 4
NAMED: Final = 50
"""Files that differ again that are named; the others are counted."""

_ATTEMPTS: Final = 5
"""Attempts to read a file that the source does not give, before it is reported instead of compared."""
_ATTEMPTS_BY_CODE: Final[dict[FailureCode, int]] = {"Unreadable": 3}
"""A single file that cannot be read may be read a moment later; one that is missing stays so."""
_DROP_SECONDS: Final = 600.0
_MOST_PAUSE: Final = 60.0
_NOT_OF_THE_COPY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_POLL_SECONDS: Final = 0.5
_WRONG: Final = "it differs from the source, also after it was loaded again"
_HELD_OPEN: Final = (
    "it differs from the source, and cannot be dropped: a reader holds it open, or the worker is away"
)

Start = Callable[[str, Coroutine[Any, Any, Any]], None]
Sink = Callable[[memoryview], None]


@dataclass
class CheckRun:
    """One comparison.

    Attributes:
        drop_until: on the loop's clock, when copies that cannot be dropped are waited for no longer.
        failures, until: how often it ended with an error, and when it is begun anew, on the loop's clock.
    """

    check: Check
    begun: bool = False
    done: bool = False
    files: int = 0
    bytes: int = 0
    wrong_count: int = 0
    wrong: list[FileFailure] = field(default_factory=list)
    drop_until: float = 0.0
    failures: int = 0
    until: float = 0.0

    def begin(self) -> None:
        """Count from the beginning."""
        self.begun = True
        self.files = self.bytes = self.wrong_count = 0
        self.wrong.clear()

    def report(self, failure: FileFailure) -> None:
        """A file differs, or cannot be compared."""
        self.wrong_count += 1
        if len(self.wrong) < NAMED:
            self.wrong.append(failure)

    @property
    def state(self) -> CheckState:
        """How far it is."""
        return CheckState(
            id=self.check.id,
            done=self.done,
            files=self.files,
            bytes=self.bytes,
            wrong=tuple(self.wrong),
            wrong_count=self.wrong_count,
        )


class Checker:
    """The comparisons of an agent, at most one for each mount. All calls in one event loop.

    Args:
        disk, room: where the blocks lie, and what fits.
        registrar: removes those that differ.
        stopped: set when the process ends.
    """

    def __init__(self, *, disk: Disk, room: Room, registrar: Registrar, stopped: threading.Event) -> None:
        self._disk: Final = disk
        self._room: Final = room
        self._registrar: Final = registrar
        self._stopped: Final = stopped
        self._folder: Final = FindingsFolder(disk.checks)
        self._noting: Final = asyncio.Lock()
        self._runs: dict[str, CheckRun] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._numbers: Final = itertools.count()
        self._kept: Final = {found.mount: found for found in self._folder.read()}
        for found in self._kept.values():  # before anything is served
            disk.refused.update(found.refused)
            for identity in found.refused:
                disk.unspool(identity)

    def restore(self, mount: MountWork) -> None:
        """Take up what an earlier process found of a mount."""
        found = self._kept.get(mount.path)
        if found is None:
            return
        mount.refuse(found.refused)
        if found.state.done:
            self._runs[mount.path] = CheckRun(
                check=found.check,
                begun=True,
                done=True,
                files=found.state.files,
                bytes=found.state.bytes,
                wrong_count=found.state.wrong_count,
                wrong=list(found.state.wrong),
            )

    def assign(self, mount: MountWork, check: Check | None) -> None:
        """Make this comparison; one that was made already stays as it is. With None what was found wrong may be brought
        again.
        """
        run = self._runs.get(mount.path)
        if check is None:
            self._runs.pop(mount.path, None)
            self._forget(mount)
        elif run is None or run.check != check:
            self._runs[mount.path] = CheckRun(check=check)

    def remove(self, mount: MountWork) -> None:
        """A mount is gone, and all its copies."""
        self._runs.pop(mount.path, None)
        if self._kept.pop(mount.path, None) is not None:
            self._disk.refused.difference_update(mount.refused)
            mount.admit(tuple(mount.refused))
            self._folder.remove(mount.path)

    def state(self, mount: str) -> CheckState | None:
        """How far the comparison of a mount is."""
        run = self._runs.get(mount)
        return run.state if run is not None else None

    def start(self, mount: MountWork, start: Start) -> bool:
        """Begin what is to be compared now; whether a comparison of this mount is not done."""
        run = self._runs.get(mount.path)
        if run is None and mount.wanted is not None and mount.wanted.check is None:
            self._forget(mount)
        if run is None or run.done or asyncio.get_running_loop().time() < run.until:
            return False
        if not run.begun and mount.ledger is not None and mount.source is not None and not mount.forgotten:
            run.begin()
            # The number: one before it with the same id may not have ended yet.
            start(f"check {next(self._numbers)} of {mount.path}", self._run(mount, mount.ledger, run))
        return True

    def _forget(self, mount: MountWork) -> None:
        """Let refused blocks be brought again, as far as no wrong copy lies here any more."""
        kept = self._kept.get(mount.path)
        if kept is None or self._noting.locked():  # `start` comes back to it
            return
        left = mount.refused_here()
        gone = mount.refused - left
        self._disk.refused.difference_update(gone)
        mount.admit(gone)
        if not left:
            del self._kept[mount.path]
            self._folder.remove(mount.path)
        elif gone:
            found = self._kept[mount.path] = replace(kept, refused=tuple(sorted(left)))
            try:
                self._folder.write(found)
            except OSError as error:
                _log.warning("what was compared of %s cannot be noted on the disk: %s", mount.path, error)

    async def _run(self, mount: MountWork, ledger: Ledger, run: CheckRun) -> None:
        try:
            with mount.lock:
                blocks = ledger.chosen(slots=math.ceil(SLOTS * run.check.percent / 100), part=run.check.part)
                earlier = ledger.refused_blocks()
            await self._lanes(mount, ledger, run, blocks, self._compare)
            if self._current(mount, ledger, run):
                with mount.lock:
                    again = sorted({*earlier, *ledger.refused_blocks()})
                run.drop_until = asyncio.get_running_loop().time() + _DROP_SECONDS
                await self._lanes(mount, ledger, run, again, self._load_again)
            if self._current(mount, ledger, run):
                run.done = True
                await self._note(mount, run)
        except Exception:
            run.failures += 1
            run.until = asyncio.get_running_loop().time() + pause(run.failures, most=_MOST_PAUSE)
            raise
        finally:
            run.begun = run.done  # otherwise it is begun anew

    async def _lanes(
        self,
        mount: MountWork,
        ledger: Ledger,
        run: CheckRun,
        blocks: list[int],
        action: Callable[[MountWork, Ledger, CheckRun, int], Coroutine[Any, Any, None]],
    ) -> None:
        """Do something with each of these blocks, several at a time. A source that fails is asked again."""
        waiting = list(reversed(blocks))

        async def lane() -> None:
            attempts = 0
            while waiting and self._current(mount, ledger, run):
                block = waiting.pop()
                try:
                    await action(mount, ledger, run, block)
                except SourceFailureError as error:
                    attempts += 1
                    if attempts < _ATTEMPTS_BY_CODE.get(error.code, _ATTEMPTS if error.common else 1):
                        waiting.append(block)
                        await asyncio.sleep(pause(attempts, most=30.0))
                        continue
                    run.report(FileFailure(path=ledger.path(block), code=error.code, reason=str(error)))
                except DiskError as error:
                    run.report(FileFailure(path=ledger.path(block), code="NoRoom", reason=str(error)))
                attempts = 0

        async with asyncio.TaskGroup() as lanes:  # an error in one of them ends the others
            for _ in range(LANES):
                lanes.create_task(lane())

    def _current(self, mount: MountWork, ledger: Ledger, run: CheckRun) -> bool:
        return (
            not self._stopped.is_set()
            and mount.ledger is ledger
            and self._runs.get(mount.path) is run
            and not mount.forgotten
        )

    async def _compare(self, mount: MountWork, ledger: Ledger, run: CheckRun, block: int) -> None:
        same = await self._thread(self._same, mount, ledger, block)
        if same is False and self._current(mount, ledger, run):
            identity = int(ledger.manifest.block_ids[block])
            self._disk.refused.add(identity)
            mount.refuse((identity,))
            await self._note(mount, run)
            await self._registrar.drop_blocks(mount, ledger, [block])
        run.bytes += int(ledger.manifest.block_lengths[block])
        run.files += int(ledger.first_of_file(block))

    async def _note(self, mount: MountWork, run: CheckRun) -> None:
        """Keep on the disk what was found so far."""
        async with self._noting:
            found = Findings(
                mount=mount.path,
                check=run.check,
                state=run.state,
                refused=tuple(sorted(mount.refused)),
            )
            self._kept[mount.path] = found
            try:
                await asyncio.to_thread(self._folder.write, found)
            except OSError as error:
                _log.warning("what was compared of %s cannot be noted on the disk: %s", mount.path, error)

    async def _load_again(self, mount: MountWork, ledger: Ledger, run: CheckRun, block: int) -> None:
        """Bring a refused block anew, and let it be read when it equals the source now."""
        reason = _HELD_OPEN
        if await self._dropped(mount, ledger, run, block):
            reason = "" if await self._thread(self._bring, mount, ledger, block) else _WRONG
        if reason and self._current(mount, ledger, run):
            run.report(FileFailure(path=ledger.path(block), code="Wrong", reason=reason))

    async def _dropped(self, mount: MountWork, ledger: Ledger, run: CheckRun, block: int) -> bool:
        """Whether a refused block is gone; one that is open, or claimed by a registration, is waited for."""
        clock = asyncio.get_running_loop().time
        while self._current(mount, ledger, run):
            with mount.lock:
                here = bool(ledger.held[block] or ledger.claimed[block])
            if not here or await self._registrar.drop_blocks(mount, ledger, [block]):
                return True
            if clock() > run.drop_until:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return False

    async def _thread(self, work: Callable[..., bool | None], *arguments: Any) -> bool | None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="check")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _same(self, mount: MountWork, ledger: Ledger, block: int) -> bool | None:
        """Whether a block can be read and equals the source; None when it is not here any more. In a thread."""
        try:
            file = self._disk.open(int(ledger.manifest.block_ids[block]))
        except OSError as error:
            if error.errno in _NOT_OF_THE_COPY:
                raise
            return False
        if file is None:
            return None
        try:
            return self._equals(mount, ledger, block, file)
        finally:
            os.close(file)

    def _equals(self, mount: MountWork, ledger: Ledger, block: int, file: int) -> bool:
        length = int(ledger.manifest.block_lengths[block])
        if os.fstat(file).st_size != length:
            return False
        state = xxhash.xxh3_64()
        self._read(mount, ledger, block, state.update)
        try:
            return state.intdigest() == hash_of(file, offset=0, length=length)
        except OSError as error:  # a copy that cannot be read is of no use, as one that differs
            _log.warning("the copy of %s cannot be read: %s", ledger.path(block), error.strerror)
            return False

    def _bring(self, mount: MountWork, ledger: Ledger, block: int) -> bool:
        """Bring a block, and make it readable if it equals what the source gives a second time. In a thread."""
        identity = int(ledger.manifest.block_ids[block])
        length = int(ledger.manifest.block_lengths[block])
        if reason := self._room.reserve(length):
            raise DiskError(reason)
        kept = False
        try:
            with self._disk.create(identity) as partial:
                state, done = xxhash.xxh3_64(), 0

                def write(data: memoryview) -> None:
                    nonlocal done
                    state.update(data)
                    partial.write(data, offset=done)
                    done += len(data)

                self._read(mount, ledger, block, write)
                os.fdatasync(partial.fd)
                os.posix_fadvise(
                    partial.fd, 0, 0, os.POSIX_FADV_DONTNEED
                )  # the disk is asked, not the memory
                if not self._equals(mount, ledger, block, partial.fd):
                    return False
                with mount.lock:
                    if not ledger.claim([block]):
                        return False
                    mount.admit((identity,))
                self._disk.refused.discard(identity)
                try:
                    self._disk.keep(partial, block=identity, length=length, content_hash=state.intdigest())
                except DiskError:
                    with mount.lock:
                        ledger.release([block])
                    raise
            mount.brought(ledger, block)
            kept = True
            return True
        finally:
            if not kept:
                self._room.cancel(length)

    def _read(self, mount: MountWork, ledger: Ledger, block: int, sink: Sink) -> None:
        """Read a block from the source, piece by piece."""
        source = mount.source
        if source is None:
            raise SourceFailureError("SourceAway", "the source's credentials are not to be had", common=True)
        length = int(ledger.manifest.block_lengths[block])
        for offset in range(0, length, PIECE_BYTES):
            piece = min(PIECE_BYTES, length - offset)
            if delay := mount.limit.take(piece):
                self._stopped.wait(delay)
            source.read(extent_of(ledger, block, offset=offset, length=piece), sink)
            mount.source_answered(piece)
