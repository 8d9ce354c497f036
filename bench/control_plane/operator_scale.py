"""What an operator of 1,000 mounts, 500 nodes and 100 million files costs, and how soon it decides and knows.

The operator's controllers run in a process of their own with the production rhythm, on an API server in memory (which
counts as their memory and processor time; `..._requests` are those to it). Another process plays the 500 agents
behind the real protocol: real HTTP requests, long polls, msgpack (`..._agents_cpu_percent` of another core). An agent
carries out an assignment at once. Masters answer at once, too. One mount has a million files and a real manifest; of
the others there are only sums, which agents give as they give real ones.

Four phases, one line of JSON: all Datasets are made and become Ready; nothing happens (processor time at rest); the
placement of single Datasets is changed (until the agents have their assignments); the operator is killed and starts
again with an empty disk (until it knows again what is where, and then until all agents work by what it has sent).
From the root of the checkout::

    PYTHONPATH=.:operator python bench/control_plane/operator_scale.py --mounts 1000 --nodes 500 --files 100000000
"""

from __future__ import annotations

import asyncio
import contextlib
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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import psutil
from bench.control_plane.agent_fleet import SIZE, digest_of, run_fleet, totals_of
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.control.cluster import Cluster
from tests.unit.control.server import Server

from tdcs.control.cache_registry import Cache, CachePool, Published
from tdcs.control.context import Settings, WorkKey
from tdcs.control.dataset.mount.mount_snapshot import UNHEARD_SECONDS
from tdcs.control.operator.operator_command import spare_lasting_objects
from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import Lister
from tdcs.listing.result import Listed, listed
from tdcs.listing.transfer import ManifestFetcher
from tdcs.model.kube_resources import DATASETS
from tdcs.model.listing_limit import ListingLimit
from tdcs.model.manifest_builder import ManifestBuilder

NODES_OF_A_MOUNT = 4

MEMORY_BAR_MIB = 400
REST_BAR_PERCENT = 2.0
DECISION_BAR_SECONDS = 1.0
RESTART_BAR_SECONDS = 20.0


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

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        early: Callable[[Listed], None] | None = None,
    ) -> Listed:
        self.listings += 1
        number = int((await self._engine.mounts())[path].rpartition("mount")[2])
        if number:
            return Listed(digest=digest_of(number), totals=totals_of(self._size.files), seconds=0.1)
        (digest,) = self._real.digests()
        if not self._folder.has(digest):
            self._folder.path.mkdir(parents=True, exist_ok=True)
            os.link(self._real.file(digest), self._folder.file(digest))
        return await asyncio.to_thread(lambda: listed(self._folder.open(digest), seconds=20.0))


class SumsCaches(CachePool):
    """Knows the sums of the mounts of which there is no manifest; that of the large one is fetched."""

    listings_by_digest: Mapping[str, Listed]

    async def totals(self, *, digest: str, urls: tuple[str, ...], version: Published | None) -> Listed:
        return self.listings_by_digest.get(digest) or await super().totals(
            digest=digest, urls=urls, version=version
        )


