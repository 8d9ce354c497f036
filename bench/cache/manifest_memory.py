"""What the manifest of a dataset costs: time and memory to make it from a listing, its size, and time and memory to
open and read it.

The listing is generated in pages, as the cache's master gives it. Each step runs in a process of its own. Prints one
line of JSON. From the checkout's root::

    PYTHONPATH=.:operator python bench/cache/manifest_memory.py --files 1000000
"""

from __future__ import annotations

import gc
import hashlib
import json
import mmap
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np

from tdcs.model.manifest import Manifest
from tdcs.model.manifest_builder import ManifestBuilder

PAGE = 2000
MIB = 1 << 20
SOURCE = "s3://imagenet"


Listed = tuple[bytes, int, bytes]
"""Path, length and tag of a file."""


def pages(*, files: int, per_folder: int) -> Iterator[list[Listed]]:
    """ImageNet's names."""
    for begin in range(0, files, PAGE):
        yield [_file(number, per_folder=per_folder) for number in range(begin, min(begin + PAGE, files))]


def _file(number: int, *, per_folder: int) -> Listed:
    folder = number // per_folder
    name = f"train/n{folder:08d}/n{folder:08d}_{number:08d}.JPEG".encode()
    tag = f'"{hashlib.md5(name, usedforsecurity=False).hexdigest()}"'
    return name, 110_000 + number % 1000, tag.encode()


def resident() -> float:
    """Memory of this process now, in MiB."""
    pages_now = int(Path("/proc/self/statm").read_text().split()[1])
    return pages_now * os.sysconf("SC_PAGE_SIZE") / MIB


def anonymous() -> float:
    """Memory of this process that is not a file's, in MiB: what a container's limit counts and cannot reclaim."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


def build(file: Path, files: int, per_folder: int) -> dict[str, float]:
    """Make a manifest and write it; the time of generating the pages is taken off."""
    begun = time.monotonic()
    for _ in pages(files=files, per_folder=per_folder):
        pass
    generating = time.monotonic() - begun
    before, begun = resident(), time.monotonic()
    builder = ManifestBuilder(path="/datasets/0123456789abcdef", source=SOURCE)
    for page in pages(files=files, per_folder=per_folder):
        builder.add_listed(page)
    listed = time.monotonic()
    with file.open("wb") as sink:
        builder.finish(sink.write)
    made_at = time.monotonic()
    return {
        "add_s": listed - begun - generating,
        "finish_s": made_at - listed,
        "builder_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before,
        "on_disk_mib": file.stat().st_size / MIB,
    }


def read(file: Path, files: int, per_folder: int) -> dict[str, float]:
    """Open a manifest, and ask it what agents, views and the operator ask."""
    gc.collect()
    before = anonymous()

    def timed(call: Callable[[], object]) -> float:
        begun = time.monotonic()
        call()
        return (time.monotonic() - begun) * 1e3

    with file.open("rb") as opened:
        content = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
    begun = time.monotonic()
    manifest = Manifest(content, digest=file.name)
    open_ms = (time.monotonic() - begun) * 1e3
    after = anonymous()
    ids = np.random.default_rng(1).permutation(manifest.block_ids)
    return {
        "open_ms": open_ms,
        "open_anonymous_mib": after - before,
        "totals_ms": timed(manifest.totals),
        "totals_of_a_folder_ms": timed(lambda: manifest.totals(["train/n00000007"])),
        "find_all_ids_ms": timed(lambda: manifest.blocks_at(ids)),
        "names_of_all_files_ms": timed(lambda: sum(1 for _ in manifest.entries(range(len(manifest))))),
        "digest_ms": timed(lambda: hashlib.sha256(content).hexdigest()),
    }


def apart(step: Callable[[Path, int, int], dict[str, float]], *arguments: object) -> dict[str, float]:
    """The step's answer from a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(step, arguments)


@click.command()
@click.option("--files", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--per-folder", default=1300, show_default=True, type=click.IntRange(min=1))
def main(files: int, per_folder: int) -> None:
    """Make a manifest of a generated listing, write it and read it back."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "manifest"
        figures = {
            **apart(build, file, files, per_folder),
            **apart(read, file, files, per_folder),
        }
    result = {"benchmark": "manifest_memory", "files": files, "per_folder": per_folder}
    click.echo(json.dumps({**result, **{name: round(value, 2) for name, value in figures.items()}}))


if __name__ == "__main__":
    main()
