"""How many files, folders and bytes a source may have, counted while it is listed, so that a listing ends where the
limit is.
"""

from typing import Final, NamedTuple, Protocol

import msgspec

from tdcs.model.cache_engine import LimitExceededError, Source
from tdcs.model.file_blocks import NO_LARGE_FILE, LargeFile, block_count
from tdcs.model.file_folders import LONG_PATH

_LONGEST_NAME: Final = 200
"""Characters of a file's name in a message."""

LARGEST_MANIFEST: Final = 64 << 30
"""Bytes that no manifest exceeds, whatever a cache may list."""


class ManifestBound(NamedTuple):
    """No manifest of more than so many bytes is taken, and why, for people."""

    bytes: int
    why: str


ANY_MANIFEST: Final = ManifestBound(LARGEST_MANIFEST, "no manifest has more")


class SourcesSize(msgspec.Struct, frozen=True, kw_only=True):
    """Files and bytes of sources, as far as these have been counted or listed.

    Attributes:
        files: these and their folders, as limits count them, see `ListingLimit`.
        folders: how many of these the folders are.
        bytes: of all files together.
        largest: the one that counts the most, if that is more than once.
    """

    files: int = 0
    folders: int = 0
    bytes: int = 0
    largest: LargeFile = NO_LARGE_FILE


class ListingLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What one listing may give.

    Attributes:
        files: at most so many files and folders, which count as often as `block_count` and `folder_count` say.
        bytes: of all files together; None: any.
        files_field: where the number of files was set, for people: a field of a CacheCluster.
        bytes_field: the same of the bytes.
    """

    files: int
    bytes: int | None = None
    files_field: str = "spec.limits"
    bytes_field: str = "spec.limits.bytesPerDataset"

    def exceeds(self, other: "ListingLimit") -> bool:
        """Whether it allows more files, or more bytes, than another limit."""
        return self.files > other.files or (
            other.bytes is not None and (self.bytes is None or self.bytes > other.bytes)
        )


class CheckSize(Protocol):
    """Counts a source before a cache learns its names, as far as the limit."""

    async def __call__(
        self, source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
    ) -> SourcesSize | None:
        """What it has, all of it; None where nobody can count it.

        Args:
            source: with its keys.

        Raises:
            LimitExceededError: It has more than the limit.
            EngineError: It could not be counted to its end, which says nothing of what it has.
        """
        ...


async def uncounted(
    source: Source, limit: ListingLimit, *, path: str, namespace: str = ""
) -> SourcesSize | None:
    """`CheckSize` for a cache without real sources."""
    return None


class LimitCount:
    """Counts what comes of a listing.

    Args:
        limit: None: nothing is too much.
        subject: what is listed, for the message.
        path: its place in the cache, likewise.

    Attributes:
        files: all, and their folders, as limits count them.
    """

    def __init__(self, limit: ListingLimit | None, *, subject: str, path: str) -> None:
        self._limit = limit
        self._subject = subject
        self.path = path
        self.files = 0
        self.bytes = 0
        self._folders = 0
        self._largest = NO_LARGE_FILE

    @property
    def size(self) -> SourcesSize:
        return SourcesSize(files=self.files, folders=self._folders, bytes=self.bytes, largest=self._largest)

    def add(self, *, files: int, size: int, folders: int = 0, largest: LargeFile = NO_LARGE_FILE) -> None:
        """Count further files with so many bytes together; raises LimitExceededError beyond the limit.

        A manifest has the path of a folder as it has a file's name, so both are counted together.

        Args:
            files: as limits count them.
            size: bytes of all.
            folders: further ones, as limits count them.
        """
        self.files += files + folders
        self.bytes += size
        self._folders += folders
        self._largest = max(self._largest, largest)
        limit = self._limit
        if limit is None:
            return
        if self.files > limit.files:
            unit = "files and folders" if self._folders else "files"
            raise self._error(f"it has more than {limit.files} {unit}{self._why()}", limit.files_field)
        if limit.bytes is not None and self.bytes > limit.bytes:
            raise self._error(f"its files have more than {limit.bytes} bytes", limit.bytes_field)

    def add_size(self, size: SourcesSize) -> None:
        """Count a source that has been counted; raises LimitExceededError."""
        files = size.files - size.folders
        self.add(files=files, size=size.bytes, folders=size.folders, largest=size.largest)

    def _why(self) -> str:
        """How there can be more than people see, when there are folders or a large file."""
        reasons = []
        if self._folders:
            more = f"once more for every {LONG_PATH} bytes of its path"
            reasons.append(f"each folder counts once, and {more}, {self._folders} so far")
        if self._largest.size:
            name = repr(self._largest.name[:_LONGEST_NAME]) if self._largest.name else "one"
            size, times = self._largest.size, block_count(self._largest.size)
            reasons.append(f"each file counts once for every GiB of it, {name} of {size} bytes as {times}")
        return f", of which {', and '.join(reasons)}" if reasons else ""

    def _error(self, reason: str, field: str) -> LimitExceededError:
        return LimitExceededError(
            attempted=f"list {self._subject}",
            reason=f"{reason}: {field}",
            remedy="Name a folder with less in spec.source.uri, pack small files together, give them names with fewer "
            "folders, or ask the administrator of the CacheCluster for a higher limit",
            path=self.path,
        )
