"""Reads pieces of files from the source of a mount, and says why one cannot be had.

For S3 each request names the ETag of the listing (If-Match), so what comes is of the version that was listed and no
second request is needed; for a folder the file's time and length are compared before and after.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from tdcs.agent.signed_request import object_url
from tdcs.engine.agents import FailureCode, SourceAccess
from tdcs.engine.redaction import redact

_CHUNK: Final = 1 << 20
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_TIME_TAG: Final = "mtime-ms"
_LONGEST_REASON: Final = 300
_NAMES_REFUSED: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})
_AWAY: Final = frozenset({errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENXIO})


class Extent(NamedTuple):
    """A piece of a file at its source: `length` bytes from `offset`, of a file that has `size` and `tag`."""

    path: bytes
    offset: int
    length: int
    size: int
    tag: str


class SourceFailureError(Exception):
    """A piece cannot be had.

    Attributes:
        code: why, for the operator.
        common: it concerns the source as a whole as a rule, not the one file.
    """

    def __init__(self, code: FailureCode, reason: str, *, common: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.common = common


Write = Callable[[memoryview], None]
"""Takes the bytes of a piece, in order."""


class SourceReader(Protocol):
    """Reads one source. Thread-safe."""

    lanes: int
    """Pieces that are read at the same time with profit."""

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece, all of it; raises SourceFailureError. What was written before that is worth nothing."""
        ...


def open_source(access: SourceAccess) -> SourceReader:
    """A reader of this source; raises SourceFailureError when its address makes no sense."""
    parts = urlsplit(access.uri)
    if parts.scheme == "file":
        return FolderReader(unquote(parts.path))
    if parts.scheme == "s3":
        return BucketReader(access)
    raise SourceFailureError("SourceAway", f"this agent cannot read a source of the kind {parts.scheme}://")


class FolderReader:
    """A folder that this node sees under its own path."""

    lanes = 4

    def __init__(self, folder: str) -> None:
        self._folder: Final = os.fsencode(folder.rstrip("/") or "/")

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of a file that has the listed length and time, before and after."""
        try:
            file = os.open(self._folder + b"/" + extent.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                _compare(os.fstat(file), extent)
                left, at = extent.length, extent.offset
                while left:
                    data = os.pread(file, min(left, _CHUNK), at)
                    if not data:
                        raise SourceFailureError("Changed", "the file became shorter while it was read")
                    write(memoryview(data))
                    left -= len(data)
                    at += len(data)
                _compare(os.fstat(file), extent)
            finally:
                os.close(file)
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> SourceFailureError:
        reason = error.strerror or type(error).__name__
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            if not os.path.isdir(self._folder):
                return SourceFailureError(
                    "SourceAway", "the source's folder is away on this node", common=True
                )
            return SourceFailureError("Missing", "the file is not at the source any more")
        if error.errno in (errno.EACCES, errno.EPERM):
            return SourceFailureError("Denied", f"the source refuses to give the file: {reason}")
        if error.errno in _NAMES_REFUSED:
            return SourceFailureError("BadName", f"the source refuses the file's name: {reason}")
        if error.errno in _AWAY:
            return SourceFailureError("SourceAway", f"the source does not answer: {reason}", common=True)
        return SourceFailureError("Unreadable", f"the file cannot be read: {reason}")


def _compare(found: os.stat_result, extent: Extent) -> None:
    if found.st_size != extent.size:
        raise _changed(f"it has {found.st_size} bytes, and had {extent.size}")
    listed = _listed_time(extent.tag)
    if listed is not None and found.st_mtime_ns // 1_000_000 != listed:
        raise _changed("its time is another one")


def _listed_time(tag: str) -> int | None:
    """The time of the last change in milliseconds, where that is a file's tag."""
    kind, _, time = tag.partition(":")
    return int(time) if kind == _TIME_TAG and time.lstrip("-").isdecimal() else None


def _changed(how: str) -> SourceFailureError:
    return SourceFailureError("Changed", f"its file has changed at the source since it was listed: {how}")


