"""Datasets that are not preloaded: what jobs read through the client is cached on their node while there is room."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import msgspec
import pytest
from tests.processes.reader.test_reader_reads import sums, wanted
from tests.support.dataplane.agents import RunningAgent, Version, running_agent
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import ReaderNode, drop_page_cache, small_version
from tests.support.waiting import eventually, eventually_async

from tdcs.engine import holder_table
from tdcs.model.agent_state import NO_SLOTS
from tdcs.model.file_blocks import Cut

pytestmark = needs_fuse

MB = 1 << 20


def contents() -> dict[str, bytes]:
    """Small files, an empty one, and one of several blocks of several parts."""
    rng = random.Random(7)
    files = {f"train/{number:03d}.jpg": rng.randbytes(20_000 + number) for number in range(50)}
    return {**files, "large.bin": rng.randbytes(5 * MB + 17), "zero": b""}


def say_who_holds(node: ReaderNode, version: Version, agents: dict[str, RunningAgent]) -> None:
    """What the operator answers, made by its own code from the agents' states."""
    states = {
        name: msgspec.structs.replace(agent.agent.state, address=agent.address)
        for name, agent in agents.items()
    }
    node.table(version, holder_table.table_of(states, mount=version.manifest.path))


async def filled_by_reads(
    node: ReaderNode, version: Version, agents: dict[str, RunningAgent], *, fill_bytes: int
) -> Path:
    """Assign the mount to the agents as a Dataset with `preload.enabled: false` has it, and start the node."""
    for agent in agents.values():
        agent.give(version.assignment(parts=(), origin=NO_SLOTS, fill_bytes=fill_bytes), manifests=version)
    await eventually_async(
        lambda: all(
            filling_agent.mount().fills == bool(fill_bytes) and filling_agent.mount().version
            for filling_agent in agents.values()
        ),
        deadline=20,
    )
    say_who_holds(node, version, agents)
    root = node.register(version)
    await asyncio.to_thread(node.start)
    return root


async def test_what_jobs_read_is_cached_on_their_node_and_read_from_its_disk_next_time(
    node: ReaderNode,
) -> None:
    files = contents()
    version = small_version(node.folder, files, cut=Cut(2 * MB + 5, 2 * MB + 5))
    async with (
        running_agent(node.folder / "elsewhere", node="elsewhere") as far_agent,
        running_agent(node.tier, node="here") as agent,
    ):
        agents = {"elsewhere": far_agent, "here": agent}
        root = await filled_by_reads(node, version, agents, fill_bytes=1 << 30)
        assert await asyncio.to_thread(sums, root) == wanted(files)

        await agent.holds(version)
        assert agent.content(version) == files
        assert agent.mount().source_bytes == version.bytes, "the source sends each byte once"
        assert (far_agent.mount().held_bytes, far_agent.mount().source_bytes) == (0, 0)
        say_who_holds(node, version, agents)

        def read_from_disk() -> bool:
            drop_page_cache()
            before, sent = (
                node.metric("tdcs_reader_read_bytes_total", origin="disk"),
                agent.mount().source_bytes,
            )
            assert sums(root) == wanted(files)
            from_disk = node.metric("tdcs_reader_read_bytes_total", origin="disk") - before
            return from_disk == version.bytes and agent.mount().source_bytes == sent

        # Once the client has the new table; by the one of before it asks the source, through the agent.
        await asyncio.to_thread(eventually, read_from_disk, deadline=30)


@pytest.mark.parametrize("fill_bytes", [0, 400_000])
async def test_what_finds_no_room_is_read_from_the_source_and_not_cached(
    node: ReaderNode, fill_bytes: int
) -> None:
    files = contents()
    version = small_version(node.folder, files)
    async with running_agent(node.tier, node="here") as agent:
        root = await filled_by_reads(node, version, {"here": agent}, fill_bytes=fill_bytes)
        assert await asyncio.to_thread(sums, root) == wanted(files)
        assert await asyncio.to_thread(node.metric, "tdcs_reader_errors_total") == 0

        def held() -> int:
            return sum(os.stat(file).st_size for file in agent.disk.spool.iterdir())

        # Blocks get their names a moment after they were read, several together.
        await eventually_async(lambda: bool(held()) == bool(fill_bytes), deadline=20)
        await eventually_async(lambda: agent.mount().held_bytes == held(), deadline=20)
        assert held() <= fill_bytes
        assert not agent.mount().fills


async def test_a_node_whose_cache_is_full_leaves_the_rest_to_the_cache_of_another(node: ReaderNode) -> None:
    files = contents()
    version = small_version(node.folder, files)
    async with (
        running_agent(node.folder / "elsewhere", node="elsewhere") as far_agent,
        running_agent(node.tier, node="here") as agent,
    ):
        agents = {"elsewhere": far_agent, "here": agent}
        for name, fill_bytes in (("elsewhere", 1 << 30), ("here", 400_000)):
            agents[name].give(
                version.assignment(parts=(), origin=NO_SLOTS, fill_bytes=fill_bytes), manifests=version
            )
        await eventually_async(lambda: agent.mount().fills and far_agent.mount().fills, deadline=20)
        say_who_holds(node, version, agents)
        root = node.register(version)
        await asyncio.to_thread(node.start)
        assert await asyncio.to_thread(sums, root) == wanted(files)
        await eventually_async(lambda: not agent.mount().fills, deadline=20)
        say_who_holds(node, version, agents)

        def read_again() -> bool:
            drop_page_cache()
            assert sums(root) == wanted(files)
            return agent.mount().held_bytes + far_agent.mount().held_bytes == version.bytes

        await asyncio.to_thread(eventually, read_again, deadline=30)
        assert 0 < agent.mount().held_bytes <= 400_000
