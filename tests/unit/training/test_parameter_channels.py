"""A peer of a parameter server or worker that cannot be understood, dies or falls silent: an error that names it."""

import socket
import struct
from collections.abc import Iterator

import pytest

from tdcs_train.peers.errors import PeerError
from tdcs_train.ps.channel import PROTOCOL, Channel, Tensors
from tdcs_train.ps.classes import CONTROL, DSCP, prepare

HEAD = struct.Struct("!4sBBIQI")
SLICE = 2
PEER = "server 0 at ps-0:2222"


@pytest.fixture
def ends() -> Iterator[tuple[Channel, list[socket.socket]]]:
    """A channel, and the other ends of its connections."""
    near, far = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(CONTROL + 1):
            near.append(socket.create_connection(listener.getsockname()))
            far.append(listener.accept()[0])
    memory = memoryview(bytearray(8))
    channel = Channel(
        near,
        peer=PEER,
        tensors=Tensors(place=lambda _: memory, complete=lambda _: None, absent=lambda _: None),
    )
    yield channel, far
    channel.release()
    for connection in far:
        connection.close()


def waited(channel: Channel, *, timeout: float = 10.0) -> str:
    """The error of a wait for a tensor that never comes."""
    with pytest.raises(PeerError) as error:
        channel.wait_for(lambda: False, timeout=timeout, awaited="conv.weight")
    return str(error.value)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (HEAD.pack(b"TDPS", PROTOCOL + 8, SLICE, 0, 0, 8), f"speaks version {PROTOCOL + 8} of the protocol"),
        (HEAD.pack(b"HTTP", PROTOCOL, SLICE, 0, 0, 8), "does not speak the protocol"),
        (HEAD.pack(b"TDPS", PROTOCOL, 99, 0, 0, 8), "a frame of kind 99, which means nothing"),
        (HEAD.pack(b"TDPS", PROTOCOL, SLICE, 0, 4, 8), "8 bytes at 4 of tensor 0, which has 8"),
    ],
    ids=["another version", "another protocol", "an unknown kind", "too many bytes"],
)
def test_a_peer_that_sends_what_cannot_be_is_named(
    ends: tuple[Channel, list[socket.socket]], head: bytes, reason: str
) -> None:
    channel, far = ends
    far[0].sendall(head)
    message = waited(channel)
    assert message.startswith(PEER)
    assert reason in message


def test_a_peer_that_falls_silent_is_named_with_what_was_awaited(
    ends: tuple[Channel, list[socket.socket]],
) -> None:
    message = waited(ends[0], timeout=0.1)
    assert message == f"{PEER} has sent nothing that was awaited (conv.weight) for 0.1 s; see its log"


def test_a_peer_that_says_why_it_ends_is_quoted(ends: tuple[Channel, list[socket.socket]]) -> None:
    channel, far = ends
    reason = b"worker 1 was lost"
    far[CONTROL].sendall(HEAD.pack(b"TDPS", PROTOCOL, 4, 0, 0, len(reason)) + reason)
    assert waited(channel) == f"{PEER} ended: worker 1 was lost"


def test_sending_to_a_peer_that_was_lost_fails_with_its_name(
    ends: tuple[Channel, list[socket.socket]],
) -> None:
    channel, far = ends
    far[0].sendall(HEAD.pack(b"TDPS", PROTOCOL, 99, 0, 0, 0))
    waited(channel)
    with pytest.raises(PeerError, match=PEER):
        channel.send(0, memoryview(bytes(8)), priority=1, priority_class=0)


def test_each_class_has_its_mark_and_little_unsent_data() -> None:
    for priority, mark in enumerate(DSCP):
        with socket.socket() as connection:
            prepare(connection, priority)
            assert connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == mark << 2
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 64 * 1024
            assert not connection.getblocking()
    assert len(set(DSCP)) == len(DSCP)
