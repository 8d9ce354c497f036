"""Many mounts of one agent: they share its threads, and all come to their end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.dataplane.agents import Version, fill, folder_version, running_agent
from tests.support.waiting import eventually_async

from tdcs.node.agent.transfer.lanes import SOURCE_LANES

MOUNTS = 40
FILES = 12


@pytest.fixture
def versions(tmp_path: Path) -> list[Version]:
    versions = []
    for number in range(MOUNTS):
        names = [f"{file:02}" for file in range(FILES)]
        source = fill(tmp_path / "sources" / str(number), {name: name.encode() * 500 for name in names})
        versions.append(folder_version(source, store=tmp_path / "manifests", mount=f"/datasets/{number:03}"))
    return versions


async def test_forty_mounts_load_at_once_within_the_bound_of_threads(
    tmp_path: Path, versions: list[Version]
) -> None:
    most_threads = 0
    async with running_agent(tmp_path / "one") as agent:

        def done() -> bool:
            nonlocal most_threads
            names = [thread.name for thread in threading.enumerate()]
            most_threads = max(most_threads, names.count("_read_source"))
            held = sum(agent.mount(version.manifest.path).held_bytes for version in versions)
            return held == sum(version.bytes for version in versions)

        for version in versions:
            agent.give(version.assignment(), manifests=version)
        await eventually_async(done, deadline=60, interval=0.01)
    assert most_threads <= SOURCE_LANES.most


async def test_an_agent_that_gets_no_more_threads_goes_on_and_ends_its_work_when_there_are_some(
    tmp_path: Path, versions: list[Version], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, start = versions[0], threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("_read_"):
            raise RuntimeError("can't start new thread")
        start(thread)

    async with running_agent(tmp_path / "one") as agent:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            agent.give(version.assignment(), manifests=version)
            await eventually_async(lambda: agent.agent._lanes._until > 0, deadline=20)
            assert agent.agent.mounts[version.manifest.path].source.lanes == 0
        await agent.holds(version)
