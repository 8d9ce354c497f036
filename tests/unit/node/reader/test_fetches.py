"""Whom the remote-read client asks, and over which connections."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.dataplane.readers import CLUSTER, small_version

from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.engine.reader_files import Registration
from tdcs.model.agent_state import ALL_SLOTS
from tdcs.node.reader.counters import Count, Counters
from tdcs.node.reader.serving.content_buffer import ContentBuffer
from tdcs.node.reader.serving.fetch import Question
from tdcs.node.reader.serving.fetches import LANES_AT_SOURCE, SOURCE_LANES, Fetches
from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.serving.poller import Poller
from tdcs.node.reader.serving.read import Key, Read
from tdcs.node.reader.serving.version_tree import VersionTree
from tdcs.node.wire.connection import PeerConnection


class Connections(Poller):
    """What is asked of agents, which do not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[PeerConnection[Question]] = []

    def add(self, connection: PeerConnection[Question]) -> None:
        self.open.append(connection)

    def change(self, connection: PeerConnection[Question]) -> None:
        pass

    def remove(self, connection: PeerConnection[Question]) -> None:
        self.open.remove(connection)

    def piece(
        self, waiter: Read, index: int, content: memoryview | bytes, *, key: Key, origin: Count
    ) -> None:
        raise AssertionError

    def failed(self, waiter: Read, *, stale: bool, reason: str) -> None:
        raise AssertionError(reason)

    def asked(self) -> list[set[tuple[int, bool]]]:
        """For each connection the versions that it is asked for, and whether ahead."""
        requests = []
        for connection in self.open:
            kinds = set()
            for request in connection.expected:
                kinds.add((request.fetch.key.version, request.fetch.ahead))
            requests.append(kinds)
        return requests


