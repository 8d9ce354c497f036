"""Compares what is on the disk with the source.

A copy that differs is refused at once: that is noted on the disk, and the copy is dropped and given to no reader. Then
it is loaded again, not yet readable, and compared; only when it equals the source it becomes readable. Otherwise
it stays refused, over a restart too, until the comparison is not asked for any more.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from tdcs.model.agent_state import Check, CheckState, FailureCode, FileFailure
from tdcs.model.slots import SLOTS
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.blocks.check_run import CheckRun, Findings
from tdcs.node.agent.blocks.comparison import LANES, Comparison
from tdcs.node.agent.blocks.dropper import Dropper
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.mount_notes import MountNotes
from tdcs.node.agent.disk.partial_file import BusyError, DiskError
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import SourceFailureError

_log: Final = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
"""Attempts to read a file that the source does not give, before it is reported instead of compared."""
_AWAY_SECONDS: Final = 600.0
"""A source that gives nothing at all is waited for so long: its files are no worse for that, and nothing is counted."""
_ATTEMPTS_BY_CODE: Final[dict[FailureCode, int]] = {"Unreadable": 3}
"""A single file that cannot be read may be read a moment later; one that is missing stays so."""
_CHANGED_SECONDS: Final = 60.0
"""A source that has another version of files for a moment, as a cache in front of it may, is asked again for so long in
a comparison; then they are reported. The next listing of one that has changed brings another version to compare."""
_CHANGED_PAUSE: Final = 8.0
_DROP_SECONDS: Final = 600.0
_MOST_PAUSE: Final = 60.0
_POLL_SECONDS: Final = 0.5
_WRONG: Final = "it differs from the source, also after it was loaded again"
_NOT_DROPPED: Final = "it differs from the source, and cannot be dropped: the disk refuses"

Start = Callable[[str, Coroutine[Any, Any, Any]], object]


class Checker:
    """The comparisons of an agent, at most one for each mount. All calls in one event loop."""

    def __init__(self, *, disk: Disk, room: Room, dropper: Dropper, stopped: threading.Event) -> None:
        self._disk: Final = disk
        self._comparison: Final = Comparison(disk=disk, room=room, stopped=stopped)
        self._dropper: Final = dropper
        self._stopped: Final = stopped
        self._notes: Final = MountNotes(disk.checks, kind=Findings, durable=True)
        self._noting: Final = asyncio.Lock()
        self._runs: dict[str, CheckRun] = {}
        self._numbers: Final = itertools.count()
        self._findings: Final = {findings.mount: findings for findings in self._notes.read()}
        for identity in disk.refused.read():  # before anything is served
            disk.unspool(identity)

    def restore(self, mount: MountWork) -> None:
        mount.refuse(self._disk.refused.of(mount.path))
        findings = self._findings.get(mount.path)
        if findings is not None and findings.state.done:
            self._runs[mount.path] = CheckRun.ended(findings)

    def assign(self, mount: MountWork, check: Check | None) -> None:
        """Make this comparison; one that was made already stays as it is. With None what was found wrong may be brought
        again.
        """
        run = self._runs.get(mount.path)
        if check is None:
            self._runs.pop(mount.path, None)
            self._release_refused(mount)
        elif run is None or run.check != check:
            self._runs[mount.path] = CheckRun(check=check)

    def remove(self, mount: MountWork) -> None:
        self._runs.pop(mount.path, None)
        mount.admit(self._disk.refused.remove(mount.path))
        if self._findings.pop(mount.path, None) is not None:
            self._notes.remove(mount.path)

    def state(self, mount: str) -> CheckState | None:
        run = self._runs.get(mount)
        return run.state if run is not None else None

    def start(self, mount: MountWork, start: Start) -> bool:
        """Begin what is to be compared now; whether a comparison of this mount is not done."""
        run = self._runs.get(mount.path)
        if run is None and mount.assignment is not None and mount.assignment.check is None:
            self._release_refused(mount)
        if run is None or run.done or asyncio.get_running_loop().time() < run.until:
            return False
        if (
            not run.begun
            and mount.ledger is not None
            and mount.source.reader is not None
            and not mount.forgotten
        ):
            run.begin()
            # The number: one before it with the same id may not have ended yet.
            start(f"check {next(self._numbers)} of {mount.path}", self._run(mount, mount.ledger, run))
        return True

    def _release_refused(self, mount: MountWork) -> None:
        """Let refused blocks be brought again, as far as no wrong copy is here any more."""
        if self._noting.locked():  # `start` comes back to it
            return
        if self._findings.pop(mount.path, None) is not None:
            try:
                self._notes.remove(mount.path)
            except OSError as error:  # the next process takes it up, and forgets it again
                _log.warning("the note of what was compared of %s cannot be removed: %s", mount.path, error)
        if not (noted := self._disk.refused.of(mount.path)):
            return
        removed = {
            block
            for block in noted - mount.refused_here()
            if block in mount.refused or not self._disk.has(block)
        }
        if removed:
            mount.admit(self._disk.refused.discard(mount.path, removed))

    async def _run(self, mount: MountWork, ledger: Ledger, run: CheckRun) -> None:
        try:
            with mount.lock:
                blocks = ledger.chosen(slots=math.ceil(SLOTS * run.check.percent / 100), part=run.check.part)
            await self._lanes(mount, ledger, run, blocks, self._compare)
            if self._current(mount, ledger, run):
                with (
                    mount.lock
                ):  # those that an earlier comparison has found as well, of the files that are meant
                    again = ledger.refused_blocks(part=run.check.part)
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
            run.begun = run.done  # otherwise it is begun again

    async def _lanes(
        self,
        mount: MountWork,
        ledger: Ledger,
        run: CheckRun,
        blocks: list[int],
        action: Callable[[MountWork, Ledger, CheckRun, int], Coroutine[Any, Any, None]],
    ) -> None:
        """Do something with each of these blocks, several at a time. A source that fails is asked again."""
        waiting, clock = list(reversed(blocks)), asyncio.get_running_loop().time
        run.answered = clock()

        async def lane() -> None:
            attempts, failures, failed = 0, 0, clock()
            while waiting and self._current(mount, ledger, run):
                block = waiting.pop()
                try:
                    await action(mount, ledger, run, block)
                    run.answered = clock()
                except SourceFailureError as error:
                    if error.code == "Changed" and run.changed_for(clock()) < _CHANGED_SECONDS:
                        failures += 1
                        waiting.insert(0, block)  # the others first
                        await asyncio.sleep(pause(failures, most=_CHANGED_PAUSE))
                        continue
                    silent = error.code == "SourceAway" and run.answered <= failed
                    failed = clock()
                    away = silent and failed - run.answered < _AWAY_SECONDS
                    attempts, failures = attempts + (not away), failures + 1
                    if attempts < _ATTEMPTS_BY_CODE.get(error.code, _ATTEMPTS if error.common else 1):
                        waiting.append(block)
                        await asyncio.sleep(pause(failures, most=30.0))
                        continue
                    run.report(FileFailure(path=ledger.path(block), code=error.code, reason=str(error)))
                except BusyError:
                    waiting.insert(0, block)  # the others first
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
                except DiskError as error:
                    run.report(FileFailure(path=ledger.path(block), code="NoRoom", reason=str(error)))
                attempts = failures = 0

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
        is_equal = await self._comparison.same(mount.source, ledger, block)
        if is_equal is False and self._current(mount, ledger, run):
            identity = int(ledger.manifest.block_ids[block])
            mount.refuse((identity,))
            await self._refuse(mount, (identity,))
            await self._dropper.drop_block(mount, ledger, block)
        run.bytes += int(ledger.manifest.block_lengths[block])
        run.files += int(ledger.first_of_file(block))

    async def _refuse(self, mount: MountWork, blocks: Iterable[int]) -> None:
        """Have no reader be given these blocks, also after a restart."""
        try:
            await asyncio.to_thread(self._disk.refused.add, mount.path, blocks)
        except OSError as error:
            _log.warning("wrong blocks of %s cannot be noted on the disk: %s", mount.path, error)

    async def _note(self, mount: MountWork, run: CheckRun) -> None:
        """Keep on the disk what came of a comparison that has ended."""
        async with self._noting:
            # Again: the disk may have been full before the wrong copies were dropped.
            await self._refuse(mount, self._disk.refused.of(mount.path))
            findings = Findings(mount=mount.path, check=run.check, state=run.state)
            self._findings[mount.path] = findings
            try:
                await asyncio.to_thread(self._notes.write, findings)
            except OSError as error:
                _log.warning("what was compared of %s cannot be noted on the disk: %s", mount.path, error)

    async def _load_again(self, mount: MountWork, ledger: Ledger, run: CheckRun, block: int) -> None:
        """Bring a refused block again, and let it be read when it equals the source now."""
        reason = _NOT_DROPPED
        if await self._dropped(mount, ledger, run, block):
            reason = "" if await self._comparison.bring(mount, mount.source, ledger, block) else _WRONG
        if reason and self._current(mount, ledger, run):
            run.report(FileFailure(path=ledger.path(block), code="Wrong", reason=reason))

    async def _dropped(self, mount: MountWork, ledger: Ledger, run: CheckRun, block: int) -> bool:
        """Whether a refused block is gone; one that is claimed, or that the disk refuses to drop, is waited for."""
        clock = asyncio.get_running_loop().time
        while self._current(mount, ledger, run):
            with mount.lock:
                is_present = ledger.is_here(block) or ledger.in_work(block)
            if not is_present or await self._dropper.drop_block(mount, ledger, block):
                return True
            if clock() > run.drop_until:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return False
