"""A store on loopback: an HTTP server that a test answers for, and the access to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tdcs.model.agent_state import SourceAccess


@contextmanager
def http_store(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Have each GET answered by this function; gives host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def access_to(address: str) -> SourceAccess:
    """The bucket `pictures` of the store at an address, with keys."""
    return SourceAccess(
        uri="s3://pictures",
        options={"endpoint": f"http://{address}"},
        access_key_id="k",
        secret_access_key="s",
    )
