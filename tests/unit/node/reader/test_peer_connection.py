"""A connection of the remote-read client to an agent: plain and by TLS, for answers of all sizes."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import xxhash
from tests.support.certificates import TestAuthority

from tdcs.node.agent.block_service import BlockService
from tdcs.node.agent.disk.tier import Disk
from tdcs.node.reader.serving.fetch import Question as PollerQuestion
from tdcs.node.reader.serving.poller import Poller
from tdcs.node.wire import frames
from tdcs.node.wire.connection import PeerConnection, Requested, kept
from tdcs.node.wire.frames import News, Piece, SourceWanted, Wanted
from tdcs.trust.contexts import Contexts
from tdcs.trust.roles import Role

SIZES = (0, 1, 1000, 16_384, 100_000, (1 << 20) - 1, 1 << 20)
SO_TIMESTAMPING, TX_SOFTWARE, RAW_SOFTWARE = 37, 1 << 1, 1 << 4
"""linux/net_tstamp.h: note when the kernel has sent something."""
CONTENTS = {number: os.urandom(size) for number, size in enumerate(SIZES, start=1)}


class Question(NamedTuple):
    block: int
    length: int

    def request(self) -> bytes:
        return frames.read_request([Wanted(self.block)])


class SourceQuestion(NamedTuple):
    block: int
    length: int

    def request(self) -> bytes:
        read = SourceWanted(
            mount="/m", path=b"f", block=self.block, offset=0, length=self.length, size=self.length, tag=""
        )
        return frames.source_request(read)


@contextmanager
def read_source(piece: SourceWanted, *, waiting: Callable[[], None]) -> Iterator[memoryview]:
    """What is asked for, after a while."""
    for _ in range(3):
        waiting()
    yield memoryview(CONTENTS[piece.block])


@contextmanager
def giver(tier: Path, tls: Contexts | None) -> Iterator[str]:
    disk = Disk(tier)
    disk.prepare()
    for number, content in CONTENTS.items():
        (disk.spool / str(number)).write_bytes(content)
    service = BlockService(
        disk=disk,
        feed=lambda *_: News(1, 0, ()),
        read_source=read_source,
        tls=tls.server if tls is not None else None,
    )
    try:
        yield f"127.0.0.1:{service.start(host='127.0.0.1', port=0)}"
    finally:
        service.close()


def read(address: str, questions: Sequence[Requested], tls: Contexts | None) -> list[bytes]:
    """Ask all at once, and take the answers as they come; raises what `PeerConnection` raises."""
    contents: list[bytes | memoryview] = []

    def deliver(_: PeerConnection[Requested], asked: Requested, piece: Piece, content: memoryview) -> None:
        assert xxhash.xxh3_64_intdigest(content) == piece.hash
        contents.append(kept(content))

    connection = PeerConnection[Requested](
        address=address,
        deliver=deliver,
        now=0.0,
        tls=tls.client() if tls is not None else None,
    )
    epoll = select.epoll()
    epoll.register(connection.fd, select.EPOLLIN | select.EPOLLOUT)
    try:
        for question in questions:
            connection.ask(question, now=0.0)
        connection.flush()
        until = time.monotonic() + 20
        while len(contents) < len(questions) and time.monotonic() < until:
            epoll.modify(connection.fd, select.EPOLLIN | (select.EPOLLOUT if connection.unsent else 0))
            if epoll.poll(5):
                connection.ready(now=0.0)
    finally:
        epoll.close()
        connection.close()
    return [bytes(content) for content in contents]  # none was overwritten by those that came after it


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_answers_of_all_sizes_come_whole_and_in_order(
    tmp_path: Path, authority: TestAuthority, secure: bool
) -> None:
    server = authority.contexts(Role.AGENT) if secure else None
    client = authority.contexts(Role.READER) if secure else None
    order = [*CONTENTS, *reversed(CONTENTS), 2, 7, 2, 7, 3]
    questions = [Question(number, len(CONTENTS[number])) for number in order]
    with giver(tmp_path, server) as address:
        assert read(address, questions, client) == [CONTENTS[number] for number in order]


@pytest.mark.failure_mode("load-takes-source-bandwidth")
def test_an_agent_that_says_that_an_answer_will_come_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "WAITING_SECONDS", 0.0)
    questions: list[Requested] = [
        SourceQuestion(5, len(CONTENTS[5])),
        Question(3, 1000),
        SourceQuestion(2, 1),
    ]
    with giver(tmp_path, None) as address:
        assert read(address, questions, None) == [CONTENTS[5], CONTENTS[3], CONTENTS[2]]


def test_a_connection_with_an_error_that_no_read_takes_away_is_closed(tmp_path: Path) -> None:
    """Otherwise its owner is woken without an end: half a core of processor time until the peer ends."""
    poller = Poller()
    with giver(tmp_path, None) as address:
        connection = PeerConnection[PollerQuestion](address=address, deliver=lambda *_: None, now=0.0)
        poller.add(connection)
        poller.change(connection)
        try:
            # A time that nobody fetches waits in the queue of errors, which reading does not empty.
            with socket.socket(fileno=os.dup(connection.fd)) as duplicate:
                duplicate.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE | RAW_SOFTWARE)
            connection.flush()
            with pytest.raises(OSError, match="error"):  # noqa: PT012
                for _ in range(100):
                    for fd, has_error in poller.poll(5):
                        assert fd == connection.fd
                        connection.ready(now=0.0, has_error=has_error)
        finally:
            poller.remove(connection)
            connection.close()


@pytest.mark.parametrize(
    ("server", "client"), [(Role.READER, Role.READER), (Role.AGENT, Role.WORKER)], ids=["server", "client"]
)
def test_a_side_with_another_role_is_refused(
    tmp_path: Path, authority: TestAuthority, server: Role, client: Role
) -> None:
    with (
        giver(tmp_path, authority.contexts(server)) as address,
        pytest.raises((OSError, frames.FrameError)),
    ):
        read(address, [Question(2, 1)], authority.contexts(client))
