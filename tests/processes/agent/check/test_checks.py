"""Comparisons with the source: what differs is loaded again, and is never served when it differs still."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.support.dataplane.agents import (
    MOUNT,
    RunningAgent,
    Version,
    fill,
    folder_version,
    running_agent,
)
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, Check, CheckState, Part
from tdcs.node.agent.blocks import checker as checks
from tdcs.node.agent.blocks import comparison
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, SourceReader, Write
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.view_plan import kinds_of
from tdcs.node.file_facts import hash_of

FILES = {f"{number:03}": os.urandom(2_000) for number in range(120)}


class Interposed:
    """The source of a mount, with something that happens before each read."""

    lanes = 4

    def __init__(self, mount: MountWork, *, before: Callable[[Extent], None]) -> None:
        assert mount.source.reader is not None
        self._source: SourceReader = mount.source.reader
        self._before = before
        mount.source.reader = self

    def read(self, extent: Extent, write: Write) -> None:
        self._before(extent)
        self._source.read(extent, write)


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")


@pytest.mark.parametrize("percent", [100, 30])
async def test_a_check_finds_a_block_that_differs_and_loads_it_again(
    tmp_path: Path, version: Version, percent: int
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        for block in range(version.manifest.blocks):
            spoiled = agent.disk.spool / str(version.manifest.block_ids[block])
            os.chmod(spoiled, 0o644)
            if block % 40 == 0:
                spoiled.write_bytes(b"x" * 2_000)
        agent.give(version.assignment(version=2, check=Check(id="first", percent=percent)))
        await eventually_async(
            lambda: (check := agent.mount().check) is not None and check.id == "first" and check.done,
            deadline=30,
        )
        check = agent.mount().check
        assert check is not None
        assert (check.wrong_count, check.wrong) == (0, ())
        in_it = version.manifest.block_slots < -(-4096 * percent // 100)
        assert check.files == int(in_it.sum())
        content = agent.content(version)
        names = sorted(FILES)
        for block in range(version.manifest.blocks):
            if in_it[block]:
                assert content[names[block]] == FILES[names[block]]


async def test_a_check_says_which_files_cannot_be_compared(tmp_path: Path, version: Version) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        (tmp_path / "source" / "003").unlink()
        agent.give(version.assignment(version=2, check=Check(id="first")))
        await eventually_async(lambda: (check := agent.mount().check) is not None and check.done, deadline=30)
        check = agent.mount().check
        assert check is not None
        assert [(wrong_file.path, wrong_file.code) for wrong_file in check.wrong] == [("003", "Missing")]


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


AWAY = SourceFailureError("SourceAway", "the connection was reset", common=True)
CHANGED = SourceFailureError("Changed", "its file has changed at the source since it was listed")


@pytest.mark.parametrize(
    ("failure", "times"),
    [
        (AWAY, 1),
        (AWAY, 40),  # no file is to blame for a source that gives nothing, however often it is asked
        (SourceFailureError("Unreadable", "the file cannot be read: Input/output error"), 1),
        (CHANGED, 40),  # a cache in front of the store, say, that had another version for a moment
    ],
    ids=lambda value: str(value.code) if isinstance(value, SourceFailureError) else str(value),
)
@pytest.mark.failure_mode("store-flips-version-during-preload")
async def test_a_failure_that_passes_does_not_fail_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: SourceFailureError, times: int
) -> None:
    few = dict(list(FILES.items())[: 6 if times == 1 else 4])
    version = folder_version(fill(tmp_path / "source", few), store=tmp_path / "manifests")
    monkeypatch.setattr(checks, "pause", lambda *_, **__: 0.01)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        source = agent.agent.mounts[MOUNT].source.reader
        assert source is not None
        agent.agent.mounts[MOUNT].source.reader = FailsFirst(source, times=times, failure=failure)
        agent.give(version.assignment(version=2, check=Check(id="first")))
        await eventually_async(lambda: (check := agent.mount().check) is not None and check.done, deadline=30)
        check = agent.mount().check
        assert check is not None
        assert (check.wrong, check.files) == ((), len(few))


@pytest.mark.failure_mode("store-flips-version-during-preload")
async def test_files_that_stay_changed_are_named_after_a_time_for_all_of_them_and_the_others_compared(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_CHANGED_SECONDS", 1.0)
    changed = sorted(FILES)[:100]

    def answer(extent: Extent) -> None:
        if extent.path.decode() in changed:
            raise CHANGED

    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        Interposed(agent.agent.mounts[MOUNT], before=answer)
        agent.give(version.assignment(version=2, check=Check(id="first")))
        comparison = await compared(agent)
        assert (comparison.files, comparison.wrong_count) == (len(FILES) - len(changed), len(changed))
        assert {file.code for file in comparison.wrong} == {"Changed"}


class Lies:
    """A source that gives other bytes of one file each time."""

    lanes = 4

    def __init__(self, source: SourceReader, *, path: bytes) -> None:
        self._source = source
        self._path = path

    def read(self, extent: Extent, write: Write) -> None:
        if extent.path == self._path:
            write(memoryview(os.urandom(extent.length)))
        else:
            self._source.read(extent, write)


async def compared(one: RunningAgent, *, check: str = "first") -> CheckState:
    def done() -> bool:
        state = one.mount().check
        return state is not None and state.id == check and state.done

    await eventually_async(done, deadline=30, describe=lambda: repr(one.mount()))
    comparison = one.mount().check
    assert comparison is not None
    return comparison


@pytest.mark.failure_mode("agent-restarts-with-wrong-copies")
async def test_a_block_that_differs_twice_is_not_served_and_stays_so_over_a_restart(
    tmp_path: Path, version: Version
) -> None:
    block = int(version.manifest.block_ids[3])
    intact_files = {name: content for name, content in FILES.items() if name != "003"}

    def refused(agent: RunningAgent) -> bool:
        state = agent.mount()
        named = [(failure.path, failure.code) for failure in state.failed]
        return state.held_bytes == version.bytes - 2_000 and named == [("003", "Wrong")]

    async with running_agent(tmp_path / "one") as first_agent:
        first_agent.give(version.assignment(), manifests=version)
        await first_agent.holds(version)
        mount = first_agent.agent.mounts[MOUNT]
        assert mount.source.reader is not None
        mount.source.reader = Lies(mount.source.reader, path=b"003")
        first_agent.give(version.assignment(version=2, check=Check(id="first")))
        comparison = await compared(first_agent)
        assert [(wrong_file.path, wrong_file.code) for wrong_file in comparison.wrong] == [("003", "Wrong")]
        await eventually_async(
            lambda: refused(first_agent), deadline=30, describe=lambda: repr(first_agent.mount())
        )
        assert first_agent.content(version) == intact_files
        assert not (first_agent.disk.spool / str(block)).exists()
    spoiled = tmp_path / "one" / "agent" / "spool" / str(block)
    spoiled.write_bytes(b"x" * 2_000)  # of an agent that was killed before it could drop the wrong copy

    async with running_agent(tmp_path / "one") as again:
        assert not spoiled.exists()
        await eventually_async(lambda: refused(again), deadline=30, describe=lambda: repr(again.mount()))
        again.give(version.assignment(version=1, check=Check(id="first")))
        assert await compared(again) == comparison
        await eventually_async(lambda: not again.mount().busy or again.mount().parts, deadline=30)
        assert again.mount().source_bytes == 0, "what was compared is not compared again"
        spoiled.write_bytes(b"y" * 2_000)  # whoever puts it back
        await eventually_async(lambda: not spoiled.exists(), deadline=30)
        assert again.disk.open(block) is None

        again.give(version.assignment(version=2))  # the comparison is not asked for any more
        await again.holds(version)
        assert again.content(version) == FILES


async def test_an_agent_killed_in_the_middle_of_a_comparison_serves_no_copy_that_it_found_wrong(
    tmp_path: Path, version: Version
) -> None:
    block = int(version.manifest.block_ids[3])
    gate = threading.Event()

    def waits(extent: Extent) -> None:
        if extent.path != b"003":
            gate.wait(10)

    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        copy = agent.disk.spool / str(block)
        os.chmod(copy, 0o644)
        copy.write_bytes(b"x" * 2_000)
        Interposed(agent.agent.mounts[MOUNT], before=waits)
        agent.give(version.assignment(version=2, check=Check(id="first")))
        await eventually_async(lambda: not copy.exists(), deadline=30)
        assert not list(agent.disk.checks.iterdir()), "the comparison has not ended"
    gate.set()
    copy.write_bytes(b"x" * 2_000)  # as if it had been killed before it could drop it

    async with running_agent(tmp_path / "one") as again:
        assert not copy.exists()
        await eventually_async(lambda: again.mount().held_bytes == version.bytes - 2_000, deadline=30)
        assert again.disk.open(block) is None
        again.give(version.assignment(version=1, check=Check(id="first")))
        assert (await compared(again)).wrong == ()
        await again.holds(version)
        assert again.content(version) == FILES


async def test_another_comparison_gives_refused_blocks_another_chance(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        mount = agent.agent.mounts[MOUNT]
        honest = mount.source.reader
        assert honest is not None
        mount.source.reader = Lies(honest, path=b"003")
        agent.give(version.assignment(version=2, check=Check(id="first")))
        assert (await compared(agent)).wrong_count == 1
        mount.source.reader = honest
        agent.give(version.assignment(version=3, check=Check(id="second")))
        assert (await compared(agent, check="second")).wrong_count == 0
        await agent.holds(version)
        assert agent.content(version) == FILES


async def test_a_comparison_of_other_files_neither_loads_nor_counts_what_an_earlier_one_refused(
    tmp_path: Path, version: Version
) -> None:
    first, second = (
        Part(name=f"Preload a/{name}", slots=ALL_SLOTS, paths=(name,)) for name in ("003", "004")
    )
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(parts=(first, second)), manifests=version)
        await eventually_async(lambda: agent.mount().held_bytes == 4_000, deadline=30)
        mount = agent.agent.mounts[MOUNT]
        assert mount.source.reader is not None
        mount.source.reader = Lies(mount.source.reader, path=b"003")
        of_first, of_second = (Check(id=part.name, part=part.name) for part in (first, second))
        agent.give(version.assignment(version=2, parts=(first, second), check=of_first))
        assert (await compared(agent, check=first.name)).wrong_count == 1
        agent.give(version.assignment(version=3, parts=(first, second), check=of_second))
        comparison = await compared(agent, check=second.name)
        assert (comparison.wrong_count, comparison.wrong, comparison.files) == (0, (), 1)
        assert sorted(agent.content(version)) == ["004"]


async def test_a_disk_that_keeps_the_note_of_a_comparison_does_not_end_the_agent(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: str) -> None:
        raise OSError(30, "Read-only file system")

    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(check=Check(id="first")), manifests=version)
        assert (await compared(agent)).wrong_count == 0
        monkeypatch.setattr(agent.agent.checker._notes, "remove", refused)
        agent.give(version.assignment(version=2))
        assert agent.mount().check is None
        fill(tmp_path / "source", {"more": b"more"})
        newer = folder_version(tmp_path / "source", store=tmp_path / "manifests")
        agent.give(newer.assignment(version=3), manifests=newer)
        await agent.holds(newer)


def wrong_for_views(agent: RunningAgent, version: Version) -> list[str]:
    """The files to which no native view on the agent's node may have links."""
    blocks = Store(tiers=[str(agent.disk.tier)], mount=MOUNT).scan(
        manifest=version.manifest, kinds=kinds_of(version.manifest)
    )
    assert not blocks.local[blocks.wrong].any()
    return [os.fsdecode(version.manifest.file_path(file)) for file in blocks.wrong.tolist()]


