"""How fast and how cheaply agents carry blocks, next to other ways of doing the same in the same run.

Scenarios, each printing one line of JSON (all of them when none is named):

* ``one-node``: 4,000 files of 100 KB from an unshaped S3 store onto one node: by the agent, and by Alluxio, of
  a mount of its own, by its master-driven load and by its distributedLoad
* ``peers``: the same files from one agent to another one, next to a plain copy over TCP
* ``peers-large``: the same with 8 files of 128 MB
* ``replicate``: 10,000 files of 100 KB onto one node, then onto three
* ``replicate-own-processors``: the same, and each node (worker and agent) may use half a processor: on this one machine
  three nodes otherwise share what one node has for itself
* ``shaped-small``: 10,000 files of 100 KB over 160 Mbit/s (20 MB/s), the first load of a new cluster
* ``shaped-large``: 8 files of 256 MB over 400 Mbit/s (50 MB/s), the same

Real Alluxio processes and agents with the product's settings, and a real S3 server in a network namespace of its own.
Needs root. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator python bench/cache/agent_loading.py peers
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec
from bench.cache.alluxio_loads import distributed, job_service, master_driven
from bench.cache.cache_lab import Lab, lab
from bench.cache.cpu_time import CpuTime, kinds
from bench.cache.processors import limited
from tests.engine.agents.agent_nodes import AgentCluster, agents_of
from tests.support.certificates import TestAuthority
from tests.support.dataplane.agents import Version
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS
from tdcs_local.experiment import objects, stock_mount

GIB, MB, KB = 1 << 30, 10**6, 10**3
BATCH = 20
"""Files in one job of the batched distributedLoad: what Alluxio's documentation names."""

PROCESSORS_PER_NODE = 0.5
Result = dict[str, Any]


async def loaded(
    agents: AgentCluster,
    version: Version,
    assignments: Mapping[str, dict[str, Any]],
    *,
    deadline: float = 900,
) -> float:
    """Give these assignments; seconds until all is readable on all of the nodes."""
    began = time.monotonic()
    await asyncio.gather(*(agents.give(node, version, **fields) for node, fields in assignments.items()))
    await asyncio.gather(*(agents.holds(node, version, deadline=deadline) for node in assignments))
    return time.monotonic() - began


async def emptied(agents: AgentCluster, version: Version) -> None:
    """Drop everything on all nodes."""
    for node in agents.nodes:
        await agents.give(node, version, parts=(), origin=NO_SLOTS, drop=slots.prefix(slots.SLOTS))
    await eventually_async(
        lambda: all(not agents.mount(node, version).held_bytes for node in agents.nodes),
        deadline=300,
        describe=agents.describe,
    )
    await asyncio.to_thread(_drop_page_cache)


def agent_kinds(place: Lab, agents: AgentCluster) -> dict[str, list[int]]:
    """Processes by kind, for `CpuTime`."""
    return {**kinds(place), "agents": [node.process.pid for node in agents.nodes.values()]}


def per_file(used: Mapping[str, float], files: int) -> float:
    """Milliseconds of all processes but this one for each file."""
    total = sum(value for kind, value in used.items() if kind not in ("this_process", "of_processors"))
    return round(1000 * total / files, 3)


async def one_node(place: Lab, agents: AgentCluster, version: Version, files: int, *, rounds: int) -> Result:
    """By the agent, and by Alluxio's own ways; of several rounds the last one counts, which finds warm processes."""
    (node,) = agents.nodes
    mounted = _mount_of(place, version)
    result: Result = {}
    cpu = CpuTime(pids=agent_kinds(place, agents))
    for name in ("cold", "agent")[-rounds:]:
        cpu.again()
        readable = await loaded(agents, version, {node: {}})
        used = cpu.report()
        result[name] = {
            "readable_per_s": round(files / readable),
            "cpu_ms_until_readable": per_file(used, files),
            "cpu_seconds": used,
        }
        await emptied(agents, version)
    async with job_service(place.cache) as jobs:
        ways: dict[str, Callable[[], Awaitable[float]]] = {
            "master_driven": lambda: master_driven(place.cache, mounted.path),
            "distributed_load": lambda: distributed(jobs, mounted.path, batch=1),
            f"distributed_load_batch_{BATCH}": lambda: distributed(jobs, mounted.path, batch=BATCH),
        }
        for name, load in ways.items():
            seconds = []
            for _ in range(rounds):
                await stock_mount.mount(mounted)
                cpu.again()
                seconds.append(await load())
                used = cpu.report()
                await asyncio.to_thread(_drop_page_cache)
            result[name] = {
                "files_per_s": round(files / seconds[-1]),
                "cpu_ms_per_file": per_file(used, files),
            }
    best = max(value["files_per_s"] for name, value in result.items() if name.startswith("distributed"))
    mine = result["agent"]
    result["readable_over_distributed_load"] = round(mine["readable_per_s"] / best, 2)
    result["readable_over_master_driven"] = round(
        mine["readable_per_s"] / result["master_driven"]["files_per_s"], 2
    )
    return result


