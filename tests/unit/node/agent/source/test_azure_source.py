"""Blobs of Azure as agents ask for them: what shows the credentials, and what refusals say."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.programs.http_store import http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

PIECE = Extent(path=b"a%b c", offset=2, length=3, size=9, tag='"0x8D"')
KEY = base64.b64encode(b"an account's key").decode()
SIGNATURE = "sv=2022-11-02&sp=rl&sig=hidden%2Fsignature%3D"


class Store:
    """A server that answers everything alike, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 206, b"cde"
        self.headers = {"Content-Range": "bytes 2-4/9", "ETag": '"0x8D"'}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.endpoint = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.path, dict(request.headers.items())))
        request.send_response(self.status)
        for name, value in (self.headers | {"Content-Length": str(len(self.body))}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(self.body)

    def read(self, piece: Extent = PIECE, **access: Any) -> bytes:
        source_access = SourceAccess(
            uri="az://pictures/cats/data", options={"endpoint": self.endpoint}, **access
        )
        content = bytearray()
        open_source(source_access).read(piece, content.extend)
        return bytes(content)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.endpoint = f"http://{address}"
        yield store


def test_each_way_of_showing_credentials_stands_where_azure_looks_for_it(store: Store) -> None:
    assert store.read() == b"cde"
    assert store.read(secret_access_key=KEY) == b"cde"
    assert store.read(session_token=SIGNATURE) == b"cde"
    assert store.read(session_token="ey.J.x") == b"cde"

    paths = [urlsplit(url) for url, _ in store.asked]
    assert {url.path for url in paths} == {"/pictures/cats/data/a%25b%20c"}
    assert [url.query for url in paths] == ["", "", SIGNATURE, ""]
    schemes = [headers.get("Authorization", "").partition(":")[0] for _, headers in store.asked]
    assert schemes == ["", "SharedKey pictures", "", "Bearer ey.J.x"]
    assert all(headers["Range"] == "bytes=2-4" for _, headers in store.asked)
    assert all(headers["If-Match"] == '"0x8D"' for _, headers in store.asked)


def error(code: str, message: str, detail: str = "") -> bytes:
    more = f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail>" if detail else ""
    ending = "\nRequestId:1e24d4f0\nTime:2026-01-02T03:04:05.6789012Z"
    text = f"<Error><Code>{code}</Code><Message>{message}{ending}</Message>{more}</Error>"
    return b"\xef\xbb\xbf" + f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()


EXPIRED = (
    "Signature not valid in the specified time frame: Start [Thu, 01 Jan 2026 00:00:00 GMT] - Expiry [Fri, 02 Jan 2026 "
    "00:00:00 GMT] - Current [Sat, 03 Jan 2026 01:02:03 GMT]"
)
UNLIKE = "The MAC signature found in the HTTP request 'c2ln' is not the same as any computed signature. Server used .."


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (
            403,
            error("AuthenticationFailed", "no", EXPIRED),
            "Denied",
            "Expiry [Fri, 02 Jan 2026 00:00:00 GMT])",
        ),
        (
            403,
            error("AuthenticationFailed", "no", UNLIKE),
            "Denied",
            "(no); check that accountKey, sasToken or token in the Secret of spec.source.secretRef is of this account",
        ),
        (
            403,
            error("AuthenticationFailed", "no", "Request date header too old: 'x'"),
            "Denied",
            "have the node's clock set",
        ),
        (403, error("AuthorizationPermissionMismatch", "no"), "Denied", "Storage Blob Data Reader"),
        (403, error("AuthorizationFailure", "no"), "Denied", "the account's network rules"),
        (
            403,
            error("KeyBasedAuthenticationNotPermitted", "no"),
            "Denied",
            "KeyBasedAuthenticationNotPermitted",
        ),
        (404, error("BlobNotFound", "no"), "Missing", "not at the source any more"),
        (
            404,
            error("ContainerNotFound", "no"),
            "SourceAway",
            "check account and container in spec.source.uri",
        ),
        (409, error("BlobArchived", "not on an archived blob"), "Denied", "set its tier to Hot"),
        (409, error("BlobBeingRehydrated", "wait"), "Denied", "tier Archive"),
        (409, error("BlobUsesCustomerSpecifiedEncryption", "no"), "Denied", "customer-provided key"),
        (403, error("KeyVaultEncryptionKeyNotFound", "no"), "Denied", "Key Vault"),
        (412, error("ConditionNotMet", "no"), "Changed", "another ETag (412)"),
        (503, error("ServerBusy", "slow down"), "SourceAway", "busy"),
        (500, error("OperationTimedOut", "late"), "SourceAway", "busy"),
        (302, b"", "Denied", "sends its readers to another host"),
        (200, b"abcdefghi", "Changed", "bytes came"),
        (200, b"cde", "SourceAway", "another part"),
    ],
)
def test_a_refusal_says_what_the_store_said_and_what_to_do(
    store: Store, status: int, body: bytes, code: str, said: str
) -> None:
    store.status, store.body, store.headers = status, body, {"ETag": '"0x8D"'}
    with pytest.raises(SourceFailureError) as refused:
        store.read(secret_access_key=KEY)
    text = str(refused.value)
    assert (refused.value.code, said in text) == (code, True), text
    assert not any(changing in text for changing in ("1e24d4f0", "03:04:05", "01:02:03", "c2ln")), text
    assert len(store.asked) == 1, "no redirection is followed, and nothing is asked twice"


@pytest.mark.parametrize(
    ("status", "code"),
    [(404, "ResourceNotFound"), (409, "PublicAccessNotPermitted"), (401, "NoAuthenticationInformation")],
)
def test_who_has_no_keys_is_told_that_keys_may_be_wanted(store: Store, status: int, code: str) -> None:
    store.status, store.body = status, error(code, "The specified resource does not exist.")
    with pytest.raises(SourceFailureError, match="name a Secret with accountKey or sasToken") as refused:
        store.read()
    assert (refused.value.code, refused.value.common) == ("Denied", True)


def test_no_refusal_repeats_a_signature(store: Store) -> None:
    store.status = 403
    store.body = error("AuthorizationFailure", "of hidden/signature= and of hidden%2Fsignature%3D")
    with pytest.raises(SourceFailureError, match="AuthorizationFailure") as refused:
        store.read(session_token=SIGNATURE)
    assert "signature=" not in str(refused.value)
    assert "signature%3D" not in str(refused.value)


def test_another_etag_than_was_listed_is_no_piece_of_the_blob(store: Store) -> None:
    store.headers["ETag"] = '"0x8E"'
    with pytest.raises(SourceFailureError) as refused:
        store.read()
    assert refused.value.code == "Changed"


def test_a_key_that_is_none_opens_no_source(store: Store) -> None:
    with pytest.raises(SourceFailureError, match="no base64"):
        store.read(secret_access_key="hidden!")
    assert not store.asked
