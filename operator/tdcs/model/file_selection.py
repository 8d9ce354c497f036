"""Which files of a source a Dataset has, by patterns as gitignore has them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from pathspec import GitIgnoreSpec

from tdcs.api.source_uri import FILER_FOLDERS, is_folder

INCLUDE: Final = "include"
EXCLUDE: Final = "exclude"
"""Among the options of a source: patterns, one a line."""
_FOLDERS_KEPT: Final = 4096


class FileSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns of paths below the source.

    Attributes:
        include: what is taken; empty: all.
        exclude: what is left out of that.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def matcher(self) -> Callable[[bytes], bool]:
        """Says of a path whether it is taken. Not thread-safe: it remembers folders."""
        takes = _matching(self.include) if self.include else None
        leaves = _matching(self.exclude) if self.exclude else None

        def is_taken(path: bytes) -> bool:
            return (takes is None or takes(path)) and not (leaves is not None and leaves(path))

        return is_taken


ALL_FILES: Final = FileSelection()


def selection_of(uri: str, options: Mapping[str, str]) -> FileSelection:
    """The files that a source's options select; where they exclude nothing of their own, a folder is taken without what
    file systems and filers keep in it for themselves."""
    excluded = options.get(EXCLUDE)
    if excluded is None:
        exclude = FILER_FOLDERS if is_folder(uri) else ()
    else:
        exclude = tuple(line for line in excluded.split("\n") if line)
    return FileSelection(
        include=tuple(line for line in options.get(INCLUDE, "").split("\n") if line), exclude=exclude
    )


def _matching(patterns: tuple[str, ...]) -> Callable[[bytes], bool]:
    spec = GitIgnoreSpec.from_lines(patterns)

    def matches(path: bytes) -> bool:
        return spec.match_file(path.decode("utf-8", "surrogateescape"))

    if not all(pattern.endswith("/") for pattern in patterns):
        return matches

    # Patterns of folders say the same of all files of a folder.
    @functools.lru_cache(_FOLDERS_KEPT)
    def folder_matches(folder: bytes) -> bool:
        return matches(folder + b"/file")

    def matches_by_folder(path: bytes) -> bool:
        folder, slash, _ = path.rpartition(b"/")
        return bool(slash) and folder_matches(folder)

    return matches_by_folder
