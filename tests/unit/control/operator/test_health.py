"""What kubelet's probes hear of the operator in each of its states."""

import itertools

import aiohttp
import psutil
import pytest
from tests.support.programs.ports import free_ports

from tdcs.control.operator.operator_health import StaleError, serve_health


async def probe_answers(port: int) -> dict[str, int]:
    """The answers to both probes."""
    async with aiohttp.ClientSession() as session:
        answers = {}
        for path in ("livez", "healthz"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                answers[path] = response.status
        return answers


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"starting": True, "standingBy": False}, {"livez": 200, "healthz": 503}),
        ({"starting": False, "standingBy": True}, {"livez": 200, "healthz": 200}),
        ({"starting": False, "standingBy": False}, {"livez": 200, "healthz": 200}),
        (StaleError("the oldest change has waited for 301 s"), {"livez": 503, "healthz": 503}),
    ],
    ids=["waits for its views", "stands by", "works", "can only be helped by a restart"],
)
async def test_only_a_restart_that_helps_is_asked_for(
    state: dict[str, bool] | StaleError, expected: dict[str, int]
) -> None:
    def health() -> dict[str, bool]:
        if isinstance(state, StaleError):
            raise state
        return state

    (port,) = free_ports(1)
    async with serve_health(health, port=port):
        assert await probe_answers(port) == expected


async def test_why_only_a_restart_helps_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """Kubelet names the status alone, and the process that could be asked is gone."""

    seconds = itertools.count(181)

    def health() -> dict[str, bool]:
        raise StaleError(f"a part ended {next(seconds)} s ago") from KeyError("items")

    (port,) = free_ports(1)
    async with serve_health(health, port=port):
        assert await probe_answers(port) == await probe_answers(port) == {"livez": 503, "healthz": 503}
    assert caplog.text.count("only a new start helps") == 1
    assert "KeyError: 'items'" in caplog.text


async def test_without_a_port_nothing_is_served() -> None:
    before = {
        connection.laddr.port
        for connection in psutil.Process().net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    async with serve_health(dict, port=0):
        now = psutil.Process().net_connections()
        assert {
            connection.laddr.port for connection in now if connection.status == psutil.CONN_LISTEN
        } == before
