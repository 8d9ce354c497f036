"""Real agent processes that are killed at random moments: nothing wrong is readable, and all comes in the end."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.dataplane.agent_processes import AgentProcess
from tests.support.dataplane.agents import MOUNT, fill, folder_version
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import HttpAgents
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, AgentError
from tdcs.node.agent.disk.own_ids import enter_own_ids

FILES = {f"{number:03}": random.Random(number).randbytes(40_000) for number in range(400)}
LARGE = {"large": os.urandom(20_000_000)}


class Pair:
    """Two agents, and the operator's client to them."""

    def __init__(self, folder: Path) -> None:
        self.version = folder_version(fill(folder / "source", FILES | LARGE), store=folder / "manifests")
        self.client = HttpAgents(poll_seconds=2.0, call_seconds=5.0)
        self.agents: list[AgentProcess] = []
        for node in ("one", "two"):
            control, blocks = free_ports(2)
            agent = AgentProcess(
                node=node,
                tier=folder / node,
                log=folder / f"{node}.log",
                capacity=1 << 30,
                control_port=control,
                block_port=blocks,
            )
            enter_own_ids(agent.disk)
            file = self.version.folder.file(self.version.manifest.digest)
            (agent.disk.manifests / file.name).write_bytes(file.read_bytes())
            self.agents.append(agent)
        self._number = 0

    async def start(self) -> None:
        for agent in self.agents:
            agent.process.launch()
        for agent in self.agents:
            await asyncio.to_thread(agent.process.wait_ready)
        self.client.connect({agent.node: agent.reached for agent in self.agents})
        await eventually_async(lambda: len(self.client.states()) == 2, deadline=30)

    async def give(self, agent: AgentProcess, **fields: object) -> None:
        """Assign, until the agent has taken it: the client may not have heard yet that it is back."""
        self._number += 1
        assignment = self.version.assignment(version=self._number, **fields)  # type: ignore[arg-type]

        async def taken() -> bool:
            try:
                await self.client.assign(node=agent.node, assignments=[assignment])
            except AgentError:
                return False
            return True

        await eventually_async(taken, deadline=60)

    async def done(self, agent: AgentProcess, *, held: int) -> None:
        def there() -> bool:
            state = self.client.states().get(agent.node)
            mount = state.mounts.get(MOUNT) if state is not None else None
            return mount is not None and mount.held_bytes == held and mount.version == self._number

        await eventually_async(
            there, deadline=60, describe=lambda: f"{self.client.states()}\n{agent.process.tail()}"
        )

    async def kill(self, agent: AgentProcess, *, when: Callable[[], bool]) -> None:
        """Kill an agent as soon as something is so, look at what it left, and start it again."""
        await eventually_async(when, deadline=60, interval=0.002)
        await asyncio.to_thread(agent.process.kill)
        files = agent.content(self.version)
        assert files == {name: (FILES | LARGE)[name] for name in files}, "readable, and not what it is called"
        await asyncio.to_thread(agent.process.start)


def readable(agent: AgentProcess) -> int:
    """Files in the spool."""
    return len(os.listdir(agent.disk.spool))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    try:
        await pair.start()
        yield pair
    finally:
        await pair.client.close()
        for agent in pair.agents:
            agent.process.kill()


@pytest.mark.parametrize(
    "seed",
    [
        1,
        pytest.param(
            2,
            marks=pytest.mark.deep(
                "tests/processes/agent/test_killed_agents.py::test_agents_that_are_killed_at_random_moments_end_with_what_they_shall_hold"
            ),
        ),
    ],
)
async def test_agents_that_are_killed_at_random_moments_end_with_what_they_shall_hold(
    pair: Pair, seed: int
) -> None:
    chance = random.Random(seed)
    first, second = pair.agents
    everything, total = FILES | LARGE, pair.version.bytes

    for _ in range(2):  # a load
        await pair.give(first, bandwidth=20_000_000)
        threshold = chance.randint(1, 300)
        await pair.kill(first, when=lambda some=threshold: readable(first) > some)  # type: ignore[misc]
    await pair.give(first)
    await pair.done(first, held=total)
    assert first.content(pair.version) == everything

    for agent in chance.sample([first, second], 2):  # a copy: the giver and the receiver
        await pair.give(first)
        await pair.give(second, origin=NO_SLOTS, source=None, peers=[first.peer()])
        threshold = chance.randint(0, 100)
        await pair.kill(agent, when=lambda some=threshold: readable(second) >= some)  # type: ignore[misc]
    await pair.give(first)
    await pair.give(second, origin=NO_SLOTS, source=None, peers=[first.peer()])
    await pair.done(second, held=total)
    assert second.content(pair.version) == everything

    await pair.give(second, parts=(), drop=ALL_SLOTS)  # a drop
    threshold = chance.randint(0, 400)
    await pair.kill(second, when=lambda: readable(second) <= threshold)
    await pair.give(second, parts=(), drop=ALL_SLOTS)
    await pair.done(second, held=0)
    for agent in pair.agents:
        assert not os.listdir(agent.disk.partial)
    assert first.content(pair.version) == everything, "a drop on one node takes nothing from another"
    assert readable(second) == 0
