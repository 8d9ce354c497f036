"""kube-scheduler waits for its extender, but not forever."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner
from tests.support.programs.ports import free_ports

from tdcs_scheduler.await_extender import command


@contextmanager
def extender(*, red: int) -> Iterator[tuple[str, list[int]]]:
    """A server whose health is red for so many requests; gives its address and what it has answered."""
    answers: list[int] = []

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.append(503 if len(answers) < red else 200)
            self.send_response(answers[-1])
            self.end_headers()
            self.wfile.write(b"the Datasets have not been listed yet")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/healthz", answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_waits_until_the_extender_is_well() -> None:
    with extender(red=2) as (url, answers):
        done = CliRunner().invoke(command, [f"--url={url}"])
    assert done.exit_code == 0
    assert answers == [503, 503, 200]


@pytest.mark.failure_mode("scheduler-and-extender-restart")
def test_an_extender_that_never_gets_well_does_not_hold_it_forever(caplog: pytest.LogCaptureFixture) -> None:
    with extender(red=1000) as (url, answers), caplog.at_level(logging.INFO):
        done = CliRunner().invoke(command, [f"--url={url}", "--at-most=2"])
    assert done.exit_code == 0
    assert len(answers) > 1
    assert "not ready after 2 s (the Datasets have not been listed yet)" in caplog.text


def test_neither_does_one_that_is_not_there() -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    done = CliRunner().invoke(command, [f"--url=http://127.0.0.1:{port}/healthz", "--at-most=0.5"])
    assert done.exit_code == 0
    assert 0.5 <= time.monotonic() - started < 60
