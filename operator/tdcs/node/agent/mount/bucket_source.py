"""Reads objects of an S3-compatible store.

Each request names the ETag of the listing (If-Match), so no second request is needed to know the version. The answer's
ETag is compared as well: a store, or a cache in front of it, may take no notice of If-Match. An ETag that is too long
for a manifest is known by its hash, and compared in the answer alone.

Requests go through the client library. What it cannot ask for, or shows no answer of, is asked for without it.
"""

from __future__ import annotations

import logging
import re
import threading
from datetime import UTC, datetime
from typing import Any, Final

from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from tdcs.api.source_uri import (
    AMAZON_DOMAINS,
    DEFAULT_REGION,
    REGION,
    SourceUri,
    amazon_endpoint,
    canonical_endpoint,
    uses_path_style,
)
from tdcs.decide.error_document import LONGEST_ANSWER, StoreAnswer, read_answer
from tdcs.decide.store_refusal import Cause
from tdcs.engine.signed_request import object_url
from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import AS_OF, version_in
from tdcs.node.agent.mount.answer_checks import (
    require_tag,
    require_time,
    require_version,
    time_of,
    wrong_part,
)
from tdcs.node.agent.mount.source_pieces import (
    Extent,
    SourceFailureError,
    Write,
    changed,
)
from tdcs.node.agent.mount.store_failures import (
    StoreRefusalError,
    client_failure,
    has_no_length,
    hides_answer,
    http_failure,
)
from tdcs.node.agent.mount.store_pool import store_pool

_log: Final = logging.getLogger(__name__)
# It would log addresses, in which a signature and a session token stand.
logging.getLogger("urllib3.connectionpool").setLevel(logging.INFO)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NO_PROXY: Final = "http://tdcs-follows-no-redirection.invalid:1"
"""A proxy that never answers: the name cannot exist (RFC 2606)."""
_ENCODINGS: Final = ("gzip", "identity")
"""What answers are asked for as. Google's store unpacks an object that is stored with `Content-Encoding: gzip` for who
does not accept that; other servers pack what is not packed for who does."""


