"""Runs in a pod: an object store as seen through a proxy that is slow, cuts answers off, refuses or falsifies.

    python3 source_proxy.py PORT UPSTREAM MODE_FILE

UPSTREAM is the store's HOST:PORT. Requests go to it as they came, the signature of their host included. MODE_FILE,
read for each request, says what is done to the answers: `delay SECONDS`, `truncate`, `refuse`, `shorten` or `falsify`;
without it nothing is.
"""

import hashlib
import http.client
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TIMEOUT_SECONDS = 60.0
ONE_CONNECTION = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}
)
"""Headers that are about one connection, and the length, which is set again."""
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the store, or the proxy in its place, says to a request."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent: int | None = None
    """Of the body only so many bytes are sent, and then the connection ends; None: all of it."""


def mode_of(file: Path) -> tuple[str, float]:
    """What is done to answers, and for `delay` the seconds."""
    try:
        words = file.read_text().split()
    except FileNotFoundError:
        words = []
    return (words[0] if words else ""), (float(words[1]) if len(words) > 1 else 0.0)


def is_object(*, method: str, path: str) -> bool:
    """Whether a request is for the content of an object: not for a listing, nor for what is known of a bucket."""
    name, _, query = path.partition("?")
    return method == "GET" and name.strip("/").count("/") >= 1 and "list-type" not in query


def changed(answer: Answer, *, mode: str) -> Answer:
    """The answer about an object as the mode has it."""
    if answer.status not in {200, 206} or not answer.body:
        return answer
    if mode == "truncate":
        return Answer(
            status=answer.status, headers=answer.headers, body=answer.body, sent=len(answer.body) // 2
        )
    if mode == "shorten":
        half = answer.body[: len(answer.body) // 2]
        return Answer(status=answer.status, headers=answer.headers, body=half)
    if mode == "falsify":
        body = bytes(byte ^ 0x5A for byte in answer.body)
        tag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        headers = {name: value for name, value in answer.headers.items() if name.lower() != "etag"}
        return Answer(status=answer.status, headers={**headers, "ETag": tag}, body=body)
    return answer


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: "Proxy"

    def handle_any(self) -> None:
        """Pass a request on, and its answer back."""
        mode, seconds = mode_of(self.server.mode_file)
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length) if length else None
        if mode == "delay":
            time.sleep(seconds * random.random())  # noqa: S311
        if mode == "refuse":
            self._send(Answer(status=503, headers={"Content-Type": "application/xml"}, body=SLOW_DOWN))
            return
        try:
            answer = self._ask(content)
        except (OSError, http.client.HTTPException):
            # As the store itself, when it is away.
            self.close_connection = True
            return
        if answer.status >= HTTPStatus.BAD_REQUEST:
            host = self.headers.get("Host")
            print(f"{self.command} {self.path} of {host}: {answer.status} {answer.body[:200]!r}", flush=True)
        if is_object(method=self.command, path=self.path):
            answer = changed(answer, mode=mode)
        self._send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def log_message(self, format: str, *args: object) -> None:
        """Log no request: a run makes too many. Error responses of the store are printed by `handle_any`."""

    def _ask(self, content: bytes | None) -> Answer:
        store = http.client.HTTPConnection(self.server.upstream, timeout=TIMEOUT_SECONDS)
        try:
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ONE_CONNECTION - {"content-length"}:
                    store.putheader(name, value)
            store.endheaders(content)
            response = store.getresponse()
            headers = {
                name: value for name, value in response.getheaders() if name.lower() not in ONE_CONNECTION
            }
            if self.command == "HEAD" and (length := response.getheader("Content-Length")):
                headers["Content-Length"] = length
            return Answer(status=response.status, headers=headers, body=response.read())
        finally:
            store.close()

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers and answer.status not in {204, 304}:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body if answer.sent is None else answer.body[: answer.sent])
        if answer.sent is not None:
            self.close_connection = True


class Proxy(ThreadingHTTPServer):
    """Listens on a port for requests to a store.

    Args:
        address: where it listens.
        upstream: HOST:PORT of the store.
        mode_file: says what is done to answers.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *, upstream: str, mode_file: Path) -> None:
        self.upstream = upstream
        self.mode_file = mode_file
        super().__init__(address, Handler)


def main(port: str, upstream: str, mode_file: str) -> None:
    """Serve until killed."""
    Proxy(("", int(port)), upstream=upstream, mode_file=Path(mode_file)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
