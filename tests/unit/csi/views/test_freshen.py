"""The kernel is asked about a file again, whatever its name, and a file that is gone is fine."""

import os
from pathlib import Path

import pytest

from tdcs.csi.views.freshen import freshen


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
