"""The source of a mount as this agent reads it: how it is reached, how it answers, and when it is given a pause."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from tdcs.api.source_uri import CLAIM_SCHEME, CLOUD_SCHEMES, WEB_SCHEMES, parse_source_uri
from tdcs.engine.confined_path import open_beneath, open_plain_folder
from tdcs.model.agent_state import FileFailure, SourceAccess
from tdcs.node.agent.backoff import FIRST_SECONDS, pause
from tdcs.node.agent.mount.bucket_source import BucketReader
from tdcs.node.agent.mount.cloud_source import CloudReader
from tdcs.node.agent.mount.peer_book import Patience
from tdcs.node.agent.mount.request_window import PatientReader, RequestWindow
from tdcs.node.agent.mount.source_pieces import (
    Extent,
    SourceFailureError,
    SourceReader,
    Write,
    changed,
    listed_time,
    unanswered,
)
from tdcs.node.agent.mount.transfer_limits import Rate, RateLimit
from tdcs.node.agent.mount.web_source import WebReader

_log: Final = logging.getLogger(__name__)


_CHUNK: Final = 1 << 20
_NAMES_REFUSED: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})
_AWAY: Final = frozenset({errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENXIO})


class FolderReader:
    """A folder that this node sees under its own path. No link leads out of it, and none to it."""

    lanes = 4

    def __init__(self, folder: str) -> None:
        self._folder: Final = os.fsencode(folder.rstrip("/") or "/")

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of a file that has the listed length and time, before and after.

        A network file system may say of an open file what it knew of it before, for up to a minute. It asks its server
        when a file is opened, so the file is opened once more for what it is afterwards.
        """
        try:
            file = self._open(extent.path)
            try:
                _compare(os.fstat(file), extent)
                remaining, at = extent.length, extent.offset
                while remaining:
                    data = os.pread(file, min(remaining, _CHUNK), at)
                    if not data:
                        raise SourceFailureError("Changed", "the file became shorter while it was read")
                    write(memoryview(data))
                    remaining -= len(data)
                    at += len(data)
            finally:
                os.close(file)
            again = self._open(extent.path)
            try:
                _compare(os.fstat(again), extent)
            finally:
                os.close(again)
        except OSError as error:
            raise self._failure(error) from error

    def _open(self, path: bytes) -> int:
        folder = open_plain_folder(self._folder)
        try:
            return open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK, links=True)
        finally:
            os.close(folder)

    def _failure(self, error: OSError) -> SourceFailureError:
        reason = error.strerror or type(error).__name__
        if error.errno in (errno.ELOOP, errno.EXDEV):
            return SourceFailureError("Denied", "it is a symbolic link that leads out of the source's folder")
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            if away := self._why_away():
                return SourceFailureError("SourceAway", away, common=True, certain=True, busy=True)
            return SourceFailureError("Missing", "the file is not at the source any more")
        if error.errno in (errno.EACCES, errno.EPERM):
            return SourceFailureError(
                "Denied",
                f"the source refuses to give the file to user {os.geteuid()}: {reason}; see spec.folderAccess of the "
                "CacheCluster",
            )
        if error.errno in _NAMES_REFUSED:
            return SourceFailureError("BadName", f"the source refuses the file's name: {reason}")
        if error.errno in _AWAY:
            return unanswered(f"the source does not answer: {reason}")
        if error.errno == errno.EIO:  # of a disk, or of a server that a soft mount waits for no longer
            return SourceFailureError("SourceAway", f"the file cannot be read: {reason}", common=True)
        return SourceFailureError("Unreadable", f"the file cannot be read: {reason}")

    def _why_away(self) -> str:
        """Why no file of the folder is there, if that says nothing of the files: what is not mounted on a node is an
        empty folder there, which has none of the files that were listed."""
        try:
            with os.scandir(self._folder) as entries:
                if next(entries, None) is not None:
                    return ""
        except NotADirectoryError:
            return "the source's folder is no folder on this node"
        except OSError as error:
            return f"the source's folder is away on this node: {error.strerror}"
        return "the source's folder is empty on this node: see whether it is mounted there"


def _compare(status: os.stat_result, extent: Extent) -> None:
    if status.st_size != extent.size:
        raise changed(f"it has {status.st_size} bytes, and had {extent.size}")
    listed = listed_time(extent.tag)
    if listed is not None and status.st_mtime_ns // 1_000_000 != listed:
        raise changed("its time is another one")


