"""Blocks of another journal are removed before they are taken for others."""

from __future__ import annotations

from pathlib import Path

from tdcs.agent.disk.epoch import enter_epoch, read_epoch
from tdcs.agent.disk.tier import Disk


def test_blocks_of_another_journal_are_removed_and_those_of_the_same_stay(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    enter_epoch(disk, journal="first")
    disk.blocks.mkdir()
    for folder in (disk.blocks, disk.spool):
        (folder / "17").write_bytes(b"x")
    assert enter_epoch(disk, journal="first") == 0
    assert len(disk.spooled()) == len(disk.registered_ids()) == 1
    assert enter_epoch(disk, journal="second") == 2
    assert (len(disk.spooled()), len(disk.registered_ids()), read_epoch(disk)) == (0, 0, "second")


def test_blocks_of_nobody_knows_which_journal_are_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.blocks.mkdir()
    (disk.blocks / "17").write_bytes(b"x")
    assert enter_epoch(disk, journal="first") == 1
