"""Exchanges a token of a ServiceAccount for what shows its identity to a store.

A token service is asked once for each exchange, and a redirection of it is an answer that is refused: nothing is sent
to another host.
"""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import aiohttp

from tdcs.decide.error_document import read_answer
from tdcs.decide.store_refusal import Cause, judge
from tdcs.decide.workload_identity import Provider, TokenExchange
from tdcs.engine.tls_failures import explain_certificate
from tdcs.listing.bucket_pages import open_session
from tdcs.listing.page_requests import read_document
from tdcs.model.cache_engine import Credentials
from tdcs.model.redaction import redact

KEYS_SECONDS: Final = 3600
"""So long what comes of an exchange is valid, where the service does not say something else."""

_LATER: Final = frozenset(
    {
        *("IDPCommunicationError", "temporarily_unavailable", "server_error", "slow_down"),
        *("RESOURCE_EXHAUSTED", "UNAVAILABLE"),
    }
)
"""Codes of token services that ask for patience, whatever the status: that of AWS gives them with 400."""

_TIMEOUT: Final = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
_ONLY_READS: Final = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", "kms:Decrypt"], "Resource": "*"},
        ],
    },
    separators=(",", ":"),
)
"""Whatever the role may do, keys that leave the operator only read."""
_GOOGLE_READS: Final = "https://www.googleapis.com/auth/devstorage.read_only"
_GOOGLE_ALL: Final = "https://www.googleapis.com/auth/cloud-platform"
_AZURE_STORAGE: Final = "https://storage.azure.com/.default"
_SESSION: Final = re.compile(r"[^\w+=,.@-]")
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKeys:
    """What came of an exchange. `seconds`: so long it is valid."""

    keys: Credentials
    seconds: float


class ExchangeError(Exception):
    """There are no keys. The text says why, for people.

    Attributes:
        refused: whether the service said so; else it gave no answer that can be used.
    """

    def __init__(self, reason: str, *, refused: bool) -> None:
        super().__init__(reason)
        self.refused = refused


class Exchange(Protocol):
    """Exchanges tokens."""

    async def __call__(
        self, plan: TokenExchange, *, token: str, account: str, ca_bundle: str, proxy: str, now: datetime
    ) -> IssuedKeys:
        """Exchange a token. Raises ExchangeError."""
        ...


async def exchange_token(
    plan: TokenExchange, *, token: str, account: str, ca_bundle: str, proxy: str, now: datetime
) -> IssuedKeys:
    """Exchange a token of a ServiceAccount.

    Args:
        account: namespace and name of the ServiceAccount, by which the session is called.
        ca_bundle: authorities in PEM that are trusted in addition to the public ones.
        proxy: through which the service is asked; empty: none.
        now: in UTC, for the times that services give.

    Raises:
        ExchangeError: There are no keys.
    """
    try:
        async with open_session(_TIMEOUT, ca_bundle=ca_bundle, proxy=proxy) as session:
            exchange = _Asked(session, plan, token, now)
            if plan.provider is Provider.AMAZON:
                return await exchange.amazon(account)
            return await (exchange.google() if plan.provider is Provider.GOOGLE else exchange.azure())
    except aiohttp.ClientConnectorCertificateError as error:
        why = explain_certificate(str(error.certificate_error))
        raise ExchangeError(f"{plan.url} is not trusted: {why}", refused=False) from error
    except TimeoutError as error:
        raise ExchangeError(f"{plan.url} does not answer in time", refused=False) from error
    except aiohttp.ClientError as error:
        raise ExchangeError(f"{plan.url} cannot be asked ({type(error).__name__})", refused=False) from error


