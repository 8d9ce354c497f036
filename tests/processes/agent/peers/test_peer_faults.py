"""Peers that die, are or hang: what is missing comes from others, and nothing wrong is kept."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xxhash
from tests.support.dataplane.agents import Version, fill, folder_version, running_agent
from tests.support.waiting import eventually_async

from tdcs.model.agent_state import ALL_SLOTS, NO_SLOTS, Peer
from tdcs.node.agent.mount.peer_book import Patience
from tdcs.node.wire import frames

Behaviour = Callable[[socket.socket, Version], None]


def _greeted(connection: socket.socket) -> None:
    connection.recv(frames.GREETING.size, socket.MSG_WAITALL)
    connection.sendall(frames.greeting())


def _promised(connection: socket.socket, version: Version) -> list[int]:
    """Say that every block is here, and read the request that follows; the ids that it asks for."""
    _greeted(connection)
    head = connection.recv(frames.REQUEST.size, socket.MSG_WAITALL)
    connection.recv(frames.PLACE.size + frames.REQUEST.unpack(head)[2], socket.MSG_WAITALL)
    ids = version.manifest.block_ids.tolist()
    connection.sendall(frames.news(instance=1, place=len(ids), blocks=ids))
    count = frames.REQUEST.unpack(connection.recv(frames.REQUEST.size, socket.MSG_WAITALL))[2]
    body = connection.recv(count * frames.ASKED.size, socket.MSG_WAITALL)
    return [request.block for request in frames.parse_wanted(body)]


def dies_in_the_middle_of_a_block(connection: socket.socket, version: Version) -> None:
    block = _promised(connection, version)[0]
    length = int(version.manifest.block_lengths[version.manifest.block_at(block) or 0])
    connection.sendall(frames.PIECE.pack(block, length, length, 1) + b"x" * (length // 2))


def answers_garbage(connection: socket.socket, version: Version) -> None:
    _promised(connection, version)
    connection.sendall(os.urandom(100_000))


def greets_with_garbage(connection: socket.socket, version: Version) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 1000)


def never_answers(connection: socket.socket, version: Version) -> None:
    _promised(connection, version)
    connection.recv(1 << 20)  # until the other side gives up
    while connection.recv(1 << 20):
        pass


def gives_other_bytes(connection: socket.socket, version: Version) -> None:
    blocks = _promised(connection, version)
    for block in blocks:
        number = version.manifest.block_at(block)
        length = int(version.manifest.block_lengths[number if number is not None else 0])
        connection.sendall(frames.PIECE.pack(block, length, length, 12345) + b"x" * length)
    while connection.recv(1 << 20):
        pass


def _requests(connection: socket.socket) -> Iterator[list[int]]:
    """The ids of each request for blocks; lists of what is here are answered meanwhile."""
    while len(head := connection.recv(frames.REQUEST.size, socket.MSG_WAITALL)) == frames.REQUEST.size:
        kind, _, count = frames.REQUEST.unpack(head)
        if kind == frames.READ:
            body = connection.recv(count * frames.ASKED.size, socket.MSG_WAITALL)
            yield [request.block for request in frames.parse_wanted(body)]
            continue
        body = connection.recv(frames.PLACE.size + count, socket.MSG_WAITALL)
        _, place, wait_ms = frames.PLACE.unpack_from(body)
        if place:  # nothing comes after what was said at first
            threading.Event().wait(wait_ms / 1000)
        yield [-place]


class GivesLate:
    """A peer that says of each block once that it is here, and gives it when it is asked for the second time.

    Args:
        wrong: it gives other bytes the first time; otherwise it has nothing then.
    """

    def __init__(self, files: dict[str, bytes], *, wrong: bool) -> None:
        self._contents = list(files.values())
        self._wrong = wrong
        self._refused = set[int]()

    def __call__(self, connection: socket.socket, version: Version) -> None:
        _greeted(connection)
        ids = version.manifest.block_ids.tolist()
        for blocks in _requests(connection):
            if blocks[0] <= 0:
                connection.sendall(frames.news(instance=1, place=len(ids), blocks=ids[-blocks[0] :]))
                continue
            for block in blocks:
                content = self._contents[ids.index(block)]
                content_hash = xxhash.xxh3_64_intdigest(content)
                if block in self._refused:
                    connection.sendall(
                        frames.PIECE.pack(block, len(content), len(content), content_hash) + content
                    )
                elif self._wrong:
                    connection.sendall(
                        frames.PIECE.pack(block, len(content), len(content), 1) + bytes(len(content))
                    )
                else:
                    connection.sendall(frames.PIECE.pack(block, -1, -1, 0))
                self._refused.add(block)


@contextmanager
def peer_that(behaviour: Behaviour, version: Version) -> Iterator[Peer]:
    """A peer that does the same to every connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                behaviour(connection, version)
            except (OSError, struct.error):  # the other side is gone
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield Peer(
            node="bad", address=f"127.0.0.1:{listener.getsockname()[1]}", slots=ALL_SLOTS, complete=ALL_SLOTS
        )
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


