"""Which files of a source a Dataset has: gitignore's rules over the names of the source."""

from __future__ import annotations

import pytest

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
    is_taken = selection.matcher()
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
    found = selection_of("s3://bucket", {"include": "a b/\n*.jpg", "exclude": "x"})
    assert found == FileSelection(include=("a b/", "*.jpg"), exclude=("x",))
