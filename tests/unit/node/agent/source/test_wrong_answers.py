"""Answers of stores, or of what stands before them, that nothing proves to be what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import access_to, http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import known_tag
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, SourceReader
from tdcs.node.agent.mount.source_state import open_source

CONTENT = bytes(range(100))
LISTED = '"0123456789abcdef0123456789abcdef"'
LONG = f'"{"x" * 200}"'


class Store:
    """An HTTP server with one object.

    Attributes:
        knows_conditions: whether it compares If-Match as it should; otherwise it refuses every one.
        headers: of its answers, instead of those that it would give; None: without that one.
        status: of its answers with bytes; 0: as it should be.
        shift: bytes by which it answers with another part than was asked for.
    """

    access: SourceAccess

    def __init__(self) -> None:
        self.knows_conditions = True
        self.headers: dict[str, str | None] = {}
        self.status = 0
        self.shift = 0

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if "If-Match" in request.headers and not self.knows_conditions:
            request.send_response(412)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        byte_range = request.headers.get("Range")
        first, _, last = (byte_range or "bytes=0-99").removeprefix("bytes=").partition("-")
        begin, end = int(first) - self.shift, int(last) - self.shift
        part = CONTENT[begin : end + 1]
        headers: dict[str, str | None] = {
            "Content-Length": str(len(part)),
            "Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT",
            "ETag": LISTED,
            **({"Content-Range": f"bytes {begin}-{end}/100"} if byte_range else {}),
            **self.headers,
        }
        request.send_response(self.status or (206 if byte_range else 200))
        for name, value in headers.items():
            if value is not None:
                request.send_header(name, value)
        request.end_headers()
        request.wfile.write(part)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.access = access_to(address)
        yield store


PLAIN, ODD = b"a", b"a\nb"  # the second is asked for without the client library
NAMES = pytest.mark.parametrize("name", [PLAIN, ODD])


def read(
    reader: SourceReader, name: bytes, *, offset: int = 0, length: int = 100, tag: str = LISTED
) -> bytes:
    content = bytearray()
    extent = Extent(path=name, offset=offset, length=length, size=len(CONTENT), tag=tag)
    reader.read(extent, content.extend)
    return bytes(content)


@NAMES
@pytest.mark.parametrize("etag", [None, ""])
def test_an_answer_without_an_etag_is_not_taken_where_nobody_compared_it(
    store: Store, name: bytes, etag: str | None
) -> None:
    reader, store.knows_conditions = open_source(store.access), False
    store.headers = {"ETag": etag}
    with pytest.raises(SourceFailureError) as caught:
        read(reader, name)
    assert caught.value.code == "Changed"


@NAMES
@pytest.mark.parametrize("etag", [None, ""])
def test_it_is_not_taken_either_once_the_store_is_known_to_misunderstand_conditions(
    store: Store, name: bytes, etag: str | None
) -> None:
    reader, store.knows_conditions = open_source(store.access), False
    assert read(reader, name) == CONTENT
    store.headers = {"ETag": etag}
    with pytest.raises(SourceFailureError, match="no ETag") as caught:
        read(reader, name)
    assert caught.value.code == "Changed"


@NAMES
def test_nor_is_one_for_an_etag_that_no_request_can_name(store: Store, name: bytes) -> None:
    reader = open_source(store.access)
    store.headers = {"ETag": LONG}
    assert read(reader, name, tag=known_tag(LONG)) == CONTENT
    store.headers = {"ETag": None}
    with pytest.raises(SourceFailureError, match="no ETag"):
        read(reader, name, tag=known_tag(LONG))


@NAMES
@pytest.mark.parametrize("tag", ["", "mtime-ms:1795341600000"])
def test_a_store_that_lists_no_etags_is_read(store: Store, name: bytes, tag: str) -> None:
    reader = open_source(store.access)
    store.headers = {"ETag": None}
    assert read(reader, name, tag=tag) == CONTENT


def test_another_part_than_was_asked_for_is_not_taken(store: Store) -> None:
    reader, store.shift = open_source(store.access), 10
    for length in (20, 30):
        with pytest.raises(SourceFailureError, match="another part than was asked for") as caught:
            read(reader, ODD, offset=20, length=length)
        assert (caught.value.code, caught.value.busy) == ("SourceAway", False)
    store.shift = 0
    assert read(reader, ODD, offset=20, length=20) == CONTENT[20:40]


@pytest.mark.parametrize(
    ("status", "said"), [(200, None), (206, None), (206, "bytes */100"), (206, "bytes 0-19/100")]
)
def test_a_part_of_which_nothing_says_where_it_begins_is_not_taken(
    store: Store, status: int, said: str | None
) -> None:
    store.status, store.headers = status, {"Content-Range": said}
    with pytest.raises(SourceFailureError, match="another part than was asked for"):
        read(open_source(store.access), ODD, offset=20, length=20)


@pytest.mark.parametrize(
    ("status", "said"), [(200, None), (206, None), (206, "bytes 0-99/100"), (206, "bytes 0-99/*")]
)
def test_all_of_an_object_needs_no_word_of_where_it_begins(
    store: Store, status: int, said: str | None
) -> None:
    store.status, store.headers = status, {"Content-Range": said}
    assert read(open_source(store.access), ODD) == CONTENT


def test_another_part_that_was_packed_on_its_way_is_asked_for_as_it_is_stored(store: Store) -> None:
    encodings: list[str] = []
    plainly = store.answer

    def answer(request: BaseHTTPRequestHandler) -> None:
        encodings.append(request.headers["Accept-Encoding"])
        packs = encodings[-1] == "gzip"
        store.shift, store.headers = (10, {"Content-Encoding": "gzip"}) if packs else (0, {})
        plainly(request)

    with http_store(answer) as address:
        assert read(open_source(access_to(address)), ODD, offset=20, length=20) == CONTENT[20:40]
    assert encodings == ["gzip", "identity"]


@pytest.mark.parametrize("time", ["yesterday", "Sun, 99 Nov 2026 10:00:00 GMT", "1 Jan 1 0:0:0 +" + "9" * 99])
@pytest.mark.parametrize("tag", [LISTED, "mtime-ms:1795341600000"])
def test_a_time_that_is_none_says_nothing(store: Store, time: str, tag: str) -> None:
    store.headers = {"Last-Modified": time}
    assert read(open_source(store.access), ODD, tag=tag) == CONTENT


def test_another_time_than_the_listed_one_is_another_file(store: Store) -> None:
    reader = open_source(store.access)
    assert read(reader, ODD, tag="mtime-ms:1795341600000") == CONTENT
    store.headers = {"Last-Modified": "Sun, 22 Nov 2026 10:00:01 -0000"}
    with pytest.raises(SourceFailureError, match="time is another one"):
        read(reader, ODD, tag="mtime-ms:1795341600000")


@pytest.mark.parametrize("said", ["bytes 0-99/" + "9" * 5_000, "bytes " + "0" * 5_000 + "-99/100"])
def test_a_size_of_thousands_of_digits_is_a_failure_of_the_source(store: Store, said: str) -> None:
    store.headers = {"Content-Range": said}
    with pytest.raises(SourceFailureError) as caught:
        read(open_source(store.access), ODD)
    assert len(str(caught.value)) < 200


def test_another_size_than_the_listed_one_is_another_file(store: Store) -> None:
    store.headers = {"Content-Range": "bytes 0-99/101"}
    with pytest.raises(SourceFailureError, match="100 bytes came of 101 bytes"):
        read(open_source(store.access), ODD)
