"""An agent's life: restarts, a disk that is wiped or full, other versions, and clocks that jump."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.support.agents import (
    MOUNT,
    Version,
    fill,
    folder_version,
    running_agent,
)
from tests.support.waiting import eventually_async

from tdcs.agent.backoff import pause
from tdcs.agent.disk import room
from tdcs.agent.disk.tier import Disk
from tdcs.engine.agents import ALL_SLOTS, NO_SLOTS, Part

FILES = {f"{number:03}": os.urandom(2_000) for number in range(120)}


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")


async def test_a_restarted_agent_counts_what_lies_there_and_waits_for_its_assignment(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(version=5), manifests=version)
        await one.holds(version)
        first = one.agent.state.instance
    lost = next((tmp_path / "one" / "agent" / "spool").iterdir())
    lost.unlink()
    (tmp_path / "one" / "agent" / "partial" / "7.1").write_bytes(b"half")

    async with running_agent(tmp_path / "one") as again:
        await eventually_async(lambda: again.mount().held_bytes == version.bytes - 2_000, deadline=30)
        state = again.mount()
        assert again.agent.state.instance != first
        assert (state.version, state.manifest) == (0, version.manifest.digest)
        assert not list(again.disk.partial.iterdir())
        assert state.source_bytes == 0
        again.give(version.assignment(version=1))
        await again.holds(version)
        assert again.mount().source_bytes == 2_000
        assert again.content(version) == FILES


async def test_credentials_are_never_written_to_the_disk(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as one:
        source = type(version.source)(
            uri=version.source.uri, access_key_id="an-account-4c1", secret_access_key="a-secret-77b"
        )
        one.give(version.assignment(source=source), manifests=version)
        await one.holds(version)
        for folder, _, names in os.walk(tmp_path / "one"):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:  # noqa: ASYNC230 - a small folder of a test
                    content = file.read()
                assert b"a-secret-77b" not in content
                assert b"an-account-4c1" not in content


async def test_a_wiped_disk_is_filled_again(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        shutil.rmtree(tmp_path / "one" / "agent")
        await eventually_async(lambda: one.mount().source_bytes == 2 * version.bytes, deadline=30)
        await one.holds(version)
        assert one.content(version) == FILES


async def test_an_agent_does_not_spin_on_what_it_cannot_do(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_agent(tmp_path / "one") as one:  # its worker is away
        one.disk.blocks.mkdir()
        (one.disk.blocks / "77").write_bytes(b"of somebody else")
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        one.give(version.assignment(version=2, parts=(), drop=NO_SLOTS))
        await eventually_async(lambda: not one.agent.inventory._again, deadline=30)
        ticks = []
        monkeypatch.setattr(one.agent.kept, "due", lambda **_: ticks.append(1))
        end = time.monotonic() + 2.0
        await eventually_async(lambda: time.monotonic() > end, deadline=5)
        assert len(ticks) < 60, "ten a second at most, and some for news"
        assert (one.disk.blocks / "77").exists()


async def test_slots_that_are_dropped_leave_and_the_others_stay(tmp_path: Path, version: Version) -> None:
    half = b"\xff" * 256 + bytes(256)
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        part = Part(name="Dataset a/b", slots=half)
        one.give(version.assignment(version=2, parts=(part,), drop=ALL_SLOTS))
        expected = int(version.manifest.totals().sizes[:2048].sum())
        await eventually_async(lambda: one.mount().held_bytes == expected, deadline=30)
        assert one.agent.room.used == expected
        one.give(version.assignment(version=3))
        await one.holds(version)


async def test_a_mount_that_is_forgotten_leaves_nothing(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        one.agent.forget([MOUNT, "/datasets/unknown"])
        await eventually_async(lambda: MOUNT not in one.agent.state.mounts, deadline=30)
        assert not list(one.disk.spool.iterdir())
        await eventually_async(lambda: not one.agent.manifests.digests(), deadline=30)


async def test_a_forgotten_mount_is_dropped_although_the_agent_was_killed_meanwhile(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        one.agent._assignments.forgotten(MOUNT)  # what `forget` writes first
    async with running_agent(tmp_path / "one") as again:
        await eventually_async(lambda: not list(again.disk.spool.iterdir()), deadline=30)
        await eventually_async(lambda: MOUNT not in again.agent.state.mounts, deadline=30)


async def test_a_new_version_keeps_what_is_the_same_and_removes_what_is_not(
    tmp_path: Path, version: Version
) -> None:
    source = tmp_path / "source"
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        (source / "007").write_bytes(b"new content")
        newer = folder_version(source, store=tmp_path / "manifests", first_ids={"007": 1 << 41})
        one.give(newer.assignment(version=2), manifests=newer)
        await one.holds(newer)
        assert one.content(newer) == FILES | {"007": b"new content"}
        assert one.mount().source_bytes == version.bytes + len(b"new content")
        await eventually_async(lambda: len(list(one.disk.spool.iterdir())) == len(FILES), deadline=30)


async def test_what_does_not_fit_waits_for_room_and_is_brought_when_there_is(
    tmp_path: Path, version: Version
) -> None:
    capacity = 50 * 2_000 + 100
    async with running_agent(tmp_path / "one", capacity=capacity) as one:
        one.give(version.assignment(), manifests=version)
        await eventually_async(lambda: one.mount().held_bytes == 50 * 2_000, deadline=30)
        await eventually_async(lambda: [each.code for each in one.mount().failed] == ["NoRoom"], deadline=30)
        assert one.agent.state.used_bytes <= capacity
        (part,) = one.mount().parts
        assert part.failed_bytes == 0, "nothing is wrong with the files"
        one.agent.room.capacity = 1 << 30  # type: ignore[misc]
        await one.holds(version, deadline=30)
        assert not one.mount().failed


async def test_a_disk_that_somebody_else_fills_is_waited_for(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 1_000
    monkeypatch.setattr(Disk, "free_bytes", lambda _: left + room.SLACK_BYTES)
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await eventually_async(lambda: [each.code for each in one.mount().failed] == ["NoRoom"], deadline=30)
        assert "disk" in one.mount().failed[0].reason
        assert one.mount().held_bytes == 0
        left = 1 << 30
        await one.holds(version, deadline=30)


async def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: (-1) ** next(jumps) * 1e9)
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(bandwidth=10_000_000), manifests=version)
        await one.holds(version)
        assert one.content(version) == FILES


def test_pauses_grow_to_a_bound_however_many_failures_there_are() -> None:
    assert all(0.5 <= pause(1) <= 1.0 for _ in range(100))
    assert all(150 <= pause(failures) <= 300 for failures in (20, 1_024, 5_000, 10**9))
