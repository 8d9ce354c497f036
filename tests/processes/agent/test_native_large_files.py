"""Large files in a cache of agents alone: filled in parts, killed at any moment, native when whole, moved in parts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
from tests.processes.agent.test_native_agents import ALL, LARGE, NativeCache, by_block, cache, reads_all_again
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import MOUNT, Version
from tests.support.waiting import eventually_async

from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS, Part
from tdcs.model.file_blocks import Cut
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.view_plan import Form, plan
from tdcs.node.csi.views.view_tree import Tree
from tdcs.node.extents import extent_place, read_part

__all__ = ["cache"]

EXTENT = 256 << 10
CONTENT = LARGE["data/large.bin"]
BLOCKS = -(-len(CONTENT) // EXTENT)


class LargeFile:
    """The one large file of a version, as others than the agent find it on a node's disk."""

    def __init__(self, version: Version) -> None:
        manifest = version.manifest
        file = manifest.file_at(b"large.bin")
        assert file is not None
        self.file: int = file
        self.version = version
        self.blocks = manifest.blocks_of(file)
        assert len(self.blocks) == BLOCKS

    def parts(self, agent: AgentProcess) -> set[int]:
        """Its blocks that can be read on a node; each has the bucket's bytes."""
        numbers = set()
        for number, block in enumerate(self.blocks):
            place = extent_place(self.version.manifest, block)
            assert place is not None
            right = CONTENT[number * EXTENT : (number + 1) * EXTENT]
            content = read_part(str(agent.tier), place, offset=0, length=len(right))
            assert content in (None, right)
            if content is not None:
                numbers.add(number)
        return numbers

    def whole(self, agent: AgentProcess) -> Path:
        return agent.disk.large.folders.whole / str(self.version.manifest.block_ids[self.blocks.start])


def follow(agent: AgentProcess, version: Version) -> Tree:
    """A view of a version, as the node plugin makes it and brings it up to date."""
    store = Store(tiers=[str(agent.tier)], mount=MOUNT)
    tree = Tree(
        folder=str(agent.tier / "views" / "tree"),
        scratch=str(agent.tier / "views" / "scratch"),
        manifest=version.manifest,
        store=store,
    )
    tree.prepare()
    blocks = store.scan(manifest=version.manifest, kinds=tree.kinds)
    tree.apply(plan(kinds=tree.kinds, forms=tree.forms, linked=tree.linked, blocks=blocks, release=False))
    return tree


async def killed_at(agent: AgentProcess, large: LargeFile, *, count: int) -> set[int]:
    """Kill an agent once so many parts of the file are here; those that are here then, and when it has come back."""
    await eventually_async(lambda: len(large.parts(agent)) >= count, deadline=120, interval=0.005)
    await asyncio.to_thread(agent.process.kill)
    parts_on_disk = large.parts(agent)
    await asyncio.to_thread(agent.process.start)
    return parts_on_disk


async def test_a_large_file_survives_kills_in_parts_and_is_one_plain_file_in_the_end(
    cache: NativeCache,
) -> None:
    version = await cache.listed(cut=Cut(1 << 20, EXTENT))
    large, expected, rng = LargeFile(version), by_block(version), random.Random(1)
    first, second = cache.agents

    sent = 0
    await cache.give(first, version, bandwidth=6_000_000)
    for count in (1, rng.randrange(10, 20), BLOCKS - 5):
        parts_on_disk = await killed_at(first, large, count=count)
        assert large.parts(first) >= parts_on_disk, "what was here is here again"
        sent = max(sent, len(parts_on_disk))
        await cache.give(first, version, bandwidth=20_000_000)
    assert sent >= 10
    await cache.holds(first, version)
    assert large.whole(first).read_bytes() == CONTENT
    tree = follow(first, version)
    assert tree.forms[large.file] == Form.LINK
    file = first.tier / "views" / "tree" / "large.bin"
    assert file.samefile(large.whole(first))
    assert read_by_wire(first, version.manifest, expected) == expected

    # The other one gets it from the first in parts, is killed, and the store is not there any more.
    cache.store.content = None
    await cache.give(second, version, origin=NO_SLOTS, peers=[first.peer()], source=None)
    parts_on_disk = await killed_at(second, large, count=5)
    assert large.parts(second) >= parts_on_disk
    await cache.give(second, version, origin=NO_SLOTS, peers=[first.peer()], source=None)
    await cache.holds(second, version)
    assert large.whole(second).read_bytes() == CONTENT

    # Each keeps half of the slots from now on. A pod that reads the file on goes on reading.
    even = slots.of_mask(np.arange(slots.SLOTS) % 2 == 0)
    odd = slots.of_mask(np.arange(slots.SLOTS) % 2 == 1)
    with file.open("rb") as pod:
        for agent, keeps, drops in ((first, even, odd), (second, odd, even)):
            await cache.give(
                agent, version, parts=(Part(name="Dataset a/b", slots=keeps),), drop=drops, source=None
            )
        halves = [
            {n for n, b in enumerate(large.blocks) if version.manifest.block_slots[b] % 2 == remainder}
            for remainder in (0, 1)
        ]

        def moved() -> bool:
            return [large.parts(agent) for agent in (first, second)] == halves

        await eventually_async(moved, deadline=120, describe=first.process.tail)
        assert not any(large.whole(agent).exists() for agent in (first, second))
        assert pod.read() == CONTENT
    assert file.read_bytes() == CONTENT
    blocks = {**read_by_wire(first, version.manifest, expected)}
    blocks |= read_by_wire(second, version.manifest, expected)
    assert blocks == expected

    # And all of it comes together again, from the other one alone.
    for agent in (first, second):
        await asyncio.to_thread(agent.process.kill)
        await asyncio.to_thread(agent.process.start)
    await cache.give(first, version, origin=NO_SLOTS, peers=[second.peer()], source=None)
    await cache.holds(first, version)
    await reads_all_again(first, version, expected)
    assert large.whole(first).read_bytes() == CONTENT
    assert not file.samefile(large.whole(first)), "the copy that pods had is not written"
    follow(first, version)
    assert file.samefile(large.whole(first))
    assert file.read_bytes() == CONTENT
    assert sum(map(len, ALL.values())) == version.bytes
