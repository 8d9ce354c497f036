"""Blocks of another journal are removed before they are taken for others."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from tdcs.alluxio.rpc import RpcFailureError
from tdcs.node.agent.disk import epoch
from tdcs.node.agent.disk.epoch import asked_patiently, enter_epoch, read_epoch
from tdcs.node.agent.disk.tier import Disk


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


@pytest.mark.failure_mode("worker-starts-without-journal")
async def test_a_master_that_is_away_for_a_day_is_waited_for_and_that_is_said_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(epoch, "pause", lambda failures, most: 0.0)

    async def ask() -> str:
        nonlocal now
        now += 5.0
        if now < 86_400:
            raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text="")
        return "journal"

    assert await asked_patiently(ask, clock=lambda: now) == "journal"
    assert len(caplog.messages) == 86_400 / 60
    assert "does not say its journal's identity yet (UNAVAILABLE)" in caplog.messages[0]
