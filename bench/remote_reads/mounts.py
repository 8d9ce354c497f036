"""The remote-read client next to rclone mount and s3fs, which have all files on their own disk caches.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/mounts.py [--files 5000] [--rounds 3]

Eight threads read files of 100 KB in a random order, and one thread a file of 256 MB: from the disk that has them,
through the remote-read client from the agent of another node, and through rclone mount and s3fs from a bucket of a real
S3 server. Those two read everything once before, so that their disk caches have it: what is measured of them is no
remote read at all. The page cache is dropped before every run, ways take turns, and the median counts. Processor time
is that of all processes that take part. Prints one JSON line. Needs root, FUSE and both programs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.cache.cache_lab import Store
from bench.remote_reads.peers import LARGE, THREADS, medians, read, served
from bench.remote_reads.s3_mounts import PROGRAMS, mounted


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ways, in turns."""
    with served(files=options.files) as (node, giver, source, root, names), ExitStack() as stack:
        store = Store(folder=node.folder / "store", number=random.randint(1, 250))  # noqa: S311
        stack.callback(store.stop)
        store.start()
        source.rename(store.root / "data")
        source.symlink_to(store.root / "data")
        ways: dict[str, tuple[Path, list[int]]] = {
            "disk": (source, []),
            "reader": (root, [node.reader.pid, giver.process.pid]),
        }
        for program in PROGRAMS:
            point, pid = stack.enter_context(
                mounted(program, store=store, bucket="data", folder=node.folder / "mounts", cached=True)
            )
            ways[program] = (point, [pid, store.pid])
            for thread_names, threads in ((names, THREADS), ([LARGE], 1)):
                read([str(point / name) for name in thread_names], pids=[], threads=threads)
        requests_before = store.sent().requests
        small: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        large: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, (folder, pids) in ways.items():
                small[way].append(read([str(folder / name) for name in names], pids=pids, threads=THREADS))
                large[way].append(read([str(folder / LARGE)], pids=pids, threads=1))
        result: dict[str, Any] = {"files": len(names), "threads": THREADS, "rounds": options.rounds}
        for way in ways:
            result[way] = medians(small[way], large[way], files=len(names))
        result["objects_read_while_measured"] = store.sent().requests - requests_before
        for program in PROGRAMS:
            result[f"files_s_over_{program}"] = round(
                result["reader"]["files_s"] / result[program]["files_s"], 1
            )
        return result


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=5000, help="files of 100 KB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps({**measure(options), "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
