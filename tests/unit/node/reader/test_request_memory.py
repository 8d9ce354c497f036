"""The memory of the requests in work, which a process takes over from one of an earlier version, too."""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from tdcs.node.reader import fuse_protocol
from tdcs.node.reader.request_memory import PLACE_BYTES, PLACES, RequestMemory, make_memory

EARLIER_PLACES = 512
FORGET = struct.Struct("<QQ")


@pytest.fixture
def memory() -> Iterator[int]:
    found = make_memory()
    yield found
    os.close(found)


def request(opcode: int, *, unique: int, more: bytes = b"") -> bytes:
    length = fuse_protocol.REQUEST.size + len(more)
    return fuse_protocol.REQUEST.pack(length, opcode, unique, 3 << 40, 0, 0, 0, 0) + more


def earlier(memory: int) -> list[memoryview]:
    """The places as earlier versions see them."""
    whole = memoryview(mmap.mmap(memory, EARLIER_PLACES * fuse_protocol.REQUEST_BYTES))
    return [
        whole[at : at + fuse_protocol.REQUEST_BYTES]
        for at in range(0, len(whole), fuse_protocol.REQUEST_BYTES)
    ]


def test_a_process_takes_over_what_one_of_an_earlier_version_left_and_nothing_that_it_has_answered(
    memory: int,
) -> None:
    forgotten = b"".join(FORGET.pack(1 << 40 | 60 + number, 1) for number in range(500))
    answered = request(fuse_protocol.BATCH_FORGET, unique=2, more=struct.pack("<II", 500, 0) + forgotten)
    name = request(fuse_protocol.LOOKUP, unique=3, more=b"n" * 1000 + b"\0")
    read = request(fuse_protocol.READ, unique=1, more=bytes(40))
    places = earlier(memory)
    for place, content in ((0, read), (1, answered), (2, name), (511, read)):
        places[place][: len(content)] = content
    for place in (1, 2):
        places[place][:4] = bytes(4)
    found = RequestMemory(memory)
    assert found.take_over() == [0, 511]
    assert len(found.free) == PLACES - 2


def test_a_process_of_an_earlier_version_finds_what_waits_while_it_is_no_more_than_that_can_have(
    memory: int,
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        own = RequestMemory(memory)
        own.take_over()

        def take(unique: int) -> int:
            ours.send(request(fuse_protocol.READ, unique=unique, more=bytes(40)))
            return own.read(theirs.fileno())

        for place in [take(unique) for unique in range(1, 2 * EARLIER_PLACES)]:
            own.release(place)
        taken = [take(unique) for unique in range(1, EARLIER_PLACES + 1)]
        uniques = [fuse_protocol.REQUEST.unpack_from(place)[2] for place in earlier(memory)]
        assert sorted(uniques) == list(range(1, EARLIER_PLACES + 1))

        more = take(EARLIER_PLACES + 1)
        assert sorted(RequestMemory(memory).take_over()) == sorted([*taken, more])


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
