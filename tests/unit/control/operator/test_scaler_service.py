"""KEDA's protocol for external scalers: its wire form, and a client that was generated from the proto file."""

import asyncio
import importlib.util
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually_async

from tdcs.control.context import Stores
from tdcs.control.operator import scaler_service
from tdcs.control.operator.scaler_service import DESCRIPTORS, ScalerService, serve_scaler

PROTO = Path(scaler_service.__file__).parent / "proto"
REF = b"\x0a\x01s" + b"\x12\x04team" + b"\x1a\x13" + b"\x0a\x07dataset" + b"\x12\x08pictures"
"""name = 1, namespace = 2, scalerMetadata = 3 (a map's entry: key 1, value 2), as KEDA writes them."""


def world(*, active: int = 3) -> Stores:
    status = {"activeJobs": active, "waitingJobs": 0}
    return Stores(datasets={("team", "pictures"): {"metadata": {}, "spec": {}, "status": status}})


@pytest.fixture
async def stores() -> Stores:
    return world()


@pytest.fixture
async def channel(stores: Stores) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((ScalerService(stores, look_seconds=0.01).handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(grace=0)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The messages as protoc generates them for a client."""
    folder = tmp_path_factory.mktemp("generated")
    assert protoc.main(["protoc", f"-I{PROTO}", f"--python_out={folder}", "externalscaler.proto"]) == 0
    spec = importlib.util.spec_from_file_location("externalscaler_pb2", folder / "externalscaler_pb2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def call(channel: grpc.aio.Channel, name: str, answer: Any = None) -> Any:
    """A call as a client has it; without an answer's class, of bytes as they are on the wire."""
    plain = (lambda request: request) if answer is None else (lambda request: request.SerializeToString())
    read = (lambda content: content) if answer is None else answer.FromString
    return channel.unary_unary(
        f"/externalscaler.ExternalScaler/{name}", request_serializer=plain, response_deserializer=read
    )


def test_the_shipped_descriptor_set_is_compiled_from_the_proto_file(tmp_path: Path) -> None:
    compiled = tmp_path / DESCRIPTORS
    command = ["protoc", f"-I{PROTO}", f"--descriptor_set_out={compiled}", "externalscaler.proto"]
    assert protoc.main(command) == 0
    read = descriptor_pb2.FileDescriptorSet.FromString
    shipped = files("tdcs.control.operator").joinpath(DESCRIPTORS).read_bytes()
    assert read(compiled.read_bytes()) == read(shipped), "run the command at the top of the proto file"


async def test_the_calls_have_the_wire_form_of_keda(channel: grpc.aio.Channel) -> None:
    assert await call(channel, "IsActive")(REF) == b"\x08\x01"
    # metricSpecs = 1: metricName = 1, targetSize = 2, targetSizeFloat = 3 (1.0)
    spec = b"\x0a\x07readers" + b"\x10\x01" + b"\x19\x00\x00\x00\x00\x00\x00\xf0\x3f"
    assert await call(channel, "GetMetricSpec")(REF) == b"\x0a" + bytes([len(spec)]) + spec
    # scaledObjectRef = 1, metricName = 2; metricValues = 1: metricName = 1, metricValue = 2, metricValueFloat = 3 (3.0)
    request = b"\x0a" + bytes([len(REF)]) + REF + b"\x12\x07readers"
    value = b"\x0a\x07readers" + b"\x10\x03" + b"\x19\x00\x00\x00\x00\x00\x00\x08\x40"
    assert await call(channel, "GetMetrics")(request) == b"\x0a" + bytes([len(value)]) + value


async def test_a_generated_client_reads_what_is_answered(channel: grpc.aio.Channel, generated: Any) -> None:
    ref = generated.ScaledObjectRef(name="s", namespace="team", scalerMetadata={"dataset": "pictures"})
    spec = await call(channel, "GetMetricSpec", generated.GetMetricSpecResponse)(ref)
    (metric,) = spec.metricSpecs
    request = generated.GetMetricsRequest(scaledObjectRef=ref, metricName=metric.metricName)
    metrics = await call(channel, "GetMetrics", generated.GetMetricsResponse)(request)
    assert [(metric.metricName, metric.metricValueFloat) for metric in metrics.metricValues] == [
        ("readers", 3.0)
    ]


async def test_a_stream_says_at_once_whether_there_is_anything_and_then_each_change(
    channel: grpc.aio.Channel, stores: Stores, generated: Any
) -> None:
    stream = channel.unary_stream(
        "/externalscaler.ExternalScaler/StreamIsActive",
        request_serializer=lambda request: request,
        response_deserializer=generated.IsActiveResponse.FromString,
    )(REF)
    answers = aiter(stream)
    assert (await anext(answers)).result is True
    stores.datasets["team", "pictures"]["status"]["activeJobs"] = 0
    assert (await asyncio.wait_for(anext(answers), 10)).result is False
    stores.datasets["team", "pictures"]["status"]["activeJobs"] = 1
    assert (await asyncio.wait_for(anext(answers), 10)).result is True
    stream.cancel()


async def test_a_stream_beyond_the_limit_is_refused_with_the_remedy_until_another_one_ends(
    stores: Stores, generated: Any
) -> None:
    server = grpc.aio.server()
    served = ScalerService(stores, look_seconds=0.01, most_streams=2)
    server.add_generic_rpc_handlers((served.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

        def stream() -> Any:
            return channel.unary_stream(
                "/externalscaler.ExternalScaler/StreamIsActive",
                request_serializer=lambda request: request,
                response_deserializer=generated.IsActiveResponse.FromString,
            )(REF)

        first, second = stream(), stream()
        for open_stream in (first, second):
            assert (await asyncio.wait_for(open_stream.read(), 30)).result is True
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await asyncio.wait_for(stream().read(), 30)
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "ScaledObject team/s: 2 triggers" in (error.value.details() or "")
        assert "write type: external" in (error.value.details() or "")
        first.cancel()

        async def admitted() -> bool:
            try:
                return bool((await stream().read()).result)
            except grpc.aio.AioRpcError:
                return False

        await eventually_async(admitted, deadline=30)
    await server.stop(grace=0)


async def test_what_cannot_be_answered_names_the_object_and_the_remedy(
    channel: grpc.aio.Channel, generated: Any
) -> None:
    ask = call(channel, "GetMetricSpec", generated.GetMetricSpecResponse)
    for metadata, code, says in (
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "ScaledObject team/s: metadata of the trigger names neither"),
        ({"dataset": "gone"}, grpc.StatusCode.NOT_FOUND, "there is no Dataset team/gone"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await ask(generated.ScaledObjectRef(name="s", namespace="team", scalerMetadata=metadata))
        assert error.value.code() == code
        assert says in (error.value.details() or "")


async def test_a_request_that_is_no_message_is_refused_and_the_next_one_answered(
    channel: grpc.aio.Channel,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await call(channel, "IsActive")(b"\xff\xff\xff")
    assert await call(channel, "IsActive")(REF) == b"\x08\x01"


async def test_it_is_served_at_its_port_and_a_taken_port_is_an_error(generated: Any) -> None:
    async with serve_scaler(world(), port=0) as port:
        assert port == 0
    (free,) = free_ports(1)
    async with (
        serve_scaler(world(), port=free, host="127.0.0.1") as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        assert await call(channel, "IsActive")(REF) == b"\x08\x01"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(OSError, match="cannot be served at port"):
            async with serve_scaler(world(), port=listener.getsockname()[1], host="127.0.0.1"):
                pass


async def test_it_ends_in_order_when_its_task_was_cancelled_before() -> None:
    (free,) = free_ports(1)
    before = asyncio.all_tasks()
    async with serve_scaler(world(), port=free, host="127.0.0.1"):
        tasks = asyncio.all_tasks() - before
        assert tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