TRIES: Final = 4
"""A block that gets no answer so often, while the source answers for others, cannot be read."""


class UnansweredReads:
    """What a source did not answer lately: whether it is away, or a single file cannot be read there. Not thread-safe.

    No I/O and no clock: times are seconds that only grow, given by the caller. A block is known by its id.

    Args:
        away_seconds: a source that answers nothing for so long is away.
    """

    def __init__(self, *, away_seconds: float) -> None:
        self._away_seconds: Final = away_seconds
        self._tries: dict[int, tuple[int, float]] = {}
        self._answered_at = float("-inf")
        self._silent_since: float | None = None

    def answered(self, *, now: float) -> None:
        if self.away(now=now):
            self._tries.clear()  # what it did not answer while it was away says nothing of single files
        self._answered_at, self._silent_since = now, None

    def note(self, block: int, *, now: float) -> bool:
        """A read of a block got no answer; whether that is for the block alone, by what was answered meanwhile."""
        tries, since = self._tries.get(block, (0, now))
        self._tries[block] = (tries + 1, since)
        if self._silent_since is None:
            self._silent_since = now
        return tries + 1 >= TRIES and self._answered_at >= since

    @property
    def silent(self) -> bool:
        """Whether nothing was answered since a read got no answer."""
        return self._silent_since is not None

    def doubtful(self, block: int) -> bool:
        """Whether a block was tried again in vain, and nothing was answered since: nothing else may be asked for."""
        return self._silent_since is not None and self._tries.get(block, (0, 0.0))[0] > 1

    def ended(self, block: int) -> None:
        """A block was brought, or is known not to be readable."""
        self._tries.pop(block, None)

    def away(self, *, now: float) -> bool:
        """Whether the source has answered nothing for long enough to say so."""
        return self._silent_since is not None and now - self._silent_since >= self._away_seconds


_IN_A_ROW: Final = 8
"""Files that a source refuses in a row before it is taken to refuse all, as long as nothing shows that it does not."""
_MOST_IN_A_ROW: Final = 1 << 14
_FIRST_PROBE: Final = 0.25
"""Seconds after which one that refuses all is asked for another file."""


class RefusedReads:
    """What a source refused in a row: single files, or all of them. Not thread-safe.

    Each time that a source gives something again after it was taken to refuse all, it takes twice as many refusals to
    think so again: a source of which many single files are refused is soon read at its full rate.

    Attributes:
        blocks: that were refused since something came, by their numbers in the manifest.
    """

    def __init__(self) -> None:
        self._most = _IN_A_ROW
        self.blocks: list[int] = []

    def note(self, block: int) -> None:
        if not self.full:
            self.blocks.append(block)

    @property
    def full(self) -> bool:
        """Whether so many were refused that it may be all of them."""
        return len(self.blocks) >= self._most

    def answered(self) -> None:
        """Something came."""
        if self.full:
            self._most = min(2 * self._most, _MOST_IN_A_ROW)
        self.blocks.clear()


_MOST_PAUSE: Final = 60.0
_NAMED: Final = 50
"""Slow files that are named."""


def open_source(access: SourceAccess) -> SourceReader:
    """A reader of this source; raises SourceFailureError when its address makes no sense."""
    try:
        source = parse_source_uri(access.uri)
        if source.scheme == "file":
            return FolderReader(source.folder)
        if source.scheme in CLOUD_SCHEMES:
            return CloudReader(access, source)
        is_served = source.scheme in WEB_SCHEMES or source.scheme == CLAIM_SCHEME
        return WebReader(access) if is_served else BucketReader(access, source)
    except ValueError as error:
        raise SourceFailureError("SourceAway", f"this agent cannot read the source: {error}") from error


