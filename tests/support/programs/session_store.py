"""A store that takes temporary keys alone: it knows each by its session token and its end, and checks signatures."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tests.support.programs.bucket_store import BucketStore


class _Session(NamedTuple):
    secret: str
    token: str
    until: float


class _RefusedError(Exception):
    """The code of the answer."""


@dataclass(eq=False, kw_only=True)
class SessionStore:
    """The bucket `bucket` with these files.

    Attributes:
        endpoint: its URL.
        refused: codes of what was refused.
    """

    files: dict[str, bytes]
    endpoint: str = ""
    refused: list[str] = field(default_factory=list)
    _sessions: dict[str, _Session] = field(default_factory=dict)

    def begin(self, keys: Mapping[str, str], *, seconds: float) -> None:
        """Take the keys of a token service for so long."""
        session = _Session(keys["SecretAccessKey"], keys["SessionToken"], time.time() + seconds)
        self._sessions[keys["AccessKeyId"]] = session

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        try:
            self._check(request)
        except _RefusedError as error:
            self.refused.append(str(error))
            document = f"<Error><Code>{error}</Code><Message>The keys are not taken</Message></Error>"
            _send(request, 403, document.encode())
            return
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if "list-type" in query:
            names = BucketStore(
                keys=[name.encode() for name in self.files],
                size=lambda key: len(self.files[key.decode()]),
                etag=lambda key: self._etag(key.decode()),
            )
            _send(request, 200, names.page(query))
            return
        name = unquote(parts.path).removeprefix("/bucket/")
        if name not in self.files:
            _send(request, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        content = self.files[name]
        headers = {"ETag": self._etag(name), "Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT"}
        if request.headers.get("If-Match", headers["ETag"]) != headers["ETag"]:
            _send(request, 412, b"")
        elif byte_range := request.headers.get("Range"):
            first, _, last = byte_range.removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            _send(request, 206, part, headers)
        else:
            _send(request, 200, content, headers)

    def _etag(self, name: str) -> str:
        return f'"{hashlib.md5(self.files[name], usedforsecurity=False).hexdigest()}"'

    def _check(self, request: BaseHTTPRequestHandler) -> None:
        """Signature version 4, in the query or in the header."""
        parts = urlsplit(request.path)
        query = parse_qsl(parts.query, keep_blank_values=True)
        parameters, headers = dict(query), {name.lower(): value for name, value in request.headers.items()}
        if "X-Amz-Signature" in parameters:
            credential, signed = parameters["X-Amz-Credential"], parameters["X-Amz-SignedHeaders"]
            signature, moment = parameters["X-Amz-Signature"], parameters["X-Amz-Date"]
            token, payload = parameters.get("X-Amz-Security-Token", ""), "UNSIGNED-PAYLOAD"
            query = [field for field in query if field[0] != "X-Amz-Signature"]
        elif "authorization" in headers:
            authorization = headers["authorization"].partition(" ")[2]
            fields = dict(field.strip().split("=", 1) for field in authorization.split(","))
            credential, signed, signature = fields["Credential"], fields["SignedHeaders"], fields["Signature"]
            moment, token = headers["x-amz-date"], headers.get("x-amz-security-token", "")
            payload = headers["x-amz-content-sha256"]
        else:
            raise _RefusedError("AccessDenied")
        account, _, scope = credential.partition("/")
        session = self._sessions.get(account)
        if session is None:
            raise _RefusedError("InvalidAccessKeyId")
        if not hmac.compare_digest(token, session.token):
            raise _RefusedError("InvalidToken")
        if time.time() > session.until:
            raise _RefusedError("ExpiredToken")
        pairs = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query)
        )
        lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in signed.split(";"))
        request_text = f"{request.command}\n{parts.path}\n{pairs}\n{lines}\n{signed}\n{payload}"
        digest = hashlib.sha256(request_text.encode()).hexdigest()
        key = f"AWS4{session.secret}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
        if not hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature):
            raise _RefusedError("SignatureDoesNotMatch")


def _send(
    request: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def session_store(files: Mapping[str, bytes], *, host: str = "127.0.0.1") -> Iterator[SessionStore]:
    """A running store. `host`: the address at which it listens."""
    store = SessionStore(files=dict(files))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            store.answer(self)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    store.endpoint = f"http://{host}:{server.server_port}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
