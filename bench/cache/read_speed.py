"""How fast a pod reads data that is on its node: the native view next to the node's disk, FUSE as the profiles Tuned
and Stock have it, and a direct S3 mount.

    PYTHONPATH=deploy/local python -m bench.cache.read_speed [--files 10000] [--large 4] [--rounds 9] [--warm]

Runs a real Alluxio, a real S3 server and the node plugin as processes on this machine, and reads through the volume
that the plugin gives a pod. Small files are read by 8 threads in a random order, large ones by as many threads as there
are files. The page cache is dropped before every run, for all ways alike; with --warm it never is, and a first round is
not counted. Ways take turns, and the median of the rounds counts; FUSE and S3 are read once. Prints one JSON line for
each way and kind of file. Needs root, FUSE, and for S3 the program s3fs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tests.engine.servers import AlluxioCluster, S3Server, make_home, random_network, unmount
from tests.engine.views.viewing import HERE, Bench, Dataset, machine_as_node, native, viewing
from tests.support.waiting import eventually_async

from tdcs.alluxio.profile import Profile
from tdcs_local import programs
from tdcs_local.experiment import objects, stock_mount

MIB = 1 << 20
SMALL_BYTES, LARGE_BYTES = 100_000, 128 * MIB
THREADS = 8
BAR = 0.9
"""What a warm read through a volume must reach of the node's disk."""

# A process of its own, so that nothing else holds the interpreter's lock.
READER = """
import os, sys, threading
names = sys.stdin.buffer.read().split(b"\\0")
todo = iter(names)
lock = threading.Lock()
read = [0] * {threads}
def work(number):
    buffer = bytearray(1 << 20)
    while True:
        with lock:
            name = next(todo, None)
        if name is None:
            return
        file = os.open(name, os.O_RDONLY)
        while count := os.readv(file, [buffer]):
            read[number] += count
        os.close(file)
threads = [threading.Thread(target=work, args=(n,)) for n in range({threads})]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(read))
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of files: their folder in the dataset, and how they are read."""

    name: str
    files: tuple[str, ...]
    total_bytes: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Way:
    """A folder in which the dataset can be read."""

    name: str
    folder: Path
    once: bool = False
    """Whether one round is enough: for those that are far from the bar, and slow."""


def read(*, way: Way, kind: Kind, warm: bool, seed: int = 7) -> float:
    """Seconds for reading all files once, without `warm` with an empty page cache, in the order that the seed gives."""
    names = list(kind.files)
    random.Random(seed).shuffle(names)  # noqa: S311 - the same order for all
    if not warm:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    text = b"\0".join(os.fsencode(way.folder / name) for name in names)
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-c", READER.format(threads=kind.threads)],
        input=text,
        capture_output=True,
        check=True,
    )
    seconds = time.monotonic() - begin
    if int(done.stdout) != kind.total_bytes:
        raise RuntimeError(f"{way.name} gave {int(done.stdout)} bytes of {kind.name}, not {kind.total_bytes}")
    return seconds


def measure(
    *, ways: Sequence[Way], kinds: Sequence[Kind], rounds: int, warm: bool
) -> Iterator[dict[str, object]]:
    """One result for each way and kind, the node's disk first."""
    for kind in kinds:
        for way in ways if warm else ():
            read(way=way, kind=kind, warm=True)
        seconds: dict[str, list[float]] = {way.name: [] for way in ways}
        for number in range(rounds):
            turn = [way for way in ways if not (way.once and number)]
            for way in turn if number % 2 == 0 else reversed(turn):
                seconds[way.name].append(read(way=way, kind=kind, warm=warm))
        disk = statistics.median(seconds[ways[0].name])
        for way in ways:
            median = statistics.median(seconds[way.name])
            yield {
                "bench": "read_speed",
                "way": way.name,
                "files": kind.name,
                "page_cache": "warm" if warm else "dropped",
                "files_per_second": round(len(kind.files) / median, 1),
                "mb_per_second": round(kind.total_bytes / median / 1e6, 1),
                "of_disk": round(disk / median, 3),
                "rounds_seconds": [round(value, 2) for value in seconds[way.name]],
            }


def make_files(*, folder: Path, small: int, large: int) -> list[Kind]:
    """Fill a folder."""
    kinds = []
    for name, number, size, threads in (
        ("small", small, SMALL_BYTES, THREADS),
        ("large", large, LARGE_BYTES, large),
    ):
        files = tuple(f"{name}/n{index % 100:02}/{index:06}.bin" for index in range(number))
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(os.urandom(size))
        if files:
            kinds.append(Kind(name=name, files=files, total_bytes=number * size, threads=threads))
    return kinds


