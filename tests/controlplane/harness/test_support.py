"""The tools of the tests: a failed wait says what was seen, a failed program shows its log, and none survives."""

import socket
import sys
import threading
from pathlib import Path

import psutil
import pytest
from tests.support.programs.ports import free_ports
from tests.support.programs.processes import Process, ProcessFailed
from tests.support.waiting import eventually, eventually_async

FOREVER = "import threading; threading.Event().wait()"


def test_a_wait_returns_what_it_waited_for() -> None:
    values = iter([None, "", "there"])
    assert eventually(lambda: next(values), deadline=10, interval=0.001) == "there"


async def test_a_wait_with_an_event_loop_returns_what_it_waited_for() -> None:
    values = iter([None, "", "there"])

    async def look() -> str | None:
        return next(values)

    assert await eventually_async(look, deadline=10, interval=0.001) == "there"


def test_a_failed_wait_tells_the_last_thing_seen_and_describes_the_world() -> None:
    def two_pods() -> bool:
        assert [] == ["a", "b"]
        return True

    with pytest.raises(AssertionError) as failed:
        eventually(two_pods, deadline=0, describe=lambda: "no node has a GPU")
    assert "two_pods did not hold within 0 s" in str(failed.value)
    assert "assert [] == ['a', 'b']" in str(failed.value)
    assert "no node has a GPU" in str(failed.value)


def test_an_error_that_is_not_expected_ends_a_wait_at_once() -> None:
    def broken() -> bool:
        raise KeyError("spec")

    with pytest.raises(KeyError):
        eventually(broken, deadline=60)


def test_a_program_that_ends_while_it_starts_shows_its_log(tmp_path: Path) -> None:
    script = "print('the port is taken'); raise SystemExit(3)"
    process = Process(
        name="server",
        argv=[sys.executable, "-c", script],
        log=tmp_path / "server.log",
        ready=lambda: False,
        start_deadline=60,
    )
    with pytest.raises(ProcessFailed, match="server ended while it was starting") as failed:
        process.start()
    assert "the port is taken" in str(failed.value)
    assert str(process.log) in str(failed.value)
    process.kill()


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    process = Process(name="server", argv=[str(tmp_path / "nothing")], log=tmp_path / "server.log")
    with pytest.raises(ProcessFailed, match=r"no executable .*nothing"):
        process.start()


def test_a_program_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    process = Process(name="server", argv=[sys.executable, "-c", FOREVER], log=tmp_path / "server.log")
    starter = threading.Thread(target=process.start)
    starter.start()
    starter.join()
    try:
        # Were the kernel told to kill it with that thread, it would do so before the thread is joined.
        assert psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE
        process.pause()
        assert process.alive
        process.resume()
    finally:
        pid = process.pid
        process.stop()
    assert not psutil.pid_exists(pid)


def test_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    servers = [socket.create_server(("127.0.0.1", port)) for port in ports]
    for server in servers:
        server.close()


def test_two_processes_of_a_run_never_choose_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        chosen.append(set(free_ports(200)))
    assert not chosen[0] & chosen[1]
