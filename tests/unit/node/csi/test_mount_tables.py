"""What a node plugin hears of what is mounted in a cache cluster."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import msgspec
import pytest
from tests.support.programs.http_store import http_store

from tdcs.engine.holder_table import MOUNTS_PATH, ClusterMounts
from tdcs.engine.operator_client import OperatorClient
from tdcs.model.cache_engine import EngineUnavailableError
from tdcs.node.csi.views.mount_tables import ClusterMountTable

PATH, NEW = "/datasets/a", "/datasets/b"


class Operator:
    """What the operator answers."""

    def __init__(self) -> None:
        self.answer: ClusterMounts | None = None
        self.asked: list[str] = []

    def give(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        request.send_response(200 if self.answer is not None else 503)
        body = msgspec.msgpack.encode(self.answer)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def tables() -> Iterator[tuple[ClusterMountTable, Operator, Clock]]:
    operator, clock = Operator(), Clock()
    with http_store(operator.give) as address:
        client = OperatorClient(address)
        yield ClusterMountTable(cluster="c", operator=client, clock=clock), operator, clock


async def test_the_operator_says_what_is_mounted_and_in_which_version() -> None:
    with tables() as (table, operator, clock):
        operator.answer = ClusterMounts(versions={PATH: "1", NEW: ""})
        for _ in range(3):
            assert await table.versions() == {PATH: "1", NEW: ""}
        assert operator.asked == [f"{MOUNTS_PATH}c"], "volumes of one moment share an answer"
        clock.now = 1.0
        operator.answer = None
        with pytest.raises(EngineUnavailableError):
            await table.versions()
        operator.answer = ClusterMounts(versions={PATH: "2"})
        assert await table.versions() == {PATH: "2"}, "it is asked again at once"


async def test_of_two_operators_the_one_that_works_is_heard_also_behind_one_that_stands_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standby, leader = Operator(), Operator()
    leader.answer = ClusterMounts(versions={PATH: "1"})
    with http_store(standby.give) as first, http_store(leader.give) as second:
        addresses = [("127.0.0.1", int(address.rpartition(":")[2])) for address in (first, second)]
        address_infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *rest, **named: address_infos if host == "operators" else real(host, *rest, **named),
        )
        client = OperatorClient("operators:1")
        table = ClusterMountTable(cluster="c", operator=client)
        assert await table.versions() == {PATH: "1"}
        assert len(standby.asked) == len(leader.asked) == 1
        leader.answer = None
        with pytest.raises(OSError, match="503"):
            client.get(MOUNTS_PATH, seconds=3, largest=1)


async def test_without_an_operator_nothing_is_known() -> None:
    with pytest.raises(EngineUnavailableError, match="no operator is named"):
        await ClusterMountTable(cluster="c", operator=None).versions()
