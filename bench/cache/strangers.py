"""How soon an agent is rid of what belongs to nothing: all blocks of a version that no manifest names any more.

So many files are on a real disk, and say what they are; the agent starts and works by another version. Prints one line
of JSON; fails when it takes longer than the bar::

    PYTHONPATH=.:operator python bench/cache/strangers.py --strangers 1000000 --folder FOLDER
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path

import click
import xxhash
from tests.support.dataplane.agents import MOUNT, make_version

from tdcs.model.agent_state import SourceAccess
from tdcs.model.block_identity import BlockIdentity, mount_key
from tdcs.node.agent.blocks.inventory import Inventory
from tdcs.node.agent.blocks.strays import Strays
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.disk.tier import Disk, Place
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork
from tdcs.node.file_facts import FileFacts

SOURCE = SourceAccess(uri="s3://imagenet")
BAR_SECONDS = 120.0


def make_strangers(disk: Disk, *, count: int) -> None:
    """Files of one byte, of a version that nobody lists."""
    disk.prepare()
    mount, content_hash = mount_key(MOUNT), xxhash.xxh3_64_intdigest(b"x")
    for number in range(count):
        path = f"{disk.spool}/{(number + 1) << 24}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"x")
        os.close(fd)
        disk.facts.write(
            path, FileFacts(BlockIdentity(mount, number.to_bytes(16, "little"), 0), 1, content_hash)
        )


async def measure(root: Path, *, count: int) -> dict[str, float]:
    """Seconds for the look that finds the strangers, and for their removal."""
    make_strangers(Disk(root / "tier"), count=count)
    os.sync()
    version = make_version([(b"new", 1, b'"new"')], folder=root / "manifests", source=SOURCE)
    disk = Disk(root / "tier")
    lock, room = threading.RLock(), Room(capacity=1 << 50, free=lambda: 1 << 50)
    mount = MountWork(path=MOUNT, lock=lock, room=room)
    mount.opened(Ledger(version.manifest))
    mount.assign(version.assignment())
    inventory = Inventory(disk=disk, room=room, lock=lock)
    strays = Strays(disk=disk, inventory=inventory)
    before, began, processor = _peak(), time.monotonic(), time.process_time()
    inventory.look([mount])
    looked_at = time.monotonic()
    while strays.due([mount], emptied=False):
        await strays.remove([mount], emptied=False)
    ended = time.monotonic()
    remaining = len(disk.ids_at(Place.SPOOL))
    assert not remaining, f"{remaining} files are left"
    return {
        "strangers": count,
        "look_seconds": round(looked_at - began, 1),
        "removal_seconds": round(ended - looked_at, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "peak_mib": round((_peak() - before) / 1024),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@click.command()
@click.option("--strangers", default=1_000_000)
@click.option("--folder", type=click.Path(path_type=Path), required=True)
def main(strangers: int, folder: Path) -> None:
    """Measure it once."""
    with tempfile.TemporaryDirectory(prefix="strangers-", dir=folder) as root:
        figures = asyncio.run(measure(Path(root), count=strangers))
    print(json.dumps(figures))
    seconds = figures["look_seconds"] + figures["removal_seconds"]
    assert seconds < BAR_SECONDS, f"{seconds} s, and {BAR_SECONDS} s are the bar"


if __name__ == "__main__":
    main()
