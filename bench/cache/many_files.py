"""A dataset of ImageNet's shape in a cache of agents alone, from its bucket to a pod's walk: the time of each part.

As many files as are wanted in folders of 1,300, each of a hundredth of the size: a store that makes them up, TDCS's own
listing, and an agent that loads them, in processes of their own. The node's views are in this one; the remote-read
client, of which nothing is needed where all files are on the node, is left out. Then all folders are walked as a pod
has them in its volume, and each file is read and compared. Prints one line of JSON::

    PYTHONPATH=.:operator python bench/cache/many_files.py --files 100000 --folder FOLDER

With `--page-seconds` each page of the listing comes so late, and the agent loads what is listed so far while the
listing goes on: the times from its begin until the first bytes are on the node, until it has ended, and until all is
loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import psutil
from bench.cache.node_views import PATH, VOLUME, plugin
from tests.support.dataplane.agent_processes import AgentProcess
from tests.support.dataplane.agents import Version
from tests.support.programs.bucket_store import KEYS, BucketStore, serving
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.result import Listed, access_of
from tdcs.model.agent_state import ALL_SLOTS, MountState
from tdcs.model.cache_engine import Source
from tdcs.model.file_blocks import EXTENTS
from tdcs.model.listing_limit import ListingLimit
from tdcs.node.agent.agent_process import prepare
from tdcs.node.csi.volume import SourceNotReadyError

PER_FOLDER = 1300
PREFIX = b"data/"


def key_of(number: int) -> bytes:
    folder = number // PER_FOLDER
    return PREFIX + b"train/n%08d/n%08d_%08d.JPEG" % (folder, folder, number)


def size_of(key: bytes) -> int:
    """About 1,100 bytes: 110 KB are the mean of ImageNet's files."""
    return 200 + zlib.crc32(key) % 1800


