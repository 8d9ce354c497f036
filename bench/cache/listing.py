"""What a listing costs, from a bucket to its manifest: wall time, processor time, and memory.

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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click
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
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float


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
    lister = ProcessLister(folder=ManifestFolder(folder), source_of=lambda _: source)
    limit = ListingLimit(files=2 * files + 1000)
    return (await timed(lambda: lister.list(path=PATH, limit=limit), files=files))[1]


def measured(cost: Cost) -> dict[str, float]:
    return {
        "seconds": round(cost.seconds, 1),
        "cpu_seconds": round(cost.cpu_seconds, 2),
        "peak_mib": round(cost.peak_mib),
    }


@click.command()
@click.option("--files", default=100_000, show_default=True, type=click.IntRange(1))
def main(files: int) -> None:
    """List a bucket into a manifest."""
    line: dict[str, object] = {"bench": "listing", "files": files}
    with tempfile.TemporaryDirectory() as folder, made_up(files) as source:
        line["own"] = measured(asyncio.run(own(source, files=files, folder=Path(folder))))
    click.echo(json.dumps(line))


if __name__ == "__main__":
    main()
