"""The memory of the requests in work, which a process takes over from one that has ended, or hangs."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tdcs.node.reader import fuse_protocol, request_memory
from tdcs.node.reader.request_memory import PLACE_BYTES, PLACES, REGIONS, RequestMemory, make_memory, started

FORGET = struct.Struct("<QQ")


def request(opcode: int, *, unique: int, more: bytes = b"") -> bytes:
    length = fuse_protocol.REQUEST.size + len(more)
    return fuse_protocol.REQUEST.pack(length, opcode, unique, 3 << 40, 0, 0, 0, 0) + more


def a_read(unique: int) -> bytes:
    return request(fuse_protocol.READ, unique=unique, more=bytes(40))


class Node:
    """The memory, and the kernel's end of a session."""

    def __init__(self) -> None:
        self.memory = make_memory()
        self._ours, self.session = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def process(self) -> RequestMemory:
        """What a process that serves has."""
        return RequestMemory(self.memory)

    def take(self, process: RequestMemory, content: bytes) -> int:
        """Have a process take a request; its place."""
        self._ours.send(content)
        return process.read(self.session.fileno())

    def close(self) -> None:
        self._ours.close()
        self.session.close()
        os.close(self.memory)


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are taken for dead at once, and their ends cannot be seen, as in another namespace."""
    monkeypatch.setattr(request_memory, "LEASE_SECONDS", -1)
    monkeypatch.setattr(request_memory._Region, "has_ended", lambda _: False)


def uniques(memory: RequestMemory, places: list[request_memory.Left]) -> list[int]:
    return sorted(fuse_protocol.REQUEST.unpack_from(memory.request(request.place))[2] for request in places)


def test_a_process_takes_over_what_another_left_and_nothing_that_it_has_answered(node: Node) -> None:
    forgotten = b"".join(FORGET.pack(1 << 40 | 60 + number, 1) for number in range(500))
    answered = request(fuse_protocol.BATCH_FORGET, unique=2, more=struct.pack("<II", 500, 0) + forgotten)
    name = request(fuse_protocol.LOOKUP, unique=3, more=b"n" * 1000 + b"\0")
    before = node.process()
    assert before.take_over() == []
    for unique in range(10, 610):
        node.take(before, a_read(unique))
    for place in [node.take(before, answered), node.take(before, name)]:
        before.release(place)
    node.take(before, a_read(1))
    before.leave()

    after = node.process()
    assert uniques(after, after.take_over()) == [1, *range(10, 610)]
    assert after.free == PLACES - 601
    assert after.take_over() == [], "they are said once"


def test_a_request_that_is_longer_than_its_place_harms_no_other(node: Node) -> None:
    process = node.process()
    process.take_over()
    first = node.take(process, a_read(7))
    long = node.take(process, request(fuse_protocol.LOOKUP, unique=1, more=b"n" * 1000 + b"\0"))
    second = node.take(process, a_read(8))
    assert bytes(process.request(first))[:80] == a_read(7)
    assert bytes(process.request(second))[:80] == a_read(8)
    assert len(process.request(long)) == PLACE_BYTES
    assert bytes(process.request(long)[-1:]) == b"n"


def test_there_are_places_for_as_many_reads_as_a_nodes_threads_have(node: Node) -> None:
    process = node.process()
    process.take_over()
    places = {process._take() for _ in range(PLACES)}
    assert len(places) == PLACES == 65536
    assert process.free == 0


def test_nobody_takes_a_turn_while_a_process_serves(node: Node) -> None:
    first, second = node.process(), node.process()
    assert first.take_turn()
    assert not second.take_turn()
    assert second.is_served()
    assert not first.is_served(), "by another process"
    first.leave()
    assert second.is_left()
    assert second.take_turn()


SERVE = """
import os, socket, sys, time
from tdcs.node.reader.request_memory import RequestMemory
own = RequestMemory(int(sys.argv[1]))
assert own.take_turn()
own.read(int(sys.argv[2]))
print("serves", flush=True)
time.sleep(60)
"""


def test_the_turn_of_a_process_that_is_killed_is_the_next_ones_at_once(node: Node) -> None:
    node._ours.send(a_read(5))
    fds = (node.memory, node.session.fileno())
    command = [sys.executable, "-c", SERVE, *map(str, fds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=fds) as serving:
        assert serving.stdout is not None
        serving.stdout.readline()
        standing_by = node.process()
        assert not standing_by.take_turn()
        serving.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, serving.pid, os.WEXITED | os.WNOWAIT)
        assert started(serving.pid) == 0, "nobody has waited for it, so it has its number still"
        assert standing_by.take_turn()
        assert uniques(standing_by, standing_by.take_over()) == [5]


@pytest.mark.usefixtures("hangs")
def test_what_a_process_that_hung_takes_when_it_goes_on_is_answered_by_the_next_one(node: Node) -> None:
    hung = node.process()
    hung.take_over()
    node.take(hung, a_read(1))
    after = node.process()
    assert uniques(after, after.take_over()) == [1]
    assert hung.is_taken_over()
    assert not after.is_taken_over()
    assert after.strays() == []

    node.take(hung, a_read(2))
    assert uniques(after, after.strays()) == [2]
    new_place = node.take(after, a_read(3))
    for place in range(3):
        hung.release(place)
    assert bytes(after.request(new_place))[:80] == a_read(3), "it frees no other's place"


@pytest.mark.usefixtures("hangs")
def test_a_request_by_which_processes_hang_is_known(node: Node) -> None:
    for tries in range(3):
        process = node.process()
        requests = process.take_over()
        if tries == 0:
            places = [node.take(process, a_read(unique)) for unique in range(3)]
            process.take_in_hand(places[1])
            continue
        counts = {uniques(process, [request])[0]: request.tries for request in requests}
        assert counts == {0: 0, 1: tries, 2: 0}
        (suspect,) = (request for request in requests if request.tries)
        process.take_in_hand(suspect.place, suspect.tries)


@pytest.mark.usefixtures("hangs")
def test_a_node_on_which_too_many_processes_hang_says_so(node: Node) -> None:
    processes = [node.process() for _ in range(REGIONS + 1)]
    for process in processes[:REGIONS]:
        process.take_over()
    with pytest.raises(OSError, match="reboot the node"):
        processes[REGIONS].take_over()


def test_the_memory_of_a_holder_of_another_version_is_made_longer() -> None:
    memory = os.memfd_create("short")
    os.ftruncate(memory, 4 << 20)
    os.pwrite(memory, b"\xff" * 8192, 0)
    memory_of_version = RequestMemory(memory)
    assert memory_of_version.take_over() == []
    assert memory_of_version.free == PLACES
    os.close(memory)