def content_of(key: bytes) -> bytes:
    size = size_of(key)
    return (key * (size // len(key) + 1))[:size]


def _serve(files: int, page_seconds: float, ready: Connection) -> None:
    async def run() -> None:
        store = BucketStore(
            keys=[key_of(n) for n in range(files)],
            size=size_of,
            content=content_of,
            before_page=lambda: asyncio.sleep(page_seconds),
        )
        async with serving(store):
            ready.send(store.port)
            await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def made_up(files: int, *, page_seconds: float = 0.0) -> Iterator[tuple[Source, psutil.Process]]:
    """A store in a process of its own."""
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(files, page_seconds, sender), daemon=True
    )
    process.start()
    try:
        options = {"endpoint": f"http://127.0.0.1:{receiver.recv()}", "pathStyle": "true"}
        source = Source(uri="s3://bucket/data", options=options, credentials=KEYS)
        yield source, psutil.Process(process.pid)
    finally:
        process.kill()


def walk(folder: str) -> dict[str, Any]:
    """Read all files below a folder, as a program that trains on them does in its first epoch."""
    began, processor = time.monotonic(), time.process_time()
    files = size = wrong = 0
    for where, _, names in os.walk(folder):
        below = os.path.relpath(where, folder)
        for name in names:
            with open(f"{where}/{name}", "rb") as opened:
                content = opened.read()
            files, size = files + 1, size + len(content)
            wrong += content != content_of(PREFIX + os.fsencode(f"{below}/{name}"))
    return {
        "files": files,
        "bytes": size,
        "wrong": wrong,
        "seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - processor,
    }


def used(process: psutil.Process | None = None) -> float:
    """Processor seconds of a process; None: of this one and those that it has started and that have ended."""
    if process is not None:
        return sum(process.cpu_times()[:2])
    process_usage, children = (
        resource.getrusage(usage) for usage in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return process_usage.ru_utime + process_usage.ru_stime + children.ru_utime + children.ru_stime


async def listed(root: Path, source: Source, *, files: int) -> Version:
    manifests = ManifestFolder(root / "manifests")
    lister = ProcessLister(folder=manifests, source_of=lambda _: source, cut=EXTENTS)
    listing = await lister.list(path=PATH, limit=ListingLimit(files=2 * files + 1000))
    return _version(manifests, source, listing)


def _version(manifests: ManifestFolder, source: Source, listing: Listed) -> Version:
    return Version(manifest=manifests.open(listing.digest), folder=manifests, source=access_of(source))


async def started(root: Path, version: Version | None = None) -> AgentProcess:
    """An agent whose tier is where the node plugin looks for it."""
    control, blocks = free_ports(2)
    agent = AgentProcess(
        node="node-a",
        tier=root / "cache" / VOLUME.cluster,
        log=root / "agent.log",
        capacity=1 << 40,
        control_port=control,
        block_port=blocks,
    )
    agent.tier.mkdir(parents=True)
    await asyncio.to_thread(prepare, agent.tier)
    if version is not None:
        _give_manifest(agent, version)
    await asyncio.to_thread(agent.process.start)
    return agent


def _give_manifest(agent: AgentProcess, version: Version) -> None:
    manifest = version.folder.file(version.manifest.digest)
    shutil.copy(manifest, agent.disk.manifests / manifest.name)


async def load(agent: AgentProcess, version: Version) -> None:
    """Return when all is readable for any reader, and nothing is left to do."""
    client = HttpAgents(poll_seconds=2.0, call_seconds=10.0)
    try:
        client.connect({agent.node: agent.reached})
        await eventually_async(lambda: len(client.states()) == 1, deadline=60)
        await client.assign(node=agent.node, assignments=[version.assignment(origin=ALL_SLOTS)])

        def done() -> bool:
            state = client.states().get(agent.node)
            mount = state.mounts.get(PATH, MountState(mount=PATH)) if state is not None else None
            return mount is not None and mount.held_bytes == version.bytes and not mount.busy

        await eventually_async(done, deadline=7200, interval=0.05, describe=agent.process.tail)
    finally:
        await client.close()


async def measure(root: Path, source: Source, store: psutil.Process, *, files: int) -> dict[str, object]:
    parts: dict[str, dict[str, float]] = {}

    def note(part: str, began: float, processor: float) -> None:
        parts[part] = {"seconds": round(time.monotonic() - began, 2), "cpu_seconds": round(processor, 2)}

    began, processor = time.monotonic(), used()
    version = await listed(root, source, files=files)
    note("list", began, used() - processor)
    agent = await started(root, version)
    try:
        process = psutil.Process(agent.process.pid)
        began, processor, of_store = time.monotonic(), used(process), used(store)
        await load(agent, version)
        note("load", began, used(process) - processor)
        of_store = used(store) - of_store
        memory = process.memory_info().rss / 2**20
        began, processor = time.monotonic(), used()
        # The pod that walks has mounted nothing, so the view would be removed during a long walk.
        async with plugin(root, version.manifest.digest, keep_unused_seconds=math.inf) as views:
            with contextlib.suppress(SourceNotReadyError):  # all is made but what shows it
                (await views.open(volume=VOLUME)).close()
            note("publish", began, used() - processor)
            (view,) = views._views.values()
            assert view.counts().linked == files, f"of {files} files, {view.counts()}"
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                walked = await asyncio.to_thread(pool.apply, walk, (view.folder.tree,))
    finally:
        await asyncio.to_thread(agent.process.kill)
    parts["walk"] = {figure: round(walked[figure], 2) for figure in ("seconds", "cpu_seconds")}
    assert (walked["files"], walked["wrong"]) == (files, 0), f"a pod has read {walked}"
    return {
        "bench": "many_files",
        "files": files,
        "bytes": walked["bytes"],
        "parts": parts,
        "store_cpu_seconds": round(of_store, 2),
        "agent_mib": round(memory),
        "load_1m": round(os.getloadavg()[0], 1),
    }


async def measure_early(root: Path, source: Source, *, files: int, page_seconds: float) -> dict[str, object]:
    """Load what a slow listing has so far while it goes on."""
    manifests, client = ManifestFolder(root / "manifests"), HttpAgents(poll_seconds=2.0, call_seconds=10.0)
    lister = ProcessLister(folder=manifests, source_of=lambda _: source, cut=EXTENTS)
    to_load = asyncio.Queue[Listed | None]()
    agent = await started(root)

    def held_bytes() -> int:
        state = client.states().get(agent.node)
        return state.mounts[PATH].held_bytes if state is not None and PATH in state.mounts else 0

    async def load_early() -> int:
        """Give the agent each early manifest; how many there were."""
        count = 0
        while (listing := await to_load.get()) is not None:
            count += 1
            await assign(listing, number=count, early_files=listing.totals.files)
        return count

    async def assign(listing: Listed, *, number: int, early_files: int = 0) -> None:
        version = _version(manifests, source, listing)
        await asyncio.to_thread(_give_manifest, agent, version)
        assignment = version.assignment(version=number, origin=ALL_SLOTS, early_files=early_files)
        await client.assign(node=agent.node, assignments=[assignment])

    async def first_bytes() -> float:
        await eventually_async(lambda: held_bytes() > 0, deadline=7200, interval=0.02)
        return time.monotonic()

    try:
        client.connect({agent.node: agent.reached})
        await eventually_async(lambda: len(client.states()) == 1, deadline=60)
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            given, first = tasks.create_task(load_early()), tasks.create_task(first_bytes())
            listing = await lister.list(
                path=PATH, limit=ListingLimit(files=2 * files + 1000), early=to_load.put_nowait
            )
            listed_at, held_then = time.monotonic(), held_bytes()
            to_load.put_nowait(None)
            await assign(listing, number=await given + 1)
        size = listing.totals.block_bytes
        await eventually_async(lambda: held_bytes() == size, deadline=7200, interval=0.02)
        loaded_at = time.monotonic()
    finally:
        await client.close()
        await asyncio.to_thread(agent.process.kill)
    return {
        "bench": "many_files",
        "files": files,
        "bytes": size,
        "page_seconds": page_seconds,
        "early_manifests": given.result(),
        "first_bytes_seconds": round(first.result() - began, 2),
        "listed_seconds": round(listed_at - began, 2),
        "loaded_seconds": round(loaded_at - began, 2),
        "loaded_percent_when_listed": round(100 * held_then / size),
        "load_1m": round(os.getloadavg()[0], 1),
    }


@click.command()
@click.option("--files", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option(
    "--page-seconds",
    default=0.0,
    type=click.FloatRange(0),
    help="So late comes each page of the listing; what is listed is loaded meanwhile.",
)
def main(files: int, folder: Path, page_seconds: float) -> None:
    """Bring a dataset from its bucket to a pod once."""
    with (
        tempfile.TemporaryDirectory(prefix="many-files-", dir=folder) as root,
        made_up(files, page_seconds=page_seconds) as (source, store),
    ):
        place = Path(root).resolve()
        if page_seconds:
            figures = asyncio.run(measure_early(place, source, files=files, page_seconds=page_seconds))
        else:
            figures = asyncio.run(measure(place, source, store, files=files))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
