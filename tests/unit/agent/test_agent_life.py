"""An agent's life: restarts, folders that others change, room, other versions, checks, and what the operator hears."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from tests.support.agents import (
    JOURNAL,
    MOUNT,
    RunningAgent,
    Version,
    fill,
    folder_version,
    running_agent,
    url_of,
)
from tests.support.waiting import eventually_async

from tdcs.agent import checks, room
from tdcs.agent.backoff import pause
from tdcs.agent.disk import Disk, Ids
from tdcs.agent.epoch import enter_epoch, read_epoch
from tdcs.agent.inventory import Inventory
from tdcs.agent.ledger import Ledger
from tdcs.agent.mount import MountWork
from tdcs.agent.source import Extent, SourceFailureError, SourceReader, Write
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.engine.agents import ALL_SLOTS, NO_SLOTS, AgentError, Check, Part

FILES = {f"{number:03}": os.urandom(2_000) for number in range(120)}
FOREIGN_CHANGE_SECONDS = 5.0


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


async def test_what_others_remove_is_seen_within_five_seconds_and_brought_again(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        one.give(version.assignment(version=2, source=None))  # so that the loss stays to be seen
        for file in list(one.disk.spool.iterdir())[:50]:
            file.unlink()
        await eventually_async(
            lambda: one.mount().held_bytes == version.bytes - 50 * 2_000, deadline=FOREIGN_CHANGE_SECONDS
        )
        one.give(version.assignment(version=3))
        await one.holds(version)


async def test_a_wiped_disk_is_filled_again(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        shutil.rmtree(tmp_path / "one" / "agent")
        await eventually_async(lambda: one.mount().source_bytes == 2 * version.bytes, deadline=30)
        await one.holds(version)
        assert one.content(version) == FILES


async def test_nothing_is_done_at_rest(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        looks = []
        original = one.agent.inventory.look
        one.agent.inventory.look = lambda mounts: (looks.append(1), original(mounts))  # type: ignore
        await eventually_async(lambda: not one.agent.inventory._again, deadline=30)
        looks.clear()
        end = time.monotonic() + 2.5
        await eventually_async(lambda: time.monotonic() > end, deadline=5)
        assert not looks


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
        one.agent._assignments.forget(MOUNT)  # what `forget` writes first
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


def test_what_is_brought_during_a_look_at_the_folders_takes_its_room(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, taken = Disk(tmp_path / "one"), room.Room(capacity=1 << 30, free=lambda: 1 << 30)
    disk.prepare()
    lock, ledger = threading.RLock(), Ledger(version.manifest)
    mount = MountWork(path=MOUNT, lock=lock, room=taken, ledger=ledger)
    mount.assign(version.assignment())
    looking = Inventory(disk=disk, room=taken, lock=lock)
    looking.look([mount])
    bring, drop = ledger.take(now=0.0, most=2, most_bytes=1 << 20)
    for _ in (bring, drop):
        assert taken.reserve(2_000) == ""
    mount.brought(ledger, drop)
    assert taken.used == 2_000
    (disk.spool / str(version.manifest.block_ids[drop])).write_bytes(b"x" * 2_000)
    (disk.spool / "77").write_bytes(b"a stranger")

    def meanwhile(block: int) -> int:
        mount.brought(ledger, bring)
        mount.lies(ledger, drop, spooled=False, registered=False)
        return 10

    monkeypatch.setattr(disk, "size", meanwhile)
    looking.look([mount])
    assert taken.used == 2_000 + 10
    assert ledger.held[bring]
    assert not ledger.held[drop]


async def test_a_mount_that_comes_during_a_slow_look_is_looked_at_after_it(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, looking, ticks = threading.Event(), threading.Event(), itertools.count()
    original = Disk.registered_ids

    def slow(disk: Disk) -> Ids:
        looking.set()
        assert go_on.wait(20)
        return original(disk)

    async with running_agent(tmp_path / "one") as one:
        monkeypatch.setattr(one.agent.kept, "due", lambda **_: bool(next(ticks)) and False)
        monkeypatch.setattr(Disk, "registered_ids", slow)
        one.agent.inventory.require()
        await eventually_async(looking.is_set, deadline=10, interval=0.01)
        one.give(version.assignment(), manifests=version)
        await eventually_async(lambda: one.agent.mounts[MOUNT].ledger is not None, deadline=10)
        after = next(ticks)

        def many_ticks() -> bool:
            one.agent.wake()
            return next(ticks) > after + 20

        await eventually_async(many_ticks, deadline=10, interval=0.01)
        go_on.set()
        await one.holds(version)


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


@pytest.mark.parametrize("percent", [100, 30])
async def test_a_check_finds_a_block_that_differs_and_loads_it_again(
    tmp_path: Path, version: Version, percent: int
) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        for block in range(version.manifest.blocks):
            spoiled = one.disk.spool / str(version.manifest.block_ids[block])
            os.chmod(spoiled, 0o644)
            if block % 40 == 0:
                spoiled.write_bytes(b"x" * 2_000)
        one.give(version.assignment(version=2, check=Check(id="first", percent=percent)))
        await eventually_async(
            lambda: (check := one.mount().check) is not None and check.id == "first" and check.done,
            deadline=30,
        )
        check = one.mount().check
        assert check is not None
        assert (check.wrong_count, check.wrong) == (0, ())
        in_it = version.manifest.block_slots < -(-4096 * percent // 100)
        assert check.files == int(in_it.sum())
        content = one.content(version)
        names = sorted(FILES)
        for block in range(version.manifest.blocks):
            if in_it[block]:
                assert content[names[block]] == FILES[names[block]]


async def test_a_check_says_which_files_cannot_be_compared(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        (tmp_path / "source" / "003").unlink()
        one.give(version.assignment(version=2, check=Check(id="first")))
        await eventually_async(lambda: (check := one.mount().check) is not None and check.done, deadline=30)
        check = one.mount().check
        assert check is not None
        assert [(each.path, each.code) for each in check.wrong] == [("003", "Missing")]


class FailsFirst:
    """A source that fails for each file so many times before it gives it."""

    lanes = 4

    def __init__(self, source: SourceReader, *, times: int, failure: SourceFailureError) -> None:
        self._source = source
        self._left: defaultdict[bytes, int] = defaultdict(lambda: times)
        self._failure = failure

    def read(self, extent: Extent, write: Write) -> None:
        if self._left[extent.path]:
            self._left[extent.path] -= 1
            raise self._failure
        self._source.read(extent, write)


@pytest.mark.parametrize(
    "failure",
    [
        SourceFailureError("SourceAway", "the connection was reset", common=True),
        SourceFailureError("Unreadable", "the file cannot be read: Input/output error"),
    ],
    ids=lambda failure: str(failure.code),
)
async def test_a_failure_that_passes_does_not_fail_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: SourceFailureError
) -> None:
    few = dict(list(FILES.items())[:6])
    version = folder_version(fill(tmp_path / "source", few), store=tmp_path / "manifests")
    monkeypatch.setattr(checks, "pause", lambda *_, **__: 0.01)
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        source = one.agent.mounts[MOUNT].source
        assert source is not None
        one.agent.mounts[MOUNT].source = FailsFirst(source, times=1, failure=failure)
        one.give(version.assignment(version=2, check=Check(id="first")))
        await eventually_async(lambda: (check := one.mount().check) is not None and check.done, deadline=30)
        check = one.mount().check
        assert check is not None
        assert (check.wrong, check.files) == ((), len(few))


async def connected(one: RunningAgent) -> HttpAgents:
    client = HttpAgents(poll_seconds=1.0, call_seconds=3.0)
    client.connect({"node-1": AgentAddress(url=one.url, blocks=one.address)})
    await eventually_async(lambda: "node-1" in client.states(), deadline=30)
    return client


async def test_the_operators_client_assigns_follows_and_forgets(tmp_path: Path, version: Version) -> None:
    async with (
        running_agent(tmp_path / "zero", node="node-0") as zero,
        running_agent(tmp_path / "one") as one,
    ):
        zero.give(version.assignment(), manifests=version)
        client = await connected(one)
        try:
            assignment = version.assignment(version=3, manifest_urls=(url_of(zero, version),))
            await client.assign(node="node-1", assignments=[assignment])
            await eventually_async(
                lambda: client.states()["node-1"].mounts[MOUNT].held_bytes == version.bytes, deadline=30
            )
            state = client.states()["node-1"]
            assert (state.address, state.url, state.journal) == (one.address, one.url, JOURNAL)
            with pytest.raises(AgentError, match="higher version"):
                await client.assign(node="node-1", assignments=[version.assignment(version=2)])
            assert client.states()["node-1"].mounts[MOUNT].version == 3
            await client.forget(node="node-1", mounts=[MOUNT])
            await eventually_async(lambda: MOUNT not in client.states()["node-1"].mounts, deadline=30)
            with pytest.raises(AgentError, match="no such agent"):
                await client.forget(node="node-9", mounts=[MOUNT])
        finally:
            await client.close()


async def test_an_agent_that_is_away_is_not_among_the_states_until_it_is_back(tmp_path: Path) -> None:
    changes: list[str] = []
    client = HttpAgents(on_change=changes.append, poll_seconds=1.0)
    try:
        async with running_agent(tmp_path / "one") as one:
            client.connect({"node-1": AgentAddress(url=one.url, blocks=one.address)})
            await eventually_async(lambda: "node-1" in client.states(), deadline=30)
        await eventually_async(lambda: "node-1" not in client.states(), deadline=30)
        with pytest.raises(AgentError, match="node-1"):
            await client.assign(node="node-1", assignments=[])
        assert len(changes) >= 2
    finally:
        await client.close()


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


def test_pauses_grow_to_a_bound_however_many_failures_there_are() -> None:
    assert all(0.5 <= pause(1) <= 1.0 for _ in range(100))
    assert all(150 <= pause(failures) <= 300 for failures in (20, 1_024, 5_000, 10**9))


def test_bytes_that_only_views_keep_alive_are_counted(tmp_path: Path) -> None:
    from tdcs.agent.kept import KeptByViews

    disk = Disk(tmp_path)
    disk.prepare()
    disk.blocks.mkdir()
    view = tmp_path / "views" / "d" / "v1"
    view.mkdir(parents=True)
    for block, size in ((1, 1_000), (2, 500)):
        (disk.blocks / str(block)).write_bytes(b"x" * size)
        os.link(disk.blocks / str(block), view / str(block))
    kept = KeptByViews(disk=disk)
    kept.look()
    assert kept.bytes == 0
    (disk.blocks / "1").unlink()
    kept.look()
    assert kept.bytes == 1_000
    (view / "1").unlink()
    kept.look()
    assert kept.bytes == 0


def test_a_mount_is_counted_anew_only_after_a_change(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(version.manifest)
    room_ = room.Room(capacity=1 << 30, free=lambda: 1 << 30)
    mount = MountWork(path=MOUNT, lock=threading.RLock(), room=room_, ledger=ledger)
    mount.assign(version.assignment())
    assert not mount.at_rest()
    everything = np.arange(version.manifest.blocks)
    ledger.observe(spooled=everything[:0], registered=everything)
    assert mount.at_rest()
    assert mount.state().held_bytes == version.bytes
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "held", property(lambda _: pytest.fail("all blocks were looked at")))
        assert mount.at_rest()
        assert mount.state().held_bytes == version.bytes
    ledger.observe(spooled=everything[:0], registered=everything[1:])
    assert not mount.at_rest()
    assert mount.state().held_bytes == version.bytes - 2_000
