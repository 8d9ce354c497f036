"""One gRPC channel to an Alluxio process: every call with a deadline, repeated while the process is only starting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from tdcs.engine.descriptor_set import DescriptorSet
from tdcs.trust.identity import Identify, Identity, NoIdentityError

T = TypeVar("T")

FILE_SYSTEM = "alluxio.grpc.file.FileSystemMasterClientService"
BLOCK_MASTER = "alluxio.grpc.block.BlockMasterClientService"
CONFIGURATION = "alluxio.grpc.meta.MetaMasterConfigurationService"
META_MASTER = "alluxio.grpc.meta.MetaMasterClientService"
METRICS_MASTER = "alluxio.grpc.metric.MetricsMasterClientService"
BLOCK_WORKER = "alluxio.grpc.block.BlockWorker"

# A listing packs up to 10,000 files into a message. Channels of one process must not share a connection: a
# restarted master would else be found by some of them minutes later. Reconnecting may not back off for minutes either.
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),
)


_LAST_CALLS_SECONDS = 120.0
"""So long calls of a channel may go on that has another certificate than the present one."""


@cache
def _messages() -> DescriptorSet:
    # Made at run time: generated modules would be named after proto files called `grpc/…`, and shadow gRPC itself.
    return DescriptorSet(package="tdcs.alluxio", file="alluxio.desc")


def method_types(service: str, method: str) -> tuple[type[Message], type[Message]]:
    """Request and response class of an RPC; KeyError where there is none."""
    return _messages().method_types(service, method)


class RpcFailureError(Exception):
    """An RPC that did not succeed, before anyone knows what it means for the caller.

    Attributes:
        code: gRPC's status.
        text: Alluxio's words. May hold secrets: not for anyone's eyes before `EngineError` has redacted it.
    """

    def __init__(self, *, code: grpc.StatusCode, text: str) -> None:
        super().__init__(code.name)
        self.code = code
        self.text = text

    @property
    def starting(self) -> bool:
        """Whether the process is away or not ready yet.

        One that ends resets its calls, or breaks their connection. A restarted master first refuses connections, then
        knows no methods for some seconds, then is in safe mode.
        """
        if self.code is grpc.StatusCode.CANCELLED:
            return "RST_STREAM" in self.text  # not by us: what we cancel ends as asyncio's CancelledError
        if self.code is grpc.StatusCode.UNIMPLEMENTED:
            return "Method not found" in self.text
        return self.code is grpc.StatusCode.UNAVAILABLE or "safe mode" in self.text.lower()

    @property
    def distrusted(self) -> bool:
        """Whether the process answers, and one of both sides does not believe the other's certificate.

        gRPC has no code for it: it looks as if the process were away. It may pass, when certificates are being renewed.
        """
        text = self.text.lower().replace(_CUT_OFF, "")
        return self.code is grpc.StatusCode.UNAVAILABLE and any(sign in text for sign in _DISTRUST)


_DISTRUST = ("certificate", "handshake", "ssl_error", "peer name", "tsi_")
_CUT_OFF = "handshaker shutdown"
"""What gRPC says of a connection that ended while it was being made, as when the pod at its other end goes."""


def _failure(error: grpc.aio.AioRpcError) -> RpcFailureError:
    return RpcFailureError(code=error.code(), text=error.details() or "")


class Rpc:
    """A channel to one process.

    Args:
        target: `host:port`.
        patience: Seconds for which a call is repeated while the process is away or starting.
        options: gRPC channel arguments besides the usual ones.
        identify: gives the certificate to show; None: the channel is plain.
    """

    def __init__(
        self,
        *,
        target: str,
        patience: float,
        options: Sequence[tuple[str, int]] = (),
        identify: Identify | None = None,
    ) -> None:
        self.target = target
        self._options = (*_OPTIONS, *options)
        self._patience = patience
        self._identify = identify
        self._fingerprint = ""
        self._retired: set[asyncio.Task[None]] = set()
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[tuple[str, str], Any] = {}

    async def unary(self, *, service: str, method: str, deadline: float, **fields: Any) -> Any:
        """Call `method` with a request of `fields`; the response message.

        Args:
            deadline: Seconds for one attempt.

        Raises:
            RpcFailureError: It failed, or the process stayed away for all of the patience.
        """
        request_type, response_type = method_types(service, method)
        request = request_type(**fields)

        async def once() -> Any:
            call = self._call("unary_unary", service, method, response_type)
            try:
                return await call(request, timeout=deadline)
            except grpc.aio.AioRpcError as error:
                raise _failure(error) from error

        return await self.patiently(once)

    async def stream(
        self, *, service: str, method: str, deadline: float, **fields: Any
    ) -> AsyncIterator[Any]:
        """Call a method that answers with a stream. Repeated only as long as nothing has come.

        Raises:
            RpcFailureError: As for `unary`.
        """
        request_type, response_type = method_types(service, method)
        request = request_type(**fields)
        begun = False
        async for attempt in self.retrying():
            with attempt:
                call = self._call("unary_stream", service, method, response_type)(request, timeout=deadline)
                try:
                    async for response in call:
                        begun = True
                        yield response
                except grpc.aio.AioRpcError as error:
                    failure = _failure(error)
                    if begun:
                        failure.text = f"the answer broke off: {failure.text}"
                        failure.code = grpc.StatusCode.ABORTED
                    raise failure from error

    async def exchange(
        self, *, service: str, method: str, deadline: float, received: Callable[[Any], None], **fields: Any
    ) -> None:
        """Call a method that streams both ways: send a request, take one answer, end, wait for its end.

        Never repeated: what was begun may have been done.

        Args:
            deadline: Seconds for all of it.
            received: Gets the answer; what it raises breaks the call off.

        Raises:
            RpcFailureError: It failed, also with ABORTED when it ended without an answer.
        """
        request_type, response_type = method_types(service, method)
        call = self._call("stream_stream", service, method, response_type)(timeout=deadline)
        try:
            await call.write(request_type(**fields))
            response = await call.read()
            if response is grpc.aio.EOF:
                raise RpcFailureError(code=grpc.StatusCode.ABORTED, text="the call ended without an answer")
            received(response)
            await call.done_writing()
            await call.read()
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from error
        finally:
            call.cancel()  # nothing happens to one that has ended

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        self._calls.clear()
        if channel is not None:
            await channel.close()
        for task in self._retired:
            task.cancel()  # which closes its channel, too
        await asyncio.gather(*self._retired, return_exceptions=True)

    def _call(self, kind: str, service: str, method: str, response_type: type[Message]) -> Any:
        key, channel = (service, method), self._open()
        if key not in self._calls:
            self._calls[key] = getattr(channel, kind)(
                f"/{service}/{method}",
                request_serializer=_serialize,
                response_deserializer=response_type.FromString,
            )
        return self._calls[key]

    def _open(self) -> grpc.aio.Channel:
        """The channel; a new one when there is another certificate to show, since a channel keeps its own."""
        identity: Identity | None = None
        if self._identify is not None:
            try:
                identity = self._identify()
            except NoIdentityError as error:
                raise RpcFailureError(code=grpc.StatusCode.UNAVAILABLE, text=str(error)) from error
        fingerprint = identity.fingerprint if identity is not None else ""
        if self._channel is not None and fingerprint == self._fingerprint:
            return self._channel
        if self._channel is not None:
            task = asyncio.create_task(_retire(self._channel))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)
        self._calls.clear()
        self._fingerprint = fingerprint
        if identity is None:
            self._channel = grpc.aio.insecure_channel(self.target, options=self._options)
        else:
            credentials = grpc.ssl_channel_credentials(
                identity.authorities, identity.key, identity.certificate
            )
            self._channel = grpc.aio.secure_channel(self.target, credentials, options=self._options)
        return self._channel

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` gives; it is called again as long as the process is only away or starting."""
        try:
            return await attempt()  # nearly always; the machinery below costs as much as a small call
        except RpcFailureError as failure:
            if not failure.starting:
                raise
        async for again in self.retrying():
            with again:
                return await attempt()
        raise AssertionError("tenacity either returns or raises")

    def retrying(self) -> AsyncRetrying:
        """Attempts, with growing and random pauses, as long as the process is only away or starting."""
        return AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, RpcFailureError) and error.starting),
            wait=wait_random_exponential(multiplier=0.2, max=2),
            stop=stop_after_delay(self._patience),
            reraise=True,
        )


async def _retire(channel: grpc.aio.Channel) -> None:
    """Close a channel when its last calls have ended, or when this is cancelled."""
    try:
        await channel.close(grace=_LAST_CALLS_SECONDS)
    except asyncio.CancelledError:
        await channel.close()
        raise


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
