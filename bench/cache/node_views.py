"""What a dataset of many files costs the node plugin: the first pod's volume, the second one's, a restart, and rest.

The blocks are files of one byte on a real disk, the manifest is in the agent's folder, and its digest is published:
what a node has when a loaded dataset is first used on it. Each step runs in a process of its own, as the plugin does,
with its views looked after. Half of the blocks can be left out (``--here 0.5``): their files lead to the remote-read
client, which is not part of the measurement, so such a volume is not ready at the end. Prints one line of JSON::

    PYTHONPATH=.:operator python bench/cache/node_views.py --files 1000000
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click
from bench.cache.manifest_memory import anonymous
from tests.support.dataplane.agents import put_block
from tests.support.waiting import eventually_async

from tdcs.api import names
from tdcs.listing.folder import ManifestFolder
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.disk.unclean_start import make_ready
from tdcs.node.csi.hang_guard import HangGuard
from tdcs.node.csi.views.node_views import NodeViews
from tdcs.node.csi.views.view_settings import ViewSettings
from tdcs.node.csi.volume import SourceNotReadyError, VolumeFolder

PATH, URI = "/datasets/0123456789abcdef", "s3://imagenet"
VOLUME = VolumeFolder(cluster="default", parts=("datasets", "0123456789abcdef"))
PER_FOLDER = 1300
COLD_BAR_SECONDS = 120.0
SECOND_BAR_SECONDS = 5.0


def make_node(root: Path, files: int, share: float) -> str:
    """Blocks and the agent's manifest; its digest."""
    tier = root / "cache" / "default"
    (tier / names.AGENT_SPOOL).mkdir(parents=True)
    builder = ManifestBuilder(path=PATH, source=URI)
    for number in range(files):
        folder = number // PER_FOLDER
        path = f"train/n{folder:08d}/n{folder:08d}_{number:08d}.JPEG"
        builder.add_listed([(path.encode(), 1, f'"{number:032x}"'.encode())])
    manifests, disk = ManifestFolder(tier / names.AGENT_MANIFESTS), Disk(tier)
    digest = manifests.write(builder)
    manifest = manifests.open(digest)
    for block in range(math.ceil(files * share)):  # the files are in the order of their names
        put_block(disk, manifest, block, b"x")
    make_ready(disk)
    return digest


class Pauses:
    """The longest time for which the event loop did nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.monotonic() - begun - 0.005)


@dataclass(frozen=True)
class Table:
    """What the operator says of the cache cluster."""

    mounted: Mapping[str, str]

    async def versions(self) -> Mapping[str, str]:
        return self.mounted


@asynccontextmanager
async def plugin(
    root: Path, digest: str, *, keep_unused_seconds: float = ViewSettings.keep_unused_seconds
) -> AsyncIterator[NodeViews]:
    """The node's views, looked after."""
    table = Table({PATH: digest})
    views = NodeViews(
        settings=ViewSettings(
            node="node-a",
            cache_root=root / "cache",
            reader_root=root / "reader",
            kubelet=root / "kubelet",
            keep_unused_seconds=keep_unused_seconds,
        ),
        engine=lambda _: table,
        guard=HangGuard(threads_per_key=2),
    )
    watch = asyncio.create_task(views.watch())
    try:
        yield views
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


async def _measure(root: Path, digest: str, rest_seconds: float) -> dict[str, float]:
    before = anonymous()
    pauses = Pauses()
    async with plugin(root, digest) as views:
        watch = asyncio.create_task(pauses.watch())
        first, cpu = await _publish(views)
        second, _ = await _publish(views)
        watch.cancel()
        (view,) = views._views.values()
        await eventually_async(lambda: not view.due and not view.operations.busy, deadline=300)
        cpu_seconds = time.process_time()
        await asyncio.sleep(rest_seconds)  # the length of the measurement
        cpu_seconds = time.process_time() - cpu_seconds
        counts = views.reports()[0].counts
    return {
        "publish_s": round(first, 1),
        "publish_cpu_s": round(cpu, 1),
        "second_s": round(second, 3),
        "longest_pause_ms": round(pauses.longest * 1e3),
        "rest_cpu_percent": round(100 * cpu_seconds / rest_seconds, 2),
        "memory_mib": round(anonymous() - before),
        "linked": counts.linked,
        "through_fuse": counts.remote,
    }


async def _publish(views: NodeViews) -> tuple[float, float]:
    begun, cpu = time.monotonic(), time.process_time()
    with suppress(SourceNotReadyError):  # no remote-read client runs: all is made but what it shows
        source = await views.open(volume=VOLUME)
        source.close()
    return time.monotonic() - begun, time.process_time() - cpu


def measure(root: Path, digest: str, rest_seconds: float) -> dict[str, float]:
    """One life of a plugin."""
    return asyncio.run(_measure(root, digest, rest_seconds))


def apart(step: Callable[[Path, str, float], dict[str, float]], *arguments: object) -> dict[str, float]:
    """The step's answer from a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(step, arguments)


@click.command()
@click.option("--files", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--here", "share", default=1.0, show_default=True, help="Share of the blocks that are on the node."
)
@click.option("--folder", default=None, help="Where to work; some GiB and an inode a file are needed.")
@click.option("--rest-seconds", default=10.0, show_default=True)
def main(files: int, share: float, folder: str | None, rest_seconds: float) -> None:
    """Publish a dataset twice, restart, and publish it again."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        digest = make_node(Path(root).resolve(), files, share)
        os.sync()
        cold = apart(measure, Path(root).resolve(), digest, rest_seconds)
        again = apart(measure, Path(root).resolve(), digest, rest_seconds)
        result = {
            "benchmark": "node_views",
            "files": files,
            "here": share,
            "cold": cold,
            "after_restart": again,
            "bars": {
                "cold": cold["publish_s"] < COLD_BAR_SECONDS,
                "second": cold["second_s"] < SECOND_BAR_SECONDS,
            },
        }
        click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
