"""Stores over TLS: the authorities of the CacheCluster's rule are trusted, and a failure says what is wrong."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import source_of
from tdcs.listing.source_probe import probe
from tdcs.model.agent_state import SourceAccess
from tdcs.model.cache_engine import NO_KEYS, Source, SourceError
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

HOST = "localhost"
PLAIN, ODD = b"a", b"a\nb"  # the second is asked for without the client library
PAGE = b"<ListBucketResult><Contents><Key>a</Key><Size>3</Size></Contents></ListBucketResult>"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGE if "list-type" in self.path else b"abc"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that refuses the certificate breaks off."""


@contextmanager
def store(certificate: trustme.LeafCert) -> Iterator[str]:
    """Serves over TLS; gives the endpoint."""
    server = Server(("127.0.0.1", 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(tls)
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    try:
        yield f"https://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def read(endpoint: str, name: bytes, *, bundle: str = "") -> bytes:
    access = SourceAccess(uri="s3://pictures", options={"endpoint": endpoint}, ca_bundle=bundle)
    content = bytearray()
    open_source(access).read(Extent(path=name, offset=0, length=3, size=3, tag=""), content.extend)
    return bytes(content)


def count(endpoint: str, *, bundle: str = "") -> int:
    source = Source(
        uri="s3://pictures", options={"endpoint": endpoint}, credentials=NO_KEYS, ca_bundle=bundle
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = ManifestFolder(Path(scratch))
        return asyncio.run(list_source(source=source, path="/datasets/x", folder=folder)).totals.files


@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_an_agent_reads_a_store_of_a_trusted_authority(authority: trustme.CA, name: bytes) -> None:
    with store(authority.issue_cert(HOST)) as endpoint:
        assert read(endpoint, name, bundle=pem(authority)) == b"abc"


def test_a_listing_asks_a_store_of_a_trusted_authority(authority: trustme.CA) -> None:
    with store(authority.issue_cert(HOST)) as endpoint:
        assert count(endpoint, bundle=pem(authority)) == 1


def web_access(endpoint: str, bundle: str) -> SourceAccess:
    return SourceAccess(uri=f"{endpoint}/pictures", options={"endpoint": endpoint}, ca_bundle=bundle)


def test_a_native_cache_asks_stores_and_web_servers_of_a_trusted_authority(authority: trustme.CA) -> None:
    bundle, content = pem(authority), bytearray()
    with store(authority.issue_cert(HOST)) as endpoint:
        bucket = SourceAccess(uri="s3://pictures", options={"endpoint": endpoint}, ca_bundle=bundle)
        for access in (bucket, web_access(endpoint, bundle)):
            asyncio.run(probe(source_of(access), path="/datasets/x"))
        open_source(web_access(endpoint, bundle)).read(Extent(PLAIN, 0, 3, 3, ""), content.extend)
        with pytest.raises(SourceFailureError, match="certificate is not trusted"):
            open_source(web_access(endpoint, "")).read(Extent(PLAIN, 0, 3, 3, ""), content.extend)
        with pytest.raises(SourceError, match=r"not trusted.*Check the host in spec\.source\.uri"):
            asyncio.run(probe(source_of(web_access(endpoint, "")), path="/datasets/x"))
    assert bytes(content) == b"abc"


def certificates(authority: trustme.CA) -> dict[str, tuple[trustme.LeafCert, str, str]]:
    """What is wrong with each, the bundle that is trusted, and what is said of it."""
    past = datetime(2020, 1, 1, tzinfo=UTC)
    return {
        "unknown authority": (authority.issue_cert(HOST), "", "authority that is not trusted"),
        "another authority": (authority.issue_cert(HOST), pem(trustme.CA()), "authority that is not trusted"),
        "another host": (authority.issue_cert("elsewhere.example"), pem(authority), "for other hosts"),
        "expired": (authority.issue_cert(HOST, not_after=past), pem(authority), "has expired"),
    }


@pytest.mark.parametrize("kind", ["unknown authority", "another authority", "another host", "expired"])
@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_an_agent_says_what_is_wrong_with_a_certificate(
    authority: trustme.CA, kind: str, name: bytes
) -> None:
    certificate, bundle, message = certificates(authority)[kind]
    with store(certificate) as endpoint, pytest.raises(SourceFailureError, match=message) as failure:
        read(endpoint, name, bundle=bundle)
    assert "certificate is not trusted" in str(failure.value)
    assert "caBundle" in str(failure.value)
    assert (failure.value.code, failure.value.certain) == ("SourceAway", True)


@pytest.mark.parametrize("kind", ["unknown authority", "another authority", "another host", "expired"])
def test_a_listing_says_what_is_wrong_with_a_certificate(authority: trustme.CA, kind: str) -> None:
    certificate, bundle, message = certificates(authority)[kind]
    with store(certificate) as endpoint, pytest.raises(SourceError, match=message) as failure:
        count(endpoint, bundle=bundle)
    assert "certificate of the endpoint is not trusted" in str(failure.value)
    assert "caBundle" in str(failure.value)
