"""What certificates cost: the same calls, reads and copies with and without them, side by side.

    PYTHONPATH=.:deploy/local:operator python bench/cache/trust_costs.py [--calls 20000] [--files 1000] [--rounds 9]

Two real Alluxio clusters of two workers with agents run on this machine, one with certificates by role. In turns

- a client asks one master for the status of files (`GetStatus`), 16 calls at a time,
- a pod on a third node reads all files through Alluxio's FUSE client, from the workers, in a random order, and
- the agent of one node brings all files from that of the other one: those of 100 KB, then large ones.

Prints a line of JSON: calls, files and MB a second without and with certificates, and the median of the rounds' ratios.
What pods read natively passes no connection, and is in `bench/cache/read_speed.py`. Needs root and FUSE.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from tests.engine.agents.agent_nodes import AgentCluster, agents_of
from tests.engine.servers import (
    AlluxioCluster,
    FuseClient,
    S3Server,
    make_home,
    random_network,
    unmount,
)
from tests.support.certificates import TestAuthority
from tests.support.dataplane.agents import Version
from tests.support.waiting import eventually_async

from tdcs.alluxio.rpc import FILE_SYSTEM, Rpc
from tdcs.model import slots
from tdcs.model.agent_state import NO_SLOTS
from tdcs.trust.roles import Role
from tdcs_local import programs

MB = 10**6
FILE_BYTES = 100_000
LARGE_FILES, LARGE_BYTES = 4, 128 * MB
AT_ONCE = 16
THREADS = 8
BUCKET = "bench"
NODES = ("node-1", "node-2")
ELSEWHERE = "node-3"
GIVER, TAKER = NODES
BARS = {"get_status": 0.9, "fuse_files": 0.6, "agents_small_mb": 0.85, "agents_large_mb": 0.85}
"""With certificates over without them, at least."""


@dataclass
class Side:
    """A cluster with its files loaded, and what was measured of it, one entry a round."""

    client: FuseClient
    rpc: Rpc
    paths: list[str]
    agents: AgentCluster
    small: Version
    large: Version
    calls: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    small_copies: list[float] = field(default_factory=list)
    large_copies: list[float] = field(default_factory=list)

    async def ask(self, count: int) -> None:
        """Measure calls a second."""
        todo = iter(range(count))

        async def work() -> None:
            for number in todo:
                path = self.paths[number % len(self.paths)]
                await self.rpc.unary(service=FILE_SYSTEM, method="GetStatus", deadline=60, path=path)

        begin = time.monotonic()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        self.calls.append(count / (time.monotonic() - begin))

    def read(self, seed: int) -> None:
        """Measure files a second."""
        paths = random.Random(seed).sample(self.paths, len(self.paths))  # noqa: S311
        Path("/proc/sys/vm/drop_caches").write_text("3")
        begin = time.monotonic()
        with ThreadPoolExecutor(THREADS) as threads:
            sizes = list(threads.map(self._size_of, paths))
        self.reads.append(len(paths) / (time.monotonic() - begin))
        if set(sizes) != {FILE_BYTES}:
            raise RuntimeError(f"a file has another size than {FILE_BYTES}: {set(sizes)}")

    async def copy(self) -> None:
        """Measure MB a second from agent to agent."""
        self.small_copies.append(await self._copied(self.small))
        self.large_copies.append(await self._copied(self.large))

    async def _copied(self, version: Version) -> float:
        """Drop what the taker holds of a version, and let it bring all of it from the giver."""
        agents = self.agents
        await agents.give(TAKER, version, parts=(), origin=NO_SLOTS, drop=slots.prefix(slots.SLOTS))
        await eventually_async(lambda: not agents.mount(TAKER, version).held_bytes, deadline=60)
        await asyncio.to_thread(os.sync)
        begin = time.monotonic()
        await agents.give(TAKER, version, origin=NO_SLOTS, source=None, peers=[agents.nodes[GIVER].peer()])
        await agents.holds(TAKER, version, deadline=300)
        return version.bytes / MB / (time.monotonic() - begin)

    def _size_of(self, path: str) -> int:
        return len((self.client.folder / path.lstrip("/")).read_bytes())


@asynccontextmanager
async def side(
    *, home: Path, folder: Path, store: S3Server, files: int, trusted: bool
) -> AsyncIterator[Side]:
    """A cluster that has all files on each of its two workers."""
    authority = TestAuthority() if trusted else None
    capacity = 4 * (files * FILE_BYTES + LARGE_FILES * LARGE_BYTES)
    cluster = AlluxioCluster(
        home=home,
        folder=folder,
        network=random_network(),
        workers=dict.fromkeys(NODES, capacity),
        overrides={},
        authority=authority,
    )
    identity = authority.identity(Role.FUSE) if authority else None
    rpc = Rpc(target=cluster.target, patience=10, identify=(lambda: identity) if identity else None)
    try:
        await asyncio.to_thread(cluster.start)
        async with agents_of(cluster, folder=folder / "manifests", capacity=capacity) as agents:
            small, large = [
                await agents.version(store.source(f"s3://{BUCKET}/{name}")) for name in ("data", "large")
            ]
            for version, nodes in ((small, NODES), (large, (GIVER,))):
                for node in nodes:
                    await agents.give(node, version)
                for node in nodes:
                    await agents.holds(node, version)
            path = small.manifest.path
            await agents.exported(path, dict.fromkeys(names_of(files), bytes(FILE_BYTES)), *NODES)
            client = await asyncio.to_thread(cluster.mount_fuse, ELSEWHERE)
            yield Side(
                client=client,
                rpc=rpc,
                paths=[f"{path}/{name}" for name in names_of(files)],
                agents=agents,
                small=small,
                large=large,
            )
            await rpc.close()
    finally:
        cluster.stop()


def names_of(files: int) -> list[str]:
    """The files of the bucket."""
    return [f"f{number:05}.bin" for number in range(files)]


async def run(*, calls: int, files: int, rounds: int, folder: Path) -> dict[str, object]:
    """Measure both sides in turns."""
    home = make_home(folder, lib=programs.ensure("alluxio") / "lib")
    store = S3Server(
        program=programs.ensure("versitygw") / "versitygw",
        folder=folder / "s3",
        address=f"{random_network()}.2",
    )
    store.process.start()
    try:
        store.make_bucket(BUCKET)
        for name, count, size in (("data", files, FILE_BYTES), ("large", LARGE_FILES, LARGE_BYTES)):
            target = store.folder_of(BUCKET) / name
            target.mkdir()
            for file in names_of(count):
                (target / file).write_bytes(os.urandom(size))
        async with AsyncExitStack() as stack:
            sides = [
                await stack.enter_async_context(
                    side(home=home, folder=folder / name, store=store, files=files, trusted=trusted)
                )
                for name, trusted in (("plain", False), ("trusted", True))
            ]
            for number in range(rounds + 1):  # the first one warms up virtual machines and connections
                for cache in sides if number % 2 else reversed(sides):
                    await cache.ask(calls)
                    await asyncio.to_thread(cache.read, number)
                    await cache.copy()
    finally:
        store.process.kill()
    plain, trusted = sides
    return {
        "bench": "trust_costs",
        "get_status": compared(plain.calls[1:], trusted.calls[1:]),
        "fuse_files": compared(plain.reads[1:], trusted.reads[1:]),
        "agents_small_mb": compared(plain.small_copies[1:], trusted.small_copies[1:]),
        "agents_large_mb": compared(plain.large_copies[1:], trusted.large_copies[1:]),
        "load_average_after": os.getloadavg()[0],
        "processors": os.cpu_count(),
    }


def compared(plain: list[float], trusted: list[float]) -> dict[str, object]:
    """Medians a second, and that of the ratios of each round."""
    ratios = [trusted_rate / plain_rate for trusted_rate, plain_rate in zip(trusted, plain, strict=True)]
    return {
        "plain_per_s": round(statistics.median(plain)),
        "trusted_per_s": round(statistics.median(trusted)),
        "trusted_over_plain": round(statistics.median(ratios), 3),
        "rounds": [round(ratio, 2) for ratio in ratios],
    }


@click.command()
@click.option("--calls", default=20_000, show_default=True, help="Calls of GetStatus in a round.")
@click.option("--files", default=1000, show_default=True, help="Files of 100 KB.")
@click.option("--rounds", default=9, show_default=True, help="Rounds, after one to warm up.")
def main(calls: int, files: int, rounds: int) -> None:
    """Compare the cache's RPC with and without certificates."""
    folder = Path(tempfile.mkdtemp(prefix="tdcs-trust-costs-"))
    try:
        figures = asyncio.run(run(calls=calls, files=files, rounds=rounds, folder=folder))
    finally:
        unmount(folder)
        shutil.rmtree(folder)
    print(json.dumps(figures), flush=True)
    sys.exit(any(figures[figure]["trusted_over_plain"] < bar for figure, bar in BARS.items()))  # type: ignore[index]


if __name__ == "__main__":
    main()
