"""A store that refuses a request: what is said of it tells what to do."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import access_to, http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source


class Store:
    """An HTTP server that refuses everything with the same status and code."""

    access: SourceAccess

    def __init__(self) -> None:
        self.status = 403
        self.code = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = f"<Error><Code>{self.code}</Code></Error>".encode()
        request.send_response(self.status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.access = access_to(address)
        yield store


@pytest.mark.parametrize("name", [b"a", b"a\nb"])  # the second is asked for without the client library
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("RequestTimeTooSkewed", "have the node's clock set"),
        ("AccessDenied", r"refuses the credentials or the file \(403\)"),
    ],
)
@pytest.mark.failure_mode("node-clock-off")
def test_a_refusal_for_a_wrong_clock_names_the_clock_and_any_other_the_keys(
    store: Store, name: bytes, code: str, said: str
) -> None:
    store.code = code
    with pytest.raises(SourceFailureError, match=said) as caught:
        open_source(store.access).read(
            Extent(path=name, offset=0, length=9, size=9, tag='"1"'), bytearray().extend
        )
    assert (caught.value.code, caught.value.common) == ("Denied", True)


@pytest.mark.parametrize(
    ("status", "code", "name", "found"),
    [
        (500, "InternalError", b"img_0416.jpg", "SourceAway"),
        (500, "InternalError", b"InvalidRange", "SourceAway"),
        (500, "InternalError", b"status code: 400", "SourceAway"),
        (500, "InternalError", b"KeyTooLong", "SourceAway"),
        (404, "NoSuchKey", b"NoSuchBucket", "Missing"),
        (404, "NoSuchBucket", b"a", "SourceAway"),
        (416, "Spoiled", b"a", "Changed"),
        (400, "Spoiled", b"a", "Denied"),
        (400, "KeyTooLongError", b"a", "BadName"),
    ],
)
def test_a_failure_goes_by_what_the_store_answers_and_never_by_the_files_name(
    store: Store, status: int, code: str, name: bytes, found: str
) -> None:
    store.status, store.code = status, code
    with pytest.raises(SourceFailureError) as caught:
        open_source(store.access).read(
            Extent(path=name, offset=0, length=9, size=9, tag='"1"'), bytearray().extend
        )
    assert caught.value.code == found


def test_a_refusal_of_a_file_that_is_named_like_a_wrong_clock_names_the_keys(store: Store) -> None:
    store.code = "AccessDenied"
    with pytest.raises(SourceFailureError, match="refuses the credentials or the file"):
        open_source(store.access).read(
            Extent(path=b"RequestTimeTooSkewed", offset=0, length=9, size=9, tag='"1"'), bytearray().extend
        )
