"""Gives files that were written completely their names, once their content is on the disk: many files, one sync.

A file without a name is seen by nobody, and removed when the process starts again. So whatever has a name after a loss
of power is whole. What is written goes on meanwhile: while one batch is synced the next one gathers.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tdcs.node.agent.disk.partial_file import DiskError, disk_error
from tdcs.node.agent.disk.shutdown_mark import ShutdownMark
from tdcs.node.file_facts import FactsStore, FileFacts

_log: Final = logging.getLogger(__name__)

MOST_BYTES: Final = 256 << 20
MOST_FILES: Final = 2048
"""Of files that wait for their names; whoever brings more waits."""
_FEW: Final = 2
"""Files up to which each is synced alone: a sync of the file system writes what others have written to it, too."""
_COVER_SECONDS: Final = 5.0
"""So old, while files come, or no younger than this after the last one, is what the mark says (`ShutdownMark`)."""
_IDLE_SECONDS: Final = 30.0
_libc: Final = ctypes.CDLL(None, use_errno=True)

Done = Callable[[DiskError | None], None]
"""Told that a file has its name now, or why it has none and is removed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A file that waits for its name, or a part of one.

    Attributes:
        note: takes the era of a part that is on the disk, which gets no name; raises OSError.
        discard: removes it; raises OSError.
    """

    path: str
    name: str
    facts: FileFacts
    done: Done
    discard: Callable[[], None]
    note: Callable[[int], None] | None = None


class FileNames:
    """Names the files of one disk, in a thread that runs while there are some.

    Args:
        folder: on the file system that is to be synced.
        facts: takes what files say of themselves.
    """

    def __init__(
        self,
        *,
        folder: Path,
        facts: FactsStore,
        mark: ShutdownMark,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder: Final = folder
        self._facts: Final = facts
        self._mark: Final = mark
        self._clock: Final = clock
        self._changed: Final = threading.Condition()
        self._waiting: list[WrittenFile] = []
        self._files = self._bytes = 0
        self._submitted = self._ended = 0
        self._thread: threading.Thread | None = None
        self._opened: int | None = None
        self._closed = False
        self._uncovered = False
        self._covered_at = clock()

    @property
    def crowded(self) -> bool:
        """Whether `add` would wait."""
        return self._files >= MOST_FILES or self._bytes >= MOST_BYTES

    def add(self, file: WrittenFile) -> None:
        """Have a file named; `file.done` is called in another thread. Waits while very much is to be synced.

        Raises:
            DiskError: The process ends: nothing is named any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self.crowded)
            if self._closed:
                raise DiskError("the agent ends")
            self._waiting.append(file)
            self._files += 1
            self._bytes += file.facts.length
            self._submitted += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="file-names", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self) -> None:
        """Until all files that were added before have their names, or none."""
        with self._changed:
            submitted = self._submitted
            self._changed.wait_for(lambda: self._ended >= submitted)

    def close(self, *, seconds: float) -> None:
        """Name what waits, for so long at most, and mark the store as shut down in order if that was all."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            ended = self._changed.wait_for(lambda: self._thread is None, timeout=seconds)
        if not ended:
            _log.warning(
                "files of %s wait for the disk still: the next start looks through the last ones",
                self._folder,
            )
            return
        try:
            if self._uncovered:
                self._sync_all()
            self._mark.close()
        except OSError as error:
            _log.warning("the store in %s is not marked as shut down in order: %s", self._folder, error)
        finally:
            if self._opened is not None:
                os.close(self._opened)
                self._opened = None

    # In the thread.

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._name_all(batch)
        except BaseException:
            _log.exception("files of %s are not named any more", self._folder)
            raise
        finally:
            self._end()

    def _next(self) -> list[WrittenFile] | None:
        """The files that wait; none when it is time to cover those that were named. None: there is no more to do."""
        with self._changed:
            pause = _COVER_SECONDS if self._uncovered else _IDLE_SECONDS
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed, timeout=pause)
            batch, self._waiting = self._waiting, []
            if not batch and (self._closed or not self._uncovered):
                self._end()
                return None
            return batch

    def _end(self) -> None:
        with self._changed:
            if self._thread is not threading.current_thread():
                return
            self._thread = None
            if self._opened is not None:
                os.close(self._opened)
                self._opened = None
            self._changed.notify_all()

    def _name_all(self, batch: list[WrittenFile]) -> None:
        covers = self._uncovered and (not batch or self._clock() - self._covered_at >= _COVER_SECONDS)
        era = self._mark.era + covers
        failure = self._write(batch, era=era, all_files=covers)
        if covers and failure is None:
            self._cover()
        for file in batch:
            error = failure or _name(file, era=era)
            if error is not None:
                with suppress(OSError):
                    file.discard()
            try:
                file.done(error)
            except Exception:
                _log.exception("nobody was told what became of %s", file.name)
        self._uncovered = self._uncovered or bool(batch)
        with self._changed:
            self._files -= len(batch)
            self._bytes -= sum(file.facts.length for file in batch)
            self._ended += len(batch)
            self._changed.notify_all()

    def _write(self, batch: list[WrittenFile], *, era: int, all_files: bool) -> DiskError | None:
        """Bring files to the disk with what they say of themselves; why that is not possible, or None.

        Args:
            all_files: sync all that was written to the file system, names included.
        """
        try:
            for file in batch:
                if file.note is None:
                    self._facts.write(file.path, file.facts._replace(era=era))
            if all_files or len(batch) > _FEW:
                self._sync_all()
            else:
                for file in batch:
                    _sync(file.path)
        except OSError as error:
            return disk_error(error)
        return None

    def _cover(self) -> None:
        """All files that were named before the last sync are on the disk."""
        try:
            self._mark.advance()
        except OSError as error:
            _log.warning("the mark of %s cannot be written: %s", self._folder, error)
        self._uncovered, self._covered_at = False, self._clock()

    def _sync_all(self) -> None:
        """Raises OSError, also for what the kernel could not write since the descriptor was opened."""
        if self._opened is None:
            self._opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if _libc.syncfs(self._opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _name(file: WrittenFile, *, era: int) -> DiskError | None:
    try:
        if file.note is not None:
            file.note(era)
        else:
            os.rename(file.path, file.name)
    except OSError as error:
        return disk_error(error)
    return None


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
