"""How fast and how cheaply a node reads what is on another one, through the remote-read client.

Scenarios, each printing one line of JSON (all of them when none is named):

* ``reads``: eight threads read 5,000 files of 100 KB in a random order, and one thread a file of 256 MB: from the disk
  that has them, through the client from the block service of an agent on loopback, and as a partition over three nodes
  is read (a third from the disk, the others through the client). ``link`` is what one TCP connection on loopback
  carries between two processes
* ``views``: the same small files through what pods are given: a tree of which all files are on the node, and one of
  which a third is, each as an overlay. Three times: with nothing in the kernel's caches, with names and attributes
  only, and with all of it
* ``restarts``: the client's serving process is killed 20 times at random while eight threads read
* ``names``: ``ls -R`` of a million files, twice, and the client's memory

The page cache is dropped before every run, ways take turns, and the median counts. Processor time is that of all
processes that take part: readers, client, agent. Needs root and FUSE. From the root of the checkout::

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/peers.py reads

Loopback is faster than the processors that share it. Over a link of 4 Gbit/s, say, in a network of its own::

    unshare --net sh -c 'ip link set lo up; tc qdisc add dev lo root tbf rate 4gbit burst 4mb latency 50ms
        PYTHONPATH=.:deploy/local:operator python bench/remote_reads/peers.py reads'
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from tests.support.certificates import TestAuthority
from tests.support.dataplane.agents import folder_version, make_version
from tests.support.dataplane.readers import (
    CLUSTER,
    Giver,
    ReaderNode,
    drop_page_cache,
    holder_of,
    reader_node,
    table_of,
)

from tdcs.api.names import AGENT_SPOOL, READER_NUMBERED
from tdcs.listing.folder import open_manifest_file
from tdcs.model.agent_state import SourceAccess
from tdcs.model.manifest import Manifest
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.overlay import ShownFolder
from tdcs.node.csi.views.view_plan import plan
from tdcs.node.csi.views.view_tree import Tree
from tdcs.trust.roles import Role

SMALL_BYTES: Final = 100_000
LARGE_BYTES: Final = 256 << 20
THREADS: Final = 8
LARGE: Final = "large.bin"
KILLS: Final = 20

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


def forget_pages() -> None:
    """Have the kernel forget contents of files, and keep names and attributes."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


FORGET: Final[dict[str, Callable[[], None]]] = {
    "cold": drop_page_cache,
    "names_known": forget_pages,
    "warm": lambda: None,
}


def read(names: list[str], *, pids: list[int], threads: int, caches: str = "cold") -> dict[str, Any]:
    """Read all of these files once, with what the kernel's caches know by now, or a part of that."""
    FORGET[caches]()
    before = processor_seconds(pids)
    program = READER.format(threads=threads)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input="\0".join(names).encode(),
        capture_output=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    figures["cpu"] += processor_seconds(pids) - before
    return figures


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
        buffer, remaining, began = bytearray(1 << 20), amount, time.monotonic()
        while remaining:
            remaining -= connection.recv_into(buffer)
        return amount / (time.monotonic() - began)


def small_files(folder: Path, *, files: int) -> list[str]:
    """Random files of 100 KB in folders of 1,000, and a large one; the names of the small ones in a random order."""
    content = random.Random(1)  # noqa: S311
    names = []
    for number in range(files):
        name = f"{number // 1000:03d}/{number:06d}.bin"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.randbytes(SMALL_BYTES))
        names.append(name)
    (folder / LARGE).write_bytes(content.randbytes(1 << 20) * (LARGE_BYTES >> 20))
    content.shuffle(names)
    return names


@contextmanager
def served(*, files: int, trusted: bool = False) -> Iterator[tuple[ReaderNode, Giver, Path, Path, list[str]]]:
    """A node with a client, the giver of all blocks, the folder of the source, the client's, and the names."""
    with reader_node() as node:
        trust: Path | None = None
        if trusted:
            authority = TestAuthority()
            trust = authority.folder(node.folder / "trust-of-agent", Role.AGENT)
            trust_folder = authority.folder(node.folder / "trust-of-reader", Role.READER)
            node.reader = node.make_reader(f"--trust={trust_folder}")
        source = node.folder / "source"
        names = small_files(source, files=files)
        version = folder_version(source, store=node.folder / "manifests")
        giver = Giver(node.folder, "giver", trust=trust)
        giver.put(version.manifest, source)
        giver.process.start()
        root = node.register(version, tables=table_of(holder_of(giver)))
        node.start()
        try:
            yield node, giver, source, root, names
        finally:
            giver.process.kill()


