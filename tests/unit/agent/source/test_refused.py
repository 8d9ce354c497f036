"""A store that refuses a request: what is said of it tells what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tdcs.agent.source.access import open_source
from tdcs.agent.source.reader import Extent, SourceFailureError
from tdcs.engine.agents import SourceAccess


class Store:
    """An HTTP server that refuses everything with the same code."""

    def __init__(self) -> None:
        self.code = ""
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f"<Error><Code>{store.code}</Code></Error>".encode()
                self.send_response(403)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=lambda: self.server.serve_forever(poll_interval=0.01), daemon=True).start()


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.server.shutdown()
    made.server.server_close()


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
    access = SourceAccess(
        uri="s3://pictures",
        options={"endpoint": f"http://127.0.0.1:{store.server.server_port}"},
        access_key_id="k",
        secret_access_key="s",
    )
    with pytest.raises(SourceFailureError, match=said) as caught:
        open_source(access).read(Extent(path=name, offset=0, length=9, size=9, tag='"1"'), bytearray().extend)
    assert (caught.value.code, caught.value.common) == ("Denied", True)
