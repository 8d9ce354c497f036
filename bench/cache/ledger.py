"""How soon an agent knows what happened to its blocks behind its back, and what it costs to look.

A million small blocks are on a real disk. The agent is a process of its own with its real HTTP service; the operator's
client follows it. Times are from the end of what was done to the disk until the operator's client knows the new truth:
blocks that were removed by hand, some more at once after that, all of them (the disk was wiped), and the start of an
agent that was killed while blocks were removed. Prints one line of JSON; fails when one takes longer than the limit::

    PYTHONPATH=.:operator python bench/cache/ledger.py --blocks 1000000 --folder /var/tmp
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click
import numpy as np
from tests.support.dataplane.agents import MOUNT, Version, make_version, put_block, running_agent
from tests.support.waiting import eventually_async

from tdcs.engine.agent_client import AgentAddress, HttpAgents
from tdcs.listing.folder import ManifestFolder
from tdcs.model.agent_state import ALL_SLOTS, Assignment, MountState, Part, SourceAccess
from tdcs.node.agent.disk.own_ids import enter_own_ids
from tdcs.node.agent.disk.tier import Disk

NODE = "node-1"
SOURCE = "s3://imagenet"
PER_FOLDER = 1300
BAR_SECONDS = 5.0
START_SECONDS = 120.0


def make_disk(root: Path, *, blocks: int) -> Version:
    """A tier with so many blocks of one byte, and their manifest."""
    tier = root / "tier"
    disk = Disk(tier)
    enter_own_ids(disk)
    files = (
        (f"train/n{number // PER_FOLDER:08d}/n{number:08d}.JPEG".encode(), 1, f'"{number:032x}"'.encode())
        for number in range(blocks)
    )
    version = make_version(files, folder=root / "manifests", source=SourceAccess(uri=SOURCE))
    for place in range(version.manifest.blocks):
        put_block(disk, version.manifest, place, b"x")
    content = version.folder.file(version.manifest.digest).read_bytes()
    ManifestFolder(disk.manifests).file(version.manifest.digest).write_bytes(content)
    return version


async def run_agent(tier: Path) -> None:
    """The agent's process: until it is killed."""
    async with running_agent(tier, node=NODE, ready_seconds=START_SECONDS) as agent:
        print(agent.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


class AgentProcess:
    """The agent, and what its process has used."""

    def __init__(self, tier: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--agent", f"--folder={tier}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def cpu_seconds(self) -> float:
        """Processor time of it so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Memory of it that is its own."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return int(fields["RssAnon"].split()[0]) / 1024

    def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class Truth:
    """What is on the disk, and since when the operator's client knows it.

    Attributes:
        held: blocks that are there.
    """

    def __init__(self, *, disk: Disk, client: HttpAgents, ids: list[int]) -> None:
        self._disk = disk
        self._client = client
        self._ids = ids
        self.held = len(ids)

    def state(self) -> MountState:
        """The last that the client heard of the mount."""
        state = self._client.states().get(NODE)
        return (state.mounts.get(MOUNT) if state is not None else None) or MountState(mount=MOUNT)

    def remove(self, count: int) -> None:
        """Remove blocks by hand."""
        for identifier in self._ids[:count]:
            os.unlink(self._disk.spool / str(identifier))
        del self._ids[:count]
        self.held -= count

    def wipe(self) -> None:
        """Take all blocks away at once."""
        self._disk.spool.rename(self._disk.tier / "wiped")
        self._disk.spool.mkdir()
        self.held = 0

    async def known(self) -> float:
        """Seconds until the client knows what is true now."""
        began = time.monotonic()
        await eventually_async(
            lambda: self.state().held_bytes == self.held and self.state().manifest,
            deadline=START_SECONDS,
            interval=0.01,
            describe=lambda: f"held {self.held}, known {self.state().held_bytes}",
        )
        return round(time.monotonic() - began, 2)


@asynccontextmanager
async def following(agent: AgentProcess) -> AsyncIterator[HttpAgents]:
    """The operator's client of an agent."""
    client = HttpAgents()
    client.connect({NODE: AgentAddress(url=agent.url, blocks="127.0.0.1:1")})
    try:
        yield client
    finally:
        await client.close()


async def measure(root: Path, *, blocks: int, rest_seconds: float, removals: int) -> dict[str, float]:
    """All phases."""
    version = await asyncio.to_thread(make_disk, root, blocks=blocks)
    os.sync()
    ids = np.random.default_rng(7).permutation(version.manifest.block_ids).tolist()
    disk, count = Disk(root / "tier"), max(blocks // 1000, 1)
    figures: dict[str, float] = {}

    async def timed(name: str, done: Callable[[], None], truth: Truth, agent: AgentProcess) -> None:
        cpu = agent.cpu_seconds()
        await asyncio.to_thread(done)
        seconds = await truth.known()
        figures[f"{name}_seconds"] = max(figures.get(f"{name}_seconds", 0.0), seconds)
        figures[f"{name}_cpu_seconds"] = round(agent.cpu_seconds() - cpu, 2)

    agent = await asyncio.to_thread(AgentProcess, root / "tier")
    try:
        async with following(agent) as client:
            truth = Truth(disk=disk, client=client, ids=ids)
            await eventually_async(lambda: NODE in client.states(), deadline=START_SECONDS)
            part = Part(name="Dataset n/bench", slots=ALL_SLOTS, pull="Nothing")
            await client.assign(
                node=NODE,
                assignments=[
                    Assignment(mount=MOUNT, version=1, manifest=version.manifest.digest, parts=(part,))
                ],
            )
            await truth.known()
            await asyncio.sleep(rest_seconds)  # what was begun with the assignment has ended
            cpu = agent.cpu_seconds()
            await asyncio.sleep(rest_seconds)  # the length of the measurement
            figures["rest_cpu_percent"] = round(100 * (agent.cpu_seconds() - cpu) / rest_seconds, 2)
            for _ in range(removals):
                await timed("removed", lambda: truth.remove(count), truth, agent)
                await timed("removed_again_at_once", lambda: truth.remove(count), truth, agent)
            figures["memory_mib"] = round(agent.memory_mib())
        agent.kill()
        truth.remove(count)
        began = time.monotonic()
        agent = await asyncio.to_thread(AgentProcess, root / "tier")
        async with following(agent) as client:
            truth = Truth(disk=disk, client=client, ids=ids)
            await truth.known()
            figures["known_after_start_seconds"] = round(time.monotonic() - began, 2)
            await timed("wiped", truth.wipe, truth, agent)
    finally:
        agent.kill()
    return figures


@click.command()
@click.option("--blocks", default=1_000_000, show_default=True, type=click.IntRange(1, 1_000_003))
@click.option("--folder", default=None, help="Where to work: on the disk that is measured.")
@click.option("--rest-seconds", default=10.0, show_default=True)
@click.option("--removals", default=3, show_default=True, help="How often blocks are removed by hand.")
@click.option("--agent", is_flag=True, hidden=True)
def main(blocks: int, folder: str | None, rest_seconds: float, removals: int, agent: bool) -> None:
    """Measure, and compare with the bar."""
    if agent and folder is not None:
        asyncio.run(run_agent(Path(folder)))
        return
    with tempfile.TemporaryDirectory(dir=folder) as root:
        figures = asyncio.run(
            measure(Path(root).resolve(), blocks=blocks, rest_seconds=rest_seconds, removals=removals)
        )
    behind = ("removed_seconds", "removed_again_at_once_seconds", "wiped_seconds")
    good = all(figures[name] < BAR_SECONDS for name in behind)
    print(json.dumps({"bench": "ledger", "blocks": blocks, **figures, "bar": good}))
    sys.exit(not good)


if __name__ == "__main__":
    main()
