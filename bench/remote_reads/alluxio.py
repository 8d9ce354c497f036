"""How fast and how cheaply a node reads what is on another one: the remote-read client next to its alternatives.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/alluxio.py [--files 5000] [--rounds 3] [--alluxio 600]
        [--profile Stock]

A real Alluxio with two workers, the agent of the second one, and a FUSE client on the node of the first: the tuned one,
or that of the profile Stock, which copies what it reads to its own node, so that it reads from there in later rounds.
All of a dataset's blocks are on the second node. Eight threads read files of 100 KB in a random order, and one file of
256 MB is read from its beginning to its end: from the disk that has the source, through the remote-read client, and
through Alluxio's FUSE client (some of the same files). The page cache is dropped before every run, ways take turns, and
the median counts. Processor time is that of all processes that take part: readers, client, agents, worker, master.
`link` is what one TCP connection on loopback carries between two processes. Prints one JSON line. Needs root and FUSE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from bench.cache.cache_lab import lab
from bench.remote_reads.peers import (
    LARGE,
    LARGE_BYTES,
    SMALL_BYTES,
    THREADS,
    killed_while_reading,
    link_rate,
    medians,
    memory,
    read,
    small_files,
)
from tests.engine.agents.agent_nodes import agents_of
from tests.support.dataplane.readers import reader_node

from tdcs.alluxio.profile import Profile
from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.model.agent_state import ALL_SLOTS
from tdcs.model.cache_engine import Source

HERE, THERE = "node-1", "node-2"


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ways, on one machine."""
    folder = Path(tempfile.mkdtemp(prefix="tdcs-remote-", dir=options.folder))
    os.chmod(folder, 0o755)  # noqa: S103 - the client reads the manifests as a user of its own
    source = folder / "source"
    names = small_files(source, files=options.files)
    capacity = 2 * (options.files * SMALL_BYTES + LARGE_BYTES)
    try:
        with lab(workers=2, capacity=capacity) as place, reader_node() as node:
            async with agents_of(place.cache, folder=folder / "manifests", capacity=capacity) as agents:
                version = await agents.version(Source(uri=f"file://{source}"))
                await agents.give(THERE, version)
                await agents.holds(THERE, version, deadline=120)
                content_by_name = {
                    name: (source / name).read_bytes() for name in (*names[: options.alluxio], LARGE)
                }
                await agents.exported(version.manifest.path, content_by_name, THERE)
                client = await asyncio.to_thread(place.cache.mount_fuse, HERE, kind=options.profile)
                giver = agents.nodes[THERE]
                holder = Holder(node=THERE, address=giver.address, complete=ALL_SLOTS, present=ALL_SLOTS)
                state = agents.state(THERE)
                assert state is not None
                table = HolderTable(holders=(holder,))
                root = node.register(version)
                node.table(version, msgspec.structs.replace(table, revision=1))
                await asyncio.to_thread(node.start)
                agent_pids = [giver.process.pid]
                cluster = [place.cache.master.pid, *(worker.pid for worker in place.cache.workers.values())]
                fuse = client.folder / version.manifest.path.lstrip("/")
                ways: dict[str, tuple[Path, list[int], int]] = {
                    "disk": (source, [], options.files),
                    "reader": (root, [node.reader.pid, *agent_pids], options.files),
                    "alluxio_fuse": (fuse, [client.process.pid, *cluster], options.alluxio),
                }
                result = await asyncio.to_thread(_rounds, ways, names, options.rounds)
                result["link_mb_s"] = round(link_rate() / 1e6)
                result["restarts"] = await asyncio.to_thread(
                    killed_while_reading, node, [str(root / name) for name in names] * 4
                )
                result["reader_mb"] = memory(node)
                return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rounds(ways: dict[str, tuple[Path, list[int], int]], names: list[str], rounds: int) -> dict[str, Any]:
    small: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    large: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (root, pids, count) in ways.items():
            small[way].append(read([str(root / name) for name in names[:count]], pids=pids, threads=THREADS))
            large[way].append(read([str(root / LARGE)], pids=pids, threads=1))

    result: dict[str, Any] = {"files": len(names), "threads": THREADS, "rounds": rounds}
    for way, (_, _, count) in ways.items():
        result[way] = medians(small[way], large[way], files=count)
        if result[way]["errors"]:
            raise RuntimeError(f"{result[way]['errors']} reads failed: {way}")
    reader, disk, alluxio = result["reader"], result["disk"], result["alluxio_fuse"]
    result["files_s_over_alluxio"] = round(reader["files_s"] / alluxio["files_s"], 1)
    result["cpu_of_alluxio_over_reader"] = round(alluxio["cpu_ms_per_file"] / reader["cpu_ms_per_file"], 1)
    result["files_s_over_disk"] = round(reader["files_s"] / disk["files_s"], 2)
    return result


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=5000, help="files of 100 KB")
    parser.add_argument(
        "--alluxio", type=int, default=600, help="how many of them are read through Alluxio's FUSE"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--profile", type=Profile, default=Profile.TUNED, choices=list(Profile), help="of the FUSE client"
    )
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="a folder on a disk")  # noqa: S108
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    result["load"] = os.getloadavg()[0]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
