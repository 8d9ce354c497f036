"""Parts of large files on the disk: their right bytes, or none where anything says that they may not be these."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tdcs.api import names
from tdcs.node import extents
from tdcs.node.extents import ROW, ExtentPlace, Header, LargeFile

EXTENT = 4096
CONTENT = os.urandom(2 * EXTENT + 100)
FILE = LargeFile(mount=b"m" * 16, file=b"f" * 16, length=len(CONTENT), extent=EXTENT)
NAME = 7


class Tier:
    """A disk with one file of three extents, all of which are here."""

    def __init__(self, folder: Path, *, kind: str = names.AGENT_PARTS) -> None:
        self.folder = folder
        self.data = folder / kind / str(NAME)
        self.table = folder / names.AGENT_EXTENTS / str(NAME)
        for file in (self.data, self.table):
            file.parent.mkdir(parents=True)
        self.data.write_bytes(CONTENT)
        self.describe()

    def describe(self, file: LargeFile = FILE, *, inode: int | None = None, turns: int = 1) -> None:
        """Write the table."""
        rows = np.array([(number, 1, turns) for number in range(3)], dtype=ROW)
        header = Header(file, self.data.stat().st_ino if inode is None else inode)
        self.table.write_bytes(extents.header_bytes(header) + rows.tobytes())

    def read(self, number: int = 0, *, offset: int = 0, length: int = 50) -> bytes | None:
        place = ExtentPlace(NAME, number, FILE)
        return extents.read_part(str(self.folder), place, offset=offset, length=length)


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", [names.AGENT_PARTS, names.AGENT_WHOLE])
@pytest.mark.parametrize(
    ("number", "offset", "length"), [(0, 0, EXTENT), (1, 0, EXTENT), (1, 1000, 96), (2, 0, 100), (2, 99, 1)]
)
def test_a_part_is_read_where_its_extent_begins(
    tmp_path: Path, kind: str, number: int, offset: int, length: int
) -> None:
    begin, before = number * EXTENT + offset, descriptors()
    assert (
        Tier(tmp_path, kind=kind).read(number, offset=offset, length=length)
        == CONTENT[begin : begin + length]
    )
    assert descriptors() == before


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda tier: tier.describe(turns=2), id="the extent has gone"),
        pytest.param(lambda tier: tier.describe(turns=0), id="the extent has never come"),
        pytest.param(lambda tier: tier.describe(inode=1), id="the table is of another file by this name"),
        pytest.param(lambda tier: tier.describe(FILE._replace(file=b"g" * 16)), id="another source file"),
        pytest.param(lambda tier: tier.describe(FILE._replace(mount=b"n" * 16)), id="another mount"),
        pytest.param(lambda tier: tier.describe(FILE._replace(length=len(CONTENT) + 1)), id="another length"),
        pytest.param(lambda tier: tier.describe(FILE._replace(extent=EXTENT + 1)), id="another extent"),
        pytest.param(lambda tier: tier.table.unlink(), id="no table"),
        pytest.param(lambda tier: tier.table.write_bytes(b""), id="an empty table"),
        pytest.param(lambda tier: os.truncate(tier.table, extents.row_place(0) - 1), id="no whole header"),
        pytest.param(lambda tier: os.truncate(tier.table, extents.row_place(0)), id="no row"),
        pytest.param(lambda tier: tier.data.unlink(), id="no file"),
        pytest.param(lambda tier: os.truncate(tier.data, 49), id="a file that is too short"),
    ],
)
def test_no_part_is_given_of_what_the_table_does_not_say_is_here(
    tier: Tier, spoil: Callable[[Tier], None]
) -> None:
    spoil(tier)
    before = descriptors()
    assert tier.read() is None
    assert descriptors() == before


@pytest.mark.parametrize("which", ["data", "table"])
def test_no_part_is_read_through_a_link(tier: Tier, which: str) -> None:
    file: Path = getattr(tier, which)
    elsewhere = tier.folder / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert tier.read() is None


@pytest.mark.parametrize("turns", [2, 3], ids=["goes", "goes and comes"])
def test_no_part_is_given_of_an_extent_that_goes_while_it_is_read(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    pread = os.pread

    def read_and_lose(fd: int, length: int, offset: int) -> bytes:
        content = pread(fd, length, offset)
        if length == 50:  # the bytes themselves
            tier.describe(turns=turns)
        return content

    monkeypatch.setattr(os, "pread", read_and_lose)
    assert tier.read() is None


@pytest.mark.parametrize(("length", "lengths"), [(1, [1]), (EXTENT, [EXTENT]), (EXTENT + 1, [EXTENT, 1])])
def test_the_last_extent_has_what_the_others_leave(length: int, lengths: list[int]) -> None:
    file = FILE._replace(length=length)
    assert [file.length_of(number) for number in range(file.extents)] == lengths


@pytest.mark.parametrize("frozen", [False, True])
def test_a_table_says_which_file_it_is_about_and_whether_it_was_whole(tmp_path: Path, frozen: bool) -> None:
    header = Header(FILE, 12345, frozen)
    (tmp_path / "table").write_bytes(extents.header_bytes(header))
    with (tmp_path / "table").open("rb") as table:
        assert extents.read_header(table.fileno()) == header


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x02" + extents.header_bytes(Header(FILE, 1))[1:], id="of another format"),
        pytest.param(extents.header_bytes(Header(FILE._replace(length=0), 1)), id="of an empty file"),
        pytest.param(extents.header_bytes(Header(FILE._replace(extent=0), 1)), id="of empty extents"),
        pytest.param(extents.header_bytes(Header(FILE, 1))[:-1], id="cut off"),
    ],
)
def test_a_table_that_cannot_be_one_describes_nothing(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "table").write_bytes(raw)
    with (tmp_path / "table").open("rb") as table:
        assert extents.read_header(table.fileno()) is None


@pytest.mark.parametrize(("missing", "here"), [(0, 3), (1, 2), (16, 2), (17, 1), (48, 0)])
def test_extents_whose_rows_were_not_written_as_a_whole_are_not_here(
    tier: Tier, missing: int, here: int
) -> None:
    os.truncate(tier.table, extents.row_place(3) - missing)
    with tier.table.open("rb") as table:
        rows = extents.read_rows(table.fileno(), FILE)
    assert rows["turns"].tolist() == [1] * here + [0] * (3 - here)
    assert rows["hash"].tolist() == [0, 1, 2][:here] + [0] * (3 - here)
