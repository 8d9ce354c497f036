"""Reads objects of Google Cloud Storage, and blobs of Azure.

Each request names what was listed, Google's generation or Azure's ETag, and the answer's is compared as well. Google's
store unpacks an object that is stored with `Content-Encoding: gzip` for who does not accept that, and takes no notice
of ranges then: it is asked for as it is stored. Something on the way may pack what is not packed for who accepts it:
that is asked for again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from urllib3.exceptions import HTTPError

from tdcs.api.source_uri import SourceUri
from tdcs.decide.error_document import LONGEST_ANSWER, read_answer
from tdcs.decide.store_refusal import Cause, StoreKind, store_kind
from tdcs.engine import azure_requests
from tdcs.engine.google_requests import StoreRequest, bearer_token, object_request
from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import is_long, plain_etag
from tdcs.node.agent.mount.answer_checks import require_tag, wrong_part
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, Write, changed
from tdcs.node.agent.mount.store_failures import StoreRefusalError, http_failure
from tdcs.node.agent.mount.store_pool import store_pool

_TAGS: Final = {
    StoreKind.GOOGLE: ("X-Goog-Generation", "generation"),
    StoreKind.AZURE: ("ETag", "ETag"),
}
"""The header that says which one an object is, and what people call that."""


class CloudReader:
    """A bucket of Google's or a container of Azure's, or a prefix in one."""

    lanes = 16

    def __init__(self, access: SourceAccess, source: SourceUri) -> None:
        self._access: Final = access
        self._kind: Final = store_kind(source.scheme)
        self._prefix: Final = f"{source.path}/" if source.path else ""
        self._request(
            "", Extent(path=b"", offset=0, length=0, size=0, tag="")
        )  # a key that is none has no reader
        self._pool: Final = store_pool(access.ca_bundle, proxy=access.proxy)

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of an object that has the listed tag and length."""
        try:
            key = self._prefix + extent.path.decode()
        except UnicodeDecodeError as error:
            raise SourceFailureError(
                "BadName", "the file's name is no UTF-8, as the store demands"
            ) from error
        data = self._ask(key, extent, encoding="gzip")
        write(memoryview(data if data is not None else self._ask(key, extent, encoding="identity") or b""))

    def _request(self, key: str, extent: Extent) -> StoreRequest:
        """The request for a piece; raises ValueError for credentials that are none."""
        span = f"bytes={extent.offset}-{extent.offset + extent.length - 1}" if extent.length else ""
        if self._kind is StoreKind.AZURE:
            etag = "" if is_long(extent.tag) else extent.tag
            now = datetime.now(UTC)
            return azure_requests.blob_request(self._access, key, etag=etag, span=span, now=now)
        url, headers = object_request(self._access, key, generation=extent.tag.strip('"'))
        return StoreRequest(url, headers | ({"Range": span} if span else {}))

    def _ask(self, key: str, extent: Extent, *, encoding: str) -> bytes | None:
        """The bytes of a piece; None where they were packed on their way. Raises SourceFailureError."""
        request = self._request(key, extent)
        headers = {**request.headers, "Accept-Encoding": encoding}
        try:
            answer = self._pool.request(
                "GET", request.url, headers=headers, redirect=False, preload_content=False
            )
            try:
                if answer.status not in (200, 206):
                    raise self._refusal(answer.status, answer.read(LONGEST_ANSWER, decode_content=False))
                tag = answer.headers.get(_TAGS[self._kind][0], "")
                require_tag(extent, plain_etag(tag), compared=True)
                data = answer.read(extent.length + 1, decode_content=False)
            finally:
                answer.close()
        except HTTPError as error:
            raise http_failure(error) from error
        if (wrong := wrong_part(extent, answer, len(data))) is None:
            return data
        if encoding != "identity" and "Content-Encoding" in answer.headers:
            return None
        raise wrong

    def _refusal(self, status: int, document: bytes) -> SourceFailureError:
        access = self._access
        if self._kind is StoreKind.AZURE:
            secrets = azure_requests.secrets_of(access)
        else:
            keys = (access.secret_access_key, access.session_token, access.access_key_id)
            secrets = (*keys, bearer_token(access))
        refused = StoreRefusalError(read_answer(status, document), secrets=secrets, kind=self._kind)
        if refused.meaning.cause is Cause.CHANGED:
            return changed(f"it has another {_TAGS[self._kind][1]} ({status})")
        return refused
