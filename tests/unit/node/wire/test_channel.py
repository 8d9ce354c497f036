"""A connection of the block service by TLS: what it puts on the wire."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from tests.support.certificates import TestAuthority

from tdcs.node.wire.channel import PIECE_BYTES, waiting_channel
from tdcs.trust.roles import Role
from tdcs.trust.stream import SecureStream

HEAD = b"the header of an answer"


def sent(authority: TestAuthority, file: Path) -> tuple[list[int], bytes]:
    """What a server sends for a header and a file: the lengths of its records, and what is read of them."""
    server_side, client_side = socket.socketpair()
    length = file.stat().st_size
    stream = SecureStream(authority.contexts(Role.READER).client(), host=Role.AGENT.host)

    def serve() -> None:
        with server_side, file.open("rb") as opened:
            channel = waiting_channel(server_side, authority.contexts(Role.AGENT).server(), seconds=20)
            channel.send(HEAD, more=True)
            assert channel.send_file(opened.fileno(), offset=0, length=length) == length

    server = threading.Thread(target=serve)
    server.start()
    raw = bytearray()
    with client_side:
        while not stream.handshake():
            client_side.sendall(stream.outgoing())
            stream.feed(client_side.recv(65536))
        client_side.sendall(stream.outgoing())
        while data := client_side.recv(65536):
            raw += data
    server.join()
    stream.feed(bytes(raw))
    heard = bytearray(len(HEAD) + length + 1)
    count = stream.read_into(memoryview(heard))
    records = []
    while raw:  # a type, a version and the length are before each record
        records.append(int.from_bytes(raw[3:5], "big"))
        del raw[: 5 + records[-1]]
    return records, bytes(heard[:count])


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.mark.parametrize(
    ("size", "records"), [(1000, 1), (100_000, 7), (PIECE_BYTES, PIECE_BYTES // 16384 + 1)]
)
def test_the_header_of_an_answer_takes_no_record_of_its_own(
    tmp_path: Path, authority: TestAuthority, size: int, records: int
) -> None:
    content = os.urandom(size)
    (tmp_path / "block").write_bytes(content)
    records_of_file, heard = sent(authority, tmp_path / "block")
    assert heard == HEAD + content
    assert len(records_of_file) == records
