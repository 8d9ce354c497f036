"""Images a second of a PyTorch and a TensorFlow input pipeline, by where the dataset is and how it is read.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/pipelines.py --tensorflow PYTHON [--rounds 3]

JPEG files of 100 KB, decoded by two workers or threads. `native` is the volume of a pod whose node has all of them,
`partition` that of one that has a third and reads the others through the remote-read client, `alluxio_fuse` the tuned
FUSE client with all blocks on another worker, and `s3fs` a bucket of a real S3 server, direct and without a disk cache.
Real Alluxio and agents; the kernel's caches are emptied before each epoch, ways take turns, the median counts. PyTorch
runs in the root of the image train-pytorch; PYTHON is an interpreter that has TensorFlow. Prints one JSON line for each
framework. Needs root, FUSE and s3fs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.cache.cache_lab import lab
from bench.remote_reads.peers import shown
from bench.remote_reads.s3_mounts import mounted
from bench.training.loader import make
from tests.engine.agents.agent_nodes import agents_of
from tests.support.dataplane.readers import ReaderNode, reader_node

from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.model.agent_state import ALL_SLOTS
from tdcs.model.cache_engine import Source
from tdcs_local.containers import torch_root
from tdcs_local.progress import Reporter

CAPACITY = 1 << 30
HERE, THERE = "node-1", "node-2"


async def measure(options: argparse.Namespace) -> None:
    """Both frameworks over all ways; each is printed at once."""
    with lab(workers=2, capacity=CAPACITY) as place, reader_node() as node, ExitStack() as stack:
        source = place.store.root / "data"
        source.mkdir()
        size = make(source, files=options.images)
        async with agents_of(place.cache, folder=node.folder / "manifests", capacity=CAPACITY) as agents:
            version = await agents.version(Source(uri=f"file://{source}"))
            await agents.give(THERE, version)
            await agents.holds(THERE, version, deadline=120)
            files = {str(file.relative_to(source)): file.read_bytes() for file in source.rglob("*.*")}
            await agents.exported(version.manifest.path, files, THERE)
            client = await asyncio.to_thread(place.cache.mount_fuse, HERE)
            giver, state = agents.nodes[THERE], agents.state(THERE)
            assert state is not None
            holder = Holder(node=THERE, address=giver.address, complete=ALL_SLOTS, present=ALL_SLOTS)
            node.register(version)
            node.table(version, HolderTable(holders=(holder,), revision=1))
            await asyncio.to_thread(node.start)
            ways = {
                kind: stack.enter_context(shown(version.manifest, node, giver.tier, kind=kind, local=local))
                for kind, local in (("native", lambda _: True), ("partition", lambda file: file % 3 == 0))
            }
            ways["alluxio_fuse"] = client.folder / version.manifest.path.lstrip("/")
            ways["s3fs"], _ = stack.enter_context(
                mounted("s3fs", store=place.store, bucket="data", folder=node.folder / "mounts", cached=False)
            )
            about = {"images": options.images, "bytes_a_file": size, "rounds": options.rounds}
            tell({**summary(await asyncio.to_thread(with_torch, node, ways, options.rounds)), **about})
            if options.tensorflow:
                tell({**summary(await asyncio.to_thread(with_tensorflow, ways, options)), **about})


def with_torch(node: ReaderNode, ways: Mapping[str, Path], rounds: int) -> dict[str, Any]:
    """In the root of the image train-pytorch."""
    reporter = Reporter()
    torch_root.require(reporter=reporter)
    command = ["python3", "-m", "bench.training.epochs", "torch", str(rounds)]
    run = torch_root.Run(
        command=[*command, *(f"{way}=/data/{way}" for way in ways)],
        results=node.folder,
        data=ways,
        environment={"OMP_NUM_THREADS": "1"},
    )
    return printed(
        torch_root.arguments(run, root=torch_root.ensure_folder(reporter=reporter)), dict(os.environ)
    )


def with_tensorflow(ways: Mapping[str, Path], options: argparse.Namespace) -> dict[str, Any]:
    """By an interpreter that has it."""
    command = [options.tensorflow, "-m", "bench.training.epochs", "tensorflow", str(options.rounds)]
    words = [*command, *(f"{way}={folder}" for way, folder in ways.items())]
    return printed(words, {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


def printed(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """The line of JSON that a program prints."""
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        log.seek(0)
        if done.returncode:
            raise RuntimeError(f"the pipeline failed: {log.read()[-3000:]}")
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    document: dict[str, Any] = json.loads(line)
    return document


def tell(result: dict[str, Any]) -> None:
    """Print a line."""
    print(json.dumps({**result, "load": round(os.getloadavg()[0], 1)}), flush=True)


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    """Medians, and what they are of the native one."""
    medians = {way: statistics.median(rates) for way, rates in figures["images_s"].items()}
    over = {way: round(rate / medians["native"], 2) for way, rate in medians.items()}
    return {"framework": figures["framework"], "images_s": medians, "over_native": over}


def main() -> None:
    """Measure, and print the lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--tensorflow", help="a Python with TensorFlow; without it PyTorch alone")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
