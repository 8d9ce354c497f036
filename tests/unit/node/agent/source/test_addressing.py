"""Where a bucket is asked for: in the path of the endpoint, or in front of its host."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from tests.support.programs.http_store import http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount import bucket_source as buckets
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source


class Store:
    """An HTTP server, and a proxy to every host: it notes what it is asked."""

    address: str

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.headers["Host"], request.path))
        request.send_response(200)
        request.send_header("Content-Length", "3")
        request.send_header("ETag", '"a"')
        request.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        request.end_headers()
        request.wfile.write(b"abc")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.address = address
        yield store


def read(*, endpoint: str, path_style: str) -> bytes:
    access = SourceAccess(
        uri="s3://pictures/pre",
        options={"endpoint": endpoint, "pathStyle": path_style},
        access_key_id="k",
        secret_access_key="s",
    )
    content = bytearray()
    extent = Extent(path=b"train/1.jpg", offset=0, length=3, size=3, tag='"a"')
    open_source(access).read(extent, content.extend)
    return bytes(content)


def test_path_style_names_the_bucket_in_the_path(store: Store) -> None:
    assert read(endpoint=f"http://{store.address}", path_style="true") == b"abc"
    assert store.asked == [(store.address, "/pictures/pre/train/1.jpg")]


def test_virtual_hosted_style_names_the_bucket_in_front_of_the_host(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No resolver knows names below a loopback host, so the server stands as the proxy of the store's host.
    monkeypatch.setattr(buckets, "_NO_PROXY", f"http://{store.address}")
    monkeypatch.setattr(buckets, "_own_host", lambda _: "none.invalid")
    assert read(endpoint="http://store.example:9000/", path_style="false") == b"abc"
    assert store.asked == [
        ("pictures.store.example:9000", "http://pictures.store.example:9000/pre/train/1.jpg")
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_no_bucket_stands_in_front_of_an_address(host: str) -> None:
    with pytest.raises(SourceFailureError, match="pathStyle to true"):
        read(endpoint=f"http://{host}:9000", path_style="false")
