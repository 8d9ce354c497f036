"""The source of a mount as this agent reads it: how it is reached, how it answers, and when it is given a pause."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from tdcs.api.source_uri import parse_source_uri
from tdcs.model.agent_state import FileFailure, SourceAccess
from tdcs.node.agent.backoff import FIRST_SECONDS, pause
from tdcs.node.agent.mount.bucket_source import BucketReader
from tdcs.node.agent.mount.folder_source import FolderReader
from tdcs.node.agent.mount.peer_health import Patience
from tdcs.node.agent.mount.rate import Rate
from tdcs.node.agent.mount.source_pieces import SourceFailureError, SourceReader
from tdcs.node.agent.mount.transfer_limits import RateLimit
from tdcs.node.agent.mount.unanswered import UnansweredReads


def open_source(access: SourceAccess) -> SourceReader:
    """A reader of this source; raises SourceFailureError when its address makes no sense."""
    try:
        source = parse_source_uri(access.uri)
        return FolderReader(source.folder) if source.scheme == "file" else BucketReader(access, source)
    except ValueError as error:
        raise SourceFailureError("SourceAway", f"this agent cannot read the source: {error}") from error


_log: Final = logging.getLogger(__name__)

_REFUSALS: Final = 32
"""Files that the source refuses in a row before it is given a pause as a whole."""

_MOST_PAUSE: Final = 60.0


class SourceState:
    """The source of one mount. Whoever changes it holds the mount's lock; `answered` takes it, and `bytes` needs none.

    Attributes:
        reader: reads it; None: there is none, or it cannot be opened.
        limit: of what is read.
        bytes: what came from it.
        pieces_waiting: pieces of large blocks under way that no thread reads yet.
        until: reading rests until then.
        failures: how often it failed since it last answered.
        failure: why nothing can be had from it, for the operator.
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
        self.limit: Final = RateLimit()
        self.bytes: Final = Rate()
        self.lanes = 0
        self.pieces_waiting = 0
        self.until = 0.0
        self.failures = 0
        self.failure: FileFailure | None = None
        self.unanswered = UnansweredReads(away_seconds=patience.away)

    def assign(self, access: SourceAccess | None) -> bool:
        """Read by these credentials from now on; whether they are others than before."""
        if access == self._access:
            return False
        self._access, self.reader = access, None
        self.failures, self.until, self.failure = 0, 0.0, None
        self.unanswered = UnansweredReads(away_seconds=self._patience.away)
        try:
            self.reader = open_source(access) if access is not None else None
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
            if self.failures or self.failure is not None:
                self.failures, self.failure = 0, None
                # A short pause stays: a source that throttles answers some requests all the time.
                self.until = min(self.until, now + FIRST_SECONDS)

    def refused(self) -> None:
        """It refused a file for a reason that others may share."""
        now = self._clock()
        if now < self.until:
            return
        self.failures += 1
        if self.failures % _REFUSALS == 0:
            # All files, or many single ones? Go on slowly, so that those that can be had are found.
            most = self._patience.refused
            self.until = now + pause(self.failures // _REFUSALS, first=min(1.0, most), most=most)

    def silent(self, identity: int, error: SourceFailureError, *, path: str) -> bool:
        """It did not answer for a block of the file at a path; whether that is for the block alone."""
        now = self._clock()
        alone = self.unanswered.note(identity, now=now)
        if alone:
            self.unanswered.ended(identity)
        if self.unanswered.away(now=now):
            self.failure = FileFailure(path=path, code=error.code, reason=str(error))
        if error.common and now >= self.until:
            self.failures += 1
            self.until = now + pause(self.failures, most=_MOST_PAUSE)
        return alone

    def lanes_wanted(self, ready: int) -> int:
        """Threads that should read now besides those that do, when so many blocks can be read."""
        if self.reader is None:
            return 0
        most = 1 if self.failures else self.reader.lanes
        return max(0, min(most - self.lanes, ready + self.pieces_waiting))
