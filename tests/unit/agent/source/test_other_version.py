"""A store, or a cache in front of it, that answers with another version than the one that it was asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tdcs.agent.source.access import open_source
from tdcs.agent.source.reader import Extent, SourceFailureError
from tdcs.engine.agents import SourceAccess

CONTENT = bytes(range(100))
LISTED = '"0123456789abcdef0123456789abcdef"'


class Store:
    """An HTTP server with one object, which takes no notice of If-Match."""

    def __init__(self) -> None:
        self.tag: str | None = LISTED
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                begin, _, end = (
                    (self.headers.get("Range") or "bytes=0-99").removeprefix("bytes=").partition("-")
                )
                part = CONTENT[int(begin) : int(end) + 1]
                self.send_response(206 if "Range" in self.headers else 200)
                self.send_header("Content-Range", f"bytes {begin}-{end}/{len(CONTENT)}")
                self.send_header("Content-Length", str(len(part)))
                self.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
                if store.tag is not None:
                    self.send_header("ETag", store.tag)
                self.end_headers()
                self.wfile.write(part)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=lambda: self.server.serve_forever(poll_interval=0.01), daemon=True).start()
        self.access = SourceAccess(
            uri="s3://pictures",
            options={"endpoint": f"http://127.0.0.1:{self.server.server_port}"},
            access_key_id="k",
            secret_access_key="s",
        )


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.server.shutdown()
    made.server.server_close()


# One with a control character is asked for without the client library.
NAMES = pytest.mark.parametrize("name", [b"a", b"a\nb"])


def read(store: Store, name: bytes, *, length: int = 100) -> bytes:
    found = bytearray()
    extent = Extent(path=name, offset=0, length=length, size=len(CONTENT), tag=LISTED)
    open_source(store.access).read(extent, found.extend)
    return bytes(found)


@NAMES
@pytest.mark.parametrize("length", [100, 20])
def test_bytes_with_another_etag_are_not_taken(store: Store, name: bytes, length: int) -> None:
    store.tag = '"fedcba9876543210fedcba9876543210"'
    with pytest.raises(SourceFailureError, match="ETag is another one") as caught:
        read(store, name, length=length)
    assert caught.value.code == "Changed"


@NAMES
@pytest.mark.parametrize("tag", [LISTED, f"W/{LISTED}", None])
def test_a_proxy_may_weaken_an_etag_or_leave_it_out(store: Store, name: bytes, tag: str | None) -> None:
    store.tag = tag
    assert read(store, name) == CONTENT
