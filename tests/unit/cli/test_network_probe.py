"""The probe that tries to connect where it should not get in."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tdcs.cli import network_probe
from tdcs.cli.main import main
from tdcs.cli.network_probe import Reach, reach
from tdcs.control.cachecluster.isolation_probe import ProbeReport, parse_report


@pytest.fixture
def open_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed_port() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: no one else gets it meanwhile
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_probe, "TRIES", 1)


def run(control: str, *targets: str, more: tuple[str, ...] = ()) -> Result:
    words = [f"--control={control}", *(f"--target={target}" for target in targets), *more]
    return CliRunner().invoke(main, ["network-probe", *words])


@pytest.mark.threat("no-network-policies")
def test_a_port_that_takes_a_connection_is_named_and_fails_the_test(open_port: str, closed_port: str) -> None:
    done = run(open_port, open_port, closed_port)
    assert done.exit_code == 1
    assert f"reached: {open_port}" in done.output
    assert f"closed: {closed_port}" in done.output
    assert "does not enforce NetworkPolicies" in done.output


def test_closed_ports_pass_only_where_the_control_is_reached(open_port: str, closed_port: str) -> None:
    assert run(open_port, closed_port).exit_code == 0
    cut_off = run(closed_port, closed_port)
    assert cut_off.exit_code == 2
    assert f"nothing is proven: {closed_port} is not reached either" in cut_off.output


def test_a_name_without_an_address_proves_nothing(open_port: str) -> None:
    done = run(open_port, "none.invalid:1")
    assert (done.exit_code, "no address: none.invalid:1" in done.output) == (2, True)


def test_a_report_is_written_and_the_probe_ends_well_whatever_it_says(
    open_port: str, closed_port: str, tmp_path: Path
) -> None:
    path = tmp_path / "report"
    done = run(open_port, open_port, closed_port, more=(f"--report={path}",))
    assert done.exit_code == 0
    assert parse_report(path.read_text()) == ProbeReport(
        control=True, reached=(open_port,), closed=(closed_port,)
    )


@pytest.mark.parametrize("target", ["host", "host:", ":1", "host:70000", "host:x"])
def test_what_is_no_host_and_port_is_refused_with_an_example(target: str, open_port: str) -> None:
    done = run(open_port, target)
    assert done.exit_code == 2
    assert "is not HOST:PORT, such as" in done.output


def test_an_address_that_never_answers_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        waiting = []
        for _ in range(3):  # the queue of connections that were not taken is full
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            waiting.append(client)
        assert asyncio.run(reach(("127.0.0.1", port), seconds=0.2)) is Reach.CLOSED
        for client in waiting:
            client.close()


@pytest.mark.parametrize(
    "text",
    [
        *("", "killed", "[]", "{}"),
        json.dumps({"control": 1, "reached": [], "closed": [], "unnamed": []}),
        json.dumps({"control": True, "reached": [1], "closed": [], "unnamed": []}),
    ],
)
def test_what_is_no_report_is_none(text: str) -> None:
    assert parse_report(text) is None