class BucketReader:
    """A bucket, or a prefix in one, of an S3-compatible store."""

    lanes = 16

    def __init__(self, access: SourceAccess, source: SourceUri) -> None:
        options = access.options
        region = options.get("region", DEFAULT_REGION)
        if not REGION.fullmatch(region):
            raise ValueError("its region is none")
        self._endpoint: Final = options.get("endpoint", "").rstrip("/")
        self._source: Final = source
        self._path_style: Final = uses_path_style(options, bucket=source.bucket)
        self._pays: Final = options.get("requesterPays") == "true"
        self._access: Final = access
        self._secrets: Final = (access.secret_access_key, access.session_token, access.access_key_id)
        self._plain_http: Final = store_pool(access.ca_bundle, proxy=access.proxy)
        self._prefix: Final = f"{source.path}/" if source.path else ""
        self._moving: Final = threading.Lock()
        self._region = region
        self._store = self._open(region)
        self._takes_conditions = True
        self._is_pinned: Final = bool(options.get(AS_OF))
        # The client would follow redirections through a proxy.
        self._asks_plainly = self._is_pinned or bool(access.proxy)

    def _open(self, region: str) -> S3Store:
        access = self._access
        keys: dict[str, Any] = {"skip_signature": True}
        if access.access_key_id:
            keys = {"access_key_id": access.access_key_id, "secret_access_key": access.secret_access_key}
            if access.session_token:
                keys["session_token"] = access.session_token
        if self._pays:
            keys["request_payer"] = True
        client: Any = {"root_certificate": access.ca_bundle} if access.ca_bundle else {}
        endpoint = self._endpoint or amazon_endpoint(region)
        return S3Store(
            self._source.bucket,
            region=region,
            endpoint=endpoint if self._path_style else _bucket_host(self._source.bucket, endpoint),
            virtual_hosted_style_request=not self._path_style,
            client_options=client
            | {
                "allow_http": endpoint.startswith("http://"),
                # A store may answer with a redirection to any host, and the client would follow it: every host but
                # the store's own is asked through a proxy that is not there.
                "proxy_url": _NO_PROXY,
                "proxy_excludes": _own_host(self._endpoint),
                "connect_timeout": "10s",
                "read_timeout": "30s",
                "timeout": "1h",  # a slow source is no broken one; `read_timeout` finds those that hang
            },
            retry_config={"max_retries": 0},  # the agent has one back-off rule, for all that it brings
            **keys,
        )

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of an object that has the listed ETag and length."""
        try:
            key = self._prefix + extent.path.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceFailureError("BadName", "the file's name is no UTF-8, as S3 demands") from error
        region = self._region
        try:
            data = self._read(key, extent)
        except StoreRefusalError as refused:
            if refused.meaning.cause is not Cause.REGION or not self._move(refused.answer, asked_in=region):
                raise
            data = self._read(key, extent)
        if len(data) != extent.length:
            came = "more" if len(data) > extent.length else str(len(data))
            raise SourceFailureError("Changed", f"{came} bytes came, and {extent.length} were asked for")
        write(data)

    def _move(self, answer: StoreAnswer, *, asked_in: str) -> bool:
        """Ask in the region that the store names from now on; whether that is another one than was asked in."""
        if not answer.region or answer.region == asked_in:
            return False
        with self._moving:
            if self._region == asked_in:
                _log.info("%s is in the region %s, as its store says", self._source, answer.region)
                self._store, self._region = self._open(answer.region), answer.region
            return self._region == answer.region

    def _read(self, key: str, extent: Extent) -> memoryview:
        """The bytes of a piece, of which one more than was asked for may come."""
        if self._asks_plainly or _CONTROL.search(key):
            return self._read_plainly(key, extent)
        try:
            return self._read_by_client(key, extent)
        except PreconditionError as error:
            return self._without_condition(key, extent, cause=error)
        except ValueError as error:
            raise SourceFailureError(
                "BadName", f"the name cannot be asked for: {client_failure(error, secrets=self._secrets)}"
            ) from error
        except (BaseError, FileNotFoundError) as error:
            if not hides_answer(error):
                raise client_failure(error, secrets=self._secrets) from error
            data = self._read_plainly(key, extent)
            if has_no_length(error) and not self._asks_plainly:
                _log.info("%s unpacks what is stored packed, unless asked not to: it is", self._source)
                self._asks_plainly = True
            return data

    def _read_by_client(self, key: str, extent: Extent) -> memoryview:
        options: dict[str, Any] = {"if_match": extent.tag} if self._has_condition(extent) else {}
        if extent.length != extent.size:
            options["range"] = (extent.offset, extent.offset + extent.length)
        answer = self._store.get(key, options=options)  # type: ignore[arg-type]
        if answer.meta["size"] != extent.size:
            raise changed(f"it has {answer.meta['size']} bytes, and had {extent.size}")
        require_tag(extent, answer.meta.get("e_tag"), compared="if_match" in options)
        require_time(extent, answer.meta["last_modified"])
        # The first chunk is all of an answer of the right length. One that is longer, whatever its headers say, is
        # read no further: all that some store sends would be kept in memory otherwise.
        return memoryview(next(iter(answer.stream(min_chunk_size=extent.length + 1)), b""))

    def _has_condition(self, extent: Extent) -> bool:
        return self._takes_conditions and extent.tag.startswith('"') and not self._version(extent)

    def _version(self, extent: Extent) -> str:
        """The version of an object that is asked for for good; empty where it has none, or the present one counts."""
        return version_in(extent.tag) if self._is_pinned else ""

    def _without_condition(self, key: str, extent: Extent, *, cause: Exception) -> memoryview:
        """Read an object that a store says is another one: whether it is, or the store misunderstands the condition,
        the ETag of its answer says."""
        try:
            data = self._read_plainly(key, extent, conditional=False)
        except SourceFailureError as error:
            if error.code in ("Changed", "Missing"):
                raise changed("its ETag is another one (412)") from cause
            raise
        if self._takes_conditions:
            _log.warning(
                "%s refuses If-Match with its own ETags: these are compared here alone", self._source
            )
            self._takes_conditions = False
        return data

    def _read_plainly(self, key: str, extent: Extent, *, conditional: bool = True) -> memoryview:
        """Read an object without the client library: one with control characters in its name, which that refuses to
        ask for, or whose answer it does not show."""
        headers = {"Accept-Encoding": _ENCODINGS[0]}
        if extent.length != extent.size or extent.size:
            headers["Range"] = f"bytes={extent.offset}-{extent.offset + extent.length - 1}"
        if conditional and self._has_condition(extent):
            headers["If-Match"] = extent.tag
        try:
            return self._request(key, extent, headers)
        except _EncodedError:
            return self._request(key, extent, {**headers, "Accept-Encoding": _ENCODINGS[1]})
        except StoreRefusalError as refused:
            if refused.meaning.cause is not Cause.CHANGED or "If-Match" not in headers:
                raise
            return self._without_condition(key, extent, cause=refused)

    def _request(self, key: str, extent: Extent, headers: dict[str, str]) -> memoryview:
        access = self._access
        url = object_url(
            endpoint=self._endpoint,
            bucket=self._source.bucket,
            key=key,
            region=self._region,
            path_style=self._path_style,
            access_key_id=access.access_key_id,
            secret_access_key=access.secret_access_key,
            session_token=access.session_token,
            requester_pays=self._pays,
            now=datetime.now(UTC),
            query={"versionId": self._version(extent) or "null"} if self._is_pinned else {},
        )
        try:
            answer = self._plain_http.request(
                "GET", url, headers=headers, redirect=False, preload_content=False
            )
            try:
                if answer.status not in (200, 206):
                    raise self._refusal(answer)
                # A store that takes no notice of the range sends all of the object: no more is read than was asked for.
                data = answer.read(extent.length + 1, decode_content=False)
            finally:
                answer.close()
        except HTTPError as error:
            raise http_failure(error) from error
        if (wrong := wrong_part(extent, answer, len(data))) is not None:
            packed = headers["Accept-Encoding"] != "identity" and "Content-Encoding" in answer.headers
            raise _EncodedError(str(wrong)) if packed else wrong
        if version := self._version(extent):
            require_version(answer.headers.get("x-amz-version-id", ""), version)
        else:
            require_tag(extent, answer.headers.get("ETag"), compared="If-Match" in headers)
        if (time := time_of(answer.headers.get("Last-Modified", ""))) is not None:
            require_time(extent, time)
        return memoryview(data)

    def _refusal(self, answer: BaseHTTPResponse) -> StoreRefusalError:
        document = answer.read(LONGEST_ANSWER, decode_content=False)
        region = answer.headers.get("x-amz-bucket-region", "")
        return StoreRefusalError(read_answer(answer.status, document, region=region), secrets=self._secrets)


class _EncodedError(Exception):
    """An answer was packed on its way, and is not as stored."""


def _bucket_host(bucket: str, endpoint: str) -> str:
    """The endpoint with the bucket in its host, which the client library expects to find there."""
    address = canonical_endpoint(endpoint)
    if ":" in address.host or address.host.rpartition(".")[2].isdecimal():
        raise ValueError(
            f"no bucket can stand in front of the address {address.host}: set spec.source.options.pathStyle to true"
        )
    return str(address.at(f"{bucket}.{address.host}"))


def _own_host(endpoint: str) -> str:
    """The host of a store, buckets in front of it included; Amazon's own hosts where no endpoint is named."""
    if endpoint:
        return canonical_endpoint(endpoint).host
    return ",".join(("amazonaws.com", *AMAZON_DOMAINS.values()))
