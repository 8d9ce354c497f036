"""Which files of a source a Dataset has, by patterns as gitignore has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tdcs.api.source_uri import FILER_FOLDERS, is_claim, is_folder

INCLUDE: Final = "include"
EXCLUDE: Final = "exclude"
"""Among the options of a source: patterns, one a line."""
WITHIN: Final = "within"
"""Among the options of a source: granted paths, one a line."""


class FileSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns of paths below the source.

    Attributes:
        include: what is taken; empty: all.
        exclude: what is left out of that.
        within: paths of folders and files outside of which nothing is taken, whatever the patterns say; empty: all.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    within: tuple[str, ...] = ()


def selection_of(uri: str, options: Mapping[str, str]) -> FileSelection:
    """The files that a source's options select; where they exclude nothing of their own, a folder is taken without what
    file systems and filers keep in it for themselves."""
    excluded = options.get(EXCLUDE)
    if excluded is None:
        exclude = FILER_FOLDERS if is_folder(uri) or is_claim(uri) else ()
    else:
        exclude = tuple(line for line in excluded.split("\n") if line)
    return FileSelection(
        include=tuple(line for line in options.get(INCLUDE, "").split("\n") if line),
        exclude=exclude,
        within=tuple(line for line in options.get(WITHIN, "").split("\n") if line),
    )
