"""What becomes of reports of failed reads when operators refuse them, and of tables that the disk does not take."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from tests.support.programs.ports import free_ports
from tests.support.waiting import eventually

from tdcs.engine.holder_table import Holder, HolderTable
from tdcs.engine.reader_files import DRAFT, Registration
from tdcs.node.reader import monitor as module
from tdcs.node.reader.counters import Counters
from tdcs.node.reader.monitor import Monitor
from tdcs.node.reader.registration import write_atomically
from tdcs.node.reader.settings import ReaderSettings

NAME = f"default.{'0' * 32}"


def monitor_in(folder: Path) -> Monitor:
    """That of a reader with this folder."""
    settings = ReaderSettings(
        folder=folder,
        node="n",
        buffer_bytes=1,
        operator="operators:8082",
        health_port=0,
        metrics_port=0,
        patience_seconds=1,
    )
    monitor = Monitor(settings, Counters())
    monitor._folder.prepare()
    return monitor


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
    monitor = monitor_in(tmp_path)
    report = monitor._folder.failures / NAME
    report.write_bytes(b"{}")
    with ExitStack() as running:
        ports = [
            free_ports(1)[0] if status is None else running.enter_context(operator(status))
            for status in operators
        ]
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *_, **__: addresses if host == "operators" else []
        )
        monkeypatch.setattr(socket, "create_connection", connected)
        monitor._report_failures()
    assert report.exists() == stays


def connected(
    address: tuple[str, int], timeout: float | None = None, source_address: None = None
) -> socket.socket:
    """A connection without a look-up of names, which the test answers itself."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def test_a_table_that_the_disk_does_not_take_is_written_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk: the last table would count forever, whoever holds what by then."""
    monitor = monitor_in(tmp_path)
    holders = HolderTable(holders=(Holder(node="a", address="10.0.0.1:29990"),), revision=7)
    monkeypatch.setattr(monitor, "_ask", lambda *_, **__: holders)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.01)
    table = monitor._folder.holders / NAME
    table.mkdir()  # no file can take its place
    monitor._named[NAME] = 1
    polling = threading.Thread(
        target=monitor._poll, args=(NAME, Registration(cluster="default", path="/d", manifest="m"))
    )
    polling.start()
    try:
        eventually(lambda: "cannot be kept" in caplog.text, deadline=60)
        table.rmdir()
        eventually(table.is_file, deadline=60)
    finally:
        monitor._named.clear()
        polling.join()
    assert msgspec.msgpack.decode(table.read_bytes(), type=HolderTable).revision == 7


def test_what_is_in_the_place_of_a_draft_is_replaced_and_not_written_to(tmp_path: Path) -> None:
    target, file = tmp_path / "other", tmp_path / "file"
    target.write_bytes(b"other")
    file.with_name(f"file{DRAFT}").symlink_to(target)
    write_atomically(file, b"content")
    assert (file.read_bytes(), target.read_bytes()) == (b"content", b"other")
