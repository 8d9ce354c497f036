"""The memory of the requests in work, which a process takes over from the one before."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.request_memory import PLACE_BYTES, PLACES, RequestMemory, make_memory

FORGET = struct.Struct("<QQ")


@pytest.fixture
def memory() -> Iterator[int]:
    found = make_memory()
    yield found
    os.close(found)


def request(opcode: int, *, unique: int, more: bytes = b"") -> bytes:
    length = fuse_protocol.REQUEST.size + len(more)
    return fuse_protocol.REQUEST.pack(length, opcode, unique, 3 << 40, 0, 0, 0, 0) + more


def test_a_process_takes_over_what_another_left_and_nothing_that_it_has_answered(memory: int) -> None:
    forgotten = b"".join(FORGET.pack(1 << 40 | 60 + number, 1) for number in range(500))
    answered = request(fuse_protocol.BATCH_FORGET, unique=2, more=struct.pack("<II", 500, 0) + forgotten)
    name = request(fuse_protocol.LOOKUP, unique=3, more=b"n" * 1000 + b"\0")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        own = RequestMemory(memory)
        own.take_over()

        def take(content: bytes) -> int:
            ours.send(content)
            return own.read(theirs.fileno())

        kept = [take(request(fuse_protocol.READ, unique=unique, more=bytes(40))) for unique in range(10, 610)]
        for place in [take(answered), take(name)]:
            own.release(place)
        kept.append(take(request(fuse_protocol.READ, unique=1, more=bytes(40))))
        found = RequestMemory(memory)
        assert found.take_over() == sorted(kept)
        uniques = {fuse_protocol.REQUEST.unpack_from(found.places[place])[2] for place in kept}
        assert uniques == {1, *range(10, 610)}
        assert len(found.free) == PLACES - len(kept)


def test_a_request_that_is_longer_than_its_place_harms_no_other(memory: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        own = RequestMemory(memory)
        own.take_over()
        before = [bytes(place) for place in own.places]
        ours.send(request(fuse_protocol.LOOKUP, unique=1, more=b"n" * 1000 + b"\0"))
        long = own.read(theirs.fileno())
        assert [bytes(place) for place in own.places if place is not own.places[long]] == before[1:]
        assert RequestMemory(memory).take_over() == [long]
        assert bytes(own.places[long][-1:]) == b"n"
        assert len(own.places[long]) == PLACE_BYTES
