"""Reads objects of Google Cloud Storage.

Each request names the generation that was listed, and the answer's is compared as well. The store unpacks an object
that is stored with `Content-Encoding: gzip` for who does not accept that, and takes no notice of ranges then: it is
asked for as it is stored. Something on the way may pack what is not packed for who accepts it: that is asked for anew.
"""

from __future__ import annotations

from typing import Final

from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from tdcs.api.source_uri import SourceUri
from tdcs.decide.store_refusal import LONGEST_ANSWER, Cause, StoreKind, read_answer
from tdcs.engine.google_requests import bearer_token, object_request
from tdcs.engine.tls_failures import trusting
from tdcs.model.agent_state import SourceAccess
from tdcs.model.file_ids import plain_etag
from tdcs.node.agent.mount.answer_checks import require_tag, wrong_part
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, Write, changed
from tdcs.node.agent.mount.store_failures import StoreRefusalError, http_failure

_CONNECTIONS: Final = 32


class GoogleReader:
    """A bucket, or a prefix in one."""

    lanes = 16

    def __init__(self, access: SourceAccess, source: SourceUri) -> None:
        self._access: Final = access
        self._prefix: Final = f"{source.path}/" if source.path else ""
        bearer_token(access)  # of a key that is none there is no reader
        self._pool: Final = PoolManager(
            timeout=Timeout(connect=10, read=30),
            maxsize=_CONNECTIONS,
            retries=False,
            ssl_context=trusting(access.ca_bundle) if access.ca_bundle else None,
        )

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of an object that has the listed generation and length."""
        try:
            key = self._prefix + extent.path.decode()
        except UnicodeDecodeError as error:
            raise SourceFailureError(
                "BadName", "the file's name is no UTF-8, as the store demands"
            ) from error
        data = self._ask(key, extent, encoding="gzip")
        write(memoryview(data if data is not None else self._ask(key, extent, encoding="identity") or b""))

    def _ask(self, key: str, extent: Extent, *, encoding: str) -> bytes | None:
        """The bytes of a piece; None where they were packed on their way. Raises SourceFailureError."""
        request = object_request(self._access, key, generation=extent.tag.strip('"'))
        headers = {**request.headers, "Accept-Encoding": encoding}
        if extent.length:
            headers["Range"] = f"bytes={extent.offset}-{extent.offset + extent.length - 1}"
        try:
            answer = self._pool.request(
                "GET", request.url, headers=headers, redirect=False, preload_content=False
            )
            try:
                if answer.status not in (200, 206):
                    raise self._refusal(answer.status, answer.read(LONGEST_ANSWER, decode_content=False))
                require_tag(extent, plain_etag(answer.headers.get("X-Goog-Generation", "")), compared=True)
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
        secrets = (access.secret_access_key, access.session_token, access.access_key_id, bearer_token(access))
        refused = StoreRefusalError(read_answer(status, document), secrets=secrets, kind=StoreKind.GOOGLE)
        if refused.meaning.cause is Cause.CHANGED:
            return changed(f"it has another generation ({status})")
        return refused
