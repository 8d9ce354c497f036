"""The kernel is asked about a file again, whatever its name, and a file that is gone is fine."""

import os
from pathlib import Path

import pytest
from tests.unit.node.csi.views.builders import listed, manifest_of

from tdcs.node.csi.views.kernel_cache import changed_files, freshen


def test_files_of_any_name_can_be_asked_for(tmp_path: Path) -> None:
    for name in ("plain", "ünïcode\n", "x" * 255):
        (tmp_path / name).touch()
        freshen(path=os.fsencode(tmp_path / name))


def test_a_file_that_is_gone_is_fine_and_one_that_cannot_be_asked_for_is_not(tmp_path: Path) -> None:
    freshen(path=os.fsencode(tmp_path / "gone"))
    (tmp_path / "file").touch()
    freshen(path=os.fsencode(tmp_path / "file" / "below"))
    with pytest.raises(OSError, match="File name too long"):
        freshen(path=os.fsencode(tmp_path / ("x" * 300)))


def test_files_that_are_gone_or_have_another_content_are_told_from_those_that_are_new_or_the_same() -> None:
    old = manifest_of(
        listed("same", 1, first_block=1),
        listed("d/changed", 1, first_block=2),
        listed("gone", 1, first_block=3),
        listed("empty"),
        listed("d/filled"),
    )
    new = manifest_of(
        listed("same", 1, first_block=1),
        listed("d/changed", 2, first_block=9),
        listed("new", 1, first_block=8),
        listed("d/parts", 1, 1, first_block=20),
        listed("empty"),
        listed("d/filled", 3, first_block=30),
    )
    newer = manifest_of(listed("d/parts", 1, 1, first_block=30))

    assert changed_files(old=old, new=new) == [b"gone", b"d/changed", b"d/filled"]
    assert changed_files(old=new, new=newer) == [
        b"empty",
        b"new",
        b"same",
        b"d/changed",
        b"d/filled",
        b"d/parts",
    ]
    assert changed_files(old=new, new=new) == []


def test_ids_that_begin_anew_with_a_new_journal_do_not_hide_a_change() -> None:
    old = manifest_of(listed("a", 1, first_block=1, tag="x"), listed("b", 1, first_block=2, tag="y"))

    swapped = manifest_of(listed("b", 1, first_block=1, tag="x"), listed("a", 1, first_block=2, tag="y"))
    assert changed_files(old=old, new=swapped) == [b"a", b"b"]
    rewritten = manifest_of(listed("a", 1, first_block=1, tag="x"), listed("b", 1, first_block=2, tag="z"))
    assert changed_files(old=old, new=rewritten) == [b"b"]
