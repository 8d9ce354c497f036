"""How fast and how cheaply a node reads what lies on another one: the remote-read client beside its alternatives.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads_alluxio.py [--files 5000] [--rounds 3] [--alluxio 600]

A real Alluxio with two workers, the agent of the second one, and the tuned FUSE client on the node of the first. All of
a dataset's blocks lie on the second node. Eight threads read files of 100 KB in a random order, and one file of 256 MB
is read from its beginning to its end: from the disk that has the source, through the remote-read client, and through
Alluxio's FUSE client (some of the same files). The page cache is dropped before every run, ways take turns, and the
median counts. Processor time is that of all processes that take part: readers, client, agents, worker, master.
`link` is what one TCP connection on loopback carries between two processes. Prints one JSON line. Needs root and FUSE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from bench.cache_lab import lab
from tests.engine.agent_nodes import agents_of
from tests.support.readers import ReaderNode, drop_page_cache, reader_node

from tdcs.engine.agents import ALL_SLOTS
from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.engine.protocol import Source

SMALL_BYTES: Final = 100_000
LARGE_BYTES: Final = 256 << 20
THREADS: Final = 8
HERE, THERE = "node-1", "node-2"

READER: Final = """
import os, sys, threading, time, json
names = sys.stdin.buffer.read().split(b"\\0")
todo = iter(names)
lock = threading.Lock()
read, longest, errors = [0] * {threads}, [0.0] * {threads}, [0] * {threads}
def work(number):
    buffer = bytearray(1 << 20)
    while True:
        with lock:
            name = next(todo, None)
        if name is None:
            return
        began = time.monotonic()
        try:
            file = os.open(name, os.O_RDONLY)
            while count := os.readv(file, [buffer]):
                read[number] += count
            os.close(file)
        except OSError:
            errors[number] += 1
        longest[number] = max(longest[number], time.monotonic() - began)
threads = [threading.Thread(target=work, args=(number,)) for number in range({threads})]
began = time.monotonic()
for thread in threads: thread.start()
for thread in threads: thread.join()
used = os.times()
print(json.dumps(dict(seconds=time.monotonic() - began, bytes=sum(read), longest=max(longest), errors=sum(errors),
                      cpu=used.user + used.system)))
"""
"""A process of its own, so that nothing else holds the interpreter's lock."""


def processor_seconds(pids: Iterable[int]) -> float:
    """Of these processes and all that they have started."""
    total = 0.0
    for pid in pids:
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def read(names: list[str], *, pids: list[int], threads: int) -> dict[str, Any]:
    """Read all of these files once, from a cold page cache."""
    drop_page_cache()
    before = processor_seconds(pids)
    program = READER.format(threads=threads)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input="\0".join(names).encode(),
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    found["cpu"] += processor_seconds(pids) - before
    return found


def link_rate() -> float:
    """Bytes a second of one TCP connection between two processes of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    amount = 2 << 30
    sender = f"""
import os, socket
connection = socket.create_connection(("127.0.0.1", {port}))
block = memoryview(bytearray(1 << 20))
for _ in range({amount >> 20}):
    connection.sendall(block)
"""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", sender]):
        connection, _ = listener.accept()
        buffer, left, began = bytearray(1 << 20), amount, time.monotonic()
        while left:
            left -= connection.recv_into(buffer)
        return amount / (time.monotonic() - began)


def restarts(node: ReaderNode, names: list[str], *, kills: int) -> dict[str, Any]:
    """Kill the serving process at random moments while threads read."""
    result: dict[str, Any] = {}

    def work() -> None:
        result.update(read(names, pids=[], threads=THREADS))

    reading = threading.Thread(target=work)
    reading.start()
    killed, chosen = 0, random.Random(5)  # noqa: S311
    while reading.is_alive() and killed < kills:
        time.sleep(chosen.uniform(0.05, 0.3))
        for pid in node.workers():
            if Path(f"/proc/{pid}/wchan").read_text() == "do_epoll_wait":
                psutil.Process(pid).kill()
                killed += 1
                break
    reading.join()
    return {
        "kills": killed,
        "files": len(names),
        "errors": result["errors"],
        "longest_read_s": round(result["longest"], 3),
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ways, on one machine."""
    folder = Path(tempfile.mkdtemp(prefix="tdcs-remote-", dir=options.folder))
    source = folder / "source"
    content = random.Random(1)  # noqa: S311
    names = []
    for number in range(options.files):
        name = f"{number // 1000:03d}/{number:06d}.bin"
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content.randbytes(SMALL_BYTES))
        names.append(name)
    (source / "large.bin").write_bytes(content.randbytes(1 << 20) * (LARGE_BYTES >> 20))
    capacity = 2 * (options.files * SMALL_BYTES + LARGE_BYTES)
    try:
        with lab(workers=2, capacity=capacity) as place, reader_node() as node:
            async with agents_of(place.cache, folder=folder / "manifests", capacity=capacity) as agents:
                version = await agents.version(Source(uri=f"file://{source}"))
                await agents.give(THERE, version)
                await agents.holds(THERE, version, deadline=120)
                client = await asyncio.to_thread(place.cache.mount_fuse, HERE)
                giver = agents.nodes[THERE]
                holder = Holder(node=THERE, address=giver.address, complete=ALL_SLOTS, present=ALL_SLOTS)
                journal = giver.disk.epoch.read_text().strip()
                state = agents.state(THERE)
                assert state is not None
                table = HolderTable(journal=state.journal or journal, holders=(holder,))
                root = node.register(version)
                node.table(version, msgspec.structs.replace(table, revision=1))
                await asyncio.to_thread(node.start)
                random.Random(2).shuffle(names)  # noqa: S311
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
                    restarts, node, [str(root / name) for name in names] * 4, kills=20
                )
                result["reader_mb"] = round(
                    sum(
                        psutil.Process(pid).memory_full_info().pss
                        for pid in (node.reader.pid, *node.workers())
                    )
                    / 1e6
                )
                return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rounds(ways: dict[str, tuple[Path, list[int], int]], names: list[str], rounds: int) -> dict[str, Any]:
    small: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    large: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (root, pids, count) in ways.items():
            small[way].append(read([str(root / name) for name in names[:count]], pids=pids, threads=THREADS))
            large[way].append(read([str(root / "large.bin")], pids=pids, threads=1))

    result: dict[str, Any] = {"files": len(names), "threads": THREADS, "rounds": rounds}
    for way, (_, _, count) in ways.items():
        found, streams = small[way], large[way]
        result[way] = {
            "files_s": round(statistics.median(count / one["seconds"] for one in found)),
            "cpu_ms_per_file": round(statistics.median(1000 * one["cpu"] / count for one in found), 3),
            "large_mb_s": round(statistics.median(one["bytes"] / one["seconds"] / 1e6 for one in streams)),
            "errors": sum(one["errors"] for one in found + streams),
        }
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
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="a folder on a disk")  # noqa: S108
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    result["load"] = os.getloadavg()[0]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