BEHAVIOURS = [
    dies_in_the_middle_of_a_block,
    answers_garbage,
    greets_with_garbage,
    never_answers,
    gives_other_bytes,
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
async def test_what_a_bad_peer_does_not_give_comes_from_a_good_one(
    behaviour: Behaviour, tmp_path: Path
) -> None:
    files = {f"{number:03}": os.urandom(3_000) for number in range(150)}
    version = folder_version(fill(tmp_path / "source", files), store=tmp_path / "manifests")
    async with (
        running_agent(tmp_path / "one") as first,
        running_agent(tmp_path / "two", node="node-2") as second,
    ):
        first.give(version.assignment(), manifests=version)
        await first.holds(version)
        with peer_that(behaviour, version) as bad:
            second.give(
                version.assignment(origin=NO_SLOTS, source=None, peers=[bad, first.peer()]), manifests=version
            )
            await second.holds(version)
        assert second.content(version) == files
        assert not list(second.disk.partial.iterdir())


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
async def test_what_no_peer_gives_is_read_from_the_source_after_a_bounded_time(
    behaviour: Behaviour, tmp_path: Path
) -> None:
    files = {f"{number:03}": os.urandom(3_000) for number in range(40)}
    version = folder_version(fill(tmp_path / "source", files), store=tmp_path / "manifests")
    patience = Patience(answer=0.4, silent=0.6, stalled=1.5)
    async with running_agent(tmp_path / "one", patience=patience) as agent:
        with peer_that(behaviour, version) as bad:
            agent.give(version.assignment(origin=NO_SLOTS, peers=[bad]), manifests=version)
            await agent.holds(version)
        assert agent.content(version) == files


@pytest.mark.parametrize("wrong", [False, True], ids=["nothing", "other bytes"])
async def test_the_only_peer_is_asked_again_for_what_it_did_not_give_at_first(
    wrong: bool, tmp_path: Path
) -> None:
    files = {f"{number:03}": os.urandom(3_000) for number in range(20)}
    version = folder_version(fill(tmp_path / "source", files), store=tmp_path / "manifests")
    async with running_agent(tmp_path / "one") as agent:
        with peer_that(GivesLate(files, wrong=wrong), version) as late:
            agent.give(version.assignment(origin=NO_SLOTS, source=None, peers=[late]), manifests=version)
            await agent.holds(version)
        assert agent.content(version) == files
        assert not agent.mount().failures


async def test_two_agents_with_different_versions_exchange_what_both_have_and_no_more(tmp_path: Path) -> None:
    source = fill(tmp_path / "source", {name: name.encode() * 1000 for name in ("a", "b", "c")})
    old = folder_version(source, store=tmp_path / "manifests")
    (source / "b").write_bytes(b"B" * 1500)
    new = folder_version(source, store=tmp_path / "manifests")
    async with (
        running_agent(tmp_path / "one") as first,
        running_agent(tmp_path / "two", node="node-2") as second,
    ):
        first.give(new.assignment(), manifests=new)
        await first.holds(new)
        second.give(
            old.assignment(version=7, origin=NO_SLOTS, source=None, peers=[first.peer()]), manifests=old
        )
        await eventually_async(lambda: second.mount().held_bytes == 2000, deadline=10)
        assert set(second.content(old)) == {"a", "c"}

        second.give(
            new.assignment(version=8, origin=NO_SLOTS, source=None, peers=[first.peer()]), manifests=new
        )
        await second.holds(new)
        assert second.content(new) == {"a": b"a" * 1000, "b": b"B" * 1500, "c": b"c" * 1000}