class BucketReader:
    """A bucket, or a prefix in one, of an S3-compatible store."""

    lanes = 16

    def __init__(self, access: SourceAccess) -> None:
        parts = urlsplit(access.uri)
        options = access.options
        endpoint = options.get("endpoint", "").rstrip("/")
        path_style = options.get("pathStyle", "true" if endpoint else "false") == "true"
        self._secrets: Final = (access.secret_access_key, access.access_key_id)
        self._address: Final[dict[str, Any]] = {
            "endpoint": endpoint,
            "bucket": parts.netloc,
            "region": options.get("region", "us-east-1"),
            "path_style": path_style,
            "access_key_id": access.access_key_id,
            "secret_access_key": access.secret_access_key,
        }
        self._plain_http: Final = PoolManager(timeout=Timeout(connect=10, read=30))
        prefix = access.uri.removeprefix(f"s3://{parts.netloc}").strip("/")
        self._prefix: Final = f"{prefix}/" if prefix else ""
        keys: dict[str, Any] = (
            {"access_key_id": access.access_key_id, "secret_access_key": access.secret_access_key}
            if access.access_key_id
            else {"skip_signature": True}
        )
        if endpoint:
            keys["endpoint"] = endpoint
        self._store: Final = S3Store(
            parts.netloc,
            region=options.get("region", "us-east-1"),
            virtual_hosted_style_request=not path_style,
            client_options={
                "allow_http": endpoint.startswith("http://"),
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
                raise _changed(f"it has {answer.meta['size']} bytes, and had {extent.size}")
            listed = _listed_time(extent.tag)
            if listed is not None and int(answer.meta["last_modified"].timestamp()) != listed // 1000:
                raise _changed("its time is another one")
            data = memoryview(answer.bytes())
        except SourceFailureError:
            raise
        except PreconditionError as error:
            raise _changed("its ETag is another one (412)") from error
        except FileNotFoundError as error:
            raise self._absent(error) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            reason = "the source refuses the credentials or the file (403)"
            raise SourceFailureError("Denied", reason, common=True) from error
        except ValueError as error:
            raise SourceFailureError(
                "BadName", f"the name cannot be asked for: {self._plain(error)}"
            ) from error
        except BaseError as error:
            raise self._failure(error) from error
        if len(data) != extent.length:
            raise SourceFailureError("Changed", f"{len(data)} bytes came, and {extent.length} were asked for")
        write(data)

    def _read_signed(self, key: str, extent: Extent, write: Write) -> None:
        """Read an object whose name has control characters, which the client library refuses to ask for."""
        headers = {"Range": f"bytes={extent.offset}-{extent.offset + extent.length - 1}"}
        if extent.tag.startswith('"'):
            headers["If-Match"] = extent.tag
        url = object_url(**self._address, key=key, now=datetime.now(UTC))
        try:
            answer = self._plain_http.request("GET", url, headers=headers, redirect=False, retries=False)
        except HTTPError as error:
            reason = f"the source does not answer: {type(error).__name__}"
            raise SourceFailureError("SourceAway", reason, common=True) from error
        if answer.status == 412:
            raise _changed("its ETag is another one (412)")
        if answer.status == 416:
            raise _changed("it became shorter (416)")
        if answer.status == 404:
            raise SourceFailureError("Missing", "the file is not at the source any more (404)")
        if answer.status in (401, 403):
            reason = "the source refuses the credentials or the file (403)"
            raise SourceFailureError("Denied", reason, common=True)
        if answer.status == 400:
            raise SourceFailureError("BadName", "the source refuses the file's name (400)")
        if answer.status not in (200, 206):
            reason = f"the source does not answer: status {answer.status}"
            raise SourceFailureError("SourceAway", reason, common=True)
        size = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if len(answer.data) != extent.length or (size.isdecimal() and int(size) != extent.size):
            raise _changed(f"{len(answer.data)} bytes came of {size or 'its'} bytes")
        listed, time = _listed_time(extent.tag), answer.headers.get("Last-Modified")
        if listed is not None and time and int(parsedate_to_datetime(time).timestamp()) != listed // 1000:
            raise _changed("its time is another one")
        write(memoryview(answer.data))

    def _absent(self, error: Exception) -> SourceFailureError:
        if "NoSuchBucket" in str(error):
            return SourceFailureError("SourceAway", "there is no such bucket", common=True)
        return SourceFailureError("Missing", "the file is not at the source any more (404)")

    def _failure(self, error: Exception) -> SourceFailureError:
        text = self._plain(error)
        if "416" in text or "InvalidRange" in text:
            return SourceFailureError("Changed", "the file became shorter at the source (416)")
        if "status code: 400" in text or "KeyTooLong" in text:
            return SourceFailureError("BadName", f"the source refuses the request: {text}")
        return SourceFailureError("SourceAway", f"the source does not answer: {text}", common=True)

    def _plain(self, error: Exception) -> str:
        """The first line, without secrets and without what differs each time."""
        line = str(error).partition("\n")[0]
        with suppress(ValueError):
            line = line[: line.index(" in ")] + line[line.index(" - ") :]
        return redact(text=line, secrets=self._secrets)[:_LONGEST_REASON]
