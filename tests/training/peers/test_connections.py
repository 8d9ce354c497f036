"""Connections between workers: no packet without a register of the receiver, and errors that end every wait."""

import re
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from tdcs_train.peers import frames
from tdcs_train.peers.connection import OWED, REGISTERS, SMALL, Connection
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.frames import Frame, Kind
from tdcs_train.peers.rendezvous import abort

NAME = "rank 1 (stage 1)"


class Peer:
    """The other end, by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(10)

    def packet(self, number: int, *, credits: int = 0, size: int = 0) -> None:
        """Send a packet."""
        value = torch.zeros(size) if size else None
        frames.write(self.socket, Frame(Kind.DATA, {"batch": number}, value, credits=credits))

    def next(self) -> Frame:
        """What comes next."""
        return frames.read(self.socket, peer="this end")

    def nothing_comes(self) -> bool:
        """Whether nothing has come for a while."""
        self.socket.settimeout(0.2)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(10)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; it takes few bytes that the other end does not read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        near = socket.socket()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
    return near, far


def await_reset(connection: Connection) -> None:
    """Returns when the kernel knows that the peer has gone."""
    watch = select.poll()
    watch.register(connection._socket, 0)
    assert watch.poll(5000), "the peer has not gone"


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Peer]]:
    near, far = tcp_pair()
    connection = Connection(near, peer=NAME, timeout=5.0)
    yield connection, Peer(far)
    far.close()
    connection.close(reason="the test has ended")


def take(connection: Connection, count: int) -> None:
    for _ in range(count):
        connection.take(awaited="a packet")


def numbers(frames_: list[Frame]) -> list[int]:
    return [frame.header["batch"] for frame in frames_]


@pytest.mark.parametrize("size", [1, SMALL], ids=["small", "large"])
def test_no_more_packets_leave_than_the_receiver_has_registers(
    pair: tuple[Connection, Peer], size: int
) -> None:
    connection, peer = pair
    for number in range(REGISTERS + 2):
        connection.put({"batch": number}, torch.zeros(size))
    assert numbers([peer.next() for _ in range(REGISTERS)]) == list(range(REGISTERS))
    assert peer.nothing_comes()
    peer.packet(0, credits=1)
    assert peer.next().header["batch"] == REGISTERS
    assert peer.nothing_comes()


def test_one_credit_goes_back_with_the_next_packet(pair: tuple[Connection, Peer]) -> None:
    connection, peer = pair
    peer.packet(7)
    assert connection.take(awaited="a packet").header == {"batch": 7}
    assert peer.nothing_comes(), "it is worth no frame of its own"
    connection.put({"batch": 8}, torch.zeros(1))
    answer = peer.next()
    assert (answer.kind, answer.credits) == (Kind.DATA, 1)


def test_several_credits_go_back_by_themselves(pair: tuple[Connection, Peer]) -> None:
    connection, peer = pair
    for number in range(OWED):
        peer.packet(number)
        connection.take(awaited="a packet")
    answer = peer.next()
    assert (answer.kind, answer.credits) == (Kind.CREDIT, OWED)


def test_whatever_is_sent_one_way_alone_all_of_it_arrives() -> None:
    near, far = tcp_pair()
    sender, receiver = (Connection(end, peer=NAME, timeout=5.0) for end in (near, far))
    for number in range(40):
        sender.put({"batch": number}, torch.full((SMALL // 8 * (number % 4),), float(number)))
    for number in range(40):
        frame = receiver.take(awaited="a packet")
        assert frame.header["batch"] == number
        assert torch.equal(frame.value, torch.full((SMALL // 8 * (number % 4),), float(number)))
    closing = threading.Thread(target=sender.close)  # each waits for the other's end
    closing.start()
    receiver.close()
    closing.join()


def test_both_ends_may_send_before_either_takes() -> None:
    """Packets that the kernel's buffers do not take: neither worker may wait for the other to read."""
    ends = [Connection(end, peer=NAME, timeout=5.0) for end in tcp_pair()]
    arrivals: dict[int, list[int]] = {}

    def work(number: int) -> None:
        for packet in range(REGISTERS):
            ends[number].put({"batch": packet}, torch.zeros(SMALL // 4))
        frames_ = [ends[number].take(awaited="a packet") for _ in range(REGISTERS)]
        arrivals[number] = numbers(frames_)
        ends[number].close()

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20.0)
    assert arrivals == {number: list(range(REGISTERS)) for number in range(2)}


def test_large_packets_are_read_while_the_worker_computes(pair: tuple[Connection, Peer]) -> None:
    """Else they would wait in the kernel, and pass only when they are needed."""
    connection, peer = pair
    peer.packet(0, size=SMALL)
    take(connection, 1)
    for number in range(1, REGISTERS):
        peer.packet(number, size=SMALL)
    until = time.monotonic() + 10
    while len(connection._inbox) < REGISTERS - 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(connection._inbox) == REGISTERS - 1, "nobody has read what came"
    assert numbers([connection.take(awaited="a packet") for _ in range(REGISTERS - 1)]) == list(
        range(1, REGISTERS)
    )


def test_a_peer_that_sends_more_packets_than_it_has_credits_for_is_named(
    pair: tuple[Connection, Peer],
) -> None:
    connection, peer = pair
    for number in range(REGISTERS + 2):
        peer.packet(number, size=SMALL)
        if not number:
            take(connection, 1)  # what follows a large packet is read before it is taken
    connection._threads[0].join(5.0)
    reason = f"^{re.escape(NAME)} sent more than there are registers for"
    with pytest.raises(PeerError, match=reason):
        take(connection, REGISTERS + 1)


def test_a_peer_that_sends_more_credits_than_it_got_packets_is_named(pair: tuple[Connection, Peer]) -> None:
    connection, peer = pair
    peer.packet(0, credits=2)
    with pytest.raises(PeerError, match=f"^{re.escape(NAME)} sent 2 credits for fewer packets"):
        take(connection, 1)


def test_a_peer_that_stops_within_a_packet_is_named() -> None:
    near, far = tcp_pair()
    connection = Connection(near, peer=NAME, timeout=0.3)
    whole = frames.encode(Frame(Kind.DATA, {"batch": 1}, torch.zeros(9)))
    beginning = Peer(far)
    with far:
        writer, reader = socket.socketpair()
        with writer, reader:
            frames.send(writer, whole, credits=0)
            beginning.socket.sendall(reader.recv(1 << 16)[:-4])
        with pytest.raises(PeerError, match=r"has sent nothing for .* within a packet"):
            connection.take(awaited="a packet")
    connection.close(reason="the test has ended")


def test_a_peer_that_is_silent_is_named_with_what_was_awaited() -> None:
    near, far = tcp_pair()
    connection = Connection(near, peer=NAME, timeout=0.2)
    with far:
        reason = "has sent nothing for 0.2 s while the gradient was awaited"
        with pytest.raises(PeerError, match=reason):
            connection.take(awaited="the gradient")
        Peer(far).packet(4)
        assert connection.take(awaited="the gradient").header == {"batch": 4}, "it was late by little"
        connection.close(reason="the test has ended")


def test_a_peer_that_dies_while_a_packet_leaves_ends_every_wait(pair: tuple[Connection, Peer]) -> None:
    """One thread sends a packet that nobody reads, and credits wait for it: neither may wait for the other."""
    connection, peer = pair
    errors: list[PeerError] = []

    def put() -> None:
        try:
            for number in range(REGISTERS):
                connection.put({"batch": number}, torch.zeros(SMALL // 4))
        except PeerError as error:
            errors.append(error)

    for number in range(OWED):
        peer.packet(number)
    sender = threading.Thread(target=put, daemon=True)
    sender.start()
    assert peer.socket.recv(1, socket.MSG_PEEK), "it has begun to send"
    taker = threading.Thread(target=take, args=(connection, OWED), daemon=True)
    taker.start()
    taker.join(5.0)
    peer.socket.close()
    sender.join(5.0)
    assert not sender.is_alive(), "it waits forever"
    assert all(str(error).startswith(f"{NAME} ended") for error in errors), "if it had not queued all by then"
    with pytest.raises(PeerError, match="ended"):
        connection.take(awaited="a packet")
    with pytest.raises(PeerError, match="ended"):
        connection.put({"batch": REGISTERS}, None)


@pytest.mark.parametrize("unread", [True, False], ids=["reset at once", "ended at first"])
def test_the_reason_of_a_peer_is_what_puts_fail_with(pair: tuple[Connection, Peer], unread: bool) -> None:
    """Between takes no thread reads, so the kernel says that the peer has gone before its reason is seen."""
    connection, peer = pair
    if unread:  # what the peer has not read when it closes makes its kernel reset the connection
        connection.put({"batch": 0}, None)
        assert peer.socket.recv(1, socket.MSG_PEEK)
    peer.packet(5)
    frames.write(peer.socket, Frame(Kind.ABORT, {"reason": "its disk is full"}))
    peer.socket.close()
    reason = f"^{re.escape(NAME)} ended: its disk is full$"
    if not unread:
        connection.put({"batch": 0}, None)  # the kernel takes it: the peer may have closed one direction only
    await_reset(connection)
    for number in range(1, 3):
        with pytest.raises(PeerError, match=reason):
            connection.put({"batch": number}, None)
    assert connection.take(awaited="a packet").header == {"batch": 5}, "it came before"
    with pytest.raises(PeerError, match=reason):
        connection.take(awaited="a packet")


def test_the_reason_of_a_peer_is_found_while_the_rest_of_a_packet_leaves(
    pair: tuple[Connection, Peer],
) -> None:
    connection, peer = pair
    connection.put({"batch": 0}, torch.zeros(SMALL // 4))
    assert peer.socket.recv(1, socket.MSG_PEEK), "it has begun to send"
    frames.write(peer.socket, Frame(Kind.ABORT, {"reason": "its disk is full"}))
    peer.socket.close()
    connection._threads[1].join(5.0)
    with pytest.raises(PeerError, match=r"ended: its disk is full$"):
        connection.put({"batch": 1}, None)


def test_a_peer_that_does_not_read_keeps_no_other_from_the_reason() -> None:
    (stalled_end, stalled_peer), (live_end, live_peer) = tcp_pair(), tcp_pair()
    stalled, live = (Connection(end, peer=NAME, timeout=5.0) for end in (stalled_end, live_end))
    stalled.put({"batch": 0}, torch.zeros(1 << 20))
    assert stalled_peer.recv(1, socket.MSG_PEEK), "it has begun to send"
    ending = threading.Thread(target=abort, args=([stalled, live], "its disk is full"))
    ending.start()
    frame = Peer(live_peer).next()
    assert (frame.kind, frame.header) == (Kind.ABORT, {"reason": "its disk is full"})
    assert stalled._socket.fileno() != -1, "the one that does not read was waited for"
    stalled_peer.close()
    live_peer.close()
    ending.join()
