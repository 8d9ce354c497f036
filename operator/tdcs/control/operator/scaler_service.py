"""Serves KEDA's protocol for external scalers, from the operator's own views of Datasets and CacheClusters."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import Message

from tdcs.control.context import Stores
from tdcs.decide.scaled_metric import (
    QuestionError,
    ScaledMetric,
    UnknownObjectError,
    metric_of,
)
from tdcs.engine.descriptor_set import DescriptorSet

DESCRIPTORS: Final = "externalscaler.desc"
SERVICE: Final = "externalscaler.ExternalScaler"
LOOK_SECONDS: Final = 1.0
"""Between two looks whether what a stream says has changed."""

MOST_STREAMS: Final = 64
"""Streams at a time: KEDA keeps one for each ScaledObject with a trigger external-push."""


class TooManyStreamsError(Exception):
    """No further stream is served."""


class ScalerService:
    """The service's four calls.

    Args:
        look_seconds: between two looks of a stream.
        most_streams: at a time; a further one is refused.
    """

    def __init__(
        self, stores: Stores, *, look_seconds: float = LOOK_SECONDS, most_streams: int = MOST_STREAMS
    ) -> None:
        self._set: Final = DescriptorSet(package=__package__, file=DESCRIPTORS)
        self._stores: Final = stores
        self._look_seconds: Final = look_seconds
        self._most_streams: Final = most_streams
        self._streams: Final = asyncio.Semaphore(most_streams)
        self._message: Final = {
            name: self._set.message(f"externalscaler.{name}")
            for name in ("IsActiveResponse", "GetMetricSpecResponse", "GetMetricsResponse")
        }

    def handler(self) -> grpc.GenericRpcHandler:
        handlers = {
            "IsActive": self._is_active,
            "StreamIsActive": self._stream_is_active,
            "GetMetricSpec": self._get_metric_spec,
            "GetMetrics": self._get_metrics,
        }
        return self._set.service(SERVICE, handlers)

    async def _is_active(self, request: Any, context: Any) -> Message:
        metric = await self._asked(request, context)
        return self._message["IsActiveResponse"](result=metric.active)

    async def _stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Message]:
        if self._streams.locked():
            error = TooManyStreamsError(
                f"{self._most_streams} triggers of the type external-push are followed already: write type: external, "
                "which asks again and again, and has no such limit"
            )
            await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, request, error)
        async with self._streams:
            last_active: bool | None = None
            while True:
                metric = await self._asked(request, context)
                if metric.active is not last_active:
                    last_active = metric.active
                    yield self._message["IsActiveResponse"](result=last_active)
                await asyncio.sleep(self._look_seconds)

    async def _get_metric_spec(self, request: Any, context: Any) -> Message:
        metric = await self._asked(request, context)
        spec = {
            "metricName": metric.name,
            "targetSize": _whole(metric.target),
            "targetSizeFloat": metric.target,
        }
        return self._message["GetMetricSpecResponse"](metricSpecs=[spec])

    async def _get_metrics(self, request: Any, context: Any) -> Message:
        metric = await self._asked(request.scaledObjectRef, context)
        # The name comes back as KEDA's own for the trigger (s0-readers), or as it was given.
        name = request.metricName or metric.name
        value = {"metricName": name, "metricValue": _whole(metric.value), "metricValueFloat": metric.value}
        return self._message["GetMetricsResponse"](metricValues=[value])

    async def _asked(self, ref: Any, context: Any) -> ScaledMetric:
        try:
            return metric_of(
                dict(ref.scalerMetadata),
                namespace=ref.namespace,
                datasets=self._stores.datasets,
                cache_clusters=self._stores.cache_clusters,
            )
        except QuestionError as error:
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, ref, error)
        except UnknownObjectError as error:
            await _refuse(context, grpc.StatusCode.NOT_FOUND, ref, error)


async def _refuse(context: Any, status: grpc.StatusCode, ref: Any, error: Exception) -> NoReturn:
    await context.abort(status, f"ScaledObject {ref.namespace}/{ref.name}: {error}")
    raise AssertionError("abort has ended the call")


def _whole(number: float) -> int:
    """As a whole number, and at least 1 where it is above 0: 0 would stand for no value."""
    return max(round(number), 1) if number > 0 else 0


@contextlib.asynccontextmanager
async def serve_scaler(stores: Stores, *, port: int, host: str = "[::]") -> AsyncIterator[int]:
    """Serve while the body runs, by default at all addresses of both families; gives the port, 0: nothing is served.

    Raises:
        OSError: the port is taken.
    """
    if not port:
        yield 0
        return
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((ScalerService(stores).handler(),))
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise OSError(f"KEDA's scaler cannot be served at port {port}: {error}") from error
    await server.start()
    try:
        yield bound
    finally:
        await _stop(server)


async def _stop(server: grpc.aio.Server) -> None:
    """End a server, also one whose own task was ended: kopf's end cancels every task of the event loop."""
    try:
        await server.stop(grace=1.0)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
