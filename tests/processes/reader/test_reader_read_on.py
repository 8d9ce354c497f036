"""While a copy comes to a node from others, what pods there read next comes first."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import xxhash
from tests.processes.reader.test_reader_fills import say_who_holds
from tests.support.dataplane.agents import Version, running_agent
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import ReaderNode, drop_page_cache, small_version
from tests.support.waiting import eventually, eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Peer
from tdcs.node.agent.agent import Agent
from tdcs.node.agent.mount.peer_book import Patience
from tdcs.node.agent.transfer.peer_puller import BATCH
from tdcs.node.wire import frames

pytestmark = needs_fuse

UNDER_WAY = 2 * BATCH
"""Blocks that an agent has asked a peer for before the first one comes."""
FILES = UNDER_WAY + 150


class HeldPeer:
    """A peer that has every block, notes which it is asked for, and gives none before it is let.

    Attributes:
        asked: numbers of the blocks in the manifest, in the order in which they were asked for.
    """

    def __init__(self, version: Version, files: dict[str, bytes]) -> None:
        self.asked: list[int] = []
        self.gives = threading.Event()
        self._manifest = version.manifest
        self._files = files

    def serve(self, connection: socket.socket) -> None:
        """Answer one agent. What it asks for is noted at once, also while nothing is given."""
        stream = connection.makefile("rb")
        stream.read(frames.GREETING.size)
        connection.sendall(frames.greeting())
        ids, sent = self._manifest.block_ids.tolist(), 0
        answers: list[int] = []
        while head := stream.read(frames.REQUEST.size):
            kind, _, count = frames.REQUEST.unpack(head)
            if kind == frames.FEED:
                stream.read(frames.PLACE.size + count)
                connection.sendall(frames.news(instance=1, place=len(ids), blocks=ids[sent:]))
                sent = len(ids)
                continue
            pieces = frames.parse_wanted(stream.read(count * frames.ASKED.size))
            answers += [number for piece in pieces if (number := self._number(piece.block)) is not None]
            self.asked += answers[-len(pieces) :]
            if len(self.asked) >= UNDER_WAY:
                self.gives.wait()
                for number in answers:
                    self._give(connection, number)
                answers.clear()

    def _number(self, block: int) -> int | None:
        return self._manifest.block_at(block)

    def _give(self, connection: socket.socket, number: int) -> None:
        path = os.fsdecode(self._manifest.file_path(self._manifest.file_of(number)))
        content = self._files[path]
        head = (int(self._manifest.block_ids[number]), len(content), len(content))
        connection.sendall(frames.PIECE.pack(*head, xxhash.xxh3_64_intdigest(content)) + content)


@contextmanager
def listening(peer: HeldPeer) -> Iterator[Peer]:
    """The peer as an agent is told of it; it answers one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                peer.serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        yield Peer(node="held", address=address, slots=ALL_SLOTS, complete=ALL_SLOTS)


async def test_a_copy_that_comes_to_a_node_goes_on_from_where_its_pods_read(
    node: ReaderNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    files = {f"train/{number:03d}.jpg": rng.randbytes(2_000 + number) for number in range(FILES)}
    version = small_version(node.folder, files)
    manifest = version.manifest
    read_on, blocks = Agent.read_on, list[int]()

    def noted(agent: Agent, block: int) -> None:
        read_on(agent, block)
        blocks.append(block)

    monkeypatch.setattr(Agent, "read_on", noted)
    patient = Patience(answer=300.0, silent=300.0, stalled=300.0)
    held = HeldPeer(version, files)
    async with (
        running_agent(node.folder / "elsewhere", node="elsewhere") as far_agent,
        running_agent(node.tier, node="here", patience=patient) as own_agent,
    ):
        far_agent.give(version.assignment(), manifests=version)
        await far_agent.holds(version)
        with listening(held) as peer:
            own_agent.give(version.assignment(origin=NO_SLOTS, source=None, peers=[peer]), manifests=version)
            await eventually_async(lambda: len(held.asked) == UNDER_WAY, deadline=60)
            await eventually_async(lambda: own_agent.mount().version, deadline=60)
            say_who_holds(node, version, {"elsewhere": far_agent, "here": own_agent})
            root = node.register(version)
            await asyncio.to_thread(node.start)

            first = FILES - 50
            name = os.fsdecode(manifest.file_path(first))

            def heard() -> bool:
                """Read once more: a client that is taken for hanging, and ends, says it to nobody, or says it twice."""
                drop_page_cache()
                assert (root / name).read_bytes() == files[name]
                return {*blocks} == {int(manifest.block_ids[first])}

            await asyncio.to_thread(eventually, heard, deadline=120, interval=1.0)
            held.gives.set()
            await own_agent.holds(version, deadline=120)
        follows = [*range(first, FILES), *range(UNDER_WAY, first)]
        assert held.asked == [*range(UNDER_WAY), *follows]
        assert own_agent.content(version) == files
