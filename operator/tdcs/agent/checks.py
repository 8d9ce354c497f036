"""Compares what lies on the disk with the source; what differs is dropped, loaded again once, and compared again."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import xxhash

from tdcs.agent.backoff import pause
from tdcs.agent.disk import Disk, hash_of
from tdcs.agent.ledger import Ledger
from tdcs.agent.mount import MountWork
from tdcs.agent.registrar import Registrar
from tdcs.agent.source import SourceFailureError
from tdcs.agent.source_carrier import PIECE_BYTES, extent_of
from tdcs.engine.agents import Check, CheckState, FailureCode, FileFailure
from tdcs.policy.slots import SLOTS

LANES: Final = 4
NAMED: Final = 50
"""Files that differ again that are named; the others are counted."""

_ATTEMPTS: Final = 5
"""Attempts to read a file that the source does not give, before it is reported instead of compared."""
_ATTEMPTS_BY_CODE: Final[dict[FailureCode, int]] = {"Unreadable": 3}
"""A single file that cannot be read may be read a moment later; one that is missing stays so."""
_RELOAD_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5

Start = Callable[[str, Coroutine[Any, Any, Any]], None]


@dataclass
class CheckRun:
    """One comparison."""

    check: Check
    begun: bool = False
    done: bool = False
    files: int = 0
    bytes: int = 0
    wrong_count: int = 0
    wrong: list[FileFailure] = field(default_factory=list)

    def report(self, failure: FileFailure) -> None:
        """A file differs, or cannot be compared."""
        self.wrong_count += 1
        if len(self.wrong) < NAMED:
            self.wrong.append(failure)


class Checker:
    """The comparisons of an agent, at most one for each mount.

    Args:
        disk: where the blocks lie.
        registrar: removes those that differ.
        stopped: set when the process ends.
    """

    def __init__(self, *, disk: Disk, registrar: Registrar, stopped: threading.Event) -> None:
        self._disk: Final = disk
        self._registrar: Final = registrar
        self._stopped: Final = stopped
        self._runs: dict[str, CheckRun] = {}
        self._threads: ThreadPoolExecutor | None = None

    def assign(self, mount: str, check: Check | None) -> None:
        """Make this comparison; one with an id that was made already stays as it is."""
        if check is None:
            self._runs.pop(mount, None)
        elif mount not in self._runs or self._runs[mount].check != check:
            self._runs[mount] = CheckRun(check=check)

    def state(self, mount: str) -> CheckState | None:
        """How far the comparison of a mount is."""
        run = self._runs.get(mount)
        if run is None:
            return None
        return CheckState(
            id=run.check.id,
            done=run.done,
            files=run.files,
            bytes=run.bytes,
            wrong=tuple(run.wrong),
            wrong_count=run.wrong_count,
        )

    def start(self, mount: MountWork, start: Start) -> bool:
        """Begin what is to be compared now; whether a comparison of this mount is not done."""
        run = self._runs.get(mount.path)
        if run is None or run.done:
            return False
        if not run.begun and mount.ledger is not None and mount.source is not None and not mount.forgotten:
            run.begun = True
            start(f"check {mount.path} {run.check.id}", self._run(mount, mount.ledger, run))
        return True

    async def _run(self, mount: MountWork, ledger: Ledger, run: CheckRun) -> None:
        try:
            with mount.lock:
                blocks = ledger.chosen(slots=math.ceil(SLOTS * run.check.percent / 100), part=run.check.part)
            suspects = await self._compared(mount, ledger, run, blocks)
            if suspects:
                await self._load_again(mount, ledger, run, suspects)
                for block in await self._compared(mount, ledger, run, suspects, again=True):
                    reason = "it differs from the source, also after it was loaded again"
                    run.report(FileFailure(path=ledger.path(block), code="Wrong", reason=reason))
            run.done = True
        finally:
            run.begun = run.done  # otherwise it is begun anew

    async def _compared(
        self, mount: MountWork, ledger: Ledger, run: CheckRun, blocks: list[int], *, again: bool = False
    ) -> list[int]:
        """Compare blocks, several at a time; those that differ."""
        waiting, suspects = list(reversed(blocks)), []
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="check")
        loop = asyncio.get_running_loop()

        async def lane() -> None:
            attempts = 0
            while waiting and self._current(mount, ledger, run):
                block = waiting.pop()
                try:
                    same = await loop.run_in_executor(self._threads, self._same, mount, ledger, block)
                except SourceFailureError as error:
                    attempts += 1
                    if attempts < _ATTEMPTS_BY_CODE.get(error.code, _ATTEMPTS if error.common else 1):
                        waiting.append(block)
                        await asyncio.sleep(pause(attempts, most=30.0))
                    else:
                        attempts = 0
                        run.report(FileFailure(path=ledger.path(block), code=error.code, reason=str(error)))
                    continue
                attempts = 0
                if same is False:
                    suspects.append(block)
                if not again:
                    run.bytes += int(ledger.manifest.block_lengths[block])
                    run.files += int(ledger.first_of_file(block))

        await asyncio.gather(*(lane() for _ in range(LANES)))
        return sorted(suspects)

    def _current(self, mount: MountWork, ledger: Ledger, run: CheckRun) -> bool:
        return (
            not self._stopped.is_set()
            and mount.ledger is ledger
            and self._runs.get(mount.path) is run
            and not mount.forgotten
        )

    def _same(self, mount: MountWork, ledger: Ledger, block: int) -> bool | None:
        """Whether a block equals the source; None when it is not here any more. In a thread."""
        source = mount.source
        if source is None:
            raise SourceFailureError("SourceAway", "the source's credentials are not to be had", common=True)
        length = int(ledger.manifest.block_lengths[block])
        file = self._disk.open(int(ledger.manifest.block_ids[block]))
        if file is None:
            return None
        try:
            if os.fstat(file).st_size != length:
                return False
            state = xxhash.xxh3_64()
            for offset in range(0, length, PIECE_BYTES):
                piece = min(PIECE_BYTES, length - offset)
                if delay := mount.limit.take(piece):
                    self._stopped.wait(delay)
                source.read(extent_of(ledger, block, offset=offset, length=piece), state.update)
                mount.source_answered(piece)
            return state.intdigest() == hash_of(file, offset=0, length=length)
        finally:
            os.close(file)

    async def _load_again(self, mount: MountWork, ledger: Ledger, run: CheckRun, blocks: list[int]) -> None:
        with mount.lock:
            for block in blocks:
                ledger.from_source_instead(block)
        left = set(blocks)
        with suppress(TimeoutError):  # what could not be loaded again is compared as it is
            async with asyncio.timeout(_RELOAD_SECONDS):
                while self._current(mount, ledger, run):
                    if left:  # some may be open, or claimed by a registration
                        left -= await self._registrar.drop_blocks(mount, ledger, sorted(left))
                    with mount.lock:
                        awaited = ledger.awaited(blocks)
                    if not left and not awaited:
                        return
                    await asyncio.sleep(_POLL_SECONDS)
