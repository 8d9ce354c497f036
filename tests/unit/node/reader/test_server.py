"""A process that serves: what becomes of the requests that it has taken when it ends."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.node.reader.test_fetches import opened

from tdcs.node.reader import fuse_protocol, request_memory
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.request_memory import RequestMemory
from tdcs.node.reader.serving.fuse_server import Server
from tdcs.node.reader.serving.open_versions import OpenVersion
from tdcs.node.reader.session_holder import Session


class Versions:
    """This version is open, or none; opening one raises this error."""

    opened: Callable[[], None]

    def __init__(self, error: BaseException | None = None, *, version: OpenVersion | None = None) -> None:
        self._error = error
        self._version = version

    def get(self, _: int) -> OpenVersion | None:
        if self._error is not None:
            raise self._error
        return self._version

    def is_open(self, _: int) -> bool:
        return self._version is not None

    def note_failure(self, *_: OpenVersion, **__: str | bool) -> None:
        pass

    def name(self, number: int) -> str:
        return f"version-{number}"

    def all(self) -> list[OpenVersion]:
        return []

    def refresh(self) -> None:
        pass


class Kernel(NamedTuple):
    """The other side of a session."""

    end: socket.socket
    session: Session

    def ask(
        self, *, unique: int, opcode: int = fuse_protocol.GETATTR, node: int = 1 << 40, more: bytes = b""
    ) -> None:
        length = fuse_protocol.REQUEST.size + len(more)
        self.end.send(fuse_protocol.REQUEST.pack(length, opcode, unique, node, 0, 0, 0, 0) + more)

    def answered(self) -> tuple[int, int]:
        """Request and error of the next answer."""
        _, error, unique = fuse_protocol.ANSWER.unpack_from(self.end.recv(4096))
        return unique, -error

    def server(self, versions: Versions, *, turns: int = 1 << 30) -> Server:
        turns_left = iter(range(turns))
        return Server(
            session=self.session,
            versions=versions,  # type: ignore[arg-type]
            counters=Counters(),
            buffer_bytes=1 << 20,
            patience_seconds=1.0,
            until=lambda: next(turns_left, None) is None,
        )


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    ours.settimeout(20)
    memory = request_memory.make_memory()
    with ours, theirs:
        yield Kernel(ours, Session(theirs.fileno(), memory))
    os.close(memory)


def test_a_process_without_memory_ends_and_the_next_one_answers_what_it_took(kernel: Kernel) -> None:
    for unique in (1, 2):
        kernel.ask(unique=unique)
    with pytest.raises(MemoryError):
        kernel.server(Versions(MemoryError())).run()

    kernel.server(Versions(), turns=1).run()
    assert sorted(kernel.answered() for _ in range(2)) == [(1, errno.ESTALE), (2, errno.ESTALE)]


def test_a_defect_in_one_request_fails_that_request_alone(kernel: Kernel) -> None:
    kernel.ask(unique=1)
    kernel.ask(unique=2, opcode=999)
    kernel.ask(unique=3, node=fuse_protocol.ROOT)
    kernel.server(Versions(ValueError("a defect")), turns=1).run()
    assert [kernel.answered() for _ in range(3)] == [(1, errno.EIO), (2, errno.ENOSYS), (3, 0)]


def test_what_is_open_of_a_version_that_is_gone_is_stale_and_the_log_names_it_once(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    opcodes = (fuse_protocol.READ, fuse_protocol.GETATTR, fuse_protocol.LOOKUP, fuse_protocol.READDIRPLUS)
    for unique, opcode in enumerate(opcodes):
        kernel.ask(unique=unique, opcode=opcode, node=7 << 40, more=fuse_protocol.READ_BODY.pack(0, 0, 4096))
    kernel.server(Versions(), turns=1).run()
    assert [kernel.answered() for _ in opcodes] == [(unique, errno.ESTALE) for unique in range(len(opcodes))]
    (line,) = (record.getMessage() for record in caplog.records if "ESTALE" in record.getMessage())
    assert "version-7 is registered no more" in line


def test_what_an_earlier_process_let_wait_waits_on(kernel: Kernel, tmp_path: Path) -> None:
    memory = RequestMemory(kernel.session.memory)
    memory.take_over()
    node = (1 << 40) | (1 << 39)
    body = fuse_protocol.READ_BODY.pack(0, 0, 100).ljust(40, b"\0")
    for unique in range(1000):
        kernel.ask(unique=unique, opcode=fuse_protocol.READ, node=node, more=body)
        memory.read(kernel.session.fd)
    memory.leave()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        version = opened(tmp_path, 1, address, at_source=True)
        kernel.server(Versions(version=version), turns=1).run()
    kernel.end.setblocking(False)
    with pytest.raises(BlockingIOError):
        kernel.answered()
    assert len(RequestMemory(kernel.session.memory).take_over()) == 1000
