"""Matches paths of a source with patterns as gitignore has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexPattern

from tdcs.model.file_selection import FileSelection

_FOLDERS_KEPT: Final = 4096


def matcher_of(selection: FileSelection) -> Callable[[bytes], bool]:
    """Says of a path whether it is taken. Not thread-safe: it remembers folders."""
    takes = _matching(selection.include) if selection.include else None
    leaves = _matching(selection.exclude) if selection.exclude else None

    granted = tuple(path.encode("utf-8", "surrogateescape") for path in selection.within)
    below = tuple(path + b"/" for path in granted)

    def is_taken(path: bytes) -> bool:
        if granted and path not in granted and not path.startswith(below):
            return False
        return (takes is None or takes(path)) and not (leaves is not None and leaves(path))

    return is_taken


def _matching(patterns: tuple[str, ...]) -> Callable[[bytes], bool]:
    quick: list[Any] = [_quick(pattern) for pattern in GitIgnoreSpec.from_lines(patterns).patterns]
    spec = GitIgnoreSpec(quick)

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


_STAR: Final = "[^/]*"
_ONE: Final = "[^/]"
_ANY_FOLDERS: Final = "(?:/.+)?"
_ANY_FOLDERS_FIRST: Final = "(?:.+/)?"
_ENDS: Final = ("(?:(?P<ps_d>/)|$)", "(?P<ps_d>/)")
_CLASS: Final = re.compile(r"\\.|(\[\^?\]?(?:\\.|[^\]\\])*\])", re.DOTALL)


def _quick(pattern: RegexPattern) -> RegexPattern:
    """A pattern of pathspec that takes the same paths, in a time that hardly depends on how many stars it has.

    pathspec's expressions try all places at which each star may end, which takes years for a dozen of them and a long
    name. The first place at which what follows a star matches is as good as any later one, though, up to the last star
    of a part between slashes; likewise for `**` and the parts up to the next one. So no other place is tried.
    """
    if pattern.regex is None:
        return pattern
    text = pattern.regex.pattern
    end = next((ending for ending in _ENDS if text.endswith(ending)), None)
    if end is None or not text.startswith("^"):
        return pattern  # a few fixed ones, such as that of `**`
    body = text[1 : -len(end)]
    gap = _ANY_FOLDERS_FIRST if body.startswith(_ANY_FOLDERS_FIRST) else ""
    *runs, last = (_quick_run(run) for run in body[len(gap) :].split(_ANY_FOLDERS))
    quick = ["^"]
    for run in runs:
        quick.append(f"(?>{_shortest(gap)}{run}(?=/))")
        gap = _ANY_FOLDERS
    expression = "".join((*quick, gap, last, end))
    return RegexPattern(re.compile(expression, pattern.regex.flags), pattern.include)


def _shortest(gap: str) -> str:
    """An optional number of folders, as few as possible."""
    return gap.replace("+", "+?").replace(")?", ")??")


def _quick_run(run: str) -> str:
    """Parts between slashes, without `**`."""
    # Zero bytes and the like are in no pattern.
    return "/".join(
        _quick_part(part) for part in run.replace(_STAR, "\0").replace(_ONE, "\1").split("/")
    ).replace("\1", _ONE)


def _quick_part(part: str) -> str:
    # A class such as [!a] has no slash, in gitignore: pathspec's would take one.
    first, *pieces = _CLASS.sub(lambda match: f"(?!/){match[0]}" if match[1] else match[0], part).split("\0")
    if not pieces:
        return first
    *middle, last = pieces
    return first + "".join(f"(?>{_STAR}?{piece})" for piece in middle if piece) + _STAR + last
