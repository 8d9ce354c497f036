"""Frames between workers: values come as they were sent, and a peer that cannot be understood is named."""

import json
import socket
import struct
import threading
from typing import Any

import pytest
import torch

from tdcs_train.peers import frames
from tdcs_train.peers.errors import PeerError
from tdcs_train.peers.frames import MAGIC, PROTOCOL, Frame, Kind
from tdcs_train.peers.layouts import KEPT, MOST_NUMBERS, Layouts

HEAD = struct.Struct("!4sBIBHIQ")
NAME = "rank 1 (stage 1)"


def sent(raw: bytes) -> Frame:
    """What a worker reads when a peer has sent these bytes and closed the connection."""
    near, far = socket.socketpair()
    with near, far:
        far.sendall(raw)
        far.shutdown(socket.SHUT_WR)
        return frames.read(near, peer=NAME)


def frame(
    content: Any, payload: bytes = b"", *, fields: Any = ("dict",), kind: int = Kind.DATA, count: int = 0
) -> bytes:
    """A frame with any layout of its fields and its content, and `count` numbers."""
    text = content if isinstance(content, bytes) else json.dumps(["tuple", fields, content]).encode()
    head = HEAD.pack(MAGIC, kind, PROTOCOL, 0, count, len(text), len(payload))
    return head + bytes(8 * count) + text + payload


def travelled(value: Any) -> Any:
    """A value that was sent twice and read, as a connection does: with a buffer and the layouts of before."""
    near, far = socket.socketpair()
    sending, reading = Layouts(), Layouts()

    def write() -> None:
        for number, credits in ((3, 2), (4, 0)):
            encoded = frames.encode(Frame(Kind.DATA, {"batch": number}, value), layouts=sending)
            frames.send(far, encoded, credits=credits)

    with near, far:
        # Beside this thread, because a large one does not fit into the kernel's buffer.
        threading.Thread(target=write, daemon=True).start()
        near.settimeout(10)
        inlet = frames.Inlet(near)
        first, second = (
            frames.decode(frames.receive(inlet.fill, peer=NAME), peer=NAME, layouts=reading) for _ in range(2)
        )
    assert (first.header, first.credits) == ({"batch": 3}, 2)
    assert (second.header, second.credits) == ({"batch": 4}, 0)
    return second.value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4),
        torch.arange(12.0).reshape(3, 4).T,
        torch.tensor(2.5),
        torch.empty(0, 4),
        torch.arange(5, dtype=torch.int64),
        torch.tensor([True, False, True]),
        torch.arange(7).to(torch.bfloat16),
        torch.arange(5).to(torch.complex64),
        torch.rand(300, 200),
    ],
    ids=["float", "transposed", "no dimensions", "empty", "int64", "bool", "bfloat16", "complex", "large"],
)
def test_a_tensor_comes_as_it_was_sent_between_others(tensor: torch.Tensor) -> None:
    before, behind = torch.tensor([1, 2, 3], dtype=torch.uint8), torch.rand(2)
    value = {"one": before, "state": (tensor, [behind, 7, None])}
    echo = travelled(value)
    assert list(echo) == ["one", "state"]
    assert torch.equal(echo["one"], before)
    assert torch.equal(echo["state"][0], tensor)
    assert echo["state"][0].dtype == tensor.dtype
    assert torch.equal(echo["state"][1][0], behind)
    assert echo["state"][1][1:] == [7, None]


def test_whether_a_tensor_needs_a_gradient_travels_with_it() -> None:
    echo = travelled((torch.ones(3, requires_grad=True), torch.ones(3)))
    assert [tensor.requires_grad for tensor in echo] == [True, False]
    assert all(tensor.is_leaf for tensor in echo)


def test_values_that_look_alike_keep_their_own_types_and_numbers() -> None:
    """Layouts are kept, and Python takes 1, 1.0 and True for equal."""
    sending, reading = Layouts(), Layouts()
    values = [
        1,
        1.0,
        True,
        0,
        0.0,
        -0.0,
        False,
        None,
        "1",
        1 << 70,
        -(1 << 63),
        (1,),
        [1],
        {"1": 1},
        2,
        2.5,
        (),
    ]
    for value in [*values, *reversed(values)]:
        encoded = frames.encode(Frame(Kind.DATA, {}, value), layouts=sending)
        arrived = frames.Arrived(
            Kind.DATA,
            0,
            struct.unpack(f"!{len(encoded.numbers) // 8}q", encoded.numbers),
            encoded.layout,
            memoryview(b""),
        )
        assert repr(frames.decode(arrived, peer=NAME, layouts=reading).value) == repr(value)


