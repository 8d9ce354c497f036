"""Agents that alone are the cache, as processes of their own: from a bucket to a reader's bytes, without any master."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import MOUNT, Version
from tests.support.programs.bucket_store import BucketStore, serving
from tests.support.programs.ipv6 import LOOPBACK, needs_ipv6
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.decide.source_loss import SecondCount
from tdcs.engine.agent_client import HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.other_node import OtherNodes
from tdcs.listing.result import access_of
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, AgentError, MountState
from tdcs.model.file_blocks import WHOLE_BLOCKS, Cut
from tdcs.model.listing_limit import SourcesSize
from tdcs.node.agent.agent_process import prepare

FILES = {
    f"data/{number // 50:02}/{number:03}.jpg": random.Random(number).randbytes(30_000)
    for number in range(300)
}
LARGE = {"data/large.bin": random.Random(7).randbytes(12_000_000), "data/empty": b""}
ALL = FILES | LARGE


class NativeCache:
    """A bucket, two agents, and the operator's client to them, all at one loopback address."""

    def __init__(self, folder: Path, *, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        self.store = BucketStore(
            keys=[name.encode() for name in ALL],
            size=lambda key: len(ALL[key.decode()]),
            content=lambda key: ALL[key.decode()],
            host=host,
        )
        self.client = HttpAgents(poll_seconds=2.0, call_seconds=5.0)
        self.agents = [self._agent(node) for node in ("one", "two")]
        self._number = 0

    def _agent(self, node: str) -> AgentProcess:
        control, blocks = free_ports(2)
        return AgentProcess(
            node=node,
            tier=self.folder / node,
            log=self.folder / f"{node}.log",
            capacity=1 << 30,
            host=self.host,
            control_port=control,
            block_port=blocks,
        )

    async def start(self) -> None:
        for agent in self.agents:
            agent.tier.mkdir()
            assert await asyncio.to_thread(prepare, agent.tier) == 0
            agent.process.launch()
        for agent in self.agents:
            await asyncio.to_thread(agent.process.wait_ready)
        self.client.connect({agent.node: agent.reached for agent in self.agents})
        await eventually_async(lambda: len(self.client.states()) == 2, deadline=60)

    async def listed(self, *, cut: Cut = WHOLE_BLOCKS) -> Version:
        """The version that the bucket has, found by TDCS's own listing, put on the agents' disks."""
        manifests = ManifestFolder(self.folder / "manifests")
        lister = ProcessLister(folder=manifests, source_of=lambda _: self.store.source, cut=cut)
        listing = await lister.list(path=MOUNT)
        for agent in self.agents:
            content = manifests.file(listing.digest).read_bytes()
            (agent.disk.manifests / manifests.file(listing.digest).name).write_bytes(content)
        return Version(
            manifest=manifests.open(listing.digest), folder=manifests, source=access_of(self.store.source)
        )

    async def give(self, agent: AgentProcess, version: Version, **fields: object) -> None:
        """Assign, until the agent has taken it."""
        self._number += 1
        assignment = version.assignment(version=self._number, **fields)  # type: ignore[arg-type]

        async def taken() -> bool:
            try:
                await self.client.assign(node=agent.node, assignments=[assignment])
            except AgentError:
                return False
            return True

        await eventually_async(taken, deadline=60, describe=agent.process.tail)

    async def holds(self, agent: AgentProcess, version: Version) -> None:
        """Wait until an agent holds everything, and has nothing left to do."""

        def whole() -> bool:
            state = self._state(agent)
            return state.held_bytes == version.bytes and not state.busy and not state.failures

        await eventually_async(
            whole, deadline=120, describe=lambda: f"{self._state(agent)}\n{agent.process.tail()}"
        )

    def _state(self, agent: AgentProcess) -> MountState:
        state = self.client.states().get(agent.node)
        return (state.mounts.get(MOUNT) if state is not None else None) or MountState(mount=MOUNT)


def by_block(version: Version) -> dict[int, bytes]:
    """What each block of a version has in the bucket."""
    manifest, contents = version.manifest, {}
    for block in range(manifest.blocks):
        path = manifest.file_path(manifest.file_of(block)).decode()
        offset = manifest.offset(block)
        contents[block] = ALL[f"data/{path}"][offset : offset + int(manifest.block_lengths[block])]
    return contents


async def reads_all_again(agent: AgentProcess, version: Version, expected: dict[int, bytes]) -> None:
    """Wait until an agent that was started again has looked at its disk, and gives all of it; never other bytes."""

    def all_right() -> bool:
        blocks = read_by_wire(agent, version.manifest, expected)
        assert blocks == {block: expected[block] for block in blocks}
        return blocks == expected

    await eventually_async(all_right, deadline=60, describe=agent.process.tail)


@pytest.fixture
async def cache(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NativeCache]:
    cache = NativeCache(tmp_path, host=getattr(request, "param", "127.0.0.1"))
    async with serving(cache.store):
        try:
            await cache.start()
            yield cache
        finally:
            await cache.client.close()
            for agent in cache.agents:
                await asyncio.to_thread(agent.process.kill)


@pytest.mark.failure_mode("native-engine-process-killed")
async def test_a_bucket_is_listed_loaded_and_read_without_any_master(cache: NativeCache) -> None:
    version = await cache.listed()
    first, second = cache.agents
    assert len(version.manifest) == len(ALL)

    await cache.give(first, version, origin=ALL_SLOTS)
    # Killed in the middle of the load: what has a name is whole.
    await eventually_async(
        lambda: sum(1 for _ in first.disk.spool.iterdir()) > 20, deadline=60, interval=0.005
    )
    await asyncio.to_thread(first.process.kill)
    files = first.content(version)
    assert files == {name: ALL[f"data/{name}"] for name in files}, "readable, and not what it is called"
    await asyncio.to_thread(first.process.start)
    await cache.give(first, version, origin=ALL_SLOTS)
    await cache.holds(first, version)

    # The other one has all from the first, and the store is not there any more.
    cache.store.content = None
    await cache.give(second, version, origin=NO_SLOTS, peers=[first.peer()], source=None)
    await cache.holds(second, version)

    expected = by_block(version)
    for agent in (first, second):
        assert read_by_wire(agent, version.manifest, expected) == expected
        await asyncio.to_thread(agent.process.kill)
        await asyncio.to_thread(agent.process.start)
        await reads_all_again(agent, version, expected)


@needs_ipv6
@pytest.mark.parametrize("cache", [LOOPBACK], indirect=True)
async def test_a_bucket_is_listed_loaded_and_read_at_addresses_of_ipv6(cache: NativeCache) -> None:
    version = await cache.listed(cut=Cut(1 << 20, 1 << 20))
    first, second = cache.agents
    assert first.address.startswith("[::1]:")
    assert cache.store.source.options["endpoint"].startswith("http://[::1]:")
    await cache.give(first, version, origin=ALL_SLOTS)
    await cache.holds(first, version)

    cache.store.content = None
    await cache.give(second, version, origin=NO_SLOTS, peers=[first.peer()], source=None)
    await cache.holds(second, version)
    expected = by_block(version)
    for agent in (first, second):
        assert read_by_wire(agent, version.manifest, expected) == expected


async def test_agents_count_a_bucket_that_has_lost_much_by_listings_of_their_own(cache: NativeCache) -> None:
    count, before = OtherNodes(cache.client), SourcesSize(files=1000, bytes=1 << 30)
    options = {**cache.store.source.options, "exclude": "**/large.bin"}
    source = replace(cache.store.source, options=options)
    expected = ProcessLister(folder=ManifestFolder(cache.folder / "expected"), source_of=lambda _: source)
    size = (await expected.list(path=MOUNT)).size

    recount = await count(source, path=MOUNT, before=before)
    assert recount == SecondCount(node=recount.node if recount else "", files=size.files, bytes=size.bytes)
    assert recount.node in {"one", "two"}
    assert not [file for agent in cache.agents for file in (agent.disk.manifests / ".counted").glob("*")]

    more = await count(source, path=MOUNT, before=SourcesSize(files=100))
    assert more is not None, "it is counted no further"
    assert more.files == 101

    refused = dict.fromkeys(
        range(len(cache.store.asked), 10_000), (403, b"<Error><Code>AccessDenied</Code></Error>")
    )
    cache.store.failures = dict(refused)
    nothing = await count(source, path=MOUNT, before=before)
    assert nothing is not None
    assert nothing.files is None
    assert "AccessDenied" in nothing.reason or "refuse" in nothing.reason
    cache.store.failures = {}

    for agent in cache.agents:
        assert cache.store.source.credentials is not None
        assert cache.store.source.credentials.secret_access_key not in agent.process.tail()
        await asyncio.to_thread(agent.process.kill)
    away = await count(source, path=MOUNT, before=before)
    assert away is not None
    assert away.files is None
