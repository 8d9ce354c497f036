"""Objects of Google Cloud Storage as agents ask for them: what shows the credentials, and what refusals say."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from tests.support.programs.google_store import ACCOUNT, key_file, private_key
from tests.support.programs.http_store import http_store

from tdcs.model.agent_state import SourceAccess
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError
from tdcs.node.agent.mount.source_state import open_source

PIECE = Extent(path=b"a%b c", offset=2, length=3, size=9, tag='"17"')


class Store:
    """A server that answers everything alike, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body = 206, b"cde"
        self.headers = {"Content-Range": "bytes 2-4/9", "X-Goog-Generation": "17"}
        self.packs = False
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.endpoint = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.path, dict(request.headers.items())))
        body, headers = self.body, dict(self.headers)
        if self.packs and "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        request.send_response(self.status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def read(self, piece: Extent = PIECE, **access: Any) -> bytes:
        source_access = SourceAccess(uri="gs://pictures/data", options={"endpoint": self.endpoint}, **access)
        content = bytearray()
        open_source(source_access).read(piece, content.extend)
        return bytes(content)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with http_store(store.answer) as address:
        store.endpoint = f"http://{address}"
        yield store


def decoded(part: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return document


def test_a_service_account_shows_a_token_for_reading_that_its_key_has_signed(store: Store) -> None:
    file = json.loads(key_file())
    keys = {
        "access_key_id": file["client_email"],
        "secret_access_key": file["private_key"],
        "session_token": file["private_key_id"],
    }
    assert store.read(**keys) == b"cde"

    ((path, headers),) = store.asked
    assert path == "/storage/v1/b/pictures/o/data%2Fa%25b%20c?alt=media&ifGenerationMatch=17"
    assert headers["Range"] == "bytes=2-4"
    head, claims, signature = headers["Authorization"].removeprefix("Bearer ").split(".")
    private_key().public_key().verify(
        base64.urlsafe_b64decode(signature + "=="), f"{head}.{claims}".encode(), PKCS1v15(), SHA256()
    )
    assert decoded(head) == {"alg": "RS256", "typ": "JWT", "kid": "0123456789abcdef"}
    claim_set = decoded(claims)
    assert (claim_set["iss"], claim_set["sub"]) == (ACCOUNT, ACCOUNT)
    assert claim_set["scope"] == "https://www.googleapis.com/auth/devstorage.read_only"
    assert claim_set["exp"] - claim_set["iat"] == 3600


def test_a_public_bucket_is_asked_without_credentials_and_a_token_is_shown_as_it_is(store: Store) -> None:
    assert store.read() == b"cde"
    assert store.read(session_token="ya29.token") == b"cde"
    assert [headers.get("Authorization") for _, headers in store.asked] == [None, "Bearer ya29.token"]


def test_an_answer_that_was_packed_on_its_way_is_asked_for_again(store: Store) -> None:
    store.packs = True
    assert store.read() == b"cde"
    assert [headers["Accept-Encoding"] for _, headers in store.asked] == ["gzip", "identity"]


def error(code: int, reason: str, message: str) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": message, "errors": [{"reason": reason, "message": message}]}}
    ).encode()


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (
            401,
            error(401, "authError", "Invalid Credentials"),
            "Denied",
            "check key.json, or token, in the Secret",
        ),
        (
            403,
            error(403, "forbidden", "x has no storage.objects.get"),
            "Denied",
            "role Storage Object Viewer",
        ),
        (404, error(404, "notFound", "The specified bucket does not exist."), "SourceAway", "no such bucket"),
        (
            404,
            error(404, "notFound", "No such object: b/The specified bucket does not exist"),
            "Missing",
            "not at the source any more",
        ),
        (412, error(412, "conditionNotMet", "Precondition Failed"), "Changed", "another generation"),
        (429, error(429, "rateLimitExceeded", "slow down"), "SourceAway", "busy"),
        (503, b"away", "SourceAway", "busy"),
        (400, error(400, "UserProjectMissing", "requester pays"), "Denied", "HMAC key"),
        (302, b"", "Denied", "sends its readers to another host"),
        (200, b"abcdefghi", "Changed", "bytes came"),
        (200, b"cde", "SourceAway", "another part"),
    ],
)
def test_a_refusal_says_what_the_store_said_and_what_to_do(
    store: Store, status: int, body: bytes, code: str, said: str
) -> None:
    store.status, store.body, store.headers = status, body, {"X-Goog-Generation": "17"}
    with pytest.raises(SourceFailureError) as refused:
        store.read(session_token="ya29.token")
    assert (refused.value.code, said in str(refused.value)) == (code, True), str(refused.value)
    assert len(store.asked) == 1, "no redirection is followed, and nothing is asked twice"


def test_another_generation_than_was_listed_is_no_piece_of_the_file(store: Store) -> None:
    store.headers["X-Goog-Generation"] = "18"
    with pytest.raises(SourceFailureError) as refused:
        store.read()
    assert refused.value.code == "Changed"


def test_no_refusal_repeats_the_token(store: Store) -> None:
    file = json.loads(key_file())
    keys = {"access_key_id": file["client_email"], "secret_access_key": file["private_key"]}
    store.read(**keys)
    token = store.asked[0][1]["Authorization"].removeprefix("Bearer ")
    store.status, store.body = 403, error(403, "forbidden", f"{ACCOUNT} may not, with {token}")
    with pytest.raises(SourceFailureError) as refused:
        store.read(**keys)
    assert "may not" in str(refused.value)
    assert token not in str(refused.value)
    assert ACCOUNT not in str(refused.value)


def test_a_key_that_is_none_opens_no_source(store: Store) -> None:
    with pytest.raises(SourceFailureError, match="no private key in PEM"):
        store.read(access_key_id=ACCOUNT, secret_access_key="hidden")
    assert not store.asked
