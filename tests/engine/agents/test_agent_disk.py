"""An agent on a real file system that somebody else fills."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
from tests.support.dataplane.agents import fill, folder_version, running_agent
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Part
from tdcs.node.agent.disk.disk_room import SLACK_BYTES

SIZE = 96 << 20
FILES = {f"{number:03}": os.urandom(500_000) for number in range(60)}


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of `SIZE` bytes."""
    folder = tmp_path / "tier"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def filled(file: Path) -> None:
    """Take all that the file system has left."""
    with file.open("wb", buffering=0) as foreign:
        while _takes(foreign, bytes(1 << 20)):
            pass


def _takes(file: FileIO, content: bytes) -> bool:
    try:
        file.write(content)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


async def test_a_disk_that_a_foreigner_fills_is_waited_for_and_what_is_held_can_be_dropped(
    tier: Path, tmp_path: Path
) -> None:
    version = folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")
    foreign = tier / "foreign"
    foreign.write_bytes(bytes(SIZE - SLACK_BYTES - 10_000_000))
    async with running_agent(tier) as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["NoRoom"],
            deadline=30,
            describe=str(agent),
        )
        assert 0 < agent.mount().held_bytes <= 10_000_000
        assert agent.agent.disk.free_bytes() >= SLACK_BYTES

        filled(tier / "more")
        part = Part(name="Dataset a/b", slots=NO_SLOTS)
        agent.give(version.assignment(version=2, parts=(part,), drop=ALL_SLOTS))
        await eventually_async(lambda: agent.mount().held_bytes == 0, deadline=30)
        assert agent.agent.room.used == 0

        filled(tier / "all")
        agent.give(version.assignment(version=3))
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["NoRoom"], deadline=30
        )
        for file in (foreign, tier / "more", tier / "all"):
            file.unlink()
        await agent.holds(version, deadline=30)
        await eventually_async(lambda: not agent.mount().failed, deadline=10)
        assert agent.content(version) == FILES
        assert not list(agent.disk.partial.iterdir())
