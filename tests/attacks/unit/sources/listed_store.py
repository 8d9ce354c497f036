"""A store that gives pages of names, as many as a test wants, and the limits of a cache that are to hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.unit.control.cluster import Cluster

from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.kube_resources import CACHE_CLUSTERS

KEYS = Credentials(access_key_id="AKIA", secret_access_key="s3cr3t")


@dataclass
class Store:
    """A store that gives pages of names: what it answers for each is chosen by the test.

    Attributes:
        page: gives status, headers and text for the number of a page.
    """

    page: Callable[[int], tuple[int, dict[str, str], bytes]]
    asked: list[str] = field(default_factory=list)

    @property
    def source(self) -> Source:
        return Source(
            uri="s3://bucket/many",
            options={"endpoint": f"http://127.0.0.1:{self.port}", "pathStyle": "true"},
            credentials=KEYS,
        )

    def __enter__(self) -> Store:
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                store.asked.append(self.path)
                query = parse_qs(urlsplit(self.path).query)
                status, headers, text = store.page(int(query.get("continuation-token", ["0"])[0]))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(text)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def listing(number: int, *, names: int = 1000, size: int = 5, more: bool = True) -> bytes:
    items = b"".join(
        b"<Contents><Key>many/%d&amp;</Key><Size>%d</Size></Contents>" % (n, size) for n in range(names)
    )
    token = b"<NextContinuationToken>%d</NextContinuationToken>" % (number + 1) if more else b""
    return b"<ListBucketResult>" + items + token + b"</ListBucketResult>"


async def set_limits(cluster: Cluster, **limits: object) -> None:
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"limits": limits}}
    )
