"""An object store whose keys are plain texts, as Amazon's are: `a` may stand beside `a/b`. Listings and reads only.

The tier's S3 server keeps objects as files, and so cannot hold the two. It answers truly, too: this one can also send
its readers elsewhere.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

PORT = 7171
_TAG = "x-1"
"""As of an upload in parts: others are taken for a checksum."""
_WHEN = "2024-01-01T00:00:00.000Z"


class Answers:
    """What the store does instead of answering, and what it was asked."""

    def __init__(self) -> None:
        self.redirection: tuple[int, str] | None = None
        """HTTP status and the URL before the path, with which every request is answered; None: none is."""
        self.requests: list[str] = []
        """Method and path of every request."""
        self.headers: list[Message] = []
        """Headers of every request, whatever the case of their names."""


@contextmanager
def flat_store(
    *,
    address: str,
    objects: Mapping[str, int],
    answers: Answers | None = None,
    port: int = PORT,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Serve every bucket with these keys and lengths; gives the endpoint. Any credentials are right."""
    server = ThreadingHTTPServer((address, port), partial(_Handler, dict(objects), answers or Answers()))
    if tls is not None:
        # Each connection's own thread shakes hands: one that breaks off must not end the server's.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://{address}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, objects: dict[str, int], answers: Answers, *args: object) -> None:
        self._objects = objects
        self._answers = answers
        super().__init__(*args)  # type: ignore[arg-type]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self._answers.requests.append(f"{self.command} {self.path}")
        self._answers.headers.append(self.headers)
        if self._answers.redirection is not None:
            status, redirection = self._answers.redirection
            self._send(status, b"", with_body=False, location=f"{redirection}{self.path}")
            return
        parts = urlsplit(self.path)
        key = unquote(parts.path).lstrip("/").partition("/")[2]
        if not key:
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            self._send(
                200, self._listing(query.get("prefix", ""), query.get("delimiter", "")), with_body=with_body
            )
        elif key in self._objects:
            self._send(200, b"x" * self._objects[key], with_body=with_body)
        else:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", with_body=with_body)

    def _send(self, status: int, body: bytes, *, with_body: bool, location: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Length": str(len(body)),
            "ETag": f'"{_TAG}"',
            "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
        }
        if location:
            headers["Location"] = location
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _listing(self, prefix: str, delimiter: str) -> bytes:
        keys, prefixes = list[str](), dict[str, None]()
        for key in sorted(self._objects):
            if key.startswith(prefix):
                head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if cut:
                    prefixes[f"{prefix}{head}{delimiter}"] = None
                else:
                    keys.append(key)
        files = (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_WHEN}</LastModified><ETag>{_TAG}</ETag>"
            f"<Size>{self._objects[key]}</Size></Contents>"
            for key in keys
        )
        folders = (
            f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes
        )
        text = "".join((*files, *folders))
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{text}</ListBucketResult>".encode()
