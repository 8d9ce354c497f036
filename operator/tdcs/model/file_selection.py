"""Which files of a source a Dataset has, by patterns as gitignore has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexPattern

from tdcs.api.source_uri import FILER_FOLDERS, is_folder

INCLUDE: Final = "include"
EXCLUDE: Final = "exclude"
"""Among the options of a source: patterns, one a line."""
WITHIN: Final = "within"
"""Among the options of a source: granted paths, one a line."""
_FOLDERS_KEPT: Final = 4096


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

    def matcher(self) -> Callable[[bytes], bool]:
        """Says of a path whether it is taken. Not thread-safe: it remembers folders."""
        takes = _matching(self.include) if self.include else None
        leaves = _matching(self.exclude) if self.exclude else None

        granted = tuple(path.encode("utf-8", "surrogateescape") for path in self.within)
        below = tuple(path + b"/" for path in granted)

        def is_taken(path: bytes) -> bool:
            if granted and path not in granted and not path.startswith(below):
                return False
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
        include=tuple(line for line in options.get(INCLUDE, "").split("\n") if line),
        exclude=exclude,
        within=tuple(line for line in options.get(WITHIN, "").split("\n") if line),
    )


def _matching(patterns: tuple[str, ...]) -> Callable[[bytes], bool]:
    quick: list[Any] = [_quick(each) for each in GitIgnoreSpec.from_lines(patterns).patterns]
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
    end = next((each for each in _ENDS if text.endswith(each)), None)
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
    first, *rest = _CLASS.sub(lambda found: f"(?!/){found[0]}" if found[1] else found[0], part).split("\0")
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>{_STAR}?{each})" for each in middle if each) + _STAR + last
