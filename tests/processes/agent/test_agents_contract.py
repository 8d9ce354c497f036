"""What the operator may rely on: the same assertions for a real agent's process and for the agents in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.dataplane.agent_processes import AgentProcess
from tests.support.dataplane.agents import MOUNT, Version, fill, folder_version
from tests.support.programs.ports import free_ports
from tests.support.twins.agents import MemoryAgents
from tests.support.twins.engine import MemoryEngine
from tests.support.twins.local_lister import LocalLister
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.model.agent_state import (
    ALL_SLOTS,
    NO_SLOTS,
    AgentError,
    Agents,
    AgentState,
    Assignment,
    MountState,
    Part,
    Peer,
    SourceAccess,
    echo_of,
)
from tdcs.model.cache_engine import Source
from tdcs.node.agent.disk.own_ids import enter_own_ids

FILES = {f"{number:03}": os.urandom(2_000) for number in range(60)} | {"empty": b""}
URI = "s3://bucket/data"
ONE, TWO = "one", "two"
LOWER = b"\xff" * 256 + bytes(256)
"""The first half of the slots."""


@dataclass(kw_only=True)
class World:
    """Two nodes with agents and a mounted source of `FILES`."""

    agents: Agents
    version: Version
    urls: tuple[str, ...]
    restart: Callable[[str], Awaitable[None]]
    stop: Callable[[str], Awaitable[None]]

    def mount(self, node: str = ONE) -> MountState:
        state = self.agents.states().get(node)
        return (state.mounts if state is not None else {}).get(MOUNT, MountState(mount=MOUNT))

    def state(self, node: str = ONE) -> AgentState:
        return self.agents.states()[node]

    async def give(self, node: str = ONE, *, version: int = 1, **fields: object) -> Assignment:
        assignment = self.version.assignment(version=version, manifest_urls=self.urls, **fields)  # type: ignore[arg-type]
        await self.agents.assign(node=node, assignments=[assignment])
        return assignment

    async def until(self, holds: Callable[[], bool]) -> None:
        await eventually_async(holds, deadline=30, describe=lambda: repr(dict(self.agents.states())))

    async def at_rest(self, *, held: int, node: str = ONE, version: int = 1) -> MountState:
        """Wait until an agent holds so many bytes by an assignment and has nothing left to bring or to drop."""

        def there() -> bool:
            mount = self.mount(node)
            pulled_bytes = sum(
                part.wanted_bytes - part.failed_bytes for part in mount.parts if part.name == "Dataset a/b"
            )
            return mount.version == version and mount.held_bytes == held and pulled_bytes <= held

        await self.until(there)
        return self.mount(node)

    def peer(self, node: str, *, slots: bytes = ALL_SLOTS, complete: bytes = NO_SLOTS) -> Peer:
        return Peer(node=node, address=self.state(node).address, slots=slots, complete=complete)


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[World]:
    engine = MemoryEngine(
        sources={URI: {name: len(content) for name, content in FILES.items()}},
        workers={ONE: 1 << 30, TWO: 1 << 30},
        block_size=1 << 20,
    )
    await engine.mount(path=MOUNT, source=Source(uri=URI))
    manifests = ManifestFolder(folder / "manifests")
    listed = await LocalLister(engine=engine, folder=manifests).list(path=MOUNT)
    agents = MemoryAgents(engine=engine, manifests=manifests.open)

    async def restart(node: str) -> None:
        agents.restart(node)

    async def stop(node: str) -> None:
        agents.away.add(node)

    try:
        yield World(
            agents=agents,
            version=Version(
                manifest=manifests.open(listed.digest), folder=manifests, source=SourceAccess(uri=URI)
            ),
            urls=(),
            restart=restart,
            stop=stop,
        )
    finally:
        await agents.close()


@asynccontextmanager
async def as_processes(folder: Path) -> AsyncIterator[World]:
    version = folder_version(fill(folder / "source", FILES), store=folder / "manifests")
    client = HttpAgents(poll_seconds=2.0, call_seconds=5.0)
    processes: dict[str, AgentProcess] = {}
    for node in (ONE, TWO):
        control, blocks = free_ports(2)
        processes[node] = AgentProcess(
            node=node,
            tier=folder / node,
            log=folder / f"{node}.log",
            capacity=1 << 30,
            control_port=control,
            block_port=blocks,
        )
        enter_own_ids(processes[node].disk)
        digest = version.manifest.digest
        (processes[node].disk.manifests / digest).write_bytes(version.folder.file(digest).read_bytes())

    async def restart(node: str) -> None:
        before = client.states()[node].instance
        await asyncio.to_thread(processes[node].process.restart)
        await eventually_async(
            lambda: (state := client.states().get(node)) is not None and state.instance != before, deadline=30
        )

    async def stop(node: str) -> None:
        await asyncio.to_thread(processes[node].process.kill)

    try:
        for process in processes.values():
            process.process.launch()
        for process in processes.values():
            await asyncio.to_thread(process.process.wait_ready)
        client.connect({node: process.reached for node, process in processes.items()})
        await eventually_async(lambda: len(client.states()) == 2, deadline=30)
        yield World(agents=client, version=version, urls=(), restart=restart, stop=stop)
    finally:
        await client.close()
        for process in processes.values():
            process.process.kill()


@pytest.fixture(params=[in_memory, as_processes], ids=["memory", "process"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with request.param(tmp_path) as world:
        yield world


async def test_what_is_assigned_is_brought_and_counted(world: World) -> None:
    total = world.version.bytes
    await world.give()
    mount = await world.at_rest(held=total)
    assert mount.manifest == world.version.manifest.digest
    assert (mount.complete, mount.failed_count, mount.source_bytes) == (ALL_SLOTS, 0, total)
    (part,) = mount.parts
    assert (part.wanted_bytes, part.held_bytes, part.failed_bytes) == (total, total, 0)
    assert (part.wanted_files, part.held_files) == (len(FILES), len(FILES))
    assert world.state().used_bytes == total
    await world.until(lambda: not world.mount().busy)


@pytest.mark.failure_mode("agent-has-other-operators-table")
async def test_an_older_or_a_second_assignment_of_a_version_is_refused(world: World) -> None:
    await world.give(version=5)
    with pytest.raises(AgentError) as refused:
        await world.give(version=4, parts=(), drop=ALL_SLOTS)
    assert refused.value.node == ONE
    with pytest.raises(AgentError):
        await world.give(version=5, parts=(), drop=ALL_SLOTS)  # of a second operator that counted as far
    second_assignment = await world.give(version=5)  # again: fine
    mount = await world.at_rest(held=world.version.bytes, version=5)
    assert mount.echo == echo_of(second_assignment)


async def test_slots_that_are_dropped_leave_and_those_in_neither_stay(world: World) -> None:
    sizes = world.version.manifest.totals().sizes
    await world.give()
    await world.at_rest(held=world.version.bytes)
    part = Part(name="Dataset a/b", slots=NO_SLOTS)
    await world.give(version=2, parts=(part,), drop=LOWER)
    mount = await world.at_rest(held=int(sizes[2048:].sum()), version=2)
    assert mount.present[:256] == bytes(256)
    await world.give(version=3, parts=(part,))
    await world.at_rest(held=int(sizes[2048:].sum()), version=3)


async def test_a_part_says_whether_and_from_where_it_is_brought(world: World) -> None:
    total = world.version.bytes
    held = {}
    for number, pull in enumerate(("Nothing", "Peers", "All"), start=1):
        await world.give(version=number, parts=(Part(name="Dataset a/b", slots=ALL_SLOTS, pull=pull),))  # type: ignore[arg-type]
        await world.until(lambda number=number: world.mount().version == number)  # type: ignore[misc]
        if pull == "All":
            await world.at_rest(held=total, version=number)
        else:  # what no peer has is no work that is left
            await world.until(lambda: not world.mount().busy)
        held[pull] = world.mount().source_bytes
    assert held == {"Nothing": 0, "Peers": 0, "All": total}


async def test_what_a_peer_holds_is_not_asked_of_the_source(world: World) -> None:
    total = world.version.bytes
    await world.give()
    await world.at_rest(held=total)
    peer = world.peer(ONE, complete=ALL_SLOTS)
    await world.give(TWO, origin=NO_SLOTS, peers=[peer], source=None)
    mount = await world.at_rest(held=total, node=TWO)
    await world.until(lambda: world.mount(TWO).peer_bytes == total)
    assert mount.source_bytes == 0


async def test_without_access_nothing_is_read_and_with_it_everything(world: World) -> None:
    await world.give(source=None)
    await world.until(lambda: world.mount().version == 1)
    await world.give(version=2)
    mount = await world.at_rest(held=world.version.bytes, version=2)
    assert mount.source_bytes == world.version.bytes


async def test_a_mount_that_is_forgotten_is_gone_and_forgetting_it_again_is_fine(world: World) -> None:
    await world.give()
    await world.at_rest(held=world.version.bytes)
    for _ in range(2):
        await world.agents.drop_mounts(node=ONE, mounts=[MOUNT])
    await world.until(lambda: MOUNT not in world.state().mounts and world.state().used_bytes == 0)


async def test_a_restarted_agent_holds_what_it_held_and_works_by_no_assignment(world: World) -> None:
    await world.give()
    await world.at_rest(held=world.version.bytes)
    before = world.state().instance
    await world.restart(ONE)
    await world.until(lambda: world.mount().held_bytes == world.version.bytes)
    mount = world.mount()
    assert world.state().instance != before
    assert (mount.version, mount.manifest, mount.parts) == (0, world.version.manifest.digest, ())
    await world.give(version=1)  # what the operator makes of "0"
    await world.at_rest(held=world.version.bytes)
    assert world.mount().source_bytes == 0


async def test_an_agent_that_is_away_has_no_state_and_refuses_by_its_name(world: World) -> None:
    await world.give()
    await world.at_rest(held=world.version.bytes)
    await world.stop(ONE)
    await world.until(lambda: ONE not in world.agents.states())
    assert TWO in world.agents.states()
    for node in (ONE, "nowhere"):
        with pytest.raises(AgentError) as refused:
            await world.give(node, version=9)
        assert refused.value.node == node
        assert node in str(refused.value)


async def test_the_revision_grows_with_every_change_and_rests_without_one(world: World) -> None:
    states = [world.state()]
    for number in (1, 2):
        await world.give(version=number)
        await world.at_rest(held=world.version.bytes, version=number)
        states.append(world.state())
    assert states[0].revision < states[1].revision < states[2].revision
    assert states[0].instance == states[1].instance == states[2].instance
