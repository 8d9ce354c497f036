"""Reads objects of an S3-compatible store.

Each request names the ETag of the listing (If-Match), so no second request is needed to know the version. The answer's
ETag is compared as well: a store, or a cache in front of it, may take no notice of If-Match. An ETag that is too long
for a manifest is known by its hash, and compared in the answer alone.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from tdcs.api.source_uri import REGION, SourceUri, canonical_endpoint
from tdcs.engine.signed_request import object_url
from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import is_long, known_tag
from tdcs.model.redaction import redact
from tdcs.node.agent.mount.source_pieces import (
    Extent,
    SourceFailureError,
    Write,
    changed,
    listed_time,
    unanswered,
)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ANSWER: Final = re.compile(
    r" - Server returned non-2xx status code: (\d{3})(.*?)(?:\n\nDebug source:|$)", re.DOTALL
)
"""What a store has answered, in an error of the client library: the status, and its document. The address and the
file's name stand before it, and may have any digits and words."""
_LONGEST_REASON: Final = 300
_LONGEST_ERROR: Final = 65_536
"""Bytes of an error's document that are looked at."""
_ASKS_FOR_PATIENCE: Final = ("RequestTimeout<", "SlowDown", "Throttl", "TooManyRequests")
"""Codes of answers that say nothing of the file, whatever their status: Amazon's `RequestTimeout` is a 400."""
_NO_PROXY: Final = "http://tdcs-follows-no-redirection.invalid:1"
"""A proxy that never answers: the name cannot exist (RFC 2606)."""


