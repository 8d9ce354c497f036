"""What the operator knows of Alluxio's master, of a server that answers as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import pytest

from tdcs.alluxio.master_room import room_of
from tdcs.alluxio.master_watch import MasterWatch
from tdcs.alluxio.rpc import METRICS_MASTER, Rpc, RpcFailureError, method_types
from tdcs.model.export_view import ExportView

MIB = 1 << 20


class Master:
    """Answers with its metrics; without any it is away."""

    def __init__(self) -> None:
        self.metrics: Mapping[str, float] = {}
        self.server = grpc.aio.server()
        request, answer = method_types(METRICS_MASTER, "GetMetrics")

        async def get_metrics(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            if not self.metrics:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
            found: Any = answer()
            for name, value in self.metrics.items():
                found.metrics[name].doubleValue = value
            return found

        handler: Any = grpc.unary_unary_rpc_method_handler(
            get_metrics,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(METRICS_MASTER, {"GetMetrics": handler}),)
        )
        self.port = self.server.add_insecure_port("127.0.0.1:0")


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    made = Master()
    await made.server.start()
    yield made
    await made.server.stop(None)


@pytest.fixture
async def rpc(master: Master) -> AsyncIterator[Rpc]:
    made = Rpc(target=f"127.0.0.1:{master.port}", patience=0.0)
    yield made
    await made.close()


async def test_four_fifths_of_a_masters_heap_are_for_files_of_which_each_agent_takes_its_share(
    master: Master, rpc: Rpc
) -> None:
    master.metrics = {"Master.TotalPaths": 1000.0, "heap.max": 384.0 * MIB, "Cluster.Workers": 3.0}
    room = await room_of(rpc)
    assert (room.paths, room.most, room.heap_bytes) == (1000, 209_715, 384 * MIB)
    assert room.share == (209_715 - 1000) // 3
    assert room._replace(paths=300_000).share == 0
    assert room._replace(workers=0, paths=209_714).share == 1


@pytest.mark.parametrize("metrics", [{"Master.TotalPaths": 5.0}, {"heap.max": 1.0}, {"heap.max": -1.0}])
async def test_of_a_master_that_does_not_say_how_large_it_is_nothing_is_guessed(
    master: Master, rpc: Rpc, metrics: Mapping[str, float]
) -> None:
    master.metrics = metrics
    with pytest.raises(RpcFailureError):
        await room_of(rpc)


async def test_how_long_a_master_is_silent_counts_from_its_first_silence(master: Master, rpc: Rpc) -> None:
    now = 1000.0
    watch = MasterWatch(master=rpc, has_master=lambda: True, clock=lambda: now)
    assert watch.view() is None

    async def asked() -> ExportView:
        await watch.ask()
        view = watch.view()
        assert view is not None
        return view

    assert (await asked()).silent_seconds == 0.0
    now += 200.0
    silent = await asked()
    assert (silent.silent_seconds, silent.failure) == (200.0, "UNAVAILABLE")
    master.metrics = {"Master.TotalPaths": 7.0, "heap.max": 384.0 * MIB, "Cluster.Workers": 1.0}
    assert (await asked()).paths == 7
    assert (await asked()).silent_since is None


async def test_where_there_is_no_master_none_is_asked(rpc: Rpc) -> None:
    watch = MasterWatch(master=rpc, has_master=lambda: False)
    await watch.ask()
    assert watch.view() is None