class SourceState:
    """The source of one mount. Whoever changes it holds the mount's lock; `answered` takes it, and `bytes` needs none.

    Attributes:
        reader: reads it; None: there is none, or it cannot be opened.
        demand_reader: the same for what programs wait for.
        window: how many requests are made at the same time.
        limit: of what is read.
        bytes: what came from it.
        pieces_waiting: pieces of large blocks under way that no thread reads yet.
        until: reading rests until then.
        failures: how often it failed since it last answered.
        failure: why nothing can be had from it, for the operator.
        refused: what it refused in a row.
        refuses_all: whether it is taken to refuse every file: it is asked for one now and then.
        slow: files that get no answer while others do, by the ids of blocks: they are tried again, and are not failed.
    """

    def __init__(
        self, *, path: str, patience: Patience, lock: threading.RLock, clock: Callable[[], float]
    ) -> None:
        self._path: Final = path
        self._lock: Final = lock
        self._clock: Final = clock
        self._patience: Final = patience
        self._access: SourceAccess | None = None
        self.reader: SourceReader | None = None
        self.demand_reader: SourceReader | None = None
        self.limit: Final = RateLimit()
        self.bytes: Final = Rate()
        self.lanes = 0
        self.pieces_waiting = 0
        self.until = 0.0
        self.failures = 0
        self.failure: FileFailure | None = None
        self.slow: Final[dict[int, FileFailure]] = {}
        self.unanswered = UnansweredReads(away_seconds=patience.away)
        self.refused = RefusedReads()
        self.refuses_all = False
        self.window = RequestWindow(1)

    def assign(self, access: SourceAccess | None) -> bool:
        """Read by these credentials from now on; whether they are others than before."""
        if access == self._access:
            return False
        self._access, self.reader, self.demand_reader = access, None, None
        self.failures, self.until, self.failure = 0, 0.0, None
        self.refused, self.refuses_all = RefusedReads(), False
        self.slow.clear()
        self.unanswered = UnansweredReads(away_seconds=self._patience.away)
        try:
            if access is not None:
                self.read_by(open_source(access))
        except (SourceFailureError, ValueError) as error:
            _log.warning("the source of %s cannot be opened: %s", self._path, error)
            self.failure = FileFailure(path="", code="SourceAway", reason=str(error))
        return True

    def answered(self, length: int) -> None:
        """A piece came from it; 0 bytes: it answered for a file that was not to be brought."""
        self.bytes.add(length)
        with self._lock:
            if self.reader is None:  # it cannot be opened, or not be had: another one was read before
                return
            now = self._clock()
            self.unanswered.answered(now=now)
            self.refused.answered()
            self.refuses_all = False
            if self.failures or self.failure is not None:
                self.failures, self.failure = 0, None
                # A short pause stays: a source that throttles answers some requests all the time.
                self.until = min(self.until, now + FIRST_SECONDS)

    def refuse_all(self, error: SourceFailureError, *, path: str) -> None:
        """It is taken to refuse every file, the one at this path the last: it rests, and is asked for another one after
        a pause that grows."""
        now = self._clock()
        if not self.refuses_all:
            self.refuses_all, self.failures = True, 0
            reason = f"the source refuses one file after the other: {error}"
            self.failure = FileFailure(path=path, code=error.code, reason=reason)
        if now >= self.until:
            self.failures += 1
            most = self._patience.refused
            self.until = now + pause(self.failures, first=min(_FIRST_PROBE, most), most=most)

    def read_by(self, reader: SourceReader) -> None:
        """Read by this reader from now on, within a window of its own."""
        self.window = RequestWindow(reader.lanes, refusals=self.window.refusals)
        self.reader = PatientReader(reader, self.window)
        self.demand_reader = PatientReader(reader, self.window, demand=True)

    def unanswered_block(self, identity: int, error: SourceFailureError, *, path: str) -> bool:
        """It did not answer for a block of the file at a path; whether that is for the block alone."""
        now = self._clock()
        was_silent = self.unanswered.silent
        alone = self.unanswered.note(identity, now=now)
        if alone and error.busy:
            # It may take longer than it is given, or be asked for too much: that is no fault of the file.
            if identity in self.slow or len(self.slow) < _NAMED:
                reason = f"the source answers for other files, and not for this one yet: {error}"
                self.slow[identity] = FileFailure(path=path, code=error.code, reason=reason)
        elif alone:
            self.ended(identity)
        if error.certain or self.unanswered.away(now=now):
            self.failure = FileFailure(path=path, code=error.code, reason=str(error))
        # One that throttles answers others all the time, and is asked for less by its window.
        if error.common and was_silent and now >= self.until:
            self.failures += 1
            self.until = now + pause(self.failures, most=_MOST_PAUSE)
        return alone and not error.busy

    def ended(self, identity: int) -> None:
        """A block was brought, or is known not to be readable."""
        self.unanswered.ended(identity)
        self.slow.pop(identity, None)

    def lanes_wanted(self, ready: int) -> int:
        """Threads that should read now besides those that do, when so many blocks can be read."""
        if self.reader is None:
            return 0
        most = 1 if self.refuses_all else min(self.reader.lanes, self.window.size)
        return max(0, min(most - self.lanes, ready + self.pieces_waiting))
