"""The remote-read client next to mounts and libraries that others use, all of one S3 server, in turns.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/mounts.py [--files 2000] [--rounds 3] [--trusted]

Eight threads read files of 100 KB in a random order, one thread a file of 256 MB, and one thread pieces of 4 KiB
anywhere in that file: from the disk that has them, through the remote-read client from the agent of another node, and
through rclone mount, s3fs and JuiceFS. Those three read everything once before, so that their disk caches have it: what
is measured of them is no remote read at all. With `--direct PYTHON` two libraries read the files and the file from the
server without a mount (`direct_readers`). The page cache is dropped before every run, ways take turns, and the median
counts. Processor time is that of all processes that take part, the server's included. Prints one JSON line. Needs root,
FUSE and the programs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.cache.cache_lab import Store
from bench.remote_reads import costs
from bench.remote_reads.direct_readers import LIBRARIES, read_directly
from bench.remote_reads.peers import (
    LARGE,
    LARGE_BYTES,
    SMALL_BYTES,
    THREADS,
    medians,
    processor_seconds,
    read,
    served,
)
from bench.remote_reads.s3_mounts import PROGRAMS, juicefs, mounted

BUCKET: Final = "data"


def pieces_us(file: Path, offsets: list[int], *, pids: list[int]) -> float:
    """Microseconds of processor time for each piece of 4 KiB that one thread reads."""
    before = processor_seconds(pids)
    task = {"file": str(file), "size": costs.PIECE_BYTES, "shares": [offsets]}
    program = costs.run(task, pids={})["program"]
    return (program + processor_seconds(pids) - before) / len(offsets) * 1e6


def measure_directly(options: argparse.Namespace, *, store: Store, names: list[str]) -> dict[str, Any]:
    """The libraries without a mount."""
    result = {}
    for library in LIBRARIES:
        laps: dict[int, list[dict[str, Any]]] = {SMALL_BYTES: [], LARGE_BYTES: []}
        for _ in range(options.rounds):
            for keys, size, threads in ((names, SMALL_BYTES, THREADS), ([LARGE], LARGE_BYTES, 1)):
                before = processor_seconds([store.pid])
                lap = read_directly(
                    library,
                    python=options.direct,
                    store=store,
                    bucket=BUCKET,
                    names=keys,
                    size=size,
                    threads=threads,
                )
                lap["cpu"] += processor_seconds([store.pid]) - before
                laps[size].append(lap)
        result[library] = figures(laps[SMALL_BYTES], laps[LARGE_BYTES], files=len(names))
    return result


def figures(small: list[dict[str, Any]], large: list[dict[str, Any]], *, files: int) -> dict[str, float]:
    """Medians of one way."""
    per_gb = statistics.median(lap["cpu"] / lap["bytes"] * 1e9 for lap in large)
    return {**medians(small, large, files=files), "large_cpu_s_per_gb": round(per_gb, 2)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ways, in turns."""
    with (
        served(files=options.files, trusted=options.trusted) as (node, giver, source, root, names),
        ExitStack() as stack,
    ):
        store = Store(folder=node.folder / "store", number=random.randint(1, 250))  # noqa: S311
        stack.callback(store.stop)
        store.start()
        store.take(BUCKET, source)
        ways: dict[str, tuple[Path, list[int]]] = {
            "disk": (source, []),
            "reader": (root, [node.reader.pid, giver.process.pid]),
        }
        mounts = node.folder / "mounts"
        for program in PROGRAMS:
            point, pid = stack.enter_context(
                mounted(program, store=store, bucket=BUCKET, folder=mounts, cached=True)
            )
            ways[program] = (point, [pid, store.pid])
        point, pid = stack.enter_context(juicefs(source, store=store, folder=mounts))
        ways["juicefs"] = (point, [pid, store.pid])
        for point, _ in list(ways.values())[2:]:
            for thread_names, threads in ((names, THREADS), ([LARGE], 1)):
                read([str(point / name) for name in thread_names], pids=[], threads=threads)
        requests_before = store.sent().requests
        small: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        large: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        pieces: dict[str, list[float]] = {way: [] for way in ways}
        chance = random.Random(2)  # noqa: S311
        offsets = [chance.randrange(LARGE_BYTES // 4096) * 4096 for _ in range(options.pieces)]
        for _ in range(options.rounds):
            for way, (folder, pids) in ways.items():
                small[way].append(read([str(folder / name) for name in names], pids=pids, threads=THREADS))
                large[way].append(read([str(folder / LARGE)], pids=pids, threads=1))
                pieces[way].append(pieces_us(folder / LARGE, offsets, pids=pids))
        result: dict[str, Any] = {
            "bench": "mounts",
            "files": len(names),
            "threads": THREADS,
            "rounds": options.rounds,
            "trusted": options.trusted,
        }
        for way in ways:
            result[way] = figures(small[way], large[way], files=len(names))
            result[way]["piece_cpu_us"] = round(statistics.median(pieces[way]))
        result["objects_read_while_measured"] = store.sent().requests - requests_before
        if options.direct is not None:
            result |= measure_directly(options, store=store, names=names)
        return result


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=2000, help="files of 100 KB")
    parser.add_argument("--pieces", type=int, default=3000, help="pieces of 4 KiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trusted", action="store_true", help="with certificates: agents are asked by TLS")
    parser.add_argument("--direct", type=Path, help="a Python that has the libraries of direct_readers")
    options = parser.parse_args()
    print(json.dumps({**measure(options), "cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
