"""Pieces of files at a source, what reads them, and why one cannot be had.

What comes is of the version that was listed: a file's tag of the listing goes with each request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from tdcs.decide.store_refusal import BUSY_STATUSES
from tdcs.model.agent_state import FailureCode
from tdcs.model.file_ids import content_hash

_TIME_TAG: Final = "mtime-ms"


class Extent(NamedTuple):
    """A piece of a file at its source: `length` bytes from `offset`, of a file that has `size` and `tag`."""

    path: bytes
    offset: int
    length: int
    size: int
    tag: str


class SourceFailureError(Exception):
    """A piece cannot be had.

    Attributes:
        code: why, for the operator.
        common: it concerns the source as a whole as a rule, not the one file.
        certain: it is known to concern all of it: no time must pass before that is said.
        busy: the source is asked for too much, or says nothing in time: it never means that the file cannot be read.
    """

    def __init__(
        self,
        code: FailureCode,
        reason: str,
        *,
        common: bool = False,
        certain: bool = False,
        busy: bool = False,
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.common = common
        self.certain = certain
        self.busy = busy


def unanswered(reason: str, *, status: int = 0) -> SourceFailureError:
    """The failure of a request that got no answer (status 0), or one that says nothing of the file."""
    return SourceFailureError("SourceAway", reason, common=True, busy=not status or status in BUSY_STATUSES)


Write = Callable[[memoryview], None]
"""Takes the bytes of a piece, in order."""


class SourceReader(Protocol):
    """Reads one source. Thread-safe."""

    lanes: int
    """Pieces that are read at the same time with profit."""

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece, all of it; raises SourceFailureError. What was written before that is worth nothing."""
        ...


def listed_time(tag: str) -> int | None:
    """The time of the last change in milliseconds, where that is a file's tag."""
    kind, _, time = tag.partition(":")
    return int(time) if kind == _TIME_TAG and time.lstrip("-").isdecimal() else None


class ContentCheck:
    """Compares the content of a whole file with the hash that its tag has, where it has one.

    Args:
        extent: of which the bytes come; of a part of a file nothing is compared.
    """

    def __init__(self, extent: Extent) -> None:
        self._expected: Final = content_hash(extent.tag) if extent.length == extent.size else ""
        self._state: Final = hashlib.sha256()

    @property
    def is_due(self) -> bool:
        return bool(self._expected)

    def add(self, data: memoryview | bytes) -> None:
        if self._expected:
            self._state.update(data)

    def finish(self) -> None:
        """All bytes were added; raises SourceFailureError when they are other ones."""
        if self._expected and self._state.hexdigest() != self._expected:
            raise changed("its content has another SHA-256 than the list says")


def changed(how: str) -> SourceFailureError:
    """The failure of a file that is another one by now."""
    return SourceFailureError("Changed", f"its file has changed at the source since it was listed: {how}")
