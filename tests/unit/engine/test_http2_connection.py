"""Streams of a connection to a worker, of which the library h2 plays the side of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, StreamEnded, StreamReset

from tdcs.alluxio.alluxio_descriptors import method_types
from tdcs.alluxio.http2_connection import Connection
from tdcs.alluxio.rpc import BLOCK_WORKER, RpcFailureError

REQUEST, RESPONSE = method_types(BLOCK_WORKER, "CreateLocalBlock")
HEADERS = {":status": "200", "content-type": "application/grpc"}
PRESENT, FULL, DONE = "6", "8", "0"
"""ALREADY_EXISTS, RESOURCE_EXHAUSTED, and OK."""


class Worker(asyncio.Transport):
    """The transport of one connection, and the worker at its other end. It never resets a stream by itself.

    Attributes:
        connection: of the client.
        asked: called with each stream on which a request came.
        ended: called with each stream that the client has ended.
        resets: streams that the client has reset, and the error codes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.http.initiate_connection()
        self.connection = Connection(authority="w:1", path="/service/method", secure=False)
        self.asked: Callable[[int], None] = self.give_path
        self.ended: Callable[[int], None] = self.done
        self.resets: list[tuple[int, int]] = []
        self.connection.connection_made(self)

    @property
    def most(self) -> int:
        """Streams that the client may have open at the same time."""
        return self.http.local_settings.max_concurrent_streams

    @property
    def open_streams(self) -> tuple[int, int]:
        """As the client and the worker count them."""
        return self.connection._http.open_outbound_streams, self.http.open_inbound_streams

    def give_path(self, stream: int) -> None:
        content = RESPONSE(path="/tier/1").SerializeToString()
        self.http.send_headers(stream, list(HEADERS.items()))
        self.http.send_data(stream, b"\0" + len(content).to_bytes(4, "big") + content)

    def done(self, stream: int) -> None:
        self.trailers(stream, {"grpc-status": DONE})

    def trailers(self, stream: int, content: Mapping[str, str]) -> None:
        self.http.send_headers(stream, list(content.items()), end_stream=True)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for event in self.http.receive_data(bytes(data)):
            self._take(event)
        if answer := self.http.data_to_send():
            asyncio.get_running_loop().call_soon(self.connection.data_received, answer)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def _take(self, event: Event) -> None:
        if isinstance(event, DataReceived) and event.data:
            self.asked(event.stream_id or 0)
        elif isinstance(event, StreamEnded):
            self.ended(event.stream_id or 0)
        elif isinstance(event, StreamReset):
            self.resets.append((event.stream_id or 0, int(event.error_code or 0)))


@pytest.fixture
async def worker() -> Worker:
    return Worker()


async def sent() -> None:
    """Wait until both sides have taken what the other one has sent."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("status", [PRESENT, FULL])
@pytest.mark.parametrize("headers", [{}, HEADERS], ids=["at once", "after headers"])
async def test_more_refused_calls_than_streams_are_allowed_leave_none_open(
    worker: Worker, status: str, headers: Mapping[str, str]
) -> None:
    def refuse(stream: int) -> None:
        if headers:
            worker.http.send_headers(stream, list(headers.items()))
        trailers = {"grpc-status": status, "grpc-message": "no"}
        worker.trailers(stream, trailers if headers else {**HEADERS, **trailers})

    worker.asked = refuse
    for block in range(worker.most + 20):
        call = worker.connection.begin(REQUEST(block_id=block))
        with pytest.raises(RpcFailureError) as failed:
            await call.message()
        assert failed.value.code.value[0] == int(status)
        worker.connection.leave(call)
    await sent()
    assert worker.open_streams == (0, 0)
    assert {code for _, code in worker.resets} == {int(ErrorCodes.CANCEL)}


async def test_a_call_that_is_refused_after_its_path_leaves_no_stream_open(worker: Worker) -> None:
    call = worker.connection.begin(REQUEST(block_id=1))
    await call.message()
    worker.trailers(call.number, {"grpc-status": FULL})
    worker.connection.data_received(worker.http.data_to_send())
    worker.connection.finish(call)
    with pytest.raises(RpcFailureError):
        await call.end()
    worker.connection.leave(call)
    await sent()
    assert worker.open_streams == (0, 0)


async def test_streams_that_are_closed_already_are_not_reset(worker: Worker) -> None:
    for _ in range(worker.most + 20):
        call = worker.connection.begin(REQUEST(block_id=1))
        await call.message()
        worker.connection.finish(call)
        await call.end()
        worker.connection.leave(call)
    worker.asked = lambda stream: worker.http.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
    call = worker.connection.begin(REQUEST(block_id=2))
    with pytest.raises(RpcFailureError) as failed:
        await call.message()
    assert "RST_STREAM" in failed.value.text
    worker.connection.leave(call)
    await sent()
    assert not worker.resets
    assert worker.open_streams == (0, 0)


async def test_a_connection_that_was_lost_before_a_call_refuses_it_at_once(worker: Worker) -> None:
    worker.connection.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(RpcFailureError) as failed:
        worker.connection.begin(REQUEST(block_id=1))
    assert failed.value.code is grpc.StatusCode.UNAVAILABLE
    assert failed.value.text == "the connection was lost: reset by peer"
