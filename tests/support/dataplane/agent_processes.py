"""Agents as processes of their own, which a test can kill."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.dataplane.agents import Version, content_of
from tests.support.programs.processes import Process

from tdcs.api import names
from tdcs.engine.agent_client import AgentAddress
from tdcs.listening import at
from tdcs.model.agent_state import ALL_SLOTS, Peer
from tdcs.model.manifest import Manifest
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.wire import frames
from tdcs.node.wire.block_client import BlockClient
from tdcs.node.wire.frames import Wanted

AGENT: Final = (sys.executable, "-m", "tdcs.cli", "agent")


class AgentProcess:
    """One agent on a tier's folder that was made ready; with `worker` and `master` it exports."""

    def __init__(
        self,
        *,
        node: str,
        tier: Path,
        log: Path,
        capacity: int,
        host: str = "127.0.0.1",
        control_port: int = names.AGENT_CONTROL_PORT,
        block_port: int = names.AGENT_BLOCK_PORT,
        worker: str = "",
        master: str = "",
        trust: Path | None = None,
    ) -> None:
        self.node = node
        self.host = host
        self.tier = tier
        self.disk = Disk(tier)
        self.address = at(host, block_port)
        self.url = f"{'http' if trust is None else 'https'}://{at(host, control_port)}"
        self.process = Process(
            name=f"agent of {node}",
            argv=[
                *(*AGENT, "run", "--tier", str(tier), "--node", node, "--capacity", str(capacity)),
                *("--worker", worker, "--master", master),
                *("--host", host),
                *("--control-port", str(control_port), "--block-port", str(block_port)),
                *(("--trust", str(trust)) if trust is not None else ()),
            ],
            log=log,
            ready=lambda: _listens(host, control_port),
            start_deadline=60,
        )

    @property
    def reached(self) -> AgentAddress:
        """Where the operator's client finds it."""
        return AgentAddress(url=self.url, blocks=self.address)

    def peer(self, *, slots: bytes = ALL_SLOTS) -> Peer:
        """As other agents are told of it."""
        return Peer(node=self.node, address=self.address, slots=slots)

    def content(self, version: Version) -> dict[str, bytes]:
        """Files that it holds whole."""
        return content_of(self.disk, version)


def read_by_wire(agent: AgentProcess, manifest: Manifest, blocks: Iterable[int]) -> dict[int, bytes]:
    """What a reader gets of an agent for these blocks of a version; a block that the agent lacks is left out."""
    contents: dict[int, bytes] = {}
    ids = {int(manifest.block_ids[block]): block for block in blocks}
    with BlockClient(address=agent.address, answer_seconds=60.0) as connection:
        for identity, block in ids.items():
            request = [Wanted(identity, 0, frames.WHOLE)]
            connection.ask(request)
            for piece in connection.pieces(request):
                if piece.length < 0:
                    continue
                content = bytearray(piece.length)

                def sink(data: memoryview, offset: int, content: bytearray = content) -> None:
                    content[offset : offset + len(data)] = data

                connection.take(piece, sink)
                contents[block] = bytes(content)
    return contents


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
