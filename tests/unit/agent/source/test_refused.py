"""A store that refuses a request: what is said of it tells what to do."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import access_to, http_store

from tdcs.agent.source.access import open_source
from tdcs.agent.source.reader import Extent, SourceFailureError
from tdcs.engine.agents import SourceAccess


class Store:
    """An HTTP server that refuses everything with the same code."""

    access: SourceAccess

    def __init__(self) -> None:
        self.code = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = f"<Error><Code>{self.code}</Code></Error>".encode()
        request.send_response(403)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    with http_store(made.answer) as address:
        made.access = access_to(address)
        yield made


@pytest.mark.parametrize("name", [b"a", b"a\nb"])  # the second is asked for without the client library
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("RequestTimeTooSkewed", "have the node's clock set"),
        ("AccessDenied", r"refuses the credentials or the file \(403\)"),
    ],
)
def test_a_refusal_for_a_wrong_clock_names_the_clock_and_any_other_the_keys(
    store: Store, name: bytes, code: str, said: str
) -> None:
    store.code = code
    with pytest.raises(SourceFailureError, match=said) as caught:
        open_source(store.access).read(
            Extent(path=name, offset=0, length=9, size=9, tag='"1"'), bytearray().extend
        )
    assert (caught.value.code, caught.value.common) == ("Denied", True)
