"""What a listing costs, from a bucket to its manifest: wall time, processor time, memory, and disk.

A store that makes its names up gives the pages, as many as are wanted. Prints one line of JSON. From the checkout's
root::

    PYTHONPATH=.:deploy/local:operator python bench/cache/listing.py --files 1280000
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import click
import psutil
from tests.support.disk_peak import DiskPeak
from tests.support.programs.bucket_store import KEYS, BucketStore, serving

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import Source
from tdcs.model.listing_limit import ListingLimit

PATH = "/datasets/0123456789abcdef"
PER_FOLDER = 1300


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one listing.

    Attributes:
        seconds: from the request to the manifest.
        cpu_seconds: of the process that asks and of those that it starts.
        peak_mib: the most memory that a process which it started has had.
        manifest_bytes: of the manifest.
        disk_bytes: the most that was on the disk, early manifests and what has no name included.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float
    manifest_bytes: int = 0
    disk_bytes: int = 0


def _used() -> float:
    process, children = (
        resource.getrusage(usage) for usage in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return process.ru_utime + process.ru_stime + children.ru_utime + children.ru_stime


async def timed(work: Callable[[], Awaitable[Listed]], *, files: int) -> tuple[Listed, Cost]:
    begun, used = time.monotonic(), _used()
    listing = await work()
    if listing.totals.files != files:
        raise click.ClickException(f"{listing.totals.files} of {files} files were listed")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    cost = Cost(seconds=time.monotonic() - begun, cpu_seconds=_used() - used, peak_mib=peak)
    return listing, cost


def _serve(files: int, ready: Connection) -> None:
    """A store that makes its names up, in a process of its own."""

    async def run() -> None:
        keys = [
            b"data/train/n%08d/n%08d_%08d.JPEG" % (n // PER_FOLDER, n // PER_FOLDER, n) for n in range(files)
        ]
        async with serving(BucketStore(keys=keys)) as store:
            ready.send(store.port)
            await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def made_up(files: int) -> Iterator[Source]:
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(files, sender), daemon=True)
    process.start()
    options = {"endpoint": f"http://127.0.0.1:{receiver.recv()}", "pathStyle": "true"}
    yield Source(uri="s3://bucket/data", options=options, credentials=KEYS)
    process.kill()


async def own(source: Source, *, files: int, folder: Path) -> Cost:
    manifests = ManifestFolder(folder)
    lister = ProcessLister(folder=manifests, source_of=lambda _: source)
    limit = ListingLimit(files=2 * files + 1000)

    async def listed() -> Listed:
        return await lister.list(path=PATH, limit=limit, early=lambda _: None)

    with DiskPeak(folder, processes=lambda: [child.pid for child in psutil.Process().children()]) as disk:
        listing, cost = await timed(listed, files=files)
    size = manifests.file(listing.digest).stat().st_size
    return replace(cost, manifest_bytes=size, disk_bytes=disk.bytes)


def measured(cost: Cost, *, files: int) -> dict[str, float]:
    return {
        "seconds": round(cost.seconds, 1),
        "cpu_seconds": round(cost.cpu_seconds, 2),
        "peak_mib": round(cost.peak_mib),
        "manifest_bytes_a_file": round(cost.manifest_bytes / files),
        "disk_bytes_a_file": round(cost.disk_bytes / files),
    }


@click.command()
@click.option("--files", default=100_000, show_default=True, type=click.IntRange(1))
def main(files: int) -> None:
    """List a bucket into a manifest."""
    line: dict[str, object] = {"bench": "listing", "files": files}
    with tempfile.TemporaryDirectory() as folder, made_up(files) as source:
        line["own"] = measured(asyncio.run(own(source, files=files, folder=Path(folder))), files=files)
    click.echo(json.dumps(line))


if __name__ == "__main__":
    main()