@pytest.fixture
def address() -> Iterator[str]:
    """Of an agent that takes connections, and does nothing with them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def opened(folder: Path, number: int, address: str, *, at_source: bool) -> OpenVersion:
    """A version that this agent holds, or can only read from the source."""
    version = small_version(folder / str(number), {f"{file:02}": bytes([number]) * 100 for file in range(20)})
    registration = Registration(cluster=CLUSTER, path=version.manifest.path, manifest="")
    tree = VersionTree(manifest=version.manifest, number=number)
    opened_version = OpenVersion(
        number=number, name=str(number), registration=registration, tree=tree, node="here"
    )
    slots = bytes(512) if at_source else ALL_SLOTS
    holder = Holder(node="there", address=address, present=slots, complete=slots, reads_source=at_source)
    opened_version.set_table(HolderTable(holders=(holder,)))
    return opened_version


def read(version: OpenVersion) -> Read:
    """One that waits."""
    return Read(place=0, unique=0, thread=0, version=version, file=0, ranges=[])


def fetches_of(connections: Connections, *, clock: Callable[[], float] = time.monotonic) -> Fetches:
    """Fetches over these connections."""
    return Fetches(
        poller=connections,
        answers=connections,
        buffer=ContentBuffer(1 << 20),
        counters=Counters(),
        patience_seconds=30,
        clock=clock,
    )


@pytest.mark.parametrize("at_source", [False, True], ids=["agent", "source"])
def test_neither_a_read_nor_another_job_waits_behind_what_one_fetches_ahead(
    tmp_path: Path, address: str, at_source: bool
) -> None:
    now = 100.0
    connections = Connections()
    fetches = fetches_of(connections, clock=lambda: now)
    versions = [opened(tmp_path, number, address, at_source=at_source) for number in (1, 2)]
    for block in range(19):
        fetches.want(versions[0], Key(1, block, 0, 100), waiter=None)
    fetches.want(versions[1], Key(2, 0, 0, 100), waiter=None)
    for version in versions:
        fetches.want(version, Key(version.number, 19, 0, 100), waiter=(read(version), 0))
    kinds = connections.asked()
    assert {(1, True)} in kinds
    assert {(2, True)} in kinds
    assert all(len({ahead for _, ahead in kind}) == 1 for kind in kinds), "no read is behind what is ahead"
    assert not any({(1, True), (2, True)} <= kind for kind in kinds), "each job has its own"

    for connection in list(connections.open):
        connection.expected.clear()
    fetches.tick(lambda _: None)
    assert connections.open
    now += 31
    fetches.tick(lambda _: None)
    assert not connections.open, "what is not used is closed"
    assert not fetches._lanes


@pytest.mark.parametrize("at_source", [False, True], ids=["agent", "source"])
def test_no_read_waits_behind_one_of_another_dataset(tmp_path: Path, address: str, at_source: bool) -> None:
    connections = Connections()
    fetches = fetches_of(connections)
    versions = [opened(tmp_path, number, address, at_source=at_source) for number in (1, 2)]
    for version in versions:
        for block in range(20):
            fetches.want(version, Key(version.number, block, 0, 100), waiter=(read(version), 0))
    kinds = connections.asked()
    assert {(1, False)} in kinds
    assert {(2, False)} in kinds
    assert all(len(kind) == 1 for kind in kinds)
    assert len(kinds) == 2 * (SOURCE_LANES if at_source else 2)


@pytest.mark.threat("slow-remote-reads")
def test_many_datasets_that_are_read_from_their_sources_leave_an_agent_connections_for_others(
    tmp_path: Path, address: str
) -> None:
    connections = Connections()
    fetches = fetches_of(connections)
    numbers = range(1, 2 * LANES_AT_SOURCE // SOURCE_LANES + 1)
    for number in numbers:
        version = opened(tmp_path, number, address, at_source=True)
        for block in range(20):
            fetches.want(version, Key(number, block, 0, 100), waiter=(read(version), 0))
    counts = Counter(version for kind in connections.asked() for version, _ in kind)
    assert set(counts) == set(numbers), "each has one"
    assert counts[1] == SOURCE_LANES, "one that is alone has as many as are of use"
    assert counts.total() <= LANES_AT_SOURCE + len(numbers)


def test_each_read_is_given_up_by_the_patience_since_it_came(tmp_path: Path) -> None:
    """One may have waited for its turn before, and another one may join what was begun for it."""
    now = 100.0
    given_up: list[Read] = []

    class NoAgents(Connections):
        def failed(self, waiter: Read, *, stale: bool, reason: str) -> None:
            given_up.append(waiter)

    fetches = fetches_of(NoAgents(), clock=lambda: now)
    version = opened(tmp_path, 1, "127.0.0.1:1", at_source=False)
    version.set_table(HolderTable(holders=()))
    first, second = read(version), read(version)
    first.began, second.began = 75.0, 103.0
    key = Key(1, 0, 0, 100)
    fetches.want(version, key, waiter=(first, 0))
    now = 104.0
    fetches.tick(lambda _: version)
    assert not given_up
    fetches.want(version, key, waiter=(second, 0))
    now = 106.0
    fetches.tick(lambda _: version)
    assert given_up == [first]
    assert fetches.has(key)
    now = 132.0
    fetches.tick(lambda _: version)
    assert given_up == [first]
    now = 134.0
    fetches.tick(lambda _: version)
    assert given_up == [first, second]
    assert not fetches.has(key)


def test_this_nodes_agent_hears_where_a_version_is_read_while_it_may_be_bringing_some_of_it(
    tmp_path: Path, address: str
) -> None:
    now = 100.0
    connections = Connections()
    fetches = fetches_of(connections, clock=lambda: now)
    version = opened(tmp_path, 1, address, at_source=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        holder = Holder(node="here", address=f"127.0.0.1:{listener.getsockname()[1]}", reads_source=True)

        def told(own: Holder, block: int, *, waits: bool = True) -> list[int]:
            """The blocks that the own agent is told of when this one is asked for and then answered."""
            version.set_table(HolderTable(holders=(*version.table.holders[:1], own)))
            waiter = (read(version), 0) if waits else None
            fetches.want(version, Key(1, block, 0, 100), waiter=waiter)
            mine = [connection for connection in connections.open if connection.address == own.address]
            block_ids = [request.block for connection in mine for request in connection.expected]
            for open_connection in mine:
                open_connection.expected.clear()
            return block_ids

        ids = version.block_ids
        assert told(holder, 7) == [ids[7]]
        assert told(holder, 8) == [], "a moment later it knows enough"
        now += 1
        assert told(holder, 9, waits=False) == [], "what is fetched ahead nobody reads yet"
        assert told(holder, 10) == [ids[10]]
        now += 1
        assert told(structs.replace(holder, complete=ALL_SLOTS), 11) == [], "it has everything"
        assert told(structs.replace(holder, reads_source=False), 12) == [], "it is assigned nothing of it"
        assert told(holder, 13) == [ids[13]]