@contextmanager
def s3_mount(*, server: S3Server, bucket: str, folder: Path) -> Iterator[Way | None]:
    """The bucket mounted by s3fs, without a cache of its own; None where the program is missing."""
    program = shutil.which("s3fs")
    if program is None:
        print("s3fs is not installed (apt-get install s3fs): no direct S3 mount", file=sys.stderr)
        yield None
        return
    secret, point = folder / "s3fs-keys", folder / "s3fs"
    pair = server.credentials
    secret.write_text(f"{pair.access_key_id}:{pair.secret_access_key}")
    secret.chmod(0o600)
    point.mkdir()
    options = [
        *("ro", f"passwd_file={secret}", f"url={server.endpoint}", "use_path_request_style"),
        *("parallel_count=16", "max_stat_cache_size=200000", "multireq_max=32"),
    ]
    subprocess.run([program, bucket, point, "-o", ",".join(options)], check=True)
    try:
        yield Way(name="s3fs", folder=point, once=True)
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


async def run(
    *, small: int, large: int, rounds: int, warm: bool, tell: Callable[[dict[str, object]], None]
) -> list[dict[str, object]]:
    """Prepare, load, check that all is native, and measure; `tell` gets each result as soon as it is there."""
    folder = Path(tempfile.mkdtemp(prefix="tdcs-read-"))
    network = random_network()
    server = S3Server(
        program=programs.ensure("versitygw") / "versitygw", folder=folder / "s3", address=f"{network}.2"
    )
    capacity = 2 * (small * SMALL_BYTES + large * LARGE_BYTES) + 256 * MIB
    cluster = AlluxioCluster(
        home=make_home(folder, lib=programs.ensure("alluxio") / "lib"),
        folder=folder / "cluster",
        network=network,
        workers={HERE: capacity},
        # Large files as one block each, as a dataset of large files is mounted.
        overrides={"alluxio.user.block.size.bytes.default": f"{LARGE_BYTES}B"},
    )
    try:
        server.process.start()
        server.make_bucket("bench")
        bucket = server.folder_of("bench")
        kinds = make_files(folder=bucket / "data", small=small, large=large)
        disk = folder / "disk"
        shutil.copytree(bucket / "data", disk)
        with machine_as_node() as node:
            await asyncio.to_thread(cluster.start)
            async with viewing(tiers=folder / "tiers", s3=server, node=node) as bench:
                path = await bench.mount_source(server.source("s3://bench/data"))
                volume = await _loaded_volume(bench=bench, path=path, files=small + large)
                await stock_mount.mount(_request(cluster, server))
                tuned = await asyncio.to_thread(cluster.mount_fuse, HERE)
                stock = await asyncio.to_thread(cluster.mount_fuse, HERE, kind=Profile.STOCK)
                with s3_mount(server=server, bucket="bench:/data", folder=folder) as direct:
                    ways = [
                        Way(name="disk", folder=disk),
                        Way(name="view", folder=volume),
                        Way(name="fuse-tuned", folder=tuned.folder / "bench/data", once=True),
                        Way(name="fuse-stock", folder=stock.folder / "bench/data", once=True),
                        *([direct] if direct else []),
                    ]

                    def measured() -> list[dict[str, object]]:
                        results = []
                        for result in measure(ways=ways, kinds=kinds, rounds=rounds, warm=warm):
                            tell(result)
                            results.append(result)
                        return results

                    return await asyncio.to_thread(measured)
    finally:
        cluster.stop()
        server.process.kill()
        unmount(folder)
        shutil.rmtree(folder)


def _request(cluster: AlluxioCluster, server: S3Server) -> stock_mount.Request:
    """The bucket in Alluxio, as the experiment has it."""
    pair = server.credentials
    keys = {"accessKeyId": pair.access_key_id, "secretAccessKey": pair.secret_access_key}
    request = objects.stock_mount(keys, identity=None)
    request.properties["alluxio.underfs.s3.endpoint"] = server.endpoint
    return msgspec.structs.replace(request, master=cluster.target, path="/bench", uri="s3://bench")


async def _loaded_volume(*, bench: Bench, path: str, files: int) -> Path:
    await bench.load(Dataset(path=path, sums={}))
    volume = await bench.publish_path(path)
    await eventually_async(lambda: len(native(volume)) == files, deadline=120)
    return volume


def main(arguments: Sequence[str]) -> int:
    """Print the results; the exit status is 1 when the volume stays below the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000, help="small files of 100 KB")
    parser.add_argument("--large", type=int, default=4, help="files of 128 MiB")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm", action="store_true", help="all that is read is in the page cache")
    options = parser.parse_args(arguments)

    def tell(result: dict[str, object]) -> None:
        load = {"load_average_after": os.getloadavg()[0], "processors": os.cpu_count()}
        print(json.dumps({**result, **load}), flush=True)

    results = asyncio.run(
        run(
            small=options.files,
            large=options.large,
            rounds=options.rounds,
            warm=options.warm,
            tell=tell,
        )
    )
    missed = [r for r in results if r["way"] == "view" and float(str(r["of_disk"])) < BAR]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
