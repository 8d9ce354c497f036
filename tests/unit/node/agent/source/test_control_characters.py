"""Objects with control characters in their names, which are asked for without the client library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import access_to, http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

CONTENT = bytes(range(100))
ENDLESS = 1 << 30


class Store:
    """An HTTP server with one object, which can take no notice of ranges and send far more than was asked for."""

    access: SourceAccess

    def __init__(self) -> None:
        self.knows_ranges = True
        self.length = len(CONTENT)
        self.sent = 0
        self.ended = threading.Event()

    def answer_and_end(self, request: BaseHTTPRequestHandler) -> None:
        self.answer(request)
        self.ended.set()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        begin, _, end = request.headers["Range"].removeprefix("bytes=").partition("-")
        part = CONTENT[int(begin) : int(end) + 1]
        request.send_response(206 if self.knows_ranges else 200)
        if self.knows_ranges:
            request.send_header("Content-Range", f"bytes {begin}-{end}/{len(CONTENT)}")
        request.send_header("Content-Length", str(len(part) if self.knows_ranges else self.length))
        request.end_headers()
        if self.knows_ranges:
            request.wfile.write(part)
            return
        with suppress(OSError):
            while self.sent < self.length:
                self.sent += request.wfile.write(bytes(min(1 << 16, self.length - self.sent)))


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer_and_end) as address:
        store.access = access_to(address)
        yield store


def read(store: Store, *, offset: int, length: int) -> bytes:
    content = bytearray()
    extent = Extent(path=b"a\nb", offset=offset, length=length, size=len(CONTENT), tag='"a"')
    open_source(store.access).read(extent, content.extend)
    return bytes(content)


def test_a_part_and_all_of_an_object_are_read(store: Store) -> None:
    assert read(store, offset=10, length=20) == CONTENT[10:30]
    assert read(store, offset=0, length=100) == CONTENT


def test_no_more_is_read_than_was_asked_for_of_a_store_that_knows_no_ranges(store: Store) -> None:
    store.knows_ranges, store.length = False, ENDLESS
    with pytest.raises(SourceFailureError, match="more than 20 bytes came") as caught:
        read(store, offset=10, length=20)
    assert caught.value.code == "Changed"
    assert store.ended.wait(10)
    assert store.sent < ENDLESS / 10, "the connection is closed"


def test_an_object_that_ends_too_soon_is_no_piece(store: Store) -> None:
    store.knows_ranges, store.length = False, 5
    with pytest.raises(SourceFailureError) as caught:
        read(store, offset=0, length=20)
    assert caught.value.code == "Changed"
