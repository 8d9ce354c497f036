"""What the list of a dataset's files costs the node plugin: memory and time to make it, keep it, and read it back.

The listing is generated in pages, as the cache's master gives it. Prints one line of JSON. From the checkout's root::

    PYTHONPATH=.:operator python bench/manifest_memory.py --files 1000000
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import click

from tdcs.csi.views.manifest import Builder, decode
from tdcs.engine.protocol import Block, CachedFile

PAGE = 2000
MIB = 1 << 20


def pages(*, files: int, per_folder: int) -> Iterator[list[CachedFile]]:
    """ImageNet's names; the ids of blocks are in another order than the names, as after a listing in parallel."""
    for begin in range(0, files, PAGE):
        yield [_file(number, per_folder=per_folder) for number in range(begin, min(begin + PAGE, files))]


def _file(number: int, *, per_folder: int) -> CachedFile:
    folder = number // per_folder
    name = f"train/n{folder:08d}/n{folder:08d}_{number:08d}.JPEG"
    length = 110_000 + number % 1000
    block = Block(
        id=(number * 7919 % 1_000_003) << 24,
        length=length,
        offset=0,
        source_path=f"s3://imagenet/{name}",
        mount_id=7,
    )
    return CachedFile(path=name, length=length, blocks=(block,))


def resident() -> int:
    """Memory of this process now, in MiB."""
    pages_now = int(Path("/proc/self/statm").read_text().split()[1])
    return pages_now * os.sysconf("SC_PAGE_SIZE") // MIB


def peak() -> int:
    """The most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@click.command()
@click.option("--files", default=1_000_000, show_default=True, type=click.IntRange(1, 1_000_003))
@click.option("--per-folder", default=1300, show_default=True, type=click.IntRange(min=1))
def main(files: int, per_folder: int) -> None:
    """Make a manifest of a generated listing, write it and read it back."""
    before, begun = resident(), time.monotonic()
    builder = Builder(path="/datasets/0123456789abcdef")
    for page in pages(files=files, per_folder=per_folder):
        builder.add(page)
    listed, manifest = time.monotonic(), builder.finish()
    del builder
    made = time.monotonic()
    content = manifest.encode()
    size = len(content)
    built, kept_by_builder = peak(), resident()
    assert decode(content).version == manifest.version
    del content
    result = {
        "benchmark": "manifest_memory",
        "files": files,
        "per_folder": per_folder,
        "version": manifest.version,
        "listed_s": round(listed - begun, 1),
        "finished_s": round(made - listed, 1),
        "resident_before_mib": before,
        "peak_mib": built,
        "resident_after_mib": kept_by_builder,
        "peak_with_reading_back_mib": peak(),
        "on_disk_mib": round(size / MIB, 1),
    }
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