def medians(small: list[dict[str, Any]], large: list[dict[str, Any]], *, files: int) -> dict[str, float]:
    """What one way came to: rounds over `files` small files, and over the large one where it was read."""
    result: dict[str, float] = {
        "files_s": round(statistics.median(files / lap["seconds"] for lap in small)),
        "cpu_ms_per_file": round(statistics.median(1000 * lap["cpu"] / files for lap in small), 3),
        "errors": sum(lap["errors"] for lap in small + large),
    }
    if large:
        result["large_mb_s"] = round(statistics.median(lap["bytes"] / lap["seconds"] / 1e6 for lap in large))
    return result


def reads(options: argparse.Namespace) -> dict[str, Any]:
    """Files from the disk, through the client, and as a partition has them."""
    with served(files=options.files, trusted=options.trusted) as (node, giver, source, root, names):
        pids = [node.reader.pid, giver.process.pid]
        partition = [str((source if number % 3 == 0 else root) / name) for number, name in enumerate(names)]
        ways: dict[str, tuple[list[str], Path | None, list[int]]] = {
            "disk": ([str(source / name) for name in names], source, []),
            "remote": ([str(root / name) for name in names], root, pids),
            "partition": (partition, None, pids),
        }
        small: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        large: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, (paths, folder, used) in ways.items():
                small[way].append(read(paths, pids=used, threads=THREADS))
                if folder is not None:
                    large[way].append(read([str(folder / LARGE)], pids=used, threads=1))
        result: dict[str, Any] = {"files": len(names), "threads": THREADS, "rounds": options.rounds}
        for way, laps in small.items():
            result[way] = medians(laps, large[way], files=len(names))
        result["link_mb_s"] = round(link_rate() / 1e6)
        result["large_over_link"] = round(result["remote"]["large_mb_s"] / result["link_mb_s"], 2)
        for way in ("remote", "partition"):
            result[f"{way}_over_disk"] = round(result[way]["files_s"] / result["disk"]["files_s"], 2)
        result["memory_mb"] = memory(node)
        return result


@contextmanager
def shown(
    version: Manifest,
    node: ReaderNode,
    tier: Path,
    *,
    kind: str,
    local: Callable[[int], bool],
) -> Iterator[Path]:
    """A view of a version as the node plugin makes it; `local` says of which files the blocks, which all are in a tier,
    are on the node."""
    folder = node.folder / f"{kind}-merged"
    blocks = folder / "tier" / AGENT_SPOOL
    blocks.mkdir(parents=True)
    for file in filter(local, range(len(version))):
        for block in version.block_ids[list(version.blocks_of(file))].tolist():
            os.link(tier / AGENT_SPOOL / str(block), blocks / str(block))
    store = Store(tiers=[str(folder / "tier")], mount=version.path)
    tree = Tree(
        folder=str(folder / "tier/tree"),
        scratch=str(folder / "tier/scratch"),
        manifest=version,
        store=store,
    )
    tree.prepare()
    planned = store.scan(manifest=version, kinds=tree.kinds)
    tree.apply(plan(kinds=tree.kinds, forms=tree.forms, linked=tree.linked, blocks=planned, release=False))
    root = node.own.point / f"{CLUSTER}.{version.digest}"
    tree_folder, point = str(folder / "tier/tree"), str(folder / "shown")
    overlay = ShownFolder(version=str(folder), tree=tree_folder, merged=True, point=point)
    data = os.open(f"{root}{READER_NUMBERED}", os.O_PATH)
    overlay.show(data=data, device="0:0")
    os.close(data)
    yield folder / "shown"
    overlay.remove()


