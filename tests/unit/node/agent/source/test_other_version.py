"""A store, or a cache in front of it, that answers with another version than the one that it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import access_to, http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import known_tag
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

CONTENT = bytes(range(100))
LISTED = '"0123456789abcdef0123456789abcdef"'


class Store:
    """An HTTP server with one object, which takes no notice of If-Match."""

    access: SourceAccess

    def __init__(self) -> None:
        self.tag: str | None = LISTED

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        begin, _, end = (request.headers.get("Range") or "bytes=0-99").removeprefix("bytes=").partition("-")
        part = CONTENT[int(begin) : int(end) + 1]
        request.send_response(206 if "Range" in request.headers else 200)
        request.send_header("Content-Range", f"bytes {begin}-{end}/{len(CONTENT)}")
        request.send_header("Content-Length", str(len(part)))
        request.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        if self.tag is not None:
            request.send_header("ETag", self.tag)
        request.end_headers()
        request.wfile.write(part)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.access = access_to(address)
        yield store


# One with a control character is asked for without the client library.
NAMES = pytest.mark.parametrize("name", [b"a", b"a\nb"])


def read(store: Store, name: bytes, *, length: int = 100, listed: str = LISTED) -> bytes:
    content = bytearray()
    extent = Extent(path=name, offset=0, length=length, size=len(CONTENT), tag=known_tag(listed))
    open_source(store.access).read(extent, content.extend)
    return bytes(content)


@NAMES
@pytest.mark.parametrize("length", [100, 20])
@pytest.mark.failure_mode("store-answers-other-bytes")
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


@NAMES
def test_etags_that_differ_behind_their_128th_byte_are_told_apart(store: Store, name: bytes) -> None:
    listed, store.tag = (f'"{"x" * 200}-{number}"' for number in (1, 2))
    with pytest.raises(SourceFailureError, match="ETag is another one") as caught:
        read(store, name, listed=listed)
    assert caught.value.code == "Changed"

    store.tag = listed
    assert read(store, name, listed=listed) == CONTENT
