"""The proxy before a chaos run's store passes everything on, until it is asked to be slow or false."""

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from e2e.chaos.source_proxy import Proxy, is_object

CONTENT = bytes(range(200))
OBJECT, LISTING = "/bucket/folder/a%20b", "/bucket?list-type=2&prefix=folder"


class Store(BaseHTTPRequestHandler):
    """Answers with what it was asked, in headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("ETag", '"right"')
        self.send_header("Content-Length", str(len(CONTENT)))
        self.send_header("X-Asked", f"{self.command} {self.path} {self.headers['Host']}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(CONTENT)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mode_file(tmp_path: Path) -> Path:
    return tmp_path / "mode"


@pytest.fixture
def address(mode_file: Path) -> Iterator[tuple[str, int]]:
    store = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    proxy = Proxy(("127.0.0.1", 0), upstream=f"127.0.0.1:{store.server_port}", mode_file=mode_file)
    for server in (store, proxy):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield "127.0.0.1", proxy.server_port
    for server in (store, proxy):
        server.shutdown()
        server.server_close()


def ask(
    address: tuple[str, int], path: str, *, method: str = "GET"
) -> tuple[http.client.HTTPResponse, bytes]:
    client = http.client.HTTPConnection(*address, timeout=10)
    client.request(method, path, headers={"Host": "source.tdcs-chaos.svc:7070", "Range": "bytes=0-199"})
    answer = client.getresponse()
    return answer, answer.read()


def test_requests_and_answers_pass_unchanged_with_the_host_that_was_signed(address: tuple[str, int]) -> None:
    for method in ("GET", "HEAD"):
        answer, body = ask(address, OBJECT, method=method)
        assert (answer.status, answer.headers["ETag"], answer.headers["Content-Length"]) == (
            206,
            '"right"',
            "200",
        )
        assert answer.headers["X-Asked"] == f"{method} {OBJECT} source.tdcs-chaos.svc:7070"
        assert body == (CONTENT if method == "GET" else b"")


def test_a_false_source_sends_other_bytes_with_another_etag_of_objects_only(
    address: tuple[str, int], mode_file: Path
) -> None:
    mode_file.write_text("falsify")
    answer, body = ask(address, OBJECT)
    assert len(body) == len(CONTENT)
    assert body != CONTENT
    assert answer.headers.get_all("ETag") != ['"right"']
    assert len(answer.headers.get_all("ETag") or ()) == 1
    assert ask(address, LISTING)[1] == CONTENT


def test_an_answer_that_is_cut_off_promises_more_than_it_sends(
    address: tuple[str, int], mode_file: Path
) -> None:
    mode_file.write_text("truncate")
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(address, OBJECT)
    assert cut.value.partial == CONTENT[:100]
    assert ask(address, LISTING)[1] == CONTENT


def test_a_short_answer_is_whole_by_its_own_length_and_has_the_right_etag(
    address: tuple[str, int], mode_file: Path
) -> None:
    mode_file.write_text("shorten")
    answer, body = ask(address, OBJECT)
    assert body == CONTENT[:100]
    assert (answer.headers["Content-Length"], answer.headers["ETag"]) == ("100", '"right"')
    assert ask(address, LISTING)[1] == CONTENT


def test_a_source_that_refuses_or_is_slow_is_so_for_every_request(
    address: tuple[str, int], mode_file: Path
) -> None:
    mode_file.write_text("refuse")
    assert {ask(address, path)[0].status for path in (OBJECT, LISTING)} == {503}
    mode_file.write_text("delay 0.05")
    begin = time.monotonic()
    while time.monotonic() - begin < 0.05:
        assert ask(address, LISTING)[1] == CONTENT
    mode_file.unlink()
    assert ask(address, OBJECT)[1] == CONTENT


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/bucket/a", True),
        ("HEAD", "/bucket/a", False),
        ("PUT", "/bucket/a", False),
        ("GET", "/bucket", False),
        ("GET", "/bucket/", False),
        ("GET", "/bucket/?list-type=2", False),
        ("GET", "/", False),
    ],
)
def test_only_the_content_of_an_object_is_cut_off_or_falsified(
    method: str, path: str, expected: bool
) -> None:
    assert is_object(method=method, path=path) is expected