def views(options: argparse.Namespace) -> dict[str, Any]:
    """Files through what pods are given."""
    kinds: dict[str, Callable[[int], bool]] = {"all": lambda _: True, "third": lambda file: file % 3 == 0}
    with (
        served(files=options.files, trusted=options.trusted) as (node, giver, source, root, names),
        ExitStack() as stack,
    ):
        file = os.open(next((node.folder / "manifests").iterdir()), os.O_RDONLY)
        version = open_manifest_file(file, digest=root.name.rpartition(".")[2])
        ways: dict[str, tuple[Path, list[int]]] = {"disk": (source, [])}
        for kind, local in kinds.items():
            view = stack.enter_context(shown(version, node, giver.tier, kind=kind, local=local))
            pids = [] if kind == "all" else [node.reader.pid, giver.process.pid]
            ways[f"{kind}_merged"] = (view, pids)
        laps_by_way: dict[str, dict[str, list[dict[str, Any]]]] = {
            way: {caches: [] for caches in FORGET} for way in ways
        }
        for _ in range(options.rounds):
            for way, (folder, pids) in ways.items():
                for caches in FORGET:
                    paths = [str(folder / name) for name in names]
                    laps_by_way[way][caches].append(read(paths, pids=pids, threads=THREADS, caches=caches))
        result: dict[str, Any] = {"files": len(names), "threads": THREADS, "rounds": options.rounds}
        for way, by_known in laps_by_way.items():
            result[way] = {caches: medians(laps, [], files=len(names)) for caches, laps in by_known.items()}
        for way in list(ways)[1:]:
            result[f"{way}_over_disk"] = {
                caches: round(result[way][caches]["files_s"] / result["disk"][caches]["files_s"], 2)
                for caches in FORGET
            }
        return result


def memory(node: ReaderNode) -> int:
    """What the client's processes have in memory, shared pages counted once, in MB."""
    pids = (node.reader.pid, *node.workers())
    return round(sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / 1e6)


def killed_while_reading(node: ReaderNode, paths: list[str]) -> dict[str, Any]:
    """Kill the serving process at random moments while threads read."""
    result: dict[str, Any] = {}

    def work() -> None:
        result.update(read(paths, pids=[], threads=THREADS))

    reading = threading.Thread(target=work)
    reading.start()
    killed, chosen = 0, random.Random(5)  # noqa: S311
    while reading.is_alive() and killed < KILLS:
        time.sleep(chosen.uniform(0.05, 0.4))
        with suppress(FileNotFoundError, ProcessLookupError):
            drop_page_cache()
            inode = node.own.lock.stat().st_ino
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                    os.kill(int(fields[4]), signal.SIGKILL)
                    killed += 1
    reading.join()
    return {
        "kills": killed,
        "files_read": len(paths),
        "errors": result["errors"],
        "bytes_missing": len(paths) * SMALL_BYTES - result["bytes"],
        "longest_read_s": round(result["longest"], 3),
    }


def restarts(options: argparse.Namespace) -> dict[str, Any]:
    """Files through the client, whose serving process is killed at random moments."""
    with served(files=options.files, trusted=options.trusted) as (node, _, _, root, names):
        return killed_while_reading(node, [str(root / name) for name in names] * 6)


def names(options: argparse.Namespace) -> dict[str, Any]:
    """List a million files twice."""
    with reader_node() as node:
        files = (
            (f"{number // 1000:04d}/{number:07d}.jpg".encode(), SMALL_BYTES, b"")
            for number in range(options.names)
        )
        version = make_version(
            files, folder=node.folder / "manifests", source=SourceAccess(uri="file:///none")
        )
        root = node.register(version)
        node.start()
        seconds = []
        for _ in range(2):
            began = time.monotonic()
            subprocess.run(["ls", "-lR", str(root)], stdout=subprocess.DEVNULL, check=True)
            seconds.append(round(time.monotonic() - began, 1))
        return {
            "files": options.names,
            "first_ls_s": seconds[0],
            "second_ls_s": seconds[1],
            "memory_mb": memory(node),
        }


SCENARIOS: Final = {"reads": reads, "views": views, "restarts": restarts, "names": names}


def main() -> None:
    """Measure, and print a line of JSON for each scenario."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument("--files", type=int, default=5000, help="files of 100 KB")
    parser.add_argument("--names", type=int, default=1_000_000, help="files to list")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trusted", action="store_true", help="with certificates: agents are asked by TLS")
    options = parser.parse_args()
    for name in options.scenarios or SCENARIOS:
        result = SCENARIOS[name](options)
        print(json.dumps({"scenario": name, **result, "load": round(os.getloadavg()[0], 1)}), flush=True)


if __name__ == "__main__":
    main()
