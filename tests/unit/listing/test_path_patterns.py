"""Which files of a source a Dataset has: gitignore's rules over the names of the source."""

from __future__ import annotations

import random
import time

import pytest
from pathspec import GitIgnoreSpec

from tdcs.listing.path_patterns import matcher_of
from tdcs.model.file_selection import FileSelection, selection_of

PATHS = (
    b"a.jpg",
    b"train/a.jpg",
    b"train/deep/b.jpg",
    b"train/b.txt",
    b"val/a.jpg",
    b"val/.snapshot/hourly/a.jpg",
    b".snapshot/a.jpg",
    b"@eaDir/a.jpg@SynoEAStream",
    b"#recycle/x",
    b"lost+found",
    b"na\xffme.jpg",
)


def taken(selection: FileSelection) -> set[bytes]:
    is_taken = matcher_of(selection)
    return {path for path in PATHS if is_taken(path)}


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        ((), (), set(PATHS)),
        (("/train/",), (), {b"train/a.jpg", b"train/deep/b.jpg", b"train/b.txt"}),
        (("train/**/*.jpg",), (), {b"train/a.jpg", b"train/deep/b.jpg"}),
        (("train/", "!*.txt"), (), {b"train/a.jpg", b"train/deep/b.jpg"}),
        (("*.txt",), (), {b"train/b.txt"}),
        (("train/",), ("deep/",), {b"train/a.jpg", b"train/b.txt"}),
        (("/*.jpg",), (), {b"a.jpg", b"na\xffme.jpg"}),
        (("train/", "val/"), ("*.jpg", "!train/a.jpg"), {b"train/a.jpg", b"train/b.txt"}),
    ],
)
def test_patterns_select_as_gitignore_has_it(
    include: tuple[str, ...], exclude: tuple[str, ...], left: set[bytes]
) -> None:
    assert taken(FileSelection(include=include, exclude=exclude)) == left


def test_a_folder_is_taken_without_what_filers_keep_in_it() -> None:
    filers = {PATHS[5], PATHS[6], PATHS[7], PATHS[8]}
    assert taken(selection_of("file:///mnt/data", {})) == set(PATHS) - filers, "a file `lost+found` is one"
    assert taken(selection_of("s3://bucket", {})) == set(PATHS)
    assert taken(selection_of("file:///mnt/data", {"exclude": ""})) == set(PATHS)


def test_options_have_a_pattern_a_line() -> None:
    selection = selection_of("s3://bucket", {"include": "a b/\n*.jpg", "exclude": "x"})
    assert selection == FileSelection(include=("a b/", "*.jpg"), exclude=("x",))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a*a*a*a*a*a*a*ab", b"a" * 1_000),
        ("*[a]*?*[!b]*[a]*?*b", b"a" * 1_000),
        ("*a*a*b", b"a/" * 500),
        ("**/a/" * 10 + "b", b"a/" * 500 + b"c"),
        ("**/*a*a*/" * 10 + "b", b"aaaa/" * 200 + b"c"),
        ("a*a*b/**/*a*a*b/**/*a*a*b/", b"/".join([b"a" * 250] * 4)),
    ],
)
def test_a_pattern_of_many_stars_takes_a_short_time_for_a_long_name(pattern: str, path: bytes) -> None:
    is_taken = matcher_of(FileSelection(include=(pattern,)))
    begun = time.process_time()
    assert not is_taken(path)
    assert time.process_time() - begun < 5


def test_patterns_take_what_they_take_in_pathspec() -> None:
    draw = random.Random(1)
    pieces = ("a", "b", "*", "*", "?", "/", "/", "/**/", "**/", "[ab]", "\\*", "[*]", "\\[", "]", "(", "!")
    compared = 0
    for _ in range(1_500):
        pattern = "".join(draw.choices(pieces, k=draw.randint(1, 9)))
        if pattern.startswith("!") or not pattern.strip("/"):
            continue
        spec, is_taken = GitIgnoreSpec.from_lines([pattern]), matcher_of(FileSelection(include=(pattern,)))
        for _ in range(10):
            path = "/".join(
                "".join(draw.choices("aab*[(!", k=draw.randint(1, 3))) for _ in range(draw.randint(1, 5))
            )
            assert is_taken(path.encode()) == spec.match_file(path), (pattern, path)
            compared += spec.match_file(path)
    assert compared > 500, "some paths are taken"


@pytest.mark.parametrize(
    ("pattern", "path", "takes"),
    [
        ("a[!b]c", b"a/c", False),
        ("/*[!a]*", b"a/b", False),
        ("/*[!a]*", b"ab/b", True),
        ("a[+-9]c", b"a/c", False),
        ("a[+-9]c", b"a0c", True),
        ("[]a]b", b"]b", True),
    ],
)
def test_no_class_takes_a_slash(pattern: str, path: bytes, takes: bool) -> None:
    assert matcher_of(FileSelection(include=(pattern,)))(path) == takes
