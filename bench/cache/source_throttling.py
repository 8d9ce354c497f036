"""What it costs that a store answers a share of all requests with 503 SlowDown, whatever is asked for.

An agent's real lanes read small files of a source that takes 20 ms a request, onto a real disk. One round has each
share in turn, beginning without refusals; a share's rate is compared with that of its round, and the middle one of all
rounds counts. Prints one line of JSON; fails below the bars::

    PYTHONPATH=.:operator python bench/cache/source_throttling.py
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
import numpy as np
from tests.support.dataplane.agents import MOUNT, Version, fill, folder_version

from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.agent.mount.source_pieces import Extent, Write, unanswered
from tdcs.node.agent.mount.transfer_limits import InFlight
from tdcs.node.agent.transfer.source_puller import IN_FLIGHT_BYTES, SourcePuller

FILE_BYTES = 100
TICK = 0.1
BARS = {0.01: 0.9, 0.05: 0.7}


class Throttled:
    """A source that refuses a share of all requests."""

    lanes = 16

    def __init__(self, share: float, *, seed: int, seconds: float) -> None:
        self._share, self._random, self._seconds = share, random.Random(seed), seconds  # noqa: S311

    def read(self, extent: Extent, write: Write) -> None:
        time.sleep(self._seconds)
        if self._random.random() < self._share:
            raise unanswered("the source does not answer: 503 SlowDown", status=503)
        write(memoryview(b"x" * extent.length))


def load(version: Version, folder: Path, source: Throttled) -> tuple[float, int]:
    """Files a second of a whole load, and how many were said to fail."""
    disk = Disk(folder)
    disk.prepare()
    mount = MountWork(path=MOUNT, lock=threading.RLock(), room=Room(capacity=1 << 40, free=lambda: 1 << 40))
    ledger = Ledger(version.manifest)
    ledger.observe(np.arange(0))
    mount.opened(ledger)
    mount.assign(version.assignment())
    mount.source.read_by(source)
    stopped = threading.Event()
    puller = SourcePuller(disk=disk, room=mount.room, stopped=stopped, in_flight=InFlight(IN_FLIGHT_BYTES))

    def lane() -> None:
        try:
            puller.run(mount)
        finally:
            with mount.lock:
                mount.source.lanes -= 1

    began = time.monotonic()
    while ledger.left():
        for _ in range(mount.source_lanes_wanted()):
            with mount.lock:
                mount.source.lanes += 1
            threading.Thread(target=lane, daemon=True).start()
        time.sleep(TICK)
        if ledger.held_bytes() == version.bytes:
            break
    took = time.monotonic() - began
    stopped.set()
    return len(version.manifest) / took, mount.state().failed_count


@click.command()
@click.option("--files", default=6_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=0.02, show_default=True, help="That a request takes.")
def main(files: int, rounds: int, seconds: float) -> None:
    """Measure, and compare with the bars."""
    shares: dict[float, list[float]] = {share: [] for share in BARS}
    plain, failed = [], 0
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        content = {f"{number:05}": b"x" * FILE_BYTES for number in range(files)}
        version = folder_version(fill(folder / "source", content), store=folder / "manifests")
        for number in range(rounds):
            rate, _ = load(version, folder / f"{number}-0", Throttled(0.0, seed=number, seconds=seconds))
            plain.append(rate)
            for share, ratios in shares.items():
                tier = folder / f"{number}-{share}"
                reached, bad = load(version, tier, Throttled(share, seed=number, seconds=seconds))
                ratios.append(reached / rate)
                failed += bad
    medians = {
        f"{share:.0%}": round(statistics.median(ratios_of_share), 3)
        for share, ratios_of_share in shares.items()
    }
    good = not failed and all(medians[f"{share:.0%}"] >= bar for share, bar in BARS.items())
    print(
        json.dumps(
            {
                "bench": "source_throttling",
                "files": files,
                "files_per_second": round(statistics.median(plain)),
                "ratio_by_share_of_503": medians,
                "failed_files": failed,
                "bar": good,
            }
        )
    )
    sys.exit(not good)


if __name__ == "__main__":
    main()
