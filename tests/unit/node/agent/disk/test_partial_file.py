"""A block that is being written: all of it is written, and a disk that does not take it says why."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tdcs.node.agent.disk.partial_file import DiskError, PartialFile, disk_error


@pytest.fixture
def partial(tmp_path: Path) -> Iterator[PartialFile]:
    path = str(tmp_path / "1")
    with PartialFile(path=path, fd=os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)) as partial:
        yield partial


def test_a_full_disk_is_named_by_whoever_writes_to_it(tmp_path: Path) -> None:
    with (
        PartialFile(path=str(tmp_path / "1"), fd=os.open("/dev/full", os.O_WRONLY)) as partial,
        pytest.raises(DiskError, match=r"^the disk is full$"),
    ):
        partial.write(memoryview(b"content"), offset=0)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EIO, "the disk does not take the block: Input/output error"),
    ],
)
def test_a_quota_that_is_used_up_is_a_full_disk_and_a_broken_disk_is_not(number: int, reason: str) -> None:
    assert str(disk_error(OSError(number, os.strerror(number)))) == reason


def test_a_block_that_somebody_has_removed_meanwhile_can_be_given_up(partial: PartialFile) -> None:
    os.unlink(partial.path)
    partial.discard()


def test_what_cannot_be_removed_is_an_error_of_whoever_gives_up(partial: PartialFile) -> None:
    os.unlink(partial.path)
    os.mkdir(partial.path)
    with pytest.raises(OSError, match="directory"):
        partial.discard()
    os.rmdir(partial.path)


def test_a_disk_that_takes_a_part_of_each_write_gets_all_of_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pwrite = str(tmp_path / "2"), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:3], offset))
    with PartialFile(path=path, fd=os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), base=4) as partial:
        partial.write(memoryview(b"and the rest"), offset=5)
        partial.write(memoryview(b"first"), offset=0)
        assert Path(path).read_bytes() == bytes(4) + b"firstand the rest"