def _mount_of(place: Lab, version: Version) -> stock_mount.Request:
    """The version's bucket in Alluxio, as the experiment has its own; each mount begins without cached data."""
    access = version.source
    keys = {"accessKeyId": access.access_key_id, "secretAccessKey": access.secret_access_key}
    request = objects.stock_mount(keys, identity=None)
    request.properties["alluxio.underfs.s3.endpoint"] = access.options["endpoint"]
    return msgspec.structs.replace(request, master=place.cache.target, path="/bench", uri=access.uri)


async def peers(place: Lab, agents: AgentCluster, version: Version, files: int, *, rounds: int) -> Result:
    """From one agent to another, and a plain copy of the same files; each begins with nothing left to write back."""
    giver, taker = agents.nodes
    await loaded(agents, version, {giver: {}})
    assignment = {"origin": NO_SLOTS, "source": None, "peers": [agents.nodes[giver].peer()]}
    cpu = CpuTime(pids=agent_kinds(place, agents))
    rates, plain, costs = [], [], []
    for _ in range(rounds):
        await asyncio.to_thread(os.sync)
        plain.append(files / await _plain(agents, giver, version))
        await asyncio.to_thread(os.sync)
        cpu.again()
        readable = await loaded(agents, version, {taker: assignment})
        costs.append(per_file(cpu.report(), files))
        rates.append(files / readable)
        await agents.give(taker, version, parts=(), origin=NO_SLOTS, drop=slots.prefix(slots.SLOTS))
        await eventually_async(lambda: not agents.mount(taker, version).held_bytes, deadline=300)
    ratio = statistics.median(mine / plain_rate for mine, plain_rate in zip(rates, plain, strict=True))
    return {
        "readable_per_s": round(statistics.median(rates), 1),
        "plain_copy_per_s": round(statistics.median(plain), 1),
        "over_plain_copy": round(ratio, 2),
        "cpu_ms_until_readable": statistics.median(costs),
    }


