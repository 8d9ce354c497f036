"""The operator's client of the agents: it assigns, follows and forgets, and says who is away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.dataplane.agents import (
    MOUNT,
    RunningAgent,
    Version,
    fill,
    folder_version,
    running_agent,
    url_of,
)
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import AgentAddress, HttpAgents, retry_pause
from tdcs.model.agent_state import AgentError

FILES = {f"{number:03}": os.urandom(2_000) for number in range(120)}


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return folder_version(fill(tmp_path / "source", FILES), store=tmp_path / "manifests")


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
            assert (state.address, state.url) == (one.address, one.url)
            with pytest.raises(AgentError, match="higher version"):
                await client.assign(node="node-1", assignments=[version.assignment(version=2)])
            assert client.states()["node-1"].mounts[MOUNT].version == 3
            await client.drop_mounts(node="node-1", mounts=[MOUNT])
            await eventually_async(lambda: MOUNT not in client.states()["node-1"].mounts, deadline=30)
            with pytest.raises(AgentError, match="no such agent"):
                await client.drop_mounts(node="node-9", mounts=[MOUNT])
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


def test_a_restarting_agent_is_asked_again_soon_and_one_that_stays_away_rarely() -> None:
    pauses = [retry_pause(failures) for failures in range(1, 100)]
    assert max(pauses[:8]) == 0.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10.0


async def test_an_agent_that_has_not_looked_at_its_disk_yet_says_and_takes_nothing(
    tmp_path: Path, version: Version
) -> None:
    async with running_agent(tmp_path / "one") as one:
        one.give(version.assignment(), manifests=version)
        await one.holds(version)
        client = await connected(one)
        try:
            one.agent.ready = False  # as after a start: it would say that nothing lies there
            with pytest.raises(AgentError, match="first look at the disk"):
                await client.assign(node="node-1", assignments=[version.assignment(version=2)])
            with pytest.raises(AgentError, match="first look at the disk"):
                await client.drop_mounts(node="node-1", mounts=[MOUNT])
            await eventually_async(lambda: "node-1" not in client.states(), deadline=30)
            assert one.mount().version == 1
            one.agent.ready = True
            await eventually_async(
                lambda: client.states()["node-1"].mounts[MOUNT].held_bytes == version.bytes,
                deadline=30,
                retry_on=(KeyError,),
            )
        finally:
            await client.close()