def write_million(folder: ManifestFolder, *, files: int) -> str:
    """The manifest of the large mount."""
    builder = ManifestBuilder(path="/datasets/million", source="s3://bucket/mount0")
    for begin in range(0, files, 2000):
        builder.add_listed(
            (f"train/n{number // 1300:08d}/n{number:08d}.JPEG".encode(), SIZE, f'"{number:032x}"'.encode())
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

    def __init__(self, *, size: Size, port: int, agents: int, real: ManifestFolder, work: Path) -> None:
        self._size, self._port, self._real, self._work = size, port, real, work
        self._agents = psutil.Process(agents)
        self._requests = 0
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
            pool = SumsCaches(make=lambda _: cache, folder=folder, fetcher=fetcher)
            totals = totals_of(self._size.files)
            digests = map(digest_of, range(1, self._size.mounts))
            pool.listings_by_digest = {digest: Listed(digest=digest, totals=totals) for digest in digests}
            yield pool
            self.listings = lister.listings
            await agents.close()

    async def run(self, *, rest_seconds: float) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        spare_lasting_objects()  # as the operator's command does
        async with self.caches() as caches:
            cluster = Cluster(
                engine=self._engine,
                nodes={node: {"zone": node[-2:]} for node in self._nodes},
                settings=Settings(),  # as the chart sets it
                most_wait=1e9,
                caches=lambda _: caches,
            )
            self._count(cluster.server)
            await cluster.start()
            await cluster.create_cache()
            await cluster.create_keys()
            async with self._watched(cluster, figures, "ready"):
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
            if rest_seconds:
                heard = cluster.observer.view("default").since
                await asyncio.sleep(max(heard + UNHEARD_SECONDS + 1 - time.monotonic(), 0))
            for number in range(self._size.mounts):
                cluster.context.queue.add(WorkKey(DATASETS, "n", f"d{number}"))
            await self._settled(cluster)
            for number in range(self._size.mounts):  # as the operator's own round over all objects does it
                key = WorkKey(DATASETS, "n", f"d{number}")
                cluster.context.queue.add_after(key, random.uniform(0, Settings().resync_seconds))  # noqa: S311
            async with self._watched(cluster, figures, "rest", every=0.05):
                await asyncio.sleep(rest_seconds)
            figures["decided_seconds"] = await self._changes(cluster)
            figures["memory_mib"] = round(resident_mib())
            server = cluster.server
            await cluster.stop()
        async with self.caches() as caches:
            cluster._caches = lambda _: caches
            async with self._watched(cluster, figures, "restart"):
                await cluster.start()
                await eventually_async(lambda: self._known(cluster) == self._size.mounts, deadline=200)
            figures["restart_memory_mib"] = round(resident_mib())
            async with self._watched(cluster, figures, "reassigned"):
                await eventually_async(lambda: self._assigned(cluster) == self._size.mounts, deadline=200)
            assert cluster.server is server
            await cluster.stop()
        figures["restart_listings"] = self.listings
        return figures

    def _count(self, server: Server) -> None:
        """Count the requests to the API server in memory: a real one's answers cost more than copies of objects."""

        def counted(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            def request(*args: Any, **options: Any) -> Awaitable[Any]:
                self._requests += 1
                return call(*args, **options)

            return request

        for name in ("get", "list", "apply", "apply_status", "merge", "delete"):
            setattr(server, name, counted(getattr(server, name)))

    @staticmethod
    def _ready(cluster: Cluster) -> int:
        return sum(
            (obj.get("status") or {}).get("state") == "Ready"
            for obj in cluster.server.store(DATASETS).values()
        )

    @staticmethod
    def _known(cluster: Cluster) -> int:
        """Mounts of which a new operator knows what is where, and that it is as it shall be."""
        reports = (mount.report for mount in cluster.mounts)
        return sum(
            report is not None
            and report.decided
            and report.settled
            and all(not progress.missing_bytes for progress in report.progress.values())
            for report in reports
        )

    @staticmethod
    def _assigned(cluster: Cluster) -> int:
        """Mounts of which all agents work by what this operator has sent them."""
        reports = (mount.report for mount in cluster.mounts)
        return sum(
            report is not None and report.current >= {*report.states} and bool(report.current)
            for report in reports
        )

    @staticmethod
    async def _settled(cluster: Cluster) -> None:
        """Until hardly anything waits in the queue for two seconds: the round over all objects goes on forever."""
        quiet = 0
        while quiet < 20:
            await asyncio.sleep(0.1)
            quiet = quiet + 1 if len(cluster.context.queue) <= 1 else 0

    @contextlib.asynccontextmanager
    async def _watched(
        self, cluster: Cluster, figures: dict[str, Any], phase: str, *, every: float = 0.01
    ) -> AsyncIterator[None]:
        """Note how long the event loop kept others waiting at most, and the processor time of a phase.

        Args:
            cluster: with the operator.
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
        requests, passes, agents = self._requests, cluster.passes, self._agents.cpu_times()
        yield
        task.cancel()
        took, after = time.monotonic() - began, self._agents.cpu_times()
        of_agents = after.user + after.system - agents.user - agents.system
        figures[f"{phase}_seconds"] = round(took, 1)
        figures[f"{phase}_cpu_percent"] = round(100 * (used_seconds() - used) / took, 2)
        figures[f"{phase}_passes"] = cluster.passes - passes
        figures[f"{phase}_requests"] = self._requests - requests
        figures[f"{phase}_agents_cpu_percent"] = round(100 * of_agents / took, 1)
        figures[f"{phase}_longest_pause_ms"] = round(1000 * max(pauses), 1)

    async def _changes(self, cluster: Cluster) -> dict[str, float]:
        """Seconds from a changed spec until every agent has its part of it, of some Datasets one after the other."""
        seconds, more = [], NODES_OF_A_MOUNT + 2
        sample = random.Random(7).sample(range(1, self._size.mounts), min(9, self._size.mounts - 1))  # noqa: S311
        async with aiohttp.ClientSession() as session:
            for number in [0, *sample]:
                path = cluster.status(f"d{number}")["mountPath"].rpartition("/")[2]
                began, spread = time.time(), dict[str, float]()
                await cluster.change(DATASETS, f"d{number}", placement={"nodeCount": more})
                while str(more) not in spread:
                    await asyncio.sleep(0.02)
                    url = f"http://127.0.0.1:{self._port}/spread/{path}"
                    async with session.get(url) as response:
                        spread = await response.json()
                seconds.append(spread[str(more)] - began)
                await self._settled(cluster)
        return {"median": round(statistics.median(seconds), 2), "longest": round(max(seconds), 2)}


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
    files_of_mount = max(files - large, 0) // max(mounts - 1, 1)
    if write and folder is not None:
        write_million(ManifestFolder(folder), files=large)
        return
    if fleet and folder is not None:
        asyncio.run(
            run_fleet(
                port=port, nodes=nodes, mounts=mounts, files=files_of_mount, folder=ManifestFolder(folder)
            )
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
                size=Size(mounts=mounts, nodes=nodes, files=files_of_mount),
                port=port,
                agents=agents.pid,
                real=real,
                work=Path(work),
            )
            figures = asyncio.run(bench.run(rest_seconds=rest_seconds))
        finally:
            agents.kill()
            agents.wait()
    bars = {
        "memory": max(figures["memory_mib"], figures["restart_memory_mib"]) < MEMORY_BAR_MIB,
        "rest": figures["rest_cpu_percent"] < REST_BAR_PERCENT,
        "decision": figures["decided_seconds"]["longest"] < DECISION_BAR_SECONDS,
        "restart": figures["restart_seconds"] < RESTART_BAR_SECONDS and not figures["restart_listings"],
    }
    sizes_of = {"mounts": mounts, "nodes": nodes, "files": files_of_mount * (mounts - 1) + large}
    print(json.dumps({"bench": "operator_scale", **sizes_of, **figures, "bars": bars}))
    sys.exit(not all(bars.values()))


if __name__ == "__main__":
    main()
