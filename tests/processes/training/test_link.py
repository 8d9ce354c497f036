"""`tdcs-train link`: workers that measure each other, and workers that fail."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner
from tests.support.programs.ipv6 import LOOPBACK, needs_ipv6

from tdcs_train.cli.main import main
from tdcs_train.link.measuring import LinkRate
from tdcs_train.link.session import Job, measure_links
from tdcs_train.peers.errors import PeerError


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run_all(
    world_size: int, *, sizes: dict[int, int] | None = None, master: str = "127.0.0.1"
) -> list[list[LinkRate] | BaseException]:
    """Every worker of a job in a thread of its own: what each of them found."""
    port = free_port()
    rates: list[list[LinkRate] | BaseException] = [[] for _ in range(world_size)]

    def work(rank: int) -> None:
        size = (sizes or {}).get(rank, world_size)
        job = Job(master=master, port=port, rank=rank, world_size=size, timeout=5)
        try:
            rates[rank] = measure_links(job, seconds=0.2)
        except PeerError as error:
            rates[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return rates


def test_worker_0_gets_every_pair_in_both_directions() -> None:
    first, *other_rates = run_all(3)
    assert isinstance(first, list)
    assert [(rate.source, rate.target) for rate in first] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert all(rate.bytes_per_second > 1e6 and 0 < rate.latency_seconds < 1 for rate in first)
    assert other_rates == [[], []]


@needs_ipv6
def test_workers_measure_each_other_at_addresses_of_ipv6() -> None:
    first, *other_rates = run_all(3, master=LOOPBACK)
    assert isinstance(first, list)
    assert [(rate.source, rate.target) for rate in first] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert other_rates == [[], []]


def test_workers_that_disagree_on_their_number_are_both_refused() -> None:
    first, second = run_all(2, sizes={1: 3})
    assert "says that it is worker 1 of 3" in str(first)
    assert "says that it is worker 1 of 3" in str(second)


def fake_worker_1(port: int, behave: Callable[[socket.socket], None]) -> threading.Thread:
    """A worker that calls worker 0 and then does something else."""

    def run() -> None:
        deadline = time.monotonic() + 5
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        with connection:
            behave(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def greeting(target: int) -> bytes:
    """What worker 1 says of a target that listens at a port."""
    return json.dumps({"version": 1, "rank": 1, "port": target, "world_size": 2}).encode() + b"\n"


def silent_target() -> Iterator[int]:
    """A port where connections are taken, and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (
            lambda connection: connection.sendall(b"GET / HTTP/1.1\n"),
            "turned away: .* does not speak the protocol",
        ),
        (
            lambda connection: connection.sendall(b'{"version": 7}\n'),
            "turned away: .* speaks version 7 .* version 1",
        ),
        (lambda connection: None, "worker 1 of 2 did not come within 1 s"),
        (lambda connection: connection.sendall(greeting(1)), r"worker 1 \(127.0.0.1:1\) does not answer"),
    ],
    ids=["noise", "another version", "dies", "no target"],
)
def test_a_worker_that_does_not_fit_is_named_in_bounded_time(
    behave: Callable[[socket.socket], None], message: str
) -> None:
    port = free_port()
    thread = fake_worker_1(port, behave)
    before = time.monotonic()
    with pytest.raises(PeerError, match=message):
        measure_links(Job(master="127.0.0.1", port=port, rank=0, world_size=2, timeout=1), seconds=0.2)
    assert time.monotonic() - before < 6
    thread.join(5)


def test_a_worker_that_stalls_is_named_in_bounded_time() -> None:
    port, target = free_port(), silent_target()

    def stall(connection: socket.socket) -> None:
        connection.sendall(greeting(next(target)))
        time.sleep(2)

    thread = fake_worker_1(port, stall)
    with pytest.raises(PeerError, match=r"worker 1 .* has said nothing for 1 s"):
        measure_links(Job(master="127.0.0.1", port=port, rank=0, world_size=2, timeout=1), seconds=0.2)
    thread.join(5)
    target.close()  # type: ignore[attr-defined]


def test_a_worker_0_that_is_not_there_is_named() -> None:
    job = Job(master="127.0.0.1", port=free_port(), rank=1, world_size=2, timeout=0.5)
    with pytest.raises(PeerError, match=r"worker 0 \(127.0.0.1:\d+\) does not answer within 0.5 s"):
        measure_links(job, seconds=0.2)


def test_the_command_names_the_variable_that_is_missing() -> None:
    result = CliRunner(
        env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": None, "WORLD_SIZE": "2"}
    ).invoke(main, ["link"])
    assert result.exit_code == 2
    assert "RANK is not set" in result.output
    result = CliRunner().invoke(
        main, ["link", "--master", "x", "--port", "1", "--rank", "2", "--world-size", "2"]
    )
    assert result.exit_code == 2
    assert "--rank (RANK) is 2, not below" in result.output
    result = CliRunner().invoke(
        main, ["link", "--master", "x", "--port", "99999", "--rank", "0", "--world-size", "2"]
    )
    assert result.exit_code == 2
    assert "99999 is not in the range 1<=x<=65535" in result.output


def command(rank: int, master: str, port: int, *prefix: str) -> subprocess.Popen[str]:
    """The command at one worker."""
    variables = {"MASTER_ADDR": master, "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    words = [*prefix, sys.executable, "-m", "tdcs_train.cli", "link", "--json", "--seconds", "2"]
    return subprocess.Popen(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def shaped() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a pair of interfaces, each shaped to 100 Mbit/s."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("namespaces and shaped interfaces need root, and the programs ip and tc")
    names = tuple(f"tdcs-link-{os.getpid()}-{side}" for side in "ab")
    ends = tuple(f"tl{os.getpid() % 100000}{side}" for side in "ab")
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
        for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
            subprocess.run(["ip", "link", "set", end, "netns", name], check=True)
            for words in (
                f"ip addr add 10.77.0.{number}/24 dev {end}",
                f"ip link set {end} up",
                f"tc qdisc add dev {end} root tbf rate 100mbit burst 64kb latency 50ms",
            ):
                subprocess.run(["ip", "netns", "exec", name, *words.split()], check=True)
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def test_a_link_of_100_mbit_is_measured_within_a_tenth(shaped: tuple[str, str]) -> None:
    first = command(0, "10.77.0.1", 29500, "ip", "netns", "exec", shaped[0])
    second = command(1, "10.77.0.1", 29500, "ip", "netns", "exec", shaped[1])
    output, _ = first.communicate(timeout=60)
    assert second.wait(60) == first.returncode == 0
    document = json.loads(output)
    for pair in document["pairs"]:
        assert pair["bytesPerSecond"] * 8 == pytest.approx(96e6, rel=0.10)
    assert document["slowestBytesPerSecond"] == min(pair["bytesPerSecond"] for pair in document["pairs"])
