"""As whom a bucket is asked: nobody, a key pair, a temporary one, or an account that pays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from tests.support.programs.http_store import http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

TOKEN = "a-session-token/with+signs=="
SECRET = "a-secret-9d2"
PLAIN, ODD = b"a", b"a\nb"  # the second is asked for without the client library


class Store:
    """Notes what it is asked, and answers or refuses."""

    address: str

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, list[str]], Message]] = []
        self.refusal = b""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((parse_qs(urlsplit(request.path).query), request.headers))
        body = self.refusal or b"abc"
        request.send_response(403 if self.refusal else 200)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("ETag", '"1"')
        request.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        request.end_headers()
        request.wfile.write(body)

    def said(self, name: str) -> str:
        """A value that the last request carried, in its headers or in its signed query."""
        query, headers = self.asked[-1]
        parameters = {key.lower(): values[0] for key, values in query.items()}
        return headers.get(name) or parameters.get(name, "")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.address = address
        yield store


def read(store: Store, name: bytes, *, token: str = "", account: str = "AKIAME", **options: str) -> None:
    access = SourceAccess(
        uri="s3://pictures",
        options={"endpoint": f"http://{store.address}", **options},
        access_key_id=account,
        secret_access_key=SECRET if account else "",
        session_token=token,
    )
    content = bytearray()
    open_source(access).read(Extent(path=name, offset=0, length=3, size=3, tag='"1"'), content.extend)
    assert bytes(content) == b"abc"


@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_a_public_bucket_is_asked_without_a_signature(
    store: Store, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHENODE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-node")
    read(store, name, account="")
    assert not store.said("authorization")
    assert not store.said("x-amz-signature")
    assert "OFTHENODE" not in str(store.asked)


@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_temporary_keys_come_with_their_token(store: Store, name: bytes) -> None:
    read(store, name, token=TOKEN)
    assert store.said("x-amz-security-token") == TOKEN


@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_a_requester_says_that_it_pays(store: Store, name: bytes) -> None:
    read(store, name, requesterPays="true")
    assert store.said("x-amz-request-payer") == "requester"
    read(store, name)
    assert not store.said("x-amz-request-payer")


@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_a_token_stands_in_no_message_and_no_log(
    store: Store, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store.refusal = f"<Error><Code>InvalidToken</Code><Message>no {TOKEN} {SECRET}</Message></Error>".encode()
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SourceFailureError, match="session token") as refused:
        read(store, name, token=TOKEN)
    assert TOKEN not in str(refused.value)
    assert SECRET not in str(refused.value)
    assert TOKEN not in caplog.text
    assert quote(TOKEN, safe="") not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("name", [PLAIN, ODD])
def test_a_bucket_that_is_not_public_says_that_keys_are_wanted(store: Store, name: bytes) -> None:
    store.refusal = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    with pytest.raises(SourceFailureError, match=r"no keys.*spec\.source\.secretRef"):
        read(store, name, account="")
