"""What the processes of a node need while nothing happens, in a cache with the engine Native: its agent, the node
plugin, and the remote-read client with its holder.

They are started as in the chart, each with nothing to do, and looked at after a while. What several of them have mapped
of a file, as of the interpreter and its libraries, is in memory once, and is counted once. Prints one line of JSON;
fails above the bar. As root::

    PYTHONPATH=.:operator python bench/cache/idle_node.py
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import psutil
from tests.support.dataplane.agent_processes import AgentProcess
from tests.support.dataplane.node import miniature_node
from tests.support.dataplane.readers import reader_node
from tests.support.programs.ports import free_ports

from tdcs.node.agent.agent_process import prepare

BAR_MIB = 250.0


@dataclass
class Memory:
    """Of some processes.

    Attributes:
        anonymous: bytes that belong to no file, shared ones by their share.
        of_files: bytes of each part of a file that one of them has mapped.
    """

    processes: int = 0
    anonymous: int = 0
    of_files: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def mib(self) -> float:
        return round((self.anonymous + sum(self.of_files.values())) / 2**20, 1)

    def add(self, pid: int) -> None:
        self.processes += 1
        text = Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace")
        for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
            head, *lines = mapping.splitlines()
            _, _, offset, _, inode, *path = head.split(maxsplit=5)
            size = {
                name: int(amount.split()[0]) << 10
                for name, _, amount in (line.partition(":") for line in lines)
                if amount.endswith("kB")
            }
            if inode == "0":
                self.anonymous += size["Pss"]
                continue
            self.anonymous += size["Anonymous"]  # what was written of it
            part = (path[0], offset)
            self.of_files[part] = max(self.of_files.get(part, 0), size["Rss"] - size["Anonymous"])


def memory(*pids: int) -> Memory:
    """Of these processes and those that they have started."""
    total = Memory()
    for process in map(psutil.Process, pids):
        for child in (process, *process.children(recursive=True)):
            total.add(child.pid)
    return total


def measure(root: Path, *, rest_seconds: float) -> dict[str, object]:
    """Start all of them, wait, and look."""
    control, blocks = free_ports(2)
    agent = AgentProcess(
        node="one",
        tier=root / "tier",
        log=root / "agent.log",
        capacity=1 << 40,
        control_port=control,
        block_port=blocks,
    )
    agent.tier.mkdir()
    prepare(agent.tier)
    with miniature_node() as node, reader_node() as reader:
        try:
            agent.process.start()
            reader.start()
            node.start_plugin()
            assert node.plugin is not None
            time.sleep(rest_seconds)  # the length of the measurement
            pids = {
                "agent": agent.process.pid,
                "node_plugin": node.plugin.pid,
                "remote_read_client": reader.reader.pid,
                "holder": reader.holder.pid,
            }
            parts = {name: memory(pid) for name, pid in pids.items()}
            node_memory = memory(*pids.values())
        finally:
            agent.process.kill()
    return {
        "bench": "idle_node",
        "mib_alone": {name: part.mib for name, part in parts.items()},
        "processes": node_memory.processes,
        "mib": node_memory.mib,
    }


@click.command()
@click.option("--rest-seconds", default=20.0, show_default=True)
def main(rest_seconds: float) -> None:
    """Measure it once."""
    with tempfile.TemporaryDirectory(prefix="idle-node-") as root:
        figures = measure(Path(root), rest_seconds=rest_seconds)
    print(json.dumps(figures))
    whole = figures["mib"]
    assert isinstance(whole, float)
    assert whole <= BAR_MIB, f"{whole} MiB, and {BAR_MIB} MiB are the bar"


if __name__ == "__main__":
    main()