class _Asked:
    """The requests of one exchange."""

    def __init__(
        self, session: aiohttp.ClientSession, plan: TokenExchange, token: str, now: datetime
    ) -> None:
        self._session, self._plan, self._token, self._now = session, plan, token, now

    async def amazon(self, account: str) -> IssuedKeys:
        body = urlencode(
            {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": self._plan.role,
                "RoleSessionName": _SESSION.sub("-", f"tdcs-{account}")[:64],
                "DurationSeconds": str(KEYS_SECONDS),
                "Policy": _ONLY_READS,
                "WebIdentityToken": self._token,
            }
        )
        text = (await self._post("/", body.encode(), _FORM)).decode("utf-8", "replace")
        fields = {
            name: html.unescape(match[1].strip())
            if (match := re.search(f"<{name}>([^<]+)</{name}>", text))
            else ""
            for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
        }
        if not all(fields[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")):
            raise self._unfit()
        keys = Credentials(
            access_key_id=fields["AccessKeyId"],
            secret_access_key=fields["SecretAccessKey"],
            session_token=fields["SessionToken"],
        )
        return self._issued(keys, self._until(fields["Expiration"]))

    async def google(self) -> IssuedKeys:
        plan = self._plan
        request = {
            "grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
            "audience": plan.provider_name,
            "scope": _GOOGLE_ALL if plan.role else _GOOGLE_READS,
            "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
            "subjectToken": self._token,
            "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
        }
        answer = self._object(await self._post_json("/v1/token", request))
        token, seconds = self._text(answer, "access_token"), self._seconds(answer)
        if plan.role:
            place = f"/v1/projects/-/serviceAccounts/{quote(plan.role, safe='@')}:generateAccessToken"
            lifetime = {"scope": [_GOOGLE_READS], "lifetime": f"{KEYS_SECONDS}s"}
            base = plan.url.replace("://sts.googleapis.com", "://iamcredentials.googleapis.com")
            answer = self._object(await self._post_json(place, lifetime, bearer=token, base=base))
            token = self._text(answer, "accessToken")
            seconds = self._until(str(answer.get("expireTime", "")))
        return self._issued(_bearer(token), seconds)

    async def azure(self) -> IssuedKeys:
        plan = self._plan
        body = urlencode(
            {
                "grant_type": "client_credentials",
                "client_id": plan.role,
                "scope": _AZURE_STORAGE,
                "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                "client_assertion": self._token,
            }
        )
        place = f"/{quote(plan.provider_name, safe='')}/oauth2/v2.0/token"
        answer = self._object(await self._post(place, body.encode(), _FORM))
        return self._issued(_bearer(self._text(answer, "access_token")), self._seconds(answer))

    async def _post_json(
        self, place: str, request: dict[str, Any], *, bearer: str = "", base: str = ""
    ) -> bytes:
        headers = {"Content-Type": "application/json"}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        return await self._post(place, json.dumps(request).encode(), headers, base=base, secret=bearer)

    async def _post(
        self, place: str, body: bytes, headers: dict[str, str], *, base: str = "", secret: str = ""
    ) -> bytes:
        """Ask once; the document of the answer. Raises ExchangeError where it is none."""
        url = base or self._plan.url
        async with self._session.post(
            f"{url}{place}", data=body, headers=headers, allow_redirects=False
        ) as answer:
            document = await read_document(answer)
            if answer.status == 200:
                return document
            if 300 <= answer.status < 400:
                reason = f"{url} redirects ({answer.status}), and no token is shown to another host"
                raise ExchangeError(reason, refused=True)
            words = read_answer(answer.status, document)
            secrets = [text for text in (self._token, secret) if text]
            raise ExchangeError(
                f"{url} says {redact(text=words.said, secrets=secrets)}",
                refused=400 <= answer.status < 500
                and words.code not in _LATER
                and judge(words).cause is not Cause.BUSY,
            )

    def _object(self, document: bytes) -> dict[str, Any]:
        try:
            content = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise self._unfit() from error
        if not isinstance(content, dict):
            raise self._unfit()
        return content

    def _text(self, answer: dict[str, Any], name: str) -> str:
        value = answer.get(name)
        if not isinstance(value, str) or not value or any(character.isspace() for character in value):
            raise self._unfit()
        return value

    def _seconds(self, answer: dict[str, Any]) -> float:
        try:
            return float(answer.get("expires_in", KEYS_SECONDS))
        except (TypeError, ValueError) as error:
            raise self._unfit() from error

    def _until(self, text: str) -> float:
        """Seconds until a time that the service gives; what it gives usually, where that is none."""
        try:
            until = datetime.fromisoformat(text)
        except ValueError:
            return KEYS_SECONDS
        return (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - self._now.timestamp()

    def _issued(self, keys: Credentials, seconds: float) -> IssuedKeys:
        if not 0 < seconds < math.inf:
            raise ExchangeError(
                f"{self._plan.url} gives keys whose time is over when they come: compare the operator's clock with "
                "the service's",
                refused=False,
            )
        return IssuedKeys(keys=keys, seconds=seconds)

    def _unfit(self) -> ExchangeError:
        return ExchangeError(f"{self._plan.url} gives an answer without keys", refused=False)


def _bearer(token: str) -> Credentials:
    return Credentials(access_key_id="", secret_access_key="", session_token=token)
