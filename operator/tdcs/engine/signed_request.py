"""Addresses of S3 objects and listings with a signature in them, for what the client library does not do: names that it
refuses to ask for, and listings that follow no redirection and stop at any page.

Signature version 4 in the query, as in "Authenticating Requests: Using Query Parameters" of the S3 API reference.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from urllib.parse import quote, urlencode, urlsplit

from tdcs.api.source_uri import amazon_endpoint

VALID_SECONDS = 3600

_NO_QUERY: Mapping[str, str] = MappingProxyType({})


def object_url(
    *,
    endpoint: str,
    bucket: str,
    key: str,
    region: str,
    path_style: bool,
    access_key_id: str,
    secret_access_key: str,
    now: datetime,
    session_token: str = "",
    requester_pays: bool = False,
    query: Mapping[str, str] = _NO_QUERY,
) -> str:
    """A URL that reads an object; without a signature when there is no key pair.

    Args:
        endpoint: of the store, with its scheme; empty for AWS.
        key: of the object, as it is: any character. Empty with a query: the bucket.
        now: in UTC.
        session_token: of a temporary key pair.
        requester_pays: whether the account of the keys pays for the answer.
        query: further parameters, such as those of ListObjectsV2.
    """
    base = urlsplit(endpoint or amazon_endpoint(region))
    host = base.netloc if path_style else f"{bucket}.{base.netloc}"
    path = quote(f"/{bucket}/{key}" if path_style else f"/{key}", safe="/-_.~")
    address = f"{base.scheme}://{host}{path}"
    if not access_key_id:
        return f"{address}?{_query(query)}" if query else address
    day, time = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{region}/s3/aws4_request"
    signed = _query(
        {
            **query,
            **({"X-Amz-Security-Token": session_token} if session_token else {}),
            **({"x-amz-request-payer": "requester"} if requester_pays else {}),
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{access_key_id}/{scope}",
            "X-Amz-Date": time,
            "X-Amz-Expires": str(VALID_SECONDS),
            "X-Amz-SignedHeaders": "host",
        }
    )
    request = f"GET\n{path}\n{signed}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret_access_key}".encode()
    for part in (day, region, "s3", "aws4_request"):
        signing = _hmac(signing, part)
    return f"{address}?{signed}&X-Amz-Signature={_hmac(signing, text).hex()}"


def _query(values: Mapping[str, str]) -> str:
    return urlencode(sorted(values.items()), quote_via=quote, safe="-_.~")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
