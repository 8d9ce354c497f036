"""Requests to Azure Blob Storage, which accounts with a hierarchical namespace (ADLS Gen2) answer, too.

They are signed with the account's key (Shared Key), or carry a shared access signature, or a bearer token, or nothing.
The account stands in the host's name, as Azure has it, or in front of the path, as emulators have it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from tdcs.api.source_uri import endpoint_of, parse_source_uri
from tdcs.engine.google_requests import StoreRequest
from tdcs.model.agent_state import SourceAccess

_VERSION: Final = "2021-12-02"
"""Of the API: names that XML cannot hold come encoded, and folders of a hierarchical namespace are called so."""
_SIGNED_HEADERS: Final = (
    *("Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date"),
    *("If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"),
)
_SIGNATURE: Final = "sig="
"""What a shared access signature has, and no bearer token can have."""


def account_key(text: str) -> bytes:
    """The key of an account. Raises ValueError where it is none."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("it is no base64") from error
    if not key:
        raise ValueError("it is empty")
    return key


def is_shared_access(token: str) -> bool:
    """Whether a token is a shared access signature, and not one that a bearer shows."""
    return _SIGNATURE in token


def secrets_of(access: SourceAccess) -> tuple[str, ...]:
    """The texts that must not be shown, the signature in a shared access signature among them."""
    token = access.session_token
    parts = parse_qs(token).get("sig", []) if is_shared_access(token) else []
    return tuple(text for text in (access.secret_access_key, token, *parts) if text)


def page_request(access: SourceAccess, *, names: int, token: str, prefix: str, now: datetime) -> StoreRequest:
    """The request for a page of a container's listing.

    Args:
        names: that it has at most.
        token: of the page; empty for the first one.
        prefix: what all names begin with.
    """
    query = {
        "restype": "container",
        "comp": "list",
        "include": "metadata",
        "maxresults": str(names),
        "prefix": prefix,
        "marker": token,
    }
    return _request(access, "", {name: value for name, value in query.items() if value}, {}, now=now)


def blob_request(access: SourceAccess, key: str, *, etag: str, span: str, now: datetime) -> StoreRequest:
    """The request for a part of a blob.

    Args:
        key: of the blob, as it is.
        etag: that it must have; empty: any.
        span: `bytes=FIRST-LAST`; empty: all of it.
    """
    headers = {name: value for name, value in (("If-Match", etag), ("Range", span)) if value}
    return _request(access, f"/{quote(key, safe='/')}", {}, headers, now=now)


def _request(
    access: SourceAccess,
    below: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    *,
    now: datetime,
) -> StoreRequest:
    uri = parse_source_uri(access.uri)
    account, _, container = uri.bucket.partition("/")
    endpoint = (access.options.get("endpoint") or endpoint_of(str(uri), named=None) or "").rstrip("/")
    host = access.options.get("host") or urlsplit(endpoint).netloc
    in_path = "" if host.startswith(f"{account}.") else f"/{account}"
    path = f"{in_path}/{quote(container, safe='$')}{below}"
    parameters = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items()]
    sent = {**headers, "x-ms-version": _VERSION}
    token = access.session_token
    if access.secret_access_key:
        sent["x-ms-date"] = format_datetime(now, usegmt=True)
        signature = _signature(access.secret_access_key, f"/{account}{path}", query, sent)
        sent["Authorization"] = f"SharedKey {account}:{signature}"
    elif is_shared_access(token):
        parameters.append(token)
    elif token:
        sent["Authorization"] = f"Bearer {token}"
    if "host" in access.options:
        sent["Host"] = host
    return StoreRequest(f"{endpoint}{path}" + (f"?{'&'.join(parameters)}" if parameters else ""), sent)


def _signature(key: str, resource: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """The signature of a GET (https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key)."""
    store_headers = sorted((name, value) for name, value in headers.items() if name.startswith("x-ms-"))
    lines = ["GET", *(headers.get(name, "") for name in _SIGNED_HEADERS)]
    lines += [f"{name}:{value}" for name, value in store_headers]
    lines += [resource, *(f"{name}:{value}" for name, value in sorted(query.items()))]
    digest = hmac.new(account_key(key), "\n".join(lines).encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()
