"""uvicorn's protocol with the extender behind it, on a transport that remembers what was sent."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from tests.unit.scheduler.test_app import Clock, extender, metric, request
from uvicorn.server import ServerState

from tdcs_scheduler.app import Extender
from tdcs_scheduler.fast_path import FastPath

CALL = request()
SCORES = [{"Host": "a", "Score": 10}]


class Client(asyncio.Transport):
    """The other end of a connection: the pieces that reached it, and whether it was closed after them."""

    def __init__(self, app: Extender) -> None:
        super().__init__({"sockname": ("127.0.0.1", 8900), "peername": ("127.0.0.1", 50000)})
        self.pieces: list[bytes] = []
        self.closed = False
        config = uvicorn.Config(
            app, http=FastPath, ws="none", lifespan="off", proxy_headers=False, log_config=None
        )
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"now")]
        self.protocol = FastPath(config=config, server_state=state, app_state={})
        self.protocol.connection_made(self)

    def write(self, data: Any) -> None:
        assert not self.closed
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Pieces come as they are sent here."""

    def resume_reading(self) -> None:
        """Pieces come as they are sent here."""

    async def send(self, *pieces: bytes) -> list[bytes]:
        """Send these, and let the server do what it will: what it sent since."""
        known = len(self.pieces)
        for piece in pieces:
            self.protocol.data_received(piece)
        for _ in range(20):
            await asyncio.sleep(0)
        if self.protocol.timeout_keep_alive_task is not None:
            self.protocol.timeout_keep_alive_task.cancel()
        return self.pieces[known:]


def head(line: str, *headers: str, length: int = 0) -> bytes:
    lines = [f"{line} HTTP/1.1", "host: x", f"content-length: {length}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def call(*headers: str, body: bytes = CALL) -> bytes:
    return head("POST /prioritize", *headers, length=len(body)) + body


async def test_the_answers_to_calls_are_one_piece_each() -> None:
    client = Client(extender())

    for parts in ((call(),), (call()[:30], call()[30:200], call()[200:])):
        (piece,) = await client.send(*parts)
        top, _, body = piece.partition(b"\r\n\r\n")
        assert top.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"content-type: application/json",
            f"content-length: {len(body)}".encode(),
            b"date: now",
        ]
        assert json.loads(body) == SCORES
        assert client.protocol.timeout_keep_alive_task is not None
    assert not client.closed


async def test_calls_and_other_requests_on_one_connection_are_answered_in_order() -> None:
    client = Client(extender())

    sent = b"".join(await client.send(head("GET /livez") + call() + head("GET /healthz") + call()))

    told = [sent.find(each) for each in (b"ok\n", b'"Host"')] + [
        sent.rfind(each) for each in (b"ok\n", b'"Host"')
    ]
    assert told == sorted(set(told))


async def test_of_calls_that_come_in_one_piece_no_timer_is_left_that_would_close_the_connection() -> None:
    client = Client(extender())
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()

    def call_later(*asked: Any) -> asyncio.TimerHandle:
        timers.append(loop.call_later(*asked))
        return timers[-1]

    client.protocol.loop = SimpleNamespace(call_later=call_later)  # type: ignore[assignment]
    await client.send(call() + call() + call())  # and stops the one that is known

    assert [each.cancelled() for each in timers] == [True] * 3


@pytest.mark.parametrize(
    ("sent", "first"),
    [
        (call("expect: 100-continue"), b"HTTP/1.1 100 Continue\r\n"),
        (call().replace(b"HTTP/1.1", b"HTTP/1.0"), b"HTTP/1.1 200 OK\r\n"),
    ],
    ids=["expect", "HTTP/1.0"],
)
async def test_special_calls_are_answered_as_well(sent: bytes, first: bytes) -> None:
    answered = b"".join(await Client(extender()).send(sent))

    assert answered.startswith(first)
    assert json.loads(answered[answered.rindex(b"\r\n\r\n") :]) == SCORES


async def test_a_connection_ends_after_its_answer_when_the_client_says_so() -> None:
    client = Client(extender())

    (piece,) = await client.send(call("connection: close"))

    assert b"connection: close\r\n" in piece
    assert piece.endswith(json.dumps(SCORES, separators=(",", ":")).encode())
    assert client.closed


async def test_bad_and_endless_bodies_are_refused_and_counted() -> None:
    app = extender()
    client = Client(app)

    (bad,) = await client.send(call(body=b"no json"))
    assert bad.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"no ExtenderArgs" in bad
    (large,) = await client.send(head("POST /prioritize", length=17 * 2**20), *[b" " * 2**20] * 17)
    assert large.startswith(b"HTTP/1.1 413 ")
    assert await metric(app, "tdcs_extender_decode_errors_total") == 2


async def test_a_fault_of_the_extender_is_told_and_the_connection_lives_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    client = Client(extender(clock))
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(clock, "is_synced", lambda: 1 / 0)
        (failed,) = await client.send(call())

    assert failed.startswith(b"HTTP/1.1 500 ")
    assert "ZeroDivisionError" in caplog.text
    assert (await client.send(call()))[0].startswith(b"HTTP/1.1 200 ")


async def test_the_port_for_monitoring_tells_no_scores() -> None:
    answered = b"".join(await Client(extender(health_port=8900)).send(call()))

    assert answered.startswith(b"HTTP/1.1 404 ")
