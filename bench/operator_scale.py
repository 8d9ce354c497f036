"""What an operator of 1,000 mounts, 500 nodes and 100 million files costs, and how soon it decides and knows.

The operator's controllers run in a process of their own with the production rhythm, on an API server in memory (which
counts as their memory and processor time). Another process plays the 500 agents behind the real protocol: real HTTP
requests, long polls, msgpack. An agent carries out an assignment at once. Masters answer at once, too. One mount has
a million files and a real manifest; of the others there are only sums, which agents give as they give real ones.

Four phases, one line of JSON: all Datasets are made and become Ready; nothing happens (processor time at rest); the
placement of single Datasets is changed (until the agents have their assignments); the operator is killed and starts
anew with an empty disk (until it knows again what lies where). From the root of the checkout::

    PYTHONPATH=.:operator python bench/operator_scale.py --mounts 1000 --nodes 500 --files 100000000
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
import numpy as np
from aiohttp import web
from tests.support.waiting import eventually_async
from tests.unit.controllers.cluster import Cluster

from tdcs.controllers.caches import Cache, CachePool
from tdcs.controllers.context import Settings, WorkKey
from tdcs.controllers.mounts.snapshot import UNHEARD_SECONDS
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.engine.agents import NO_SLOTS, AgentState, Assignment, MountState, PartState
from tdcs.engine.memory import MemoryEngine
from tdcs.engine.protocol import Block, CachedFile
from tdcs.garbage import spare_lasting_objects
from tdcs.kube.resources import DATASETS
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.limit import ListingLimit
from tdcs.listing.lister import Lister
from tdcs.listing.result import Listed, listed
from tdcs.listing.transfer import ManifestFetcher
from tdcs.planning.manifest_builder import ManifestBuilder
from tdcs.planning.manifest_format import Totals
from tdcs.policy import slots

SIZE = 110_000
NODES_OF_A_MOUNT = 4

MEMORY_BAR_MIB = 400
REST_BAR_PERCENT = 2.0
DECISION_BAR_SECONDS = 1.0
RESTART_BAR_SECONDS = 20.0


def digest_of(number: int) -> str:
    """The digest of a mount's manifest, of which there are only sums."""
    return hashlib.sha256(f"mount {number}".encode()).hexdigest()[:32]


def totals_of(files: int) -> Totals:
    """Sums over as many files of one block each."""
    counts = np.full(slots.SLOTS, files // slots.SLOTS, dtype="<u4")
    counts[: files % slots.SLOTS] += 1
    sizes = counts.astype("<i8") * SIZE
    return Totals(
        files=files,
        blocks=files,
        block_bytes=files * SIZE,
        file_bytes=files * SIZE,
        largest_block=SIZE,
        slot_bytes=sizes.tobytes(),
        slot_files=counts.tobytes(),
    )


# The agents' process.


class Fleet:
    """All agents: what each is assigned, which it has at once."""

    def __init__(self, *, nodes: int, sizes: Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]) -> None:
        self._sizes = sizes
        self._states = {
            f"n{number:03d}": AgentState(
                node=f"n{number:03d}",
                instance=f"first {number}",
                revision=1,
                capacity_bytes=1 << 40,
                disk_free_bytes=1 << 40,
            )
            for number in range(nodes)
        }
        self._news = {node: asyncio.Event() for node in self._states}
        self._holders: dict[str, set[str]] = {}
        self._spread: dict[str, dict[int, float]] = {}

    async def state(self, request: web.Request) -> web.Response:
        node = request.match_info["node"]
        known = (request.query.get("instance"), int(request.query.get("revision", "-1")))
        if known == (self._states[node].instance, self._states[node].revision):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(request.query.get("wait", "0"))):
                    await self._news[node].wait()
        return web.Response(body=msgspec.msgpack.encode(self._states[node]))

    async def assign(self, request: web.Request) -> web.Response:
        node = request.match_info["node"]
        before = self._states[node]
        mounts = dict(before.mounts)
        for one in msgspec.msgpack.decode(await request.read(), type=list[Assignment]):
            mounts[one.mount] = self._done(one)
            holders = self._holders.setdefault(one.mount, set())
            (holders.add if mounts[one.mount].held_bytes else holders.discard)(node)
            self._spread.setdefault(one.mount, {}).setdefault(len(holders), time.time())
        self._states[node] = msgspec.structs.replace(
            before,
            revision=before.revision + 1,
            mounts=mounts,
            used_bytes=sum(each.held_bytes for each in mounts.values()),
        )
        self._news[node].set()
        self._news[node] = asyncio.Event()
        return web.Response(body=msgspec.msgpack.encode(self._states[node]))

    def _done(self, one: Assignment) -> MountState:
        sizes = self._sizes[one.manifest]
        held = slots.union(NO_SLOTS, *(part.slots for part in one.parts))
        return MountState(
            mount=one.mount,
            version=one.version,
            manifest=one.manifest,
            held_bytes=slots.bytes_in(held, sizes),
            complete=held,
            present=held,
            registered_bytes=slots.bytes_in(held, sizes),
            parts=tuple(
                PartState(
                    name=part.name,
                    wanted_bytes=(size := slots.bytes_in(part.slots, sizes)),
                    held_bytes=size,
                    wanted_files=size // SIZE,
                    held_files=size // SIZE,
                )
                for part in one.parts
            ),
        )

    async def spread(self, request: web.Request) -> web.Response:
        """When a mount reached each number of nodes."""
        return web.json_response(self._spread.get(f"/datasets/{request.match_info['mount']}", {}))


