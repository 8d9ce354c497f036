"""A large file in a cache of agents alone: loading it, reading it where it is whole next to the node's disk, and spread
over three nodes.

Agents are processes of their own; the source is a folder on the same disk. The file is read in turns with a plain copy
of it, a piece each, after the kernel was asked to forget both; the median of the rounds counts. Prints one line of
JSON; fails below the bars::

    PYTHONPATH=.:operator python bench/cache/native_large.py --gib 3 --folder FOLDER
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import psutil
import xxhash
from tests.support.dataplane.agent_processes import AgentProcess, read_by_wire
from tests.support.dataplane.agents import MOUNT, Version
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.model import slots
from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, AgentError, Assignment, MountState, Part, SourceAccess
from tdcs.model.file_blocks import EXTENTS
from tdcs.model.manifest_builder import ManifestBuilder
from tdcs.node.agent.agent_process import prepare
from tdcs.node.csi.views.block_store import Store
from tdcs.node.csi.views.view_plan import Form, plan
from tdcs.node.csi.views.view_tree import Tree
from tdcs.node.extents import extent_place, read_part

READ_BAR = 0.97
IDLE_MIB = 250.0
NODES = ("one", "two", "three")
_PIECE = 16 << 20


def make_source(file: Path, *, size: int) -> None:
    """A file of random bytes."""
    file.parent.mkdir(parents=True)
    chance = np.random.default_rng(1)
    with file.open("wb") as opened:
        for begin in range(0, size, _PIECE):
            opened.write(chance.bytes(min(_PIECE, size - begin)))
        os.fsync(opened.fileno())


def listed(root: Path, file: Path) -> Version:
    """Its version, cut as the operator cuts files for such a cache."""
    source = SourceAccess(uri=f"file://{file.parent}")
    builder, status = ManifestBuilder(path=MOUNT, source=source.uri, cut=EXTENTS), file.stat()
    builder.add_listed([(file.name.encode(), status.st_size, b"mtime-ms:%d" % (status.st_mtime_ns // 10**6))])
    manifests = ManifestFolder(root / "manifests")
    return Version(manifest=manifests.open(manifests.write(builder)), folder=manifests, source=source)


class Cache:
    """Three agents."""

    def __init__(self, root: Path, version: Version) -> None:
        self.version = version
        self.client = HttpAgents(poll_seconds=2.0, call_seconds=10.0)
        self.agents = [self._agent(root, node) for node in NODES]
        self._number = 0

    def _agent(self, root: Path, node: str) -> AgentProcess:
        control, blocks = free_ports(2)
        return AgentProcess(
            node=node,
            tier=root / node,
            log=root / f"{node}.log",
            capacity=1 << 40,
            control_port=control,
            block_port=blocks,
        )

    async def start(self) -> None:
        manifest = self.version.folder.file(self.version.manifest.digest)
        for agent in self.agents:
            agent.tier.mkdir()
            await asyncio.to_thread(prepare, agent.tier)
            shutil.copy(manifest, agent.disk.manifests / manifest.name)
            agent.process.launch()
        for agent in self.agents:
            await asyncio.to_thread(agent.process.wait_ready)
        self.client.connect({agent.node: agent.reached for agent in self.agents})
        await eventually_async(lambda: len(self.client.states()) == len(NODES), deadline=60)

    async def close(self) -> None:
        await self.client.close()
        for agent in self.agents:
            await asyncio.to_thread(agent.process.kill)

    async def give(self, agent: AgentProcess, *, mine: bytes, **fields: object) -> None:
        self._number += 1
        parts = (Part(name="Dataset a/b", slots=mine),)
        assignment: Assignment = self.version.assignment(
            version=self._number,
            parts=parts,
            **fields,  # type: ignore[arg-type]
        )

        async def taken() -> bool:
            try:
                await self.client.assign(node=agent.node, assignments=[assignment])
            except AgentError:
                return False
            return True

        await eventually_async(taken, deadline=60)

    async def rests(self, agent: AgentProcess, *, held: int) -> None:
        def done() -> bool:
            state = self.client.states().get(agent.node)
            mount = state.mounts.get(MOUNT, MountState(mount=MOUNT)) if state is not None else None
            return mount is not None and mount.held_bytes == held and not mount.busy

        await eventually_async(done, deadline=3600, interval=0.05, describe=agent.process.tail)


def linked(agent: AgentProcess, version: Version) -> Path:
    """The file in a view, as the node plugin makes it."""
    store = Store(tiers=[str(agent.tier)], mount=MOUNT)
    views = agent.tier / "views"
    tree = Tree(
        folder=str(views / "tree"), scratch=str(views / "scratch"), manifest=version.manifest, store=store
    )
    tree.prepare()
    blocks = store.scan(manifest=version.manifest, kinds=tree.kinds)
    tree.apply(plan(kinds=tree.kinds, forms=tree.forms, linked=tree.linked, blocks=blocks, release=False))
    assert tree.forms[0] == Form.LINK, "the file is not whole on the node"
    return views / "tree" / os.fsdecode(version.manifest.file_path(0))


def read_in_turns(files: list[Path]) -> list[float]:
    """Seconds to read each of some files of one length that the kernel has not in memory, a piece of one and a piece of
    the other, so that what else the machine does takes as much of each."""
    seconds, opened = [0.0] * len(files), [os.open(file, os.O_RDONLY) for file in files]
    try:
        for fd in opened:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        buffer, order, more = bytearray(1 << 20), list(range(len(files))), True
        while more:
            for number in order:
                began = time.perf_counter()
                for _ in range(_PIECE // len(buffer)):
                    more = os.readv(opened[number], [buffer]) > 0
                seconds[number] += time.perf_counter() - began
            order.reverse()
        return seconds
    finally:
        for fd in opened:
            os.close(fd)


def hash_of(file: Path) -> str:
    state = xxhash.xxh3_64()
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            state.update(piece)
    return state.hexdigest()


async def measure(root: Path, *, size: int, rounds: int) -> dict[str, object]:
    file = root / "source" / "large.bin"
    make_source(file, size=size)
    version = listed(root, file)
    cache = Cache(root, version)
    try:
        await cache.start()
        first = cache.agents[0]
        process = psutil.Process(first.process.pid)
        idle = process.memory_info().rss / 2**20
        began, cpu = time.monotonic(), sum(process.cpu_times()[:2])
        await cache.give(first, mine=ALL_SLOTS)
        await cache.rests(first, held=size)
        loaded, cpu = time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu
        view_file = linked(first, version)
        assert hash_of(view_file) == hash_of(file)
        plain = root / "plain"
        shutil.copy(file, plain)
        os.sync()
        ratios = []
        for _ in range(rounds):
            of_plain, of_shown = read_in_turns([plain, view_file])
            ratios.append(of_plain / of_shown)
        memory = process.memory_info().rss / 2**20
        spread = await _spread(cache, size=size)
    finally:
        await cache.close()
    return {
        "bench": "native_large",
        "bytes": size,
        "load_seconds": round(loaded, 1),
        "load_cpu_seconds": round(cpu, 1),
        "read_beside_disk": round(statistics.median(ratios), 3),  # codespell:ignore beside
        "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
        "agent_idle_mib": round(idle),
        "agent_after_load_mib": round(memory),
        **spread,
    }


async def _spread(cache: Cache, *, size: int) -> dict[str, object]:
    """Move two thirds of the file to two other nodes, and read all of it, each part where it is."""
    manifest = cache.version.manifest
    owner = np.arange(slots.SLOTS) % len(NODES)
    shares = [slots.of_mask(owner == number) for number in range(len(NODES))]
    held = [
        int(manifest.block_lengths[owner[manifest.block_slots] == number].sum())
        for number in range(len(NODES))
    ]
    giver, began = cache.agents[0].peer(), time.monotonic()
    for number in (1, 2):
        await cache.give(
            cache.agents[number], mine=shares[number], origin=NO_SLOTS, peers=[giver], source=None
        )
    for number in (1, 2):
        await cache.rests(cache.agents[number], held=held[number])
    moved = time.monotonic() - began
    await cache.give(
        cache.agents[0], mine=shares[0], origin=NO_SLOTS, drop=slots.of_mask(owner != 0), source=None
    )
    await cache.rests(cache.agents[0], held=held[0])
    wrong, local = 0, 0
    with (Path(cache.version.source.uri.removeprefix("file://")) / "large.bin").open("rb") as source:
        for block in range(manifest.blocks):
            agent = cache.agents[owner[manifest.block_slots[block]]]
            place, length = extent_place(manifest, block), int(manifest.block_lengths[block])
            assert place is not None
            right = source.read(length)

            def there(place=place, length=length, agent=agent) -> bool:  # type: ignore[no-untyped-def]
                return read_part(str(agent.tier), place, offset=0, length=length) is not None

            await eventually_async(there, deadline=600)  # what stays is being copied
            local += length
            wrong += read_part(str(agent.tier), place, offset=0, length=length) != right
            wrong += read_by_wire(agent, manifest, [block]) != {block: right}
    assert not wrong, f"{wrong} parts have wrong bytes"
    return {"moved_seconds": round(moved, 1), "held": held, "read_where_they_are": local == size}


@click.command()
@click.option("--gib", default=3.0, show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), required=True)
def main(gib: float, rounds: int, folder: Path) -> None:
    """Measure it once."""
    with tempfile.TemporaryDirectory(prefix="native-large-", dir=folder) as root:
        figures = asyncio.run(measure(Path(root), size=int(gib * (1 << 30)), rounds=rounds))
    print(json.dumps(figures))
    ratio, idle = figures["read_beside_disk"], figures["agent_idle_mib"]  # codespell:ignore beside
    assert isinstance(ratio, float)
    assert ratio >= READ_BAR, f"{ratio} of the disk, and {READ_BAR} are the bar"
    assert isinstance(idle, int)
    assert idle <= IDLE_MIB, f"an agent has {idle} MiB, and {IDLE_MIB} MiB are the bar of a node"


if __name__ == "__main__":
    main()
