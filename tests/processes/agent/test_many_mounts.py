"""Many mounts of one agent: they share its threads and its calls to the worker, and all come to their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.dataplane.agents import Version, fill, folder_version, running_agent
from tests.support.waiting import eventually_async

from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.transfer.lanes import SOURCE_LANES
from tdcs.node.agent.transfer.registrar import LANES

MOUNTS = 40
FILES = 12


@pytest.fixture
def versions(tmp_path: Path) -> list[Version]:
    """Of mounts that have no block in common."""
    found = []
    for number in range(MOUNTS):
        names = [f"{file:02}" for file in range(FILES)]
        source = fill(tmp_path / "sources" / str(number), {name: name.encode() * 500 for name in names})
        ids = {name: (number + 1) << 30 | place << 10 for place, name in enumerate(names)}
        found.append(
            folder_version(
                source, store=tmp_path / "manifests", mount=f"/datasets/{number:03}", first_ids=ids
            )
        )
    return found


async def test_forty_mounts_load_at_once_within_the_bounds_of_threads_and_registrations(
    tmp_path: Path, versions: list[Version], monkeypatch: pytest.MonkeyPatch
) -> None:
    registering: dict[str, int] = {}
    most_registering = most_threads = 0
    registered = set[str]()

    async def register(mount: MountWork, *, most: int, lanes: int, leaves: Callable[[], bool]) -> int:
        nonlocal most_registering
        assert mount.path not in registering
        registering[mount.path] = lanes
        most_registering = max(most_registering, sum(registering.values()))
        await asyncio.sleep(0.01)
        del registering[mount.path]
        registered.add(mount.path)
        return 1

    async with running_agent(tmp_path / "one") as one:
        monkeypatch.setattr(one.agent.registrar, "register", register)

        def done() -> bool:
            nonlocal most_threads
            names = [thread.name for thread in threading.enumerate()]
            most_threads = max(most_threads, names.count("_read_source"))
            held = sum(one.mount(version.manifest.path).held_bytes for version in versions)
            return held == sum(version.bytes for version in versions) and len(registered) == MOUNTS

        for version in versions:
            one.give(version.assignment(), manifests=version)
        await eventually_async(done, deadline=60, interval=0.01)
    assert 0 < most_registering <= LANES
    assert most_threads <= SOURCE_LANES.most


async def test_an_agent_that_gets_no_more_threads_goes_on_and_ends_its_work_when_there_are_some(
    tmp_path: Path, versions: list[Version], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, start = versions[0], threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("_read_"):
            raise RuntimeError("can't start new thread")
        start(thread)

    async with running_agent(tmp_path / "one") as one:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            one.give(version.assignment(), manifests=version)
            await eventually_async(lambda: one.agent._lanes._until > 0, deadline=20)
            assert one.agent.mounts[version.manifest.path].source.lanes == 0
        await one.holds(version)