async def run_fleet(*, port: int, nodes: int, mounts: int, files: int, folder: ManifestFolder) -> None:
    """Serve until standard input ends."""
    each = totals_of(files)
    known = {digest_of(number): each for number in range(1, mounts)}
    real = {digest: listed(folder.open(digest)).totals for digest in folder.digests()}
    everything = {**known, **real}
    sums = {
        digest: msgspec.msgpack.encode(Listed(digest=digest, totals=one))
        for digest, one in everything.items()
    }

    fleet = Fleet(nodes=nodes, sizes={digest: one.sizes for digest, one in everything.items()})

    async def totals(request: web.Request) -> web.Response:
        return web.Response(body=sums[request.match_info["digest"]])

    app = web.Application(client_max_size=64 << 20)
    app.add_routes(
        [
            web.get("/{node}/v1/state", fleet.state),
            web.put("/{node}/v1/assignments", fleet.assign),
            web.get("/{node}/v1/manifests/{digest}/totals", totals),
            web.get("/spread/{mount}", fleet.spread),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


# The operator's process.


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much there is."""

    mounts: int
    nodes: int
    files: int


class SumsLister(Lister):
    """A listing of a mount of which there are only sums; that of the large one is real."""

    def __init__(
        self, *, engine: MemoryEngine, size: Size, folder: ManifestFolder, real: ManifestFolder
    ) -> None:
        self._engine, self._size, self._folder, self._real = engine, size, folder, real
        self.listings = 0

    async def list(self, *, path: str, refresh: bool = False, limit: ListingLimit | None = None) -> Listed:
        self.listings += 1
        number = int((await self._engine.mounts())[path].rpartition("mount")[2])
        if number:
            return Listed(digest=digest_of(number), totals=totals_of(self._size.files), seconds=0.1)
        (digest,) = self._real.digests()
        if not self._folder.has(digest):
            self._folder.path.mkdir(parents=True, exist_ok=True)
            os.link(self._real.file(digest), self._folder.file(digest))
        return await asyncio.to_thread(lambda: listed(self._folder.open(digest), seconds=20.0))


def write_million(folder: ManifestFolder, *, files: int) -> str:
    """The manifest of the large mount."""
    builder = ManifestBuilder(path="/datasets/million", source="s3://bucket/mount0")
    for begin in range(0, files, 2000):
        builder.add(
            CachedFile(
                path=(path := f"train/n{number // 1300:08d}/n{number:08d}.JPEG"),
                length=SIZE,
                blocks=(
                    Block(
                        id=(1 << 40) + number,
                        length=SIZE,
                        offset=0,
                        source_path=f"s3://bucket/mount0/{path}",
                        mount_id=1,
                    ),
                ),
                tag=f'"{number:032x}"',
            )
            for number in range(begin, min(begin + 2000, files))
        )
    return folder.write(builder)


def used_seconds() -> float:
    """Processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_mib() -> float:
    """Memory of this process that is its own: what is mapped from manifests is the disk's cache."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return int(fields["RssAnon"].split()[0]) / 1024


class Bench:
    """An operator, and what is seen of it."""

    def __init__(self, *, size: Size, port: int, real: ManifestFolder, work: Path) -> None:
        self._size, self._port, self._real, self._work = size, port, real, work
        self._nodes = [f"n{number:03d}" for number in range(size.nodes)]
        self._engine = MemoryEngine(
            sources={f"s3://bucket/mount{number}": {} for number in range(size.mounts)},
            workers=dict.fromkeys(self._nodes, 1 << 40),
        )
        self._lives = 0
        self.listings = 0

    @contextlib.asynccontextmanager
    async def caches(self) -> AsyncIterator[CachePool]:
        """What a new operator has: an empty folder, and no word of an agent."""
        self._lives += 1
        folder = ManifestFolder(self._work / f"life{self._lives}")
        agents = HttpAgents()
        lister = SumsLister(engine=self._engine, size=self._size, folder=folder, real=self._real)
        addresses = {
            node: AgentAddress(url=f"http://127.0.0.1:{self._port}/{node}", blocks=f"{node}:29991")
            for node in self._nodes
        }
        async with aiohttp.ClientSession() as session:
            fetcher = ManifestFetcher(folder=folder, session=session)
            cache = Cache(
                engine=self._engine,
                agents=agents,
                lister=lister,
                connect=lambda _: agents.connect(addresses),
            )
            yield CachePool(make=lambda _: cache, folder=folder, fetcher=fetcher)
            self.listings = lister.listings
            await agents.close()

    async def run(self, *, rest_seconds: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        spare_lasting_objects()  # as the operator's command does
        async with self.caches() as caches:
            cluster = Cluster(
                engine=self._engine,
                nodes={node: {"zone": node[-2:]} for node in self._nodes},
                settings=Settings(),
                most_wait=1e9,
                caches=caches,
            )
            await cluster.start()
            await cluster.create_cache()
            await cluster.create_keys()
            async with self._watched(found, "ready"):
                for number in range(self._size.mounts):
                    await cluster.create_dataset(
                        f"d{number}",
                        source={"uri": f"s3://bucket/mount{number}", "checkInterval": "0s"},
                        placement={"mode": "Partition", "nodeCount": NODES_OF_A_MOUNT},
                    )
                    await asyncio.sleep(0)  # the operator goes on meanwhile, as with a real API server
                await eventually_async(lambda: self._ready(cluster) == self._size.mounts, deadline=300)
            await self._settled(cluster)
            # At rest is an operator that has seen everything at rest once: a mount is not, in its first half minute.
            heard = cluster.datasets.observer.view("default").since
            await asyncio.sleep(max(heard + UNHEARD_SECONDS + 1 - time.monotonic(), 0))
            for number in range(self._size.mounts):
                cluster.context.queue.add(WorkKey(DATASETS, "n", f"d{number}"))
            await self._settled(cluster)
            for number in range(self._size.mounts):  # as the operator's own round over all objects does it
                key = WorkKey(DATASETS, "n", f"d{number}")
                cluster.context.queue.add_after(key, random.uniform(0, Settings().resync_seconds))  # noqa: S311
            async with self._watched(found, "rest", every=0.05):
                await asyncio.sleep(rest_seconds)
            found["decided_seconds"] = await self._changes(cluster)
            found["memory_mib"] = round(resident_mib())
            server = cluster.server
            await cluster.stop()
        async with self.caches() as caches:
            cluster._caches = caches
            async with self._watched(found, "restart"):
                await cluster.start()
                await eventually_async(lambda: self._known(cluster) == self._size.mounts, deadline=200)
            found["restart_memory_mib"] = round(resident_mib())
            assert cluster.server is server
            await cluster.stop()
        found["restart_listings"] = self.listings
        return found

    @staticmethod
    def _ready(cluster: Cluster) -> int:
        return sum(
            (obj.get("status") or {}).get("state") == "Ready"
            for obj in cluster.server.store(DATASETS).values()
        )

    @staticmethod
    def _known(cluster: Cluster) -> int:
        """Mounts of which a new operator knows what lies where, and that it is as it shall be."""
        reports = (mount.report for mount in cluster.datasets._mounts)
        return sum(
            report is not None
            and report.decided
            and report.settled
            and all(not one.missing_bytes for one in report.progress.values())
            for report in reports
        )

    @staticmethod
    async def _settled(cluster: Cluster) -> None:
        """Until hardly anything waits in the queue for two seconds: the round over all objects goes on for ever."""
        quiet = 0
        while quiet < 20:
            await asyncio.sleep(0.1)
            quiet = quiet + 1 if len(cluster.context.queue) <= 1 else 0

    @contextlib.asynccontextmanager
    async def _watched(
        self, found: dict[str, Any], phase: str, *, every: float = 0.01
    ) -> AsyncIterator[None]:
        """Note how long the event loop kept others waiting at most, and the processor time of a phase.

        Args:
            found: where it is noted.
            phase: its name.
            every: seconds between two looks; each costs some 0.1 ms of a core.
        """
        pauses = [0.0]

        async def watch() -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(every)
                pauses.append(time.monotonic() - began - every)

        task, began, used = asyncio.create_task(watch()), time.monotonic(), used_seconds()
        yield
        task.cancel()
        took = time.monotonic() - began
        found[f"{phase}_seconds"] = round(took, 1)
        found[f"{phase}_cpu_percent"] = round(100 * (used_seconds() - used) / took, 2)
        found[f"{phase}_longest_pause_ms"] = round(1000 * max(pauses), 1)

    async def _changes(self, cluster: Cluster) -> dict[str, float]:
        """Seconds from a changed spec until every agent has its part of it, of some Datasets one after the other."""
        found, more = [], NODES_OF_A_MOUNT + 2
        some = random.Random(7).sample(range(1, self._size.mounts), min(9, self._size.mounts - 1))  # noqa: S311
        async with aiohttp.ClientSession() as session:
            for number in [0, *some]:
                path = cluster.status(f"d{number}")["mountPath"].rpartition("/")[2]
                began, spread = time.time(), dict[str, float]()
                await cluster.change(DATASETS, f"d{number}", placement={"nodeCount": more})
                while str(more) not in spread:
                    await asyncio.sleep(0.02)
                    url = f"http://127.0.0.1:{self._port}/spread/{path}"
                    async with session.get(url) as response:
                        spread = await response.json()
                found.append(spread[str(more)] - began)
                await self._settled(cluster)
        return {"median": round(statistics.median(found), 2), "longest": round(max(found), 2)}


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@click.command()
@click.option("--mounts", default=1000)
@click.option("--nodes", default=500)
@click.option("--files", default=100_000_000, help="Of all mounts together.")
@click.option("--large", default=1_000_000, help="Of the mount that has a real manifest.")
@click.option("--rest-seconds", default=60.0)
@click.option("--fleet", is_flag=True, hidden=True)
@click.option("--write", is_flag=True, hidden=True)
@click.option("--port", default=0, hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(
    mounts: int,
    nodes: int,
    files: int,
    large: int,
    rest_seconds: float,
    fleet: bool,
    write: bool,
    port: int,
    folder: Path | None,
) -> None:
    """Run all phases; the bars are for the default size."""
    each = max(files - large, 0) // max(mounts - 1, 1)
    if write and folder is not None:
        write_million(ManifestFolder(folder), files=large)
        return
    if fleet and folder is not None:
        asyncio.run(
            run_fleet(port=port, nodes=nodes, mounts=mounts, files=each, folder=ManifestFolder(folder))
        )
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as work:
        real = ManifestFolder(Path(work, "real"))
        # In a process of its own, as listings are: its memory is not the operator's.
        writes = ["--write", f"--folder={real.path}", f"--large={large}"]
        subprocess.run([sys.executable, __file__, *writes], check=True)
        port = free_port()
        arguments = ["--fleet", f"--port={port}", f"--folder={real.path}"]
        sizes = [f"--mounts={mounts}", f"--nodes={nodes}", f"--files={files}", f"--large={large}"]
        agents = subprocess.Popen(
            [sys.executable, __file__, *arguments, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert agents.stdout is not None
            agents.stdout.readline()
            bench = Bench(
                size=Size(mounts=mounts, nodes=nodes, files=each), port=port, real=real, work=Path(work)
            )
            found = asyncio.run(bench.run(rest_seconds=rest_seconds))
        finally:
            agents.kill()
            agents.wait()
    bars = {
        "memory": max(found["memory_mib"], found["restart_memory_mib"]) < MEMORY_BAR_MIB,
        "rest": found["rest_cpu_percent"] < REST_BAR_PERCENT,
        "decision": found["decided_seconds"]["longest"] < DECISION_BAR_SECONDS,
        "restart": found["restart_seconds"] < RESTART_BAR_SECONDS and not found["restart_listings"],
    }
    sizes_of = {"mounts": mounts, "nodes": nodes, "files": each * (mounts - 1) + large}
    print(json.dumps({"bench": "operator_scale", **sizes_of, **found, "bars": bars}))
    sys.exit(not all(bars.values()))


if __name__ == "__main__":
    main()
