"""The operator on a real cache: what a load of many files costs its process, and how soon its status is true.

    PYTHONPATH=.:deploy/local:operator python bench/cache/data_plane.py [--files 20000] [--size 1000] [--copies 2]

The operator's controllers, with the production rhythm and an API server in memory, work on a real Alluxio with two
workers and their agents, and a real S3 server; all of these are processes of their own, and so is a listing. One
Dataset is replicated on both nodes. Prints one line of JSON:

* seconds until it is listed, and until it is Ready (readable)
* the longest pause of the operator's event loop, whose thread has precedence over the processes next to it, which share
  its processors here alone; and the memory of its process that is its own (the API server in memory and the handles of
  the other processes are in it)
* bytes a file on the operator's TCP connections, both ways: until it is listed, when it counts the names of the source
  at the store, and from then on, with the manifest that it gives to the agents
* the ledger: one node's worker is killed alone, and then with its agent, as when their pod dies; seconds until the
  Dataset's status is true again

Needs root.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import click
from bench.cache.cache_lab import KEYS, Lab, lab
from bench.cache.socket_bytes import SocketBytes
from bench.control_plane.operator_scale import resident_mib
from tests.engine.agents.agent_nodes import AgentCluster, ExportCaches, exports_of
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.alluxio import profile
from tdcs.alluxio.master_room import FILE_BYTES
from tdcs.control.context import Settings
from tdcs.control.operator.operator_command import spare_lasting_objects
from tdcs.model.kube_resources import CACHE_CLUSTERS

GIB, MIB = 1 << 30, 1 << 20
NAME = "pictures"
DEADLINE = 280.0
COPY_SECONDS = 0.02
"""So much longer each copy of a file may take."""


class Watch:
    """The pauses of an event loop."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def follow(self, *, every: float = 0.01) -> None:
        """Look until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(every)
            self.longest = max(self.longest, time.monotonic() - began - every)


def take_precedence() -> bool:
    """Have this thread run whenever it can, as that of an operator on another node than its caches; what it starts has
    no precedence. Whether the kernel allows it: elsewhere pauses tell how busy the machine is."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        return False
    return True


def master_heap(files: int) -> int:
    """Bytes of a master's heap that has room for so many files, and for what the product's own has room for else."""
    return profile.heap_bytes(profile.java_options(role=profile.AlluxioRole.MASTER)) + files * FILE_BYTES


@asynccontextmanager
async def operator_on(
    place: Lab, caches: ExportCaches, agents: AgentCluster, *, heap: int
) -> AsyncIterator[Cluster]:
    """The controllers on a cache with its agents. `heap`: of its master, in bytes."""
    controllers = Cluster(
        engine=cast(MemoryEngine, None),  # the cache is a real one
        nodes={node: {} for node in agents.nodes},
        settings=Settings(),
        most_wait=math.inf,
        caches=caches.seen_by,
    )
    caches.api = controllers.server
    async with controllers as cluster:
        await cluster.create_keys(account=KEYS.access_key_id, key=KEYS.secret_access_key)
        store = {"name": "store", "endpoints": [place.store.options["endpoint"]]}
        await cluster.create_cache(sources=[store], master={"jvmOptions": [f"-Xmx{heap // MIB}m"]})
        yield cluster


async def seconds_until(cluster: Cluster, holds: Callable[[], object]) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    await cluster.until(holds, deadline=DEADLINE)
    return round(time.monotonic() - began, 1)


