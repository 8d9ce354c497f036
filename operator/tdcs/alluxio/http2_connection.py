"""A connection for calls of gRPC that stream both ways, over HTTP/2 by the library h2."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

from tdcs.alluxio.rpc import RpcFailureError

_WINDOW: Final = 1 << 24
_PREFIX: Final = 5
"""Bytes before a message: whether it is compressed, and its length."""

_CODES: Final = {int(code.value[0]): code for code in grpc.StatusCode}


class Call:
    """One call: what has come of it, and who waits for more.

    Args:
        number: of its stream.

    Attributes:
        over: whether nothing more comes of it.
        finished: whether nothing more goes to the worker: this side has ended its stream, or the worker has reset it.
    """

    def __init__(self, *, number: int) -> None:
        self.number: Final = number
        self.over = False
        self.finished = False
        self._messages: Final[deque[bytes]] = deque()
        self._rest = b""
        self._headers: dict[str, str] = {}
        self._failure: RpcFailureError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def message(self) -> bytes:
        """The next message; raises RpcFailureError, also when the call has ended without one."""
        while not self._messages:
            if self.over:
                raise self._failure or RpcFailureError(
                    code=grpc.StatusCode.ABORTED, text="the worker gave no path"
                )
            await self._more()
        return self._messages.popleft()

    async def end(self) -> None:
        """Wait until the worker has ended the call; raises RpcFailureError unless that was a success."""
        while not self.over:
            await self._more()
        if self._failure is not None:
            raise self._failure

    def take_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        """Headers or trailers have come."""
        self._headers.update(headers)

    def take(self, data: bytes) -> None:
        """Bytes of messages have come."""
        content = self._rest + data
        while len(content) >= _PREFIX:
            stop = _PREFIX + int.from_bytes(content[1:_PREFIX], "big")
            if len(content) < stop:
                break
            self._messages.append(content[_PREFIX:stop])
            content = content[stop:]
        self._rest = content
        self._wake()

    def ended(self) -> None:
        """The worker has ended the call."""
        status = self._headers.get("grpc-status", "")
        code = _CODES.get(int(status)) if status.isdecimal() else None
        if code is grpc.StatusCode.OK:
            self._over(None)
        elif code is not None:
            self._over(RpcFailureError(code=code, text=unquote(self._headers.get("grpc-message", ""))))
        else:
            what = f"HTTP status {self._headers.get(':status', 'unknown')} and no status of the call"
            self._over(RpcFailureError(code=grpc.StatusCode.UNKNOWN, text=what))

    def broken(self, text: str) -> None:
        """Nothing more of the call comes."""
        self._over(away(text))

    def _over(self, failure: RpcFailureError | None) -> None:
        if not self.over:
            self.over, self._failure = True, failure
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class Connection(asyncio.Protocol):
    """One connection with the calls on it, all of one method.

    Args:
        authority: `host:port` of the other side.
        path: `/service/method`.
        secure: whether it is by TLS.

    Attributes:
        usable: whether further calls may begin on it.
    """

    def __init__(self, *, authority: str, path: str, secure: bool) -> None:
        # What both sides send is made by libraries: it is not looked through header by header.
        self._http: Final = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding="utf-8",
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._headers: Final = [
            (":method", "POST"),
            (":scheme", "https" if secure else "http"),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        self._calls: Final[dict[int, Call]] = {}
        self._transport: asyncio.Transport | None = None
        self._flushes = False
        self._retired = False
        self._broken = ""
        self.usable = True

    # What calls do.

    def begin(self, request: Message) -> Call:
        """Begin a call with its first message. Raises RpcFailureError when the connection takes no further call."""
        if not self.usable:  # it may have been lost after it was made, or chosen: nothing would wake the call
            raise away(self._broken or "the connection takes no further call")
        content = request.SerializeToString()
        try:
            number = self._http.get_next_available_stream_id()
            self._http.send_headers(number, self._headers)
            self._http.send_data(number, b"\0" + len(content).to_bytes(4, "big") + content)
        except H2Error as error:
            self.usable = False
            raise away(f"the connection takes no further call: {error or type(error).__name__}") from error
        call = self._calls[number] = Call(number=number)
        self._flush_soon()
        return call

    def finish(self, call: Call) -> None:
        """Say that no further message comes; of a call that has ended already nothing."""
        if not call.over:
            with suppress(H2Error):
                self._http.end_stream(call.number)
            call.finished = True
            self._flush_soon()

    def leave(self, call: Call) -> None:
        """The caller waits no more: a call that has not ended is broken off.

        A worker that refuses ends its own side of the stream alone. Such a stream, too, has to be reset here, or it
        counts as open for as long as the connection lives, on both sides.
        """
        if self._calls.pop(call.number, None) is not None and not (call.over and call.finished):
            with suppress(H2Error):
                self._http.reset_stream(call.number, ErrorCodes.CANCEL)
            self._flush_soon()
        if self._retired and not self._calls:
            self.close()

    def retire(self) -> None:
        """Take no further call, and close when the last one has ended."""
        self.usable, self._retired = False, True
        if not self._calls:
            self.close()

    def close(self) -> None:
        """Close; calls that are under way fail."""
        self.usable = False
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._break_off("the connection was closed")

    # What the event loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none of asyncio's classes
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._http.receive_data(data):
                self._take(event)
        except (H2Error, ValueError) as error:
            self._break_off(f"the worker broke the protocol: {error or type(error).__name__}")
            self.close()
            return
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._break_off(f"the connection was lost: {exc}" if exc else "the worker has closed the connection")
        self._transport = None

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            # The worker would end the streams up to the last one that it names, but the library takes and sends nothing
            # more after a GOAWAY. So all calls fail here as of a worker that is away, and are tried again.
            self.close()
            return
        if isinstance(event, DataReceived):
            self._http.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        call = self._calls.get(getattr(event, "stream_id", 0) or 0)
        if call is None:
            return
        if isinstance(event, DataReceived):
            call.take(event.data or b"")
        elif isinstance(event, ResponseReceived | TrailersReceived):
            call.take_headers(event.headers or ())  # type: ignore[arg-type]  # text, by the configuration
        elif isinstance(event, StreamEnded):
            call.ended()
        elif isinstance(event, StreamReset):
            call.finished = True
            call.broken(f"RST_STREAM with error code {event.error_code}")

    def _break_off(self, text: str) -> None:
        self.usable = False
        self._broken = self._broken or text
        for call in self._calls.values():
            call.broken(text)

    def _flush_soon(self) -> None:
        """Send what there is in this turn of the loop in one piece."""
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        data = self._http.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def away(text: str) -> RpcFailureError:
    """The failure of a call to a process that cannot be reached now."""
    return RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text=text)
