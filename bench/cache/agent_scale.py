"""What an agent costs whose mounts have a hundred million blocks of which it is assigned one in a hundred.

The mounts are as the agent has them (ledger, source, peers), by columns of a manifest on the disk; nothing is brought.
A tick is what the event loop asks of every mount each 0.1 s, after something has changed in each. An assignment gives
one mount other slots; the longest of all counts. Prints one line of JSON; fails above the bars::

    PYTHONPATH=.:operator python bench/cache/agent_scale.py --mounts 10
    PYTHONPATH=.:operator python bench/cache/agent_scale.py --mounts 1
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from tdcs.model import slots
from tdcs.model.agent_state import ALL_SLOTS, Assignment, Part, Peer, SourceAccess
from tdcs.node.agent.disk.disk_room import Room
from tdcs.node.agent.mount.block_ledger import Ledger
from tdcs.node.agent.mount.mount_work import MountWork

TICK_MS, ASSIGN_MS, MEMORY_MIB = 5.0, 100.0, 400.0
LENGTH = 1000
_AT_ONCE = 1 << 22
PEERS = tuple(Peer(node=f"n{number}", address="127.0.0.1:1", slots=ALL_SLOTS) for number in range(24))


def columns(folder: Path, blocks: int) -> dict[str, Any]:
    """A manifest's columns of files of one block each, in files."""
    kinds: dict[str, Any] = {"block_ends": np.uint32, "block_slots": np.uint16, "block_lengths": np.int64}
    arrays = {
        name: np.memmap(folder / name, dtype=kind, mode="w+", shape=(blocks,)) for name, kind in kinds.items()
    }
    for low in range(0, blocks, _AT_ONCE):
        numbers = np.arange(low, min(low + _AT_ONCE, blocks), dtype=np.uint64)
        part = slice(low, low + len(numbers))
        arrays["block_ends"][part] = numbers + 1
        arrays["block_slots"][part] = (numbers * 2654435761 >> 7) % slots.SLOTS
        arrays["block_lengths"][part] = LENGTH
    arrays["block_ids"] = arrays["block_lengths"]  # nobody looks them up here
    # Plain arrays over the files, as a manifest's columns are.
    return {name: column.view(np.ndarray) for name, column in arrays.items()}


def memory_mib() -> float:
    """Memory of this process that is its own."""
    text = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0]) / 1024


def assignment(path: str, version: int, *, first: int, share: float) -> Assignment:
    count = max(1, round(slots.SLOTS * share))
    mine = slots.of_mask((np.arange(slots.SLOTS) - first) % slots.SLOTS < count)
    return Assignment(
        mount=path,
        version=version,
        manifest="d",
        parts=(Part(name="Dataset a/b", slots=mine),),
        origin=slots.of_mask(np.arange(slots.SLOTS) % 2 == 0),
        peers=PEERS,
        source=SourceAccess(uri="file:///nowhere"),
    )


def tick(mounts: list[MountWork]) -> None:
    """What the loop of the agent asks of its mounts."""
    for mount in mounts:
        mount.at_rest()
        mount.source_lanes_wanted()
        mount.peers_wanted(most=6)
        mount.pass_over_silent_peers()
        mount.drops()


@click.command()
@click.option("--blocks", default=100_000_000, show_default=True, help="Of all mounts together.")
@click.option("--mounts", default=10, show_default=True)
@click.option("--share", default=0.01, show_default=True, help="Of them that is assigned here.")
@click.option("--folder", default=None, help="Where the columns are kept.")
def main(blocks: int, mounts: int, share: float, folder: str | None) -> None:
    """Measure, and compare with the bars."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        manifest_columns = columns(Path(root), blocks // mounts)
        before = memory_mib()
        works, assigns, ticks, states = [], [], [], []
        lock, room = threading.RLock(), Room(capacity=1 << 60, free=lambda: 1 << 60)
        for number in range(mounts):
            path = f"/datasets/{number}"
            ranges = [(0, blocks // mounts)]
            manifest = SimpleNamespace(
                **manifest_columns,
                blocks_at=lambda ids: np.full(len(ids), -1),
                blocks=blocks // mounts,
                digest="d",
                path=path,
                file_ranges=lambda _, file_ranges=ranges: file_ranges,
            )
            ledger = Ledger(manifest, index_folder=Path(root))  # type: ignore[arg-type]
            work = MountWork(path=path, lock=lock, room=room)
            work.opened(ledger)
            ledger.observe(np.arange(0))
            works.append(work)
        for version in (1, 2):
            for work in works:
                assigned = assignment(work.path, version, first=100 * version, share=share)
                began = time.process_time()
                work.assign(assigned)
                assigns.append(time.process_time() - began)
        for _ in range(20):
            for work in works:
                assert work.ledger is not None
                for block in work.ledger.take(now=time.monotonic(), most=64, most_bytes=1 << 30, cursor="s"):
                    work.ledger.located(block, is_here=True)
            began = time.process_time()
            tick(works)
            ticks.append(time.process_time() - began)
            began = time.process_time()
            for work in works:
                work.state()
            states.append(time.process_time() - began)
        figures = {
            "tick_ms": round(1000 * max(ticks), 2),
            "assignment_ms": round(1000 * max(assigns), 1),
            "state_ms": round(1000 * max(states), 2),
            "memory_mib": round(memory_mib() - before),
            "rows": sum(len(work.ledger) for work in works if work.ledger is not None),
        }
    good = (
        figures["tick_ms"] < TICK_MS
        and figures["assignment_ms"] < ASSIGN_MS
        and figures["memory_mib"] < MEMORY_MIB
    )
    print(json.dumps({"bench": "agent_scale", "blocks": blocks, "mounts": mounts, **figures, "bar": good}))
    sys.exit(not good)


if __name__ == "__main__":
    main()