class BucketReader:
    """A bucket, or a prefix in one, of an S3-compatible store."""

    lanes = 16

    def __init__(self, access: SourceAccess, source: SourceUri) -> None:
        options = access.options
        if not REGION.fullmatch(options.get("region", "us-east-1")):
            raise ValueError("its region is none")
        endpoint = options.get("endpoint", "").rstrip("/")
        path_style = options.get("pathStyle", "true" if endpoint else "false") == "true"
        self._secrets: Final = (access.secret_access_key, access.access_key_id)
        self._address: Final[dict[str, Any]] = {
            "endpoint": endpoint,
            "bucket": source.bucket,
            "region": options.get("region", "us-east-1"),
            "path_style": path_style,
            "access_key_id": access.access_key_id,
            "secret_access_key": access.secret_access_key,
        }
        self._plain_http: Final = PoolManager(timeout=Timeout(connect=10, read=30))
        self._prefix: Final = f"{source.path}/" if source.path else ""
        keys: dict[str, Any] = (
            {"access_key_id": access.access_key_id, "secret_access_key": access.secret_access_key}
            if access.access_key_id
            else {"skip_signature": True}
        )
        if endpoint:
            keys["endpoint"] = endpoint if path_style else _bucket_host(source.bucket, endpoint)
        self._store: Final = S3Store(
            source.bucket,
            region=options.get("region", "us-east-1"),
            virtual_hosted_style_request=not path_style,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                # A store may answer with a redirection to any host, and the client would follow it: every host but
                # the store's own is asked through a proxy that is not there.
                "proxy_url": _NO_PROXY,
                "proxy_excludes": _own_host(endpoint),
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
        if _CONTROL.search(key):
            self._read_signed(key, extent, write)
            return
        asked: dict[str, Any] = {"if_match": extent.tag} if extent.tag.startswith('"') else {}
        if extent.length != extent.size:
            asked["range"] = (extent.offset, extent.offset + extent.length)
        try:
            answer = self._store.get(key, options=asked)  # type: ignore[arg-type]
            if answer.meta["size"] != extent.size:
                raise changed(f"it has {answer.meta['size']} bytes, and had {extent.size}")
            _require_tag(extent, answer.meta.get("e_tag"))
            listed = listed_time(extent.tag)
            if listed is not None and int(answer.meta["last_modified"].timestamp()) != listed // 1000:
                raise changed("its time is another one")
            # The first chunk is all of an answer of the right length. One that is longer, whatever its headers say, is
            # read no further: all that some store sends would be kept in memory otherwise.
            data = memoryview(next(iter(answer.stream(min_chunk_size=extent.length + 1)), b""))
        except SourceFailureError:
            raise
        except PreconditionError as error:
            raise changed("its ETag is another one (412)") from error
        except FileNotFoundError as error:
            raise self._absent(error) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise _denied(_answer(error)[1]) from error
        except ValueError as error:
            raise SourceFailureError(
                "BadName", f"the name cannot be asked for: {self._plain(error)}"
            ) from error
        except BaseError as error:
            raise self._failure(error) from error
        if len(data) != extent.length:
            came = "more" if len(data) > extent.length else str(len(data))
            raise SourceFailureError("Changed", f"{came} bytes came, and {extent.length} were asked for")
        write(data)

    def _read_signed(self, key: str, extent: Extent, write: Write) -> None:
        """Read an object with control characters in its name, which the client library refuses to ask for."""
        headers = {"Range": f"bytes={extent.offset}-{extent.offset + extent.length - 1}"}
        if extent.tag.startswith('"'):
            headers["If-Match"] = extent.tag
        url = object_url(**self._address, key=key, now=datetime.now(UTC))
        try:
            answer = self._plain_http.request(
                "GET", url, headers=headers, redirect=False, retries=False, preload_content=False
            )
            try:
                if answer.status in (401, 403):
                    raise _denied(answer.read(_LONGEST_ERROR, decode_content=False).decode(errors="replace"))
                self._check_status(answer.status)
                # A store that takes no notice of the range sends all of the object: no more is read than was asked for.
                data = answer.read(extent.length + 1, decode_content=False)
            finally:
                answer.close()
        except HTTPError as error:
            raise unanswered(f"the source does not answer: {type(error).__name__}") from error
        _require_tag(extent, answer.headers.get("ETag"))
        size = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if len(data) != extent.length or (size.isdecimal() and int(size) != extent.size):
            came = f"more than {extent.length}" if len(data) > extent.length else str(len(data))
            raise changed(f"{came} bytes came of {size or 'its'} bytes")
        listed, time = listed_time(extent.tag), answer.headers.get("Last-Modified")
        if listed is not None and time and int(parsedate_to_datetime(time).timestamp()) != listed // 1000:
            raise changed("its time is another one")
        write(memoryview(data))

    @staticmethod
    def _check_status(status: int) -> None:
        if status == 412:
            raise changed("its ETag is another one (412)")
        if status == 416:
            raise changed("it became shorter (416)")
        if status == 404:
            raise SourceFailureError("Missing", "the file is not at the source any more (404)")
        if status == 400:
            raise SourceFailureError("BadName", "the source refuses the file's name (400)")
        if status not in (200, 206):
            raise unanswered(f"the source does not answer: status {status}", status=status)

    def _absent(self, error: Exception) -> SourceFailureError:
        if "NoSuchBucket" in _answer(error)[1]:
            return SourceFailureError("SourceAway", "there is no such bucket", common=True)
        return SourceFailureError("Missing", "the file is not at the source any more (404)")

    def _failure(self, error: Exception) -> SourceFailureError:
        text, (status, document) = self._plain(error), _answer(error)
        if any(code in document for code in _ASKS_FOR_PATIENCE):
            return unanswered(f"the source does not answer: {text}")
        if status == 416 or "InvalidRange" in document:
            return SourceFailureError("Changed", "the file became shorter at the source (416)")
        if status == 400 or "KeyTooLong" in document:
            return SourceFailureError("BadName", f"the source refuses the request: {text}")
        return unanswered(f"the source does not answer: {text}", status=status)

    def _plain(self, error: Exception) -> str:
        """The first line, without secrets and without what differs each time."""
        line = str(error).partition("\n")[0]
        with suppress(ValueError):
            line = line[: line.index(" in ")] + line[line.index(" - ") :]
        return redact(text=line, secrets=self._secrets)[:_LONGEST_REASON]


def _answer(error: Exception) -> tuple[int, str]:
    """The status and the document of a store's answer; 0 and nothing where there was none."""
    found = _ANSWER.search(str(error))
    return (int(found[1]), found[2]) if found is not None else (0, "")


def _denied(said: str) -> SourceFailureError:
    """The failure of a request that is refused, from what the store said of it."""
    reason = "the source refuses the credentials or the file (403)"
    if "RequestTimeTooSkewed" in said:
        reason = (
            "the clock of this node and the source's differ by too much (RequestTimeTooSkewed): "
            "have the node's clock set, as NTP does"
        )
    return SourceFailureError("Denied", reason, common=True)


def _require_tag(extent: Extent, answered: str | None) -> None:
    """Refuse the bytes of another version. An ETag that is left out, or made weak on its way (RFC 9110, 8.8.3), says
    nothing against them.

    Raises:
        SourceFailureError: the answer has another ETag than the listing.
    """
    listed = extent.tag.startswith('"') or is_long(extent.tag)
    if answered and listed and known_tag(answered.removeprefix("W/")) != extent.tag:
        raise changed("its ETag is another one")


def _bucket_host(bucket: str, endpoint: str) -> str:
    """The endpoint with the bucket in its host, which the client library expects to find there."""
    there = canonical_endpoint(endpoint)
    if ":" in there.host or there.host.rpartition(".")[2].isdecimal():
        raise ValueError(
            f"no bucket can stand in front of the address {there.host}: set spec.source.options.pathStyle to true"
        )
    return str(there.at(f"{bucket}.{there.host}"))


def _own_host(endpoint: str) -> str:
    """The host of a store, buckets in front of it included; Amazon's own hosts where no endpoint is named."""
    return canonical_endpoint(endpoint).host if endpoint else "amazonaws.com,amazonaws.com.cn"