def test_more_layouts_than_are_kept_and_more_numbers_than_a_frame_has_still_travel() -> None:
    layouts = Layouts()
    shapes = [torch.zeros(1, length) for length in range(3 * KEPT)]
    texts = [layouts.described(tensor).layout for tensor in [*shapes, *shapes]]
    assert len(set(texts)) == len(shapes)
    assert texts[: len(shapes)] == texts[len(shapes) :]
    numbers = list(range(MOST_NUMBERS + 3))
    assert travelled(numbers) == numbers


def test_a_value_of_an_unknown_kind_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(PeerError, match="a set cannot travel between stages; cut the model elsewhere"):
        frames.encode(Frame(Kind.DATA, {}, {"values": {1, 2}}))


VERSION = PROTOCOL + 7
UNREADABLE = "sent a layout that cannot be read"
MALFORMED = {
    "another version": (
        HEAD.pack(MAGIC, Kind.DATA, VERSION, 0, 0, 2, 0) + b"{}",
        f"speaks version {VERSION} of the protocol, this worker version {PROTOCOL}; use the same tdcs-train",
    ),
    "the former version": (
        struct.pack("!4sBIBIQ", MAGIC, Kind.DATA, 2, 0, 40, 0) + bytes(40),
        f"speaks version 2 of the protocol, this worker version {PROTOCOL}",
    ),
    "another protocol": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "does not speak the protocol of tdcs-train"),
    "an unknown kind": (frame(["plain", "1"], kind=9), "sent a frame of kind 9"),
    "a layout without end": (
        HEAD.pack(MAGIC, Kind.DATA, PROTOCOL, 0, 0, 1 << 30, 0),
        "with a layout of 1073741824 bytes, which means nothing",
    ),
    "more than any memory": (
        HEAD.pack(MAGIC, Kind.DATA, PROTOCOL, 0, 0, 2, 1 << 62) + b"{}",
        "for which there is no memory",
    ),
    "no JSON": (frame(b"\xff{"), UNREADABLE),
    "no layout": (frame(b"7"), UNREADABLE),
    "an empty layout": (frame([]), UNREADABLE),
    "an unknown kind of value": (frame(["set", ["number"]]), UNREADABLE),
    "fields that are no object": (frame(["plain", "1"], fields=["plain", "1"]), UNREADABLE),
    "nothing next to the fields": (frame(b'["tuple", ["dict"]]'), UNREADABLE),
    "plain text that is no JSON": (frame(["plain", "{"]), UNREADABLE),
    "a number that is not there": (frame(["tuple", ["number"], ["number"]], count=1), UNREADABLE),
    "an unknown type": (frame(["tensor", "load", [1], False], bytes(4)), UNREADABLE),
    "a type without a name": (frame(["tensor", "not_there", [1], False], bytes(4)), UNREADABLE),
    "a negative shape": (frame(["tensor", "float32", [-4], False], bytes(16)), UNREADABLE),
    "two negative lengths": (frame(["tensor", "float32", [-2, -2], False], bytes(16)), UNREADABLE),
    "a shape that is no number": (frame(["tensor", "float32", ["4"], False], bytes(16)), UNREADABLE),
    "a shape larger than the payload": (frame(["tensor", "float32", [4, 2], False], bytes(16)), UNREADABLE),
    "integers that need a gradient": (frame(["tensor", "int64", [1], True], bytes(8)), UNREADABLE),
    "layouts without end": (frame(b'["list", ' * 5000 + b"]" * 5000), UNREADABLE),
}


@pytest.mark.parametrize(("raw", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_a_peer_that_cannot_be_understood_is_named(raw: bytes, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        sent(raw)
    assert str(caught.value).startswith(NAME)
    assert reason in str(caught.value)


@pytest.mark.parametrize("cut", [0, 3, 20, 30, -1], ids=str)
def test_a_connection_that_ends_within_a_frame_is_an_error_of_the_connection(cut: int) -> None:
    whole = frame(["tensor", "float32", [2], False], bytes(8), count=1)
    with pytest.raises(ConnectionResetError, match="the connection was closed"):
        sent(whole[:cut])