async def _plain(agents: AgentCluster, giver: str, version: Version) -> float:
    folder = agents.cluster.folder / "plain"
    names = agents.cluster.folder / "names"
    names.write_text("\n".join(map(str, version.manifest.block_ids.tolist())))
    (port,) = free_ports(1)
    run = [sys.executable, "-m", "bench.cache.plain_copy"]
    giving = await asyncio.create_subprocess_exec(
        *run, "give", str(agents.nodes[giver].disk.spool), str(port), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert giving.stdout is not None
        await giving.stdout.readline()
        taking = await asyncio.create_subprocess_exec(
            *run, "take", str(port), str(names), str(folder), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await taking.communicate()
        return float(output)
    finally:
        giving.kill()
        await giving.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def replicate(place: Lab, agents: AgentCluster, version: Version, files: int) -> Result:
    """One copy, then three: time, and what the source sends."""
    nodes = list(agents.nodes)
    result: Result = {
        "manifest_bytes_per_file": round(version.folder.file(version.manifest.digest).stat().st_size / files)
    }
    await loaded(agents, version, _placed(agents, version, nodes))  # not counted: warms up
    await emptied(agents, version)
    for count in (1, 3):
        sent = place.store.sent().payload_bytes
        cpu = CpuTime(pids=agent_kinds(place, agents))
        readable = await loaded(agents, version, _placed(agents, version, nodes[:count]))
        result[f"nodes_{count}"] = {
            "readable_seconds": round(readable, 2),
            "copies_per_s": round(files * count / readable),
            "source_ratio": round((place.store.sent().payload_bytes - sent) / version.bytes, 3),
            "cpu_seconds": cpu.report(),
        }
        await emptied(agents, version)
    one_copy, three = result["nodes_1"], result["nodes_3"]
    result["time_ratio"] = round(three["readable_seconds"] / one_copy["readable_seconds"], 2)
    result["source_ratio"] = three["source_ratio"]
    return result


async def replicate_alone(place: Lab, agents: AgentCluster, version: Version, files: int) -> Result:
    """`replicate` with processors of their own for the nodes."""
    groups = {name: (place.cache.workers[name].pid, node.process.pid) for name, node in agents.nodes.items()}
    with limited(groups, processors=PROCESSORS_PER_NODE):
        figures = await replicate(place, agents, version, files)
    return {"processors_per_node": PROCESSORS_PER_NODE, **figures}


def _placed(agents: AgentCluster, version: Version, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """Every slot on each of the nodes, its origin one of them."""
    origins = slots.partition(
        mount=version.manifest.path,
        capacities=dict.fromkeys(nodes, 1),
        sizes=version.manifest.totals().sizes,
    )
    return {
        node: {
            "origin": origins[node],
            "peers": [agents.nodes[peer].peer() for peer in nodes if peer != node],
        }
        for node in nodes
    }


async def shaped(place: Lab, agents: AgentCluster, version: Version, files: int, *, rate: int) -> Result:
    """The first load of a new cluster: what share of a link of `rate` bits a second carries bytes of files."""
    wire, sent = place.store.wire_bytes(), place.store.sent().payload_bytes
    sizes = version.manifest.totals().sizes
    shares = slots.partition(
        mount=version.manifest.path, capacities=dict.fromkeys(agents.nodes, 1), sizes=sizes
    )
    bytes_by_node = {node: int(sizes[slots.mask_of(share)].sum()) for node, share in shares.items()}
    began = time.monotonic()
    for node, share in shares.items():
        await agents.give(node, version, slots=share, origin=share)
    await eventually_async(
        lambda: all(agents.mount(node, version).held_bytes == size for node, size in bytes_by_node.items()),
        deadline=1200,
        describe=agents.describe,
        interval=0.05,
    )
    seconds = time.monotonic() - began
    able = rate / 8 * seconds
    return {
        "seconds": round(seconds, 2),
        "link_use": round((place.store.wire_bytes() - wire) / able, 3),
        "payload_share": round(version.bytes / able, 3),
        "source_ratio": round((place.store.sent().payload_bytes - sent) / version.bytes, 3),
    }


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a scenario loads over what."""

    files: int
    size: int
    workers: int
    rate: int | None = None
    rounds: int | None = None

    @property
    def more(self) -> dict[str, int]:
        """What the scenario takes next to the files."""
        arguments = {"rate": self.rate, "rounds": self.rounds}
        return {name: value for name, value in arguments.items() if value is not None}


SCENARIOS: dict[str, tuple[Shape, Any]] = {
    "one-node": (Shape(files=4_000, size=100 * KB, workers=1, rounds=2), one_node),
    "peers": (Shape(files=4_000, size=100 * KB, workers=2, rounds=6), peers),
    "peers-large": (Shape(files=8, size=128 * MB, workers=2, rounds=6), peers),
    "replicate": (Shape(files=10_000, size=100 * KB, workers=3), replicate),
    "replicate-own-processors": (Shape(files=10_000, size=100 * KB, workers=3), replicate_alone),
    "shaped-small": (Shape(files=10_000, size=100 * KB, workers=2, rate=160 * MB), shaped),
    "shaped-large": (Shape(files=8, size=256 * MB, workers=2, rate=400 * MB), shaped),
}


async def run(name: str, shape: Shape, *, trusted: bool) -> Result:
    """One scenario on a cluster of its own."""
    authority = TestAuthority() if trusted else None
    with lab(workers=shape.workers, capacity=4 * GIB, authority=authority) as place:
        source = place.store.fill("bench", files=shape.files, size=shape.size)
        folder = place.cache.folder / "manifests"
        async with agents_of(place.cache, folder=folder, capacity=4 * GIB) as agents:
            version = await agents.version(source)
            place.store.set_rate(shape.rate)
            return dict(await SCENARIOS[name][1](place, agents, version, shape.files, **shape.more))


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option(
    "--part",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.001, max=1),
    help="Part of the files, for a quick look.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="At most so many, for a quick look.")
@click.option("--trusted", is_flag=True, help="With certificates: all connections by TLS.")
def main(names: tuple[str, ...], part: float, rounds: int | None, trusted: bool) -> None:
    """Measure how agents carry blocks."""
    for name in names or SCENARIOS:
        shape = SCENARIOS[name][0]
        fewer = min(shape.rounds, rounds) if shape.rounds is not None and rounds is not None else shape.rounds
        shape = replace(shape, files=max(1, round(shape.files * part)), rounds=fewer)
        result = asyncio.run(run(name, shape, trusted=trusted))
        head = {"benchmark": "agent_loading", "scenario": name, "files": shape.files, "size": shape.size}
        head |= {"trusted": True} if trusted else {}
        rate = {} if shape.rate is None else {"link_mbit": shape.rate // MB}
        machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
        click.echo(json.dumps(head | rate | result | machine))


def _drop_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


if __name__ == "__main__":
    main()
