"""Every port of TDCS answers callers over IPv4 and IPv6."""

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import web

from tdcs.control.operator.cache_factory import agent_addresses
from tdcs.engine.operator_client import OperatorClient
from tdcs.listening import at, listen
from tdcs.model.cache_engine import WorkerInfo
from tdcs.trust.metrics_server import serve_health
from tdcs_scheduler.main import _listen

needs_ipv6 = pytest.mark.skipif(
    not socket.has_dualstack_ipv6(), reason="calls over IPv6 are not tested: this machine has none"
)
HOSTS = ("127.0.0.1", pytest.param("::1", marks=needs_ipv6))


@pytest.mark.parametrize("caller", HOSTS)
@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])  # noqa: S104
def test_a_port_of_all_addresses_is_reached_over_both_families(host: str, caller: str) -> None:
    with listen(host=host, port=0) as listener:
        socket.create_connection((caller, listener.getsockname()[1]), timeout=60).close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_port_of_one_address_is_reached_there_alone(host: str) -> None:
    with listen(host=host, port=0) as listener:
        assert listener.getsockname()[0] == host
        socket.create_connection((host, listener.getsockname()[1]), timeout=60).close()


def test_without_ipv6_a_port_is_served_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdcs.listening._has_address", lambda: False)

    with listen(port=0) as listener:
        assert listener.family == socket.AF_INET


@needs_ipv6
def test_health_and_metrics_are_served_where_ipv6_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are sockets of the family then, and no address that they can be bound to."""
    monkeypatch.setattr("tdcs.listening._has_address", lambda: False)

    with serve_health(lambda: True, port=0, trouble="") as port:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("::1", port), timeout=60)


def test_a_port_that_is_taken_is_an_error() -> None:
    with listen(port=0) as taken, pytest.raises(OSError, match="in use"):
        listen(port=taken.getsockname()[1])


@pytest.mark.parametrize("caller", HOSTS)
def test_the_extender_listens_over_both_families(caller: str) -> None:
    with _listen(host="", port=0, option="--port") as listener:
        socket.create_connection((caller, listener.getsockname()[1]), timeout=60).close()


@pytest.mark.parametrize("host", HOSTS)
async def test_a_client_of_the_operator_calls_an_address_of_either_family(host: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"yes")

    app = web.Application()
    app.add_routes([web.get("/", answer), web.post("/", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    listener = listen(port=0)
    await web.SockSite(runner, listener).start()
    address = at(host, listener.getsockname()[1])
    try:
        client = OperatorClient(address)
        assert await asyncio.to_thread(client.get, "/", seconds=60, largest=10) == b"yes"
        await asyncio.to_thread(client.post, "/", b"", seconds=60)
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/") as got:
            assert await got.read() == b"yes"
    finally:
        await runner.cleanup()


def test_addresses_of_agents_have_brackets_where_they_are_of_ipv6() -> None:
    workers = [
        WorkerInfo(name=name, address=address, capacity_bytes=1, used_bytes=0, live=True)
        for name, address in (
            ("a", "[fd00::7]:29999"),
            ("b", "10.0.0.7:29999"),
            ("c", "node-c.cluster:29999"),
        )
    ]

    found = agent_addresses(workers)

    assert [found[name].url.rpartition(":")[0] for name in "abc"] == [
        "http://[fd00::7]",
        "http://10.0.0.7",
        "http://node-c.cluster",
    ]
    assert found["a"].blocks.startswith("[fd00::7]:")
