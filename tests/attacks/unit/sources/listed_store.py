"""A store that gives pages of names, as many as a test wants, and the limits of a cache that are to hold."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.unit.control.cluster import Cluster

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import Credentials, Source
from tdcs.model.file_blocks import EXTENTS
from tdcs.model.kube_resources import CACHE_CLUSTERS
from tdcs.model.listing_limit import ListingLimit, SourcesSize

PATH = "/datasets/1f"
NO_GROUPS: tuple[int, dict[str, str], bytes] = (200, {}, b"<ListBucketResult></ListBucketResult>")
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
    def pages(self) -> int:
        """How many pages of names were asked for, without those that compare tags or look for folders to split by."""
        return sum("max-keys=1000" in path and "delimiter" not in path for path in self.asked)

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
                number = int(query.get("continuation-token", ["0"])[0])
                # It groups no names.
                status, headers, text = NO_GROUPS if "delimiter" in query else store.page(number)
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
    """A page of names that follow those of the page before."""
    items = b"".join(
        b"<Contents><Key>many/%08d&amp;</Key><Size>%d</Size></Contents>" % (number * 1000 + n, size)
        for n in range(names)
    )
    token = b"<NextContinuationToken>%d</NextContinuationToken>" % (number + 1) if more else b""
    return b"<ListBucketResult>" + items + token + b"</ListBucketResult>"


def size_of(store: Store, limit: ListingLimit) -> SourcesSize:
    """What the listing of a store counts."""
    with tempfile.TemporaryDirectory() as scratch:
        return asyncio.run(listed(store, ManifestFolder(Path(scratch)), limit)).size


async def listed(store: Store, folder: ManifestFolder, limit: ListingLimit) -> Listed:
    """The version of a store, written into a folder."""
    return await list_source(source=store.source, path=PATH, folder=folder, limit=limit, cut=EXTENTS)


async def set_limits(cluster: Cluster, **limits: object) -> None:
    await cluster.server.merge(
        CACHE_CLUSTERS, name="default", namespace="tdcs-system", patch={"spec": {"limits": limits}}
    )
