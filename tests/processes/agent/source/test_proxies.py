"""Stores that are reached through a proxy alone: only it knows what their names stand for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from tests.support.dataplane.listed_source import extents_of, files_of, listed, read
from tests.support.programs.gateway_store import OWNER, GatewayStore, gateway_store
from tests.support.programs.google_store import google_store
from tests.support.programs.http_proxy import Proxy, http_proxy
from tests.support.programs.web_server import WebServer, web_server

from tdcs.listing.source_keys import SourceKeys
from tdcs.model.cache_engine import NO_KEYS, KeysRefusedError, Source, SourceError
from tdcs.node.agent.mount.source_pieces import SourceFailureError

HOST = "store.corp.example"
FILES = {f"data/{number}": random.Random(number).randbytes(5000) for number in range(20)}
SIZES = {name.removeprefix("data/"): len(content) for name, content in FILES.items()}
PORTS = {"http": 80, "https": 443}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module", params=["http", "https"])
def store(
    request: pytest.FixtureRequest, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayStore]:
    folder, tls = tmp_path_factory.mktemp("proxied"), []
    if request.param == "https":
        certificate = authority.issue_cert(HOST)
        certificate.cert_chain_pems[0].write_to_path(str(folder / "cert"))
        certificate.private_key_pem.write_to_path(str(folder / "key"))
        tls = [str(folder / "cert"), str(folder / "key")]
    with gateway_store(folder / "store", tls=tls) as running:
        running.put_files("pictures", FILES)
        yield running


@pytest.fixture
def proxy(store: GatewayStore, tmp_path: Path) -> Iterator[Proxy]:
    parts = urlsplit(store.endpoint)
    names = {f"{HOST}:443": parts.netloc, HOST: parts.netloc}
    with http_proxy(tmp_path / "proxy", names) as running:
        yield running


def source_of(store: GatewayStore, proxy: Proxy, authority: trustme.CA) -> Source:
    scheme = urlsplit(store.endpoint).scheme
    bundle = authority.cert_pem.bytes().decode() if scheme == "https" else ""
    options = {"endpoint": f"{scheme}://{HOST}"}
    return Source(
        uri="s3://pictures/data", options=options, credentials=OWNER, ca_bundle=bundle, proxy=proxy.address
    )


async def test_a_bucket_is_listed_checked_and_read_through_the_proxy(
    store: GatewayStore, proxy: Proxy, authority: trustme.CA, tmp_path: Path
) -> None:
    source = source_of(store, proxy, authority)
    assert await SourceKeys()(source, namespace="n")
    manifest = await listed(source, tmp_path / "manifests")
    assert files_of(manifest) == SIZES
    for name in SIZES:
        assert read(source, extents_of(manifest, name, piece=3000)) == FILES[f"data/{name}"]
    methods = {request.partition(" ")[0] for request in proxy.asked}
    assert methods == ({"CONNECT"} if store.endpoint.startswith("https") else {"GET"})
    wrong = replace(source, credentials=replace(OWNER, secret_access_key="wrong"))
    with pytest.raises(KeysRefusedError, match="SignatureDoesNotMatch"):
        await SourceKeys()(wrong, namespace="n")


async def test_what_the_proxy_refuses_is_said_with_the_field(
    store: GatewayStore, proxy: Proxy, authority: trustme.CA, tmp_path: Path
) -> None:
    good = source_of(store, proxy, authority)
    manifest = await listed(good, tmp_path / "manifests")
    scheme = urlsplit(store.endpoint).scheme
    source = replace(good, options={"endpoint": f"{scheme}://other.corp.example"})
    with pytest.raises(SourceError, match="403"):
        await listed(source, tmp_path / "manifests")
    with pytest.raises(SourceFailureError, match="403"):
        read(source, extents_of(manifest, "0", piece=9000))
    away = replace(good, proxy="http://127.0.0.1:1")
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1"):
        await listed(away, tmp_path / "manifests")
    with pytest.raises(SourceFailureError, match=r"spec\.sources\[\]\.proxy"):
        read(away, extents_of(manifest, "0", piece=9000))


async def test_google_and_a_web_server_are_asked_through_the_proxy(tmp_path: Path) -> None:
    web = WebServer(files=dict(FILES))
    objects = {f"pictures/{name}": content for name, content in FILES.items()}
    with google_store(tmp_path / "google", files=objects) as google, web_server(web):
        names = {
            "google.example": urlsplit(google.endpoint).netloc,
            "web.example": urlsplit(web.origin).netloc,
        }
        with http_proxy(tmp_path / "proxy", names) as proxy:
            options = {"endpoint": "http://google.example"}
            for source in (
                Source(uri="gs://pictures/data", options=options, credentials=NO_KEYS, proxy=proxy.address),
                Source(uri="http://web.example/data", credentials=NO_KEYS, proxy=proxy.address),
            ):
                manifest = await listed(source, tmp_path / "manifests")
                assert files_of(manifest) == SIZES
                for name in SIZES:
                    assert read(source, extents_of(manifest, name, piece=9000)) == FILES[f"data/{name}"]


@pytest.mark.parametrize(
    ("allowed", "followed"), [(("http://files.example",), True), ((), False)], ids=["named", "not named"]
)
async def test_through_a_proxy_a_redirection_leads_to_endpoints_of_rules_alone(
    tmp_path: Path, allowed: tuple[str, ...], followed: bool
) -> None:
    web, files = WebServer(files=dict(FILES)), WebServer(files=dict(FILES))
    with web_server(web), web_server(files):
        names = {"web.example": urlsplit(web.origin).netloc, "files.example": urlsplit(files.origin).netloc}
        with http_proxy(tmp_path / "proxy", {**names, "files.example:443": names["files.example"]}) as proxy:
            source = Source(
                uri="http://web.example/data",
                credentials=replace(OWNER, access_key_id="", secret_access_key="", session_token="a-token"),
                redirects=allowed,
                proxy=proxy.address,
            )
            manifest = await listed(source, tmp_path / "manifests")
            extents = extents_of(manifest, "0", piece=9000)
            target = "http://files.example/data/0" if followed else "https://files.example/data/0"
            web.redirects = {"/data/0": target}
            if followed:
                assert read(source, extents) == FILES["data/0"]
                assert all("Authorization" not in headers for _, _, headers in files.asked)
            else:
                with pytest.raises(SourceFailureError, match=r"which no rule in spec\.sources names"):
                    read(source, extents)
                assert files.asked == []
                assert not [request for request in proxy.asked if "files.example" in request]


async def test_a_store_that_redirects_is_not_followed_through_the_proxy(tmp_path: Path) -> None:
    web, elsewhere = WebServer(files=dict(FILES)), WebServer(files=dict(FILES))
    with web_server(web), web_server(elsewhere):
        names = {
            "web.example": urlsplit(web.origin).netloc,
            "else.example": urlsplit(elsewhere.origin).netloc,
        }
        with http_proxy(tmp_path / "proxy", names) as proxy:
            web.redirects = {"/pictures/data/0": "http://else.example/data/0"}
            plain = Source(uri="http://web.example/data", credentials=NO_KEYS, proxy=proxy.address)
            extents = extents_of(await listed(plain, tmp_path / "manifests"), "0", piece=9000)
            source = Source(
                uri="s3://pictures/data",
                options={"endpoint": "http://web.example"},
                credentials=OWNER,
                proxy=proxy.address,
            )
            with pytest.raises(SourceFailureError, match="sends its readers to another host"):
                read(source, extents)
            assert elsewhere.asked == []
