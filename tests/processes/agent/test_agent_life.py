"""An agent's life: restarts, a disk that is wiped or full, other versions, and clocks that jump."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import pytest
from tests.support.dataplane.agents import (
    MOUNT,
    RunningAgent,
    Version,
    block_of,
    fill,
    folder_version,
    running_agent,
)
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Part
from tdcs.node.agent.backoff import pause
from tdcs.node.agent.disk import disk_room
from tdcs.node.agent.disk.tier import Disk

FILES = {f"{number:03}": os.urandom(2_000) for number in range(120)}


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")


async def test_a_restarted_agent_counts_what_is_there_and_waits_for_its_assignment(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(version=5), manifests=version)
        await agent.holds(version)
        first = agent.agent.state.instance
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
    async with running_agent(tmp_path / "one") as agent:
        source = type(version.source)(
            uri=version.source.uri, access_key_id="an-account-4c1", secret_access_key="a-secret-77b"
        )
        agent.give(version.assignment(source=source), manifests=version)
        await agent.holds(version)
        for folder, _, names in os.walk(tmp_path / "one"):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:  # noqa: ASYNC230 - a small folder of a test
                    content = file.read()
                assert b"a-secret-77b" not in content
                assert b"an-account-4c1" not in content


async def test_a_wiped_disk_is_filled_again(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        (tmp_path / "one" / "agent").rename(
            tmp_path / "wiped"
        )  # at once: what comes meanwhile is not removed, too
        await eventually_async(lambda: agent.mount().source_bytes == 2 * version.bytes, deadline=30)
        await agent.holds(version)
        assert agent.content(version) == FILES


async def test_an_agent_does_not_spin_on_what_it_cannot_do(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.disk.lent.mkdir()
        (agent.disk.lent / "77").write_bytes(b"of somebody else")
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        agent.give(version.assignment(version=2, parts=(), drop=NO_SLOTS))
        await eventually_async(lambda: not agent.agent.inventory._again, deadline=30)
        ticks = []
        monkeypatch.setattr(agent.agent.kept_by_views, "due", lambda **_: ticks.append(1))
        end = time.monotonic() + 2.0
        await eventually_async(lambda: time.monotonic() > end, deadline=5)
        assert len(ticks) < 60, "ten a second at most, and some for news"
        assert (agent.disk.lent / "77").exists()


async def test_slots_that_are_dropped_leave_and_the_others_stay(tmp_path: Path, version: Version) -> None:
    half = b"\xff" * 256 + bytes(256)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        part = Part(name="Dataset a/b", slots=half)
        agent.give(version.assignment(version=2, parts=(part,), drop=ALL_SLOTS))
        expected = int(version.manifest.totals().sizes[:2048].sum())
        await eventually_async(lambda: agent.mount().held_bytes == expected, deadline=30)
        assert agent.agent.room.used == expected
        agent.give(version.assignment(version=3))
        await agent.holds(version)


async def test_a_mount_that_is_forgotten_leaves_nothing(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        agent.agent.drop_mounts([MOUNT, "/datasets/unknown"])
        await eventually_async(lambda: MOUNT not in agent.agent.state.mounts, deadline=30)
        assert not list(agent.disk.spool.iterdir())
        await eventually_async(lambda: not agent.agent.manifests.digests(), deadline=30)


async def test_a_forgotten_mount_is_dropped_although_the_agent_was_killed_meanwhile(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        agent.agent._assignments.forgotten(MOUNT)  # what `forget` writes first
    async with running_agent(tmp_path / "one") as again:
        await eventually_async(lambda: not list(again.disk.spool.iterdir()), deadline=30)
        await eventually_async(lambda: MOUNT not in again.agent.state.mounts, deadline=30)


async def test_a_new_version_keeps_what_is_the_same_and_removes_what_is_not(
    tmp_path: Path, version: Version
) -> None:
    source = tmp_path / "source"
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        (source / "007").write_bytes(b"new content")
        newer = folder_version(source, store=tmp_path / "manifests")
        agent.give(newer.assignment(version=2), manifests=newer)
        await agent.holds(newer)
        assert agent.content(newer) == FILES | {"007": b"new content"}
        assert agent.mount().source_bytes == version.bytes + len(b"new content")
        await eventually_async(lambda: len(list(agent.disk.spool.iterdir())) == len(FILES), deadline=30)


async def test_blocks_that_cannot_be_removed_yet_need_no_manifest_that_names_them(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, block = tmp_path / "source", block_of(version.manifest, "007")
    other_version = folder_version(
        fill(tmp_path / "other", {"b": b"b"}),
        store=tmp_path / "manifests",
        mount="/datasets/fedcba9876543210",
    )
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        agent.give(other_version.assignment(), manifests=other_version)
        await agent.holds(version)
        await agent.holds(other_version)
        (source / "007").write_bytes(b"new content")
        newer = folder_version(source, store=tmp_path / "manifests")
        inventory = agent.agent.inventory
        monkeypatch.setattr(agent.disk, "remove", lambda place, names: [])
        agent.give(newer.assignment(version=2), manifests=newer)
        await agent.holds(newer)
        await eventually_async(lambda: inventory.strangers["name"].tolist() == [block], deadline=30)
        assert agent.disk.open(block) is None, "nobody is given what no version lists"

        agent.agent.drop_mounts([other_version.manifest.path])
        await eventually_async(
            lambda: agent.agent.manifests.digests() == {newer.manifest.digest}, deadline=30
        )
        assert inventory.strangers["name"].tolist() == [block], "the disk refuses"

        monkeypatch.undo()
        await eventually_async(lambda: not len(inventory.strangers), deadline=30)


async def test_what_does_not_fit_waits_for_room_and_is_brought_when_there_is(
    tmp_path: Path, version: Version
) -> None:
    capacity = 50 * 2_000 + 100
    async with running_agent(tmp_path / "one", capacity=capacity) as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.mount().held_bytes == 50 * 2_000, deadline=30)
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["NoRoom"], deadline=30
        )
        assert agent.agent.state.used_bytes <= capacity
        (part,) = agent.mount().parts
        assert part.failed_bytes == 0, "nothing is wrong with the files"
        agent.agent.room.capacity = 1 << 30  # type: ignore[misc]
        await agent.holds(version, deadline=30)
        assert not agent.mount().failed


async def test_a_disk_that_somebody_else_fills_is_waited_for(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1_000
    monkeypatch.setattr(Disk, "free_bytes", lambda _: free + disk_room.SLACK_BYTES)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(
            lambda: [failure.code for failure in agent.mount().failed] == ["NoRoom"], deadline=30
        )
        assert "disk" in agent.mount().failed[0].reason
        assert agent.mount().held_bytes == 0
        free = 1 << 30
        await agent.holds(version, deadline=30)


@pytest.mark.failure_mode("clock-jumps")
async def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: (-1) ** next(jumps) * 1e9)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(bandwidth=10_000_000), manifests=version)
        await agent.holds(version)
        assert agent.content(version) == FILES


def test_pauses_grow_to_a_bound_however_many_failures_there_are() -> None:
    assert all(0.5 <= pause(1) <= 1.0 for _ in range(100))
    assert all(150 <= pause(failures) <= 300 for failures in (20, 1_024, 5_000, 10**9))


@pytest.mark.failure_mode("node-power-lost-with-cut-blocks")
async def test_blocks_that_a_loss_of_power_cut_off_are_brought_again(
    tmp_path: Path, version: Version, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
    cut = sorted((tmp_path / "one" / "agent" / "spool").iterdir())[:3]
    for number, file in enumerate(cut):
        file.chmod(0o644)
        os.truncate(file, number * 500)

    async with running_agent(tmp_path / "one") as again:
        again.give(version.assignment(version=2))
        await eventually_async(lambda: again.mount().source_bytes == 3 * 2_000, deadline=30)
        await again.holds(version)
        assert again.content(version) == FILES
    # The comparison of lengths says so, or the registration, which may come first, or both at once.
    assert sum(map(int, re.findall(r"(\d) blocks? of \S+ (?:is|are) not as long as", caplog.text))) >= 3


async def test_a_disk_that_keeps_the_note_of_a_dropped_mount_does_not_end_the_agent(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        with monkeypatch.context() as patch:
            patch.setattr(agent.agent._assignments, "remove", refuses)
            agent.agent.drop_mounts([MOUNT])
            await eventually_async(lambda: MOUNT not in agent.agent.mounts, deadline=30)
        agent.give(version.assignment(version=2), manifests=version)
        await agent.holds(version)


async def test_a_mount_that_is_forgotten_before_its_manifest_is_here_leaves_no_block_in_the_spool(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        for identity in version.manifest.block_ids[:10].tolist():
            (agent.disk.spool / str(identity)).write_bytes(b"x" * 2_000)
        agent.give(version.assignment(manifest_urls=("http://127.0.0.1:1/none",)))
        assert agent.agent.mounts[MOUNT].ledger is None
        agent.agent.drop_mounts([MOUNT])
        await eventually_async(lambda: MOUNT not in agent.agent.mounts, deadline=30)
        await eventually_async(lambda: not list(agent.disk.spool.iterdir()), deadline=30)
        await eventually_async(lambda: not list(agent.disk.assignments.iterdir()), deadline=30)


@pytest.mark.parametrize("killed", [False, True])
async def test_blocks_of_an_older_version_go_also_when_their_mount_was_the_last_one(
    tmp_path: Path, version: Version, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = int(version.manifest.block_ids[7])

    def nothing_left(running: RunningAgent) -> bool:
        folders = (running.disk.spool, running.disk.manifests, running.disk.assignments)
        return not any(list(folder.iterdir()) for folder in folders)

    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        monkeypatch.setattr(agent.disk, "remove", lambda place, names: [])
        (tmp_path / "source" / "007").write_bytes(b"new content")
        newer = folder_version(tmp_path / "source", store=tmp_path / "manifests")
        agent.give(newer.assignment(version=2), manifests=newer)
        await agent.holds(newer)
        agent.agent.drop_mounts([MOUNT])
        await eventually_async(lambda: MOUNT not in agent.agent.mounts, deadline=30)
        assert (agent.disk.spool / str(old)).exists(), "the disk refuses"
        if not killed:
            monkeypatch.undo()
            await eventually_async(lambda: nothing_left(agent), deadline=30)
    if killed:
        async with running_agent(tmp_path / "one") as again:
            await eventually_async(lambda: nothing_left(again), deadline=30)


async def test_a_restarted_agent_knows_which_files_cannot_be_had_before_it_has_tried_them(
    tmp_path: Path, version: Version
) -> None:
    file = tmp_path / "source" / "007"
    content = file.read_bytes()
    times = file.stat()
    file.unlink()
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await eventually_async(lambda: agent.mount().held_bytes == version.bytes - 2_000, deadline=30)
        await eventually_async(lambda: bool(list(agent.disk.failures.iterdir())), deadline=30)
    async with running_agent(tmp_path / "one") as again:
        again.give(version.assignment(source=None))  # nothing can be tried
        state = again.mount()
        assert state.parts[0].failed_bytes == 2_000
        assert [(failure.path, failure.code) for failure in state.failed] == [("007", "Missing")]
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        again.give(version.assignment(version=2))
        await again.holds(version)
        await eventually_async(lambda: not list(again.disk.failures.iterdir()), deadline=30)
        again.agent.drop_mounts([MOUNT])
        await eventually_async(lambda: MOUNT not in again.agent.mounts, deadline=30)


async def test_a_restarted_agent_says_that_what_it_has_is_of_a_listing_that_went_on(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(early_files=3), manifests=version)
        await agent.holds(version)
        assert agent.mount().early_files == 3
    async with running_agent(tmp_path / "one") as again:
        await eventually_async(lambda: again.mount().held_bytes == version.bytes, deadline=30)
        assert (again.mount().version, again.mount().early_files) == (0, 3)
        again.give(version.assignment(version=2))
        assert again.mount().early_files == 0


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_manifest_of_a_listing_that_went_on_goes_when_another_one_has_come(
    tmp_path: Path, version: Version, restarts: bool
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(early_files=3), manifests=version)
        await agent.holds(version)
        if not restarts:
            await newer_manifest_alone(agent, tmp_path)
    if restarts:
        async with running_agent(tmp_path / "one") as again:
            await newer_manifest_alone(again, tmp_path)


async def newer_manifest_alone(agent: RunningAgent, folder: Path) -> None:
    """Give an agent a version with one file more, and wait until it has no other manifest."""
    (folder / "source" / "more").write_bytes(b"new content")
    newer = folder_version(folder / "source", store=folder / "manifests")
    agent.give(newer.assignment(version=2), manifests=newer)
    await agent.holds(newer)
    await eventually_async(lambda: agent.agent.manifests.digests() == {newer.manifest.digest}, deadline=30)
