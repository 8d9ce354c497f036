"""What a larger cache gains when a dataset does not fit: one that holds 60 % of the files next to one that holds 40 %.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/partial_cache.py \\
        [--files 2000] [--mbit 200] [--rounds 3]

Eight threads read all files of 100 KB in a random order through the remote-read client of a node. The blocks of the
first 40 % or 60 % of the slots are on the node; the rest is read from a real S3 server behind a link, through an agent
that keeps nothing of it. So a cache that is too small is read as it is, and nothing is thrown out for what comes next.
The page cache is dropped before each run. Prints one line of JSON; fails when the larger cache takes more than 1.05
times as long as the smaller one. Needs root and FUSE.
"""

from __future__ import annotations

import json
import os
import statistics
import sys

import click
from bench.cache.cache_lab import Store
from bench.remote_reads.peers import LARGE, SMALL_BYTES, THREADS, read, small_files
from bench.remote_reads.source import of_bucket
from tests.support.dataplane.agents import Version
from tests.support.dataplane.readers import Giver, ReaderNode, reader_node, table_of

from tdcs.api.names import AGENT_SPOOL
from tdcs.engine.holder_table import Holder
from tdcs.model import slots

SHARES = (0.4, 0.6)
BAR = 1.05


def held_slots(share: float) -> bytes:
    """The slots that the cache holds."""
    return slots.prefix(round(share * slots.SLOTS))


def put(node: ReaderNode, version: Version, store: Store, *, share: float) -> int:
    """Have the blocks of the first slots on the node; how many of the files these are."""
    manifest, count = version.manifest, 0
    for file in range(len(manifest)):
        (block,) = manifest.blocks_of(file)
        if manifest.block_slots[block] < round(share * slots.SLOTS):
            content = (store.root / "part" / os.fsdecode(manifest.file_path(file))).read_bytes()
            (node.tier / AGENT_SPOOL / str(int(manifest.block_ids[block]))).write_bytes(content)
            count += 1
    return count


def measure(*, share: float, files: int, rate: int, rounds: int) -> dict[str, float]:
    """Read everything with so much of it on the node; `rate` is that of the link, in bits a second."""
    with reader_node() as node:
        store = Store(folder=node.folder / "store", number=5)
        store.start()
        try:
            objects = store.root / "part"
            names = small_files(objects, files=files)
            (objects / LARGE).unlink()
            version, access = of_bucket("part", node=node, store=store)
            held = put(node, version, store, share=share)
            giver = Giver(node.folder, "giver", source=access)
            giver.process.start()
            try:
                relay = Holder(node=giver.name, address=giver.address, reads_source=True)
                holder = Holder(node="here", address="127.0.0.1:1", present=held_slots(share))
                root = node.register(version, tables=table_of(relay, holder))
                node.start()
                (root / names[0]).read_bytes()
                store.set_rate(rate)
                sent = store.sent().payload_bytes
                pids = [node.reader.pid, giver.process.pid]
                paths = [str(root / name) for name in names]
                laps = [read(paths, pids=pids, threads=THREADS) for _ in range(rounds)]
                sent = store.sent().payload_bytes - sent
            finally:
                giver.process.kill()
        finally:
            store.stop()
    if any(lap["errors"] or lap["bytes"] != files * SMALL_BYTES for lap in laps):
        raise RuntimeError(f"files could not be read: {laps}")
    return {
        "held_files": held,
        "seconds": round(statistics.median(lap["seconds"] for lap in laps), 2),
        "source_share": round(sent / rounds / (files * SMALL_BYTES), 3),
    }


@click.command()
@click.option("--files", default=2000, show_default=True, help="Of 100 KB each.")
@click.option("--mbit", default=200, show_default=True, help="The link's rate, in Mbit/s.")
@click.option("--rounds", default=3, show_default=True)
def main(files: int, mbit: int, rounds: int) -> None:
    """Measure both, and compare them with the bar."""
    smaller, larger = (
        measure(share=share, files=files, rate=mbit * 1_000_000, rounds=rounds) for share in SHARES
    )
    ratio = round(larger["seconds"] / smaller["seconds"], 3)
    head = {"bench": "partial_cache", "files": files, "link_mbit": mbit, "rounds": rounds}
    rows = {f"cache_{round(100 * share)}": row for share, row in zip(SHARES, (smaller, larger), strict=True)}
    machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
    click.echo(json.dumps({**head, **rows, "larger_over_smaller": ratio, "bar": ratio <= BAR, **machine}))
    sys.exit(ratio > BAR)


if __name__ == "__main__":
    main()