async def loaded(
    cluster: Cluster,
    agents: AgentCluster,
    *,
    uri: str,
    options: dict[str, Any],
    expected: int,
) -> dict[str, Any]:
    """Make the Dataset, and follow it until all of it is readable. `expected`: its files."""
    watch, sockets, began = Watch(), SocketBytes(), time.monotonic()
    watching = [asyncio.create_task(watch.follow()), asyncio.create_task(sockets.follow())]
    nodes = len(agents.nodes)
    deadline = DEADLINE + expected * nodes * COPY_SECONDS
    await cluster.create_dataset(
        NAME,
        source={"uri": uri, "options": options, "checkInterval": "0s"},
        placement={"mode": "Replicate", "nodeCount": nodes},
    )
    await cluster.until(lambda: cluster.status().get("totalFiles"), deadline=deadline)
    files = cluster.status()["totalFiles"]
    listed, of_listing = time.monotonic() - began, sockets.total
    await cluster.until(lambda: cluster.status().get("state") == "Ready", deadline=deadline)
    ready = time.monotonic() - began
    sockets.look()
    for task in watching:
        task.cancel()
    (digest,) = agents.manifests.digests()
    return {
        "copies": nodes,
        "listed_seconds": round(listed, 1),
        "ready_seconds": round(ready, 1),
        "longest_pause_ms": round(1000 * watch.longest, 1),
        "memory_mib": round(resident_mib()),
        "socket_bytes_per_file": {
            "until_listed": round(of_listing / files, 1),
            "load": round((sockets.total - of_listing) / files, 1),
        },
        "manifest_bytes_per_file": round(agents.manifests.file(digest).stat().st_size / files, 1),
    }


def readable(cluster: Cluster) -> dict[str, int]:
    """Bytes of the Dataset on each node that has some of it now, by its status."""
    return {node: size for node, size in cluster.nodes().items() if size}


async def killed(cluster: Cluster, place: Lab, agents: AgentCluster) -> dict[str, float]:
    """Kill a node's worker, then its agent as well, and start them again; seconds until the status is true."""
    node, *healthy = agents.nodes
    held = readable(cluster)
    remaining = {node_name: held[node_name] for node_name in healthy}

    def state() -> str:
        workers = cluster.status("default", resource=CACHE_CLUSTERS).get("workers", ())
        return next(str(worker["state"]) for worker in workers if worker["node"] == node)

    await cluster.until(lambda: state() == "Ready", deadline=DEADLINE)
    await asyncio.to_thread(place.cache.workers[node].kill)
    lost = await seconds_until(cluster, lambda: state() == "Lost")
    if readable(cluster) != held:  # the agent is there, and gives what is on its disk
        raise RuntimeError(f"the status says {readable(cluster)} after a worker alone was lost, not {held}")
    await asyncio.to_thread(agents.nodes[node].process.kill)
    struck = await seconds_until(cluster, lambda: readable(cluster) == remaining)
    await asyncio.to_thread(place.cache.workers[node].launch)
    agents.nodes[node].process.launch()
    again = await seconds_until(cluster, lambda: readable(cluster) == held)
    return {
        "worker_lost_seconds": lost,
        "agent_too_struck_seconds": struck,
        "back_seconds": again,
    }


async def run(*, files: int, size: int, copies: int, kills: bool) -> dict[str, Any]:
    """All of it, on a cluster of its own."""
    heap, capacity = master_heap(files), 4 * GIB + files * size
    with lab(workers=copies, capacity=capacity, master_heap=heap) as place:
        source = place.store.fill("bench", files=files, size=size)
        options = {**source.options, "pathStyle": True}
        folder = place.cache.folder / "manifests"
        async with exports_of(place.cache, folder=folder, capacity=capacity) as (caches, agents):
            spare_lasting_objects()  # as the operator's command does
            precedence = take_precedence()
            async with operator_on(place, caches, agents, heap=heap) as cluster:
                figures = await loaded(cluster, agents, uri=source.uri, options=options, expected=files)
                figures["precedence"] = precedence
                if kills:
                    figures["ledger"] = await killed(cluster, place, agents)
                return figures


@click.command()
@click.option("--files", default=20_000, show_default=True)
@click.option("--size", default=1000, show_default=True, help="Bytes of each.")
@click.option("--copies", default=2, show_default=True, help="One on each of so many nodes.")
@click.option("--kills/--no-kills", default=True, show_default=True, help="Kill a worker at the end.")
def main(files: int, size: int, copies: int, kills: bool) -> None:
    """Measure an operator on a real cache."""
    figures = asyncio.run(run(files=files, size=size, copies=copies, kills=kills))
    machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
    click.echo(json.dumps({"bench": "data_plane", "files": files, "size": size, **figures, **machine}))


if __name__ == "__main__":
    main()
