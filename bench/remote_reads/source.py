"""How fast a node reads what no node holds: from a store behind a link of 200 Mbit/s, through the remote-read client.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/source.py [--files 1000] [--mbit 200]

Eight threads read files of 100 KB in a random order, and one thread a file of 256 MB, through an agent that reads them
from a real S3 server for the client and keeps nothing. The link's rate is that of the wire: headers take about 4 % of
it. The page cache is dropped before each run. Prints one JSON line. Needs root and FUSE.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from bench.cache.cache_lab import KEYS, Store
from bench.remote_reads.peers import LARGE, THREADS, read, small_files
from tests.support.dataplane.agents import Version, listed_files, make_version
from tests.support.dataplane.readers import Giver, ReaderNode, reader_node, table_of

from tdcs.engine.holder_table import Holder
from tdcs.model.agent_state import SourceAccess


def of_bucket(bucket: str, *, node: ReaderNode, store: Store) -> tuple[Version, SourceAccess]:
    """The version of what is in a bucket, and how agents read it."""
    access = SourceAccess(
        uri=f"s3://{bucket}",
        options=dict(store.options),
        access_key_id=KEYS.access_key_id,
        secret_access_key=KEYS.secret_access_key,
    )
    listed = [file._replace(tag=b"") for file in listed_files(store.root / bucket)]
    return make_version(listed, folder=node.folder / "manifests", source=access), access


def measure(node: ReaderNode, store: Store, *, files: int, rate: int) -> dict[str, Any]:
    """Read all of a bucket; `rate` is that of the link, in bits a second."""
    objects = store.root / "cold"
    names = small_files(objects, files=files)
    version, access = of_bucket("cold", node=node, store=store)
    giver = Giver(node.folder, "giver", source=access)
    giver.process.start()
    try:
        holder = Holder(node=giver.name, address=giver.address, reads_source=True)
        root = node.register(version, tables=table_of(holder))
        node.start()
        (root / names[0]).read_bytes()
        store.set_rate(rate)
        before = store.wire_bytes()
        pids = [node.reader.pid, giver.process.pid]
        small = read([str(root / name) for name in names], pids=pids, threads=THREADS)
        large = read([str(root / LARGE)], pids=pids, threads=1)
        wire = store.wire_bytes() - before
    finally:
        giver.process.kill()
    result: dict[str, Any] = {"files": files, "threads": THREADS, "link_mbit_s": rate // 1_000_000}
    for kind, figures in (("small", small), ("large", large)):
        bits = 8 * figures["bytes"] / figures["seconds"]
        result[kind] = {
            "mbit_s": round(bits / 1e6, 1),
            "over_link": round(bits / rate, 3),
            "errors": figures["errors"],
        }
    result["wire_over_payload"] = round(wire / (small["bytes"] + large["bytes"]), 3)
    return result


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1000, help="files of 100 KB")
    parser.add_argument("--mbit", type=int, default=200, help="the link's rate, in Mbit/s")
    options = parser.parse_args()
    with reader_node() as node:
        store = Store(folder=node.folder / "store", number=4)
        store.start()
        try:
            result = measure(node, store, files=options.files, rate=options.mbit * 1_000_000)
        finally:
            store.stop()
    print(json.dumps({**result, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
