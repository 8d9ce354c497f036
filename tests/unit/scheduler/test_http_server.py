"""The extender's HTTP server with the extender behind it, on a transport that remembers what was sent."""

import asyncio
import json
import logging
import re
import socket
from typing import Any

import pytest
from tests.support.waiting import eventually_async
from tests.unit.scheduler.test_app import Clock, extender, metric, request

from tdcs_scheduler import http_server
from tdcs_scheduler.app import MAX_BODY_BYTES, Extender
from tdcs_scheduler.http_server import HttpServer, ServerConnection

CALL = request()
SCORES = [{"Host": "a", "Score": 10}]


class Client(asyncio.Transport):
    """The other end of a connection: the pieces that reached it, and whether it was closed after them."""

    def __init__(self, app: Extender) -> None:
        super().__init__({"sockname": ("127.0.0.1", 8900), "peername": ("127.0.0.1", 50000)})
        self.pieces: list[bytes] = []
        self.closed = False
        self.server = HttpServer(app.handle, most_bytes=MAX_BODY_BYTES)
        self.protocol = ServerConnection(self.server)
        self.protocol.connection_made(self)

    def write(self, data: Any) -> None:
        assert not self.closed
        self.pieces.append(bytes(data))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Pieces come as they are sent here."""

    def resume_reading(self) -> None:
        """Pieces come as they are sent here."""

    def send(self, *pieces: bytes) -> list[bytes]:
        """Send these: what the server sent since."""
        count = len(self.pieces)
        for piece in pieces:
            self.protocol.data_received(piece)
        return self.pieces[count:]


def head(line: str, *headers: str, length: int = 0) -> bytes:
    lines = [f"{line} HTTP/1.1", "host: x", f"content-length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def call(*headers: str, body: bytes = CALL) -> bytes:
    return head("POST /prioritize", *headers, length=len(body)) + body


async def test_the_answers_to_calls_are_one_piece_each() -> None:
    client = Client(extender())

    for parts in ((call(),), (call()[:30], call()[30:200], call()[200:])):
        (piece,) = client.send(*parts)
        top, _, body = piece.partition(b"\r\n\r\n")
        *head, date = top.split(b"\r\n")
        assert head == [
            b"HTTP/1.1 200 OK",
            b"content-type: application/json",
            f"content-length: {len(body)}".encode(),
        ]
        assert re.fullmatch(rb"date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", date)
        assert json.loads(body) == SCORES
    assert not client.closed


async def test_calls_and_other_requests_on_one_connection_are_answered_in_order() -> None:
    client = Client(extender())

    sent = b"".join(client.send(head("GET /livez") + call() + head("GET /healthz") + call()))

    positions = [sent.find(piece) for piece in (b"ok\n", b'"Host"')] + [
        sent.rfind(piece) for piece in (b"ok\n", b'"Host"')
    ]
    assert positions == sorted(set(positions))


async def test_a_connection_that_asks_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.2)
    client = Client(extender())
    for _ in range(3):
        await asyncio.sleep(0.1)
        client.send(call())
    assert not client.closed

    await eventually_async(lambda: client.closed, deadline=20)


async def test_at_the_end_idle_connections_are_closed_and_a_call_that_is_coming_gets_its_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HttpServer(extender().handle, most_bytes=MAX_BODY_BYTES)
        serving = server.serving([listener])
        await serving.__aenter__()
        streams = [await asyncio.open_connection(*listener.getsockname()) for _ in range(2)]
        (idle, _), (reader, writer) = streams
        writer.write(call()[:-10])
        await eventually_async(lambda: len(server.connections) == 2, deadline=20)
        await asyncio.sleep(0.05)
        end = asyncio.create_task(serving.__aexit__(None, None, None))

        assert await idle.read() == b""
        writer.write(call()[-10:])
        answered = await reader.read()
        await end
        for _, stream in streams:
            stream.close()

    assert answered.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close\r\n" in answered


@pytest.mark.parametrize(
    "sent",
    [
        b"no request\r\n\r\n",
        head("GET /livez", f"x: {'y' * 2**17}"),
        head("GET " + "/" * 2**17),
        head("GET http://[/"),
    ],
    ids=["no HTTP", "a header without end", "a path without end", "no URL"],
)
async def test_what_is_no_request_is_refused_and_other_connections_live_on(sent: bytes) -> None:
    app = extender()
    second = Client(app)

    answered = b"".join(Client(app).send(sent))

    assert answered.startswith(b"HTTP/1.1 400 Bad Request")
    assert second.send(call())[0].startswith(b"HTTP/1.1 200 ")


async def test_an_answer_to_a_question_for_the_head_alone_has_no_body() -> None:
    (piece,) = Client(extender()).send(head("HEAD /livez"))

    assert b"content-length: 3\r\n" in piece
    assert piece.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "first"),
    [
        (call("expect: 100-continue"), b"HTTP/1.1 100 Continue\r\n"),
        (call().replace(b"HTTP/1.1", b"HTTP/1.0"), b"HTTP/1.1 200 OK\r\n"),
    ],
    ids=["expect", "HTTP/1.0"],
)
async def test_special_calls_are_answered_as_well(sent: bytes, first: bytes) -> None:
    answered = b"".join(Client(extender()).send(sent))

    assert answered.startswith(first)
    assert json.loads(answered[answered.rindex(b"\r\n\r\n") :]) == SCORES


async def test_a_connection_ends_after_its_answer_when_the_client_says_so() -> None:
    client = Client(extender())

    (piece,) = client.send(call("connection: close"))

    assert b"connection: close\r\n" in piece
    assert piece.endswith(json.dumps(SCORES, separators=(",", ":")).encode())
    assert client.closed


async def test_bad_and_endless_bodies_are_refused_and_counted() -> None:
    app = extender()
    client = Client(app)

    (bad,) = client.send(call(body=b"no json"))
    assert bad.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"no ExtenderArgs" in bad
    (large,) = client.send(head("POST /prioritize", length=17 * 2**20), *[b" " * 2**20] * 17)
    assert large.startswith(b"HTTP/1.1 413 ")
    assert await metric(app, "tdcs_extender_decode_errors_total") == 2


async def test_a_fault_of_the_extender_is_logged_and_the_connection_lives_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    client = Client(extender(clock))
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(clock, "is_synced", lambda: 1 / 0)
        (failed,) = client.send(call())

    assert failed.startswith(b"HTTP/1.1 500 ")
    assert "ZeroDivisionError" in caplog.text
    assert client.send(call())[0].startswith(b"HTTP/1.1 200 ")


async def test_the_port_for_monitoring_tells_no_scores() -> None:
    answered = b"".join(Client(extender(health_port=8900)).send(call()))

    assert answered.startswith(b"HTTP/1.1 404 ")
