"""Requests to Google Cloud Storage, by its JSON API: it names every object as it is, each with its generation.

A service account shows a token that it has signed itself (https://google.aip.dev/auth/4111), so nobody is asked for
one, and no address in a key file is ever followed.
"""

from __future__ import annotations

import base64
import functools
import json
import time
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tdcs.api.source_uri import GOOGLE, parse_source_uri
from tdcs.model.agent_state import SourceAccess

_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"
_VALID_SECONDS: Final = 3600
"""The longest that Google takes a token for."""
_KEPT_SECONDS: Final = 1800
"""A token is signed so often: it begins to be valid in the past, and a clock may be late."""
_FIELDS: Final = "items(name,size,generation),prefixes,nextPageToken"


class StoreRequest(NamedTuple):
    """A request to a store: its URL and headers, with what shows the credentials among them."""

    url: str
    headers: dict[str, str]


def private_key(pem: str) -> RSAPrivateKey:
    """The private key of a service account. Raises ValueError where it is none."""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (TypeError, ValueError) as error:
        raise ValueError("it is no private key in PEM") from error
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("it is no RSA key")
    return key


def page_request(access: SourceAccess, *, names: int, token: str, query: Mapping[str, str]) -> StoreRequest:
    """The request for a page of a bucket's listing.

    Args:
        names: that it has at most.
        token: of the page; empty for the first one.
        query: further parameters of the API (`prefix`, `delimiter`, `startOffset`); empty ones are left out.
    """
    parameters = {"maxResults": str(names), "pageToken": token, "fields": _FIELDS, **query}
    text = urlencode({name: value for name, value in parameters.items() if value}, quote_via=quote, safe="")
    return StoreRequest(f"{_bucket(access)}?{text}", _shown(access))


def object_request(access: SourceAccess, key: str, *, generation: str) -> StoreRequest:
    """The request for an object's content.

    Args:
        key: of the object, as it is.
        generation: that it must have; empty: any.
    """
    condition = f"&ifGenerationMatch={quote(generation, safe='')}" if generation else ""
    return StoreRequest(f"{_bucket(access)}/{quote(key, safe='')}?alt=media{condition}", _shown(access))


def bearer_token(access: SourceAccess) -> str:
    """What shows the credentials of a source; empty without any. Raises ValueError for a key that is none."""
    if not access.secret_access_key:
        return access.session_token
    begin = int(time.time()) // _KEPT_SECONDS * _KEPT_SECONDS
    return _signed(access.access_key_id, access.secret_access_key, access.session_token, begin)


@functools.lru_cache(maxsize=256)  # a signature takes a millisecond of a processor
def _signed(account: str, pem: str, key_id: str, begin: int) -> str:
    header = {"alg": "RS256", "typ": "JWT", "kid": key_id}
    claims = {"iss": account, "sub": account, "scope": _SCOPE, "iat": begin, "exp": begin + _VALID_SECONDS}
    text = b".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    return (text + b"." + _encoded(private_key(pem).sign(text, PKCS1v15(), SHA256()))).decode()


def _encoded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _bucket(access: SourceAccess) -> str:
    """The URL of the objects of a source's bucket."""
    endpoint = access.options.get("endpoint", GOOGLE).rstrip("/")
    return f"{endpoint}/storage/v1/b/{quote(parse_source_uri(access.uri).bucket, safe='')}/o"


def _shown(access: SourceAccess) -> dict[str, str]:
    host, token = access.options.get("host", ""), bearer_token(access)
    return ({"Host": host} if host else {}) | ({"Authorization": f"Bearer {token}"} if token else {})