async def test_a_wrong_copy_that_the_disk_does_not_drop_is_given_to_no_reader(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        block = int(version.manifest.block_ids[3])
        file, unspool = agent.disk.spool / str(block), agent.disk.unspool
        os.chmod(file, 0o644)
        file.write_bytes(b"x" * 2_000)

        def refused(identity: int) -> None:
            if identity == block:
                raise OSError(errno.EIO, "the disk refuses")
            unspool(identity)

        with monkeypatch.context() as patch:
            patch.setattr(agent.disk, "unspool", refused)
            agent.give(version.assignment(version=2, check=Check(id="first")))
            await eventually_async(lambda: agent.mount().held_bytes == version.bytes - 2_000, deadline=30)
            assert agent.disk.open(block) is None
            assert file.exists()
            await eventually_async(lambda: wrong_for_views(agent, version) == ["003"], deadline=30)

            agent.give(version.assignment(version=3))  # the comparison is not asked for any more
            await eventually_async(lambda: agent.mount().version == 3, deadline=30)
            assert agent.disk.open(block) is None
            assert agent.mount().held_bytes == version.bytes - 2_000
        await agent.holds(version)
        assert agent.content(version) == FILES
        assert list(agent.disk.checks.iterdir()) == []
        assert wrong_for_views(agent, version) == []


def test_one_more_wrong_block_is_marked_without_those_before_it(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.RLock()
    room = Room(capacity=1 << 30, free=lambda: 1 << 30, clock=time.monotonic)
    mount = MountWork(path=MOUNT, lock=lock, room=room)
    ids = version.manifest.block_ids.tolist()
    mount.refuse(ids[:2])
    mount.opened(Ledger(version.manifest))
    block_ids: list[int] = []
    numbers = mount._numbers

    def counted(wanted: Iterable[int]) -> list[int]:
        block_ids.extend(wanted)
        return numbers(wanted)

    monkeypatch.setattr(mount, "_numbers", counted)
    mount.refuse(ids[2:3])
    assert block_ids == ids[2:3]
    assert mount.ledger is not None
    assert sorted(ids[block] for block in mount.ledger.refused_blocks()) == sorted(ids[:3])


async def test_a_copy_that_the_disk_cannot_read_is_loaded_again(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = f"/spool/{version.manifest.block_ids[3]}"
    inode = 0

    def reads(file: int, *, offset: int, length: int) -> int:
        if os.fstat(file).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return hash_of(file, offset=offset, length=length)

    monkeypatch.setattr(comparison, "hash_of", reads)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)
        held = os.open(f"{tmp_path}/one/agent{spoiled}", os.O_RDONLY)  # so that its number is not given again
        inode = os.fstat(held).st_ino
        agent.give(version.assignment(version=2, check=Check(id="first")))
        read_again = await compared(agent)
        os.close(held)
        assert (read_again.wrong, read_again.files) == ((), len(FILES))
        assert os.stat(f"{tmp_path}/one/agent{spoiled}").st_ino != inode
        assert agent.content(version) == FILES


async def test_a_comparison_that_fails_is_begun_again_after_a_pause_and_counts_from_zero(
    tmp_path: Path, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures_left, pauses = 2, list[int]()

    def note(failures: int, **_: float) -> float:
        pauses.append(failures)
        return 0.01

    monkeypatch.setattr(checks, "pause", note)
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)

        def breaks(extent: Extent) -> None:
            nonlocal failures_left
            if extent.path == b"050" and failures_left:
                failures_left -= 1
                raise RuntimeError("a defect")

        Interposed(agent.agent.mounts[MOUNT], before=breaks)
        agent.give(version.assignment(version=2, check=Check(id="first")))
        comparison = await compared(agent)
        assert (comparison.wrong, comparison.files, comparison.bytes) == ((), len(FILES), version.bytes)
        assert pauses == [1, 2]


async def test_a_comparison_of_another_share_with_the_same_id_replaces_the_one_that_runs(
    tmp_path: Path, version: Version
) -> None:
    gate, entered = threading.Event(), threading.Event()
    async with running_agent(tmp_path / "one") as agent:
        agent.give(version.assignment(), manifests=version)
        await agent.holds(version)

        def waits(_: Extent) -> None:
            entered.set()
            gate.wait(10)

        Interposed(agent.agent.mounts[MOUNT], before=waits)
        agent.give(version.assignment(version=2, check=Check(id="first", percent=50)))
        await eventually_async(entered.is_set, deadline=10)
        agent.give(version.assignment(version=3, check=Check(id="first", percent=60)))
        await eventually_async(lambda: agent.agent.checker._runs[MOUNT].begun, deadline=10)
        gate.set()
        comparison = await compared(agent)
        assert comparison.files == int((version.manifest.block_slots < -(-4096 * 60 // 100)).sum())
