"""Two nodes load the first pages of a bucket while its listing goes on, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from tests.processes.agent.test_native_cache import NODES, World, running
from tests.support.programs.web_server import web_server

FILES = {f"data/{number // 100:03}/{number:05}.bin": b"%05d" % number * 20 for number in range(4_000)}
ON_THEIR_WAY = 120
"""So many files at most are asked for twice: those that two agents were reading whenever the manifest changed. Each of
them reads a bounded number at a time, so this does not grow with the files."""
NAMES = 40
"""Of a page."""
HELD_SECONDS = 0.4
"""So late come the first half of the pages; the others come when they are let go."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path, "Native", files=FILES)
    with web_server(world.web):
        async for world_of_test in running(world, tmp_path):
            yield world_of_test


def lister_processes() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children()
        if process.status() != psutil.STATUS_ZOMBIE and "tdcs.listing" in process.cmdline()
    ]


def files_on_nodes(world: World) -> int:
    agents = world.cluster.observer.view("default").agents
    return sum(
        mount.held_bytes // 100 for node in NODES if node in agents for mount in agents[node].mounts.values()
    )


@pytest.mark.parametrize("killed", ["nobody", "lister", "lister and operator"])
async def test_the_first_pages_are_on_nodes_before_the_listing_ends_and_come_once(
    world: World, killed: str
) -> None:
    cluster, store, last_page = world.cluster, world.store, asyncio.Event()

    async def hold() -> None:
        try:
            await asyncio.wait_for(last_page.wait(), HELD_SECONDS)
        except TimeoutError:
            if len(store.asked) > len(FILES) // NAMES // 2:
                await last_page.wait()

    store.most_names, store.before_page = NAMES, hold
    await cluster.create_dataset(
        source={
            "uri": store.source.uri,
            "options": {"endpoint": store.source.options["endpoint"], "pathStyle": True},
        },
        placement={"mode": "Replicate", "nodeCount": 2},
    )
    await cluster.until(lambda: files_on_nodes(world) > 0, deadline=180)
    status = cluster.status()
    assert (status["state"], status.get("totalFiles") or 0) == ("Mounting", 0)
    assert world.mounts.get("versions", "") in {"", "{}"} or not cluster.observer.view("default").versions
    if killed != "nobody":
        (lister,) = lister_processes()
        os.kill(lister.pid, signal.SIGKILL)
    if "operator" in killed:
        await world.operator_is_killed()
    last_page.set()
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=180)
    asked_again = sum(store.given.values()) - len(FILES)
    assert len(store.given) == len(FILES)
    assert asked_again <= ON_THEIR_WAY
    await world.reads("one")
    await world.reads("two")
