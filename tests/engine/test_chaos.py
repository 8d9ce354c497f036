"""Parts of the cache are killed and paused at random while sources and Datasets change: what must hold all the same.

No wrong byte and no failing read of data that is on the node; in the end every Dataset is loaded in the version that
its source has, as a fresh operator finds it, too; and nothing is left of deleted ones. An hour of it:

    make chaos-processes CHAOS_SECONDS=600 CHAOS_SEED=7

A run prints its seed and every round. Here it is short. The form on a cluster of nodes is e2e/chaos.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.engine.agents.agent_nodes import exports_of
from tests.engine.chaos_world import STEADY, Change, ChaosWorld, PodReads
from tests.engine.servers import MIB, AlluxioCluster, S3Server
from tests.engine.views.viewing import ELSEWHERE, HERE, machine_as_node, viewing
from tests.support.chaos import steps
from tests.support.programs.ports import free_ports
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import QUICK, Cluster

from tdcs.control.operator.cache_factory import serve_manifests

SECONDS = float(os.environ.get("TDCS_CHAOS_SECONDS", "12"))
SEED = int(os.environ.get("TDCS_CHAOS_SEED", "1"))
CAPACITY = {HERE: 256 * MIB, ELSEWHERE: 64 * MIB}


@pytest.mark.timeout(SECONDS + 1500)
@pytest.mark.failure_mode("chaos-on-processes", "master-killed-during-read", "worker-killed-during-read")
async def test_whatever_is_killed_or_paused_no_byte_is_wrong_and_the_end_is_that_of_a_quiet_run(
    own_alluxio: Callable[..., AlluxioCluster], s3: S3Server, tmp_path: Path
) -> None:
    alluxio = own_alluxio(workers=CAPACITY)
    (port,) = free_ports(1)
    async with contextlib.AsyncExitStack() as stack:
        node = stack.enter_context(machine_as_node())
        bench = await stack.enter_async_context(viewing(tiers=alluxio.folder / "blocks", s3=s3, node=node))
        caches, agents = await stack.enter_async_context(
            exports_of(alluxio, folder=tmp_path / "manifests", capacity=CAPACITY)
        )
        operator = Cluster(
            engine=cast(MemoryEngine, None),  # the cache is a real one
            nodes={HERE: {}, ELSEWHERE: {}},
            settings=replace(QUICK, give_up_seconds=30.0, listing_seconds=60.0),
            caches=caches.seen_by,
        )
        caches.api = operator.server
        await stack.enter_async_context(operator)
        await stack.enter_async_context(
            serve_manifests(
                agents.manifests, port=port, known_agents=lambda name: operator.observer.known_agents(name)
            )
        )
        node.end_plugin()
        bench.operator = f"127.0.0.1:{port}"
        bench.start_plugin()
        world = ChaosWorld(alluxio=alluxio, bench=bench, agents=agents, operator=operator, seed=SEED)
        volume = await world.begin()
        print(f"seed {SEED}, {SECONDS:g} s")
        end, rounds = time.monotonic() + SECONDS, 0
        with PodReads(volume, world.sums()[STEADY]) as pod:
            for step in steps(seed=SEED, possible=world.possible, changes=list(Change)):
                if time.monotonic() > end:
                    break
                rounds += 1
                print(f"{rounds}: {step}", flush=True)
                await world.run(step)
                assert not pod.wrong, (step, pod.wrong[:5])
            await world.settled()
        assert not pod.wrong
        assert pod.count > 100
        print(f"{rounds} rounds, {pod.count} reads")
        assert await world.read_again() == world.sums()
        state = world.end_state()
        await world.restart_operator()
        await world.settled()
        assert world.end_state() == state, "an operator that knows nothing finds the same"
        await asyncio.to_thread(bench.unpublish, volume)
        bench.end_pods()
        await world.remove_all()
