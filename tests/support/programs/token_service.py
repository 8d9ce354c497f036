"""Token services of clouds: they take tokens of ServiceAccounts, which they verify, and give keys for them."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPublicKey,
    RSAPublicNumbers,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

AMAZON: Final = "sts.amazonaws.com"
PublicKey = RSAPublicKey | ec.EllipticCurvePublicKey
ROLE: Final = "arn:aws:iam::123456789012:role/reader"


@lru_cache(maxsize=1)
def _key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


class TokenIssuer:
    """Signs tokens as an API server does; `asked` has namespace, account and audience of each."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    @property
    def public_key(self) -> RSAPublicKey:
        return _key().public_key()

    def issue(self, *, namespace: str, account: str, audience: str, seconds: int) -> str:
        self.asked.append((namespace, account, audience))
        claims = {
            "aud": [audience],
            "exp": int(time.time()) + seconds,
            "sub": f"system:serviceaccount:{namespace}:{account}",
        }
        parts = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
            for part in ({"alg": "RS256"}, claims)
        ]
        signature = _key().sign(b".".join(parts), PKCS1v15(), SHA256())
        return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def published_key(key: Mapping[str, str]) -> PublicKey:
    """A key of a JSON Web Key Set, as an API server publishes those by which its tokens are told."""
    if key["kty"] == "EC":
        x, y = (int.from_bytes(decoded(key[part])) for part in ("x", "y"))
        return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    number, exponent = (int.from_bytes(decoded(key[part])) for part in ("n", "e"))
    return RSAPublicNumbers(exponent, number).public_key()


def claims_of(token: str, key: PublicKey) -> dict[str, Any]:
    """What a token says, where this key has signed it, and it is valid. Raises ValueError."""
    text, _, signature = token.rpartition(".")
    signed = decoded(signature)
    try:
        if isinstance(key, RSAPublicKey):
            key.verify(signed, text.encode(), PKCS1v15(), SHA256())
        else:
            half = len(signed) // 2
            numbers = (int.from_bytes(part) for part in (signed[:half], signed[half:]))
            key.verify(encode_dss_signature(*numbers), text.encode(), ec.ECDSA(SHA256()))
    except InvalidSignature as error:
        raise ValueError("the signature is wrong") from error
    claims: dict[str, Any] = json.loads(decoded(text.partition(".")[2]))
    if claims["exp"] <= time.time():
        raise ValueError("it has expired")
    return claims


def decoded(text: str) -> bytes:
    """What tokens and published keys have in base64 for URLs."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(eq=False, kw_only=True)
class TokenService:
    """AWS STS, Google's token service and Entra ID at once, as far as workloads ask them.

    Attributes:
        key: of the API server that is trusted.
        trusts: roles, applications and providers, each with the account and the audience that it trusts.
        seconds: so long keys are valid.
        on_keys: called with a role and the keys that it was given.
        failure: status and document of every answer, where it is to fail; a text for status 302 is its Location.
        asked: path and fields of each request.
    """

    key: PublicKey
    trusts: dict[str, tuple[str, str]] = field(default_factory=dict)
    seconds: float = 3600.0
    on_keys: Callable[[str, Mapping[str, str]], None] = lambda _role, _keys: None
    failure: tuple[int, str] | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    given: list[dict[str, str]] = field(default_factory=list)
    endpoint: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, str]:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0))).decode()
        if request.headers["Content-Type"] == "application/json":
            fields = {name: str(value) for name, value in json.loads(body).items()}
        else:
            fields = {name: values[0] for name, values in parse_qs(body).items()}
        self.asked.append((request.path, fields))
        if self.failure is not None:
            return self.failure
        if request.path == "/":
            return self._amazon(fields)
        if request.path == "/v1/token":
            return self._google(fields)
        if request.path.endswith(":generateAccessToken"):
            return self._impersonated(request)
        return self._azure(fields)

    def _amazon(self, fields: Mapping[str, str]) -> tuple[int, str]:
        refused = self._refusal(fields["RoleArn"], fields["WebIdentityToken"])
        if refused:
            return 403, (
                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform "
                f"sts:AssumeRoleWithWebIdentity: {refused}</Message></Error></ErrorResponse>"
            )
        number = len(self.given)
        keys = {
            "AccessKeyId": f"ASIA{number:04}{secrets.token_hex(4)}",
            "SecretAccessKey": secrets.token_urlsafe(24),
            "SessionToken": secrets.token_urlsafe(48) + "+/==",
        }
        self.given.append(keys)
        self.on_keys(fields["RoleArn"], keys)
        until = datetime.fromtimestamp(time.time() + self.seconds, UTC).isoformat().replace("+00:00", "Z")
        parts = "".join(f"<{name}>{value}</{name}>" for name, value in (keys | {"Expiration": until}).items())
        return 200, (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<AssumeRoleWithWebIdentityResult><Credentials>{parts}</Credentials></AssumeRoleWithWebIdentityResult>"
            "</AssumeRoleWithWebIdentityResponse>"
        )

    def _google(self, fields: Mapping[str, str]) -> tuple[int, str]:
        if refused := self._refusal(fields["audience"], fields["subjectToken"]):
            return 400, json.dumps({"error": "invalid_grant", "error_description": refused})
        return 200, json.dumps(self._bearer("access_token") | {"expires_in": self.seconds})

    def _impersonated(self, request: BaseHTTPRequestHandler) -> tuple[int, str]:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if bearer not in [answer["access_token"] for answer in self.given if "access_token" in answer]:
            return 403, json.dumps(
                {"error": {"code": 403, "message": "no such token", "status": "PERMISSION_DENIED"}}
            )
        until = datetime.fromtimestamp(time.time() + self.seconds, UTC).isoformat().replace("+00:00", "Z")
        return 200, json.dumps(self._bearer("accessToken") | {"expireTime": until})

    def _azure(self, fields: Mapping[str, str]) -> tuple[int, str]:
        if refused := self._refusal(fields["client_id"], fields["client_assertion"]):
            return 401, json.dumps(
                {"error": "invalid_client", "error_description": f"AADSTS700213: {refused}"}
            )
        return 200, json.dumps(
            self._bearer("access_token") | {"expires_in": self.seconds, "token_type": "Bearer"}
        )

    def _bearer(self, name: str) -> dict[str, Any]:
        token = {name: secrets.token_urlsafe(24)}
        self.given.append(token)
        return dict(token)

    def _refusal(self, whom: str, token: str) -> str:
        if whom not in self.trusts:
            return f"there is no {whom}"
        account, audience = self.trusts[whom]
        try:
            claims = claims_of(token, self.key)
        except ValueError as error:
            return str(error)
        if audience not in claims["aud"]:
            return "the token is for another audience"
        if claims["sub"] != f"system:serviceaccount:{account}":
            return f"{claims['sub']} is not trusted"
        return ""


@contextmanager
def token_service(
    key: PublicKey, *, trusts: Mapping[str, tuple[str, str]], address: str = "127.0.0.1"
) -> Iterator[TokenService]:
    """A running service, which trusts accounts (`NAMESPACE:NAME`) with an audience."""
    service = TokenService(key=key, trusts=dict(trusts))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, text = service.answer(self)
            self.send_response(status)
            if status in (302, 307):
                self.send_header("Location", text)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True).start()
    service.endpoint = f"http://{address}:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
