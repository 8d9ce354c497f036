"""What becomes of reports of failed reads when some operators refuse them and others give no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.ports import free_ports

from tdcs.reader.counters import Counters
from tdcs.reader.monitor import Monitor
from tdcs.reader.supervisor import ReaderSettings


@contextmanager
def operator(status: int) -> Iterator[int]:
    """One that answers each report so; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("operators", "stays"),
    [
        ([None, 400], True),
        ([400, None], True),
        ([400, 400], False),
        ([400, 202], False),
        ([403, 403], True),
        ([None, 202], False),
        ([None, None], True),
    ],
    ids=str,
)
def test_a_report_is_given_up_only_if_every_operator_has_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operators: list[int | None], stays: bool
) -> None:
    settings = ReaderSettings(
        folder=tmp_path, node="n", buffer_bytes=1, operator="operators:8082", port=0, patience_seconds=1
    )
    monitor = Monitor(settings, Counters())
    monitor._folder.prepare()
    report = monitor._folder.failures / f"default.{'0' * 32}"
    report.write_bytes(b"{}")
    with ExitStack() as running:
        ports = [
            free_ports(1)[0] if status is None else running.enter_context(operator(status))
            for status in operators
        ]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *_, **__: found if host == "operators" else []
        )
        monkeypatch.setattr(socket, "create_connection", connected)
        monitor._report_failures()
    assert report.exists() == stays


def connected(
    address: tuple[str, int], timeout: float | None = None, source_address: None = None
) -> socket.socket:
    """A connection without a look-up of names, which the test answers itself."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.settimeout(timeout)
    try:
        found.connect(address)
    except OSError:
        found.close()
        raise
    return found
