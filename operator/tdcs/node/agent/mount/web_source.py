"""Reads files of a web server, of a repository of the Hugging Face Hub, or of a claim that a pod serves.

An answer is compared with what was listed by its own headers, so that no condition is sent. A server that takes no
notice of ranges sends each file from its beginning: the pieces of a file are taken from one answer then, in order, and
what nobody here asks for between two of them is passed over.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from tdcs.api.source_uri import is_claim
from tdcs.decide.error_document import LONGEST_ANSWER, read_answer
from tdcs.decide.redirection import MOST_REDIRECTIONS, REDIRECTIONS, Hop, next_hop, refused_address
from tdcs.decide.store_refusal import StoreKind
from tdcs.model.agent_state import SourceAccess
from tdcs.model.web_address import authorization, web_address
from tdcs.node.agent.mount.answer_checks import require_tag, require_time, time_of, wrong_part
from tdcs.node.agent.mount.source_pieces import Extent, SourceFailureError, Write, changed, unanswered
from tdcs.node.agent.mount.store_failures import StoreRefusalError, http_failure
from tdcs.node.agent.mount.store_pool import store_pool

_log: Final = logging.getLogger(__name__)

_STREAMS: Final = 32
"""Answers that are kept open for the next piece of their file."""
_TURN_SECONDS: Final = 1.0
"""So long a piece waits for those before it while nobody takes them from the same answer, before it asks for one of its
own."""
_GAP_SECONDS: Final = 0.25
"""So long a piece waits for one before it that nobody has asked for yet, before what is between is passed over."""
_SKIP_BYTES: Final = 1 << 20
_LINKED_ETAG: Final = "X-Linked-ETag"
"""Of the Hub, which redirects to another host for large files: what it knows the file by."""


@dataclass(eq=False, slots=True)
class _Stream:
    """An answer that is read piece by piece. `at`: the place in the file of its next byte."""

    answer: BaseHTTPResponse
    at: int
    in_use: bool = True


class WebReader:
    """The files below one address."""

    lanes = 16

    def __init__(self, access: SourceAccess) -> None:
        self._access: Final = access
        self._address: Final = web_address(access.uri, access.options)
        self._secrets: Final = (access.secret_access_key, access.session_token, access.access_key_id)
        self._own_headers: Final = authorization(
            user=access.access_key_id, password=access.secret_access_key, token=access.session_token
        ) | ({"Host": self._address.host} if self._address.host else {})
        # A claim's pod shows the one certificate that was made for it.
        self._pool: Final = store_pool(access.ca_bundle, proxy=access.proxy, only=is_claim(access.uri))
        # An authority of the administrator's is trusted for the source alone.
        self._other_hosts: Final = store_pool("") if access.ca_bundle else self._pool
        self._takes_ranges = True
        self._streams: Final[dict[bytes, _Stream]] = {}
        self._beginning: Final = set[bytes]()
        """Files for which an answer is on its way that others may go on with."""
        self._waiting: Final[dict[bytes, list[int]]] = {}
        """Where the pieces begin that wait for an answer."""
        self._moved: Final = threading.Condition()

    def read(self, extent: Extent, write: Write) -> None:
        """Read a piece of a file that is as it was listed."""
        is_part = extent.length != extent.size
        if is_part and not self._takes_ranges:
            self._read_in_turn(extent, write)
            return
        headers = {}
        if is_part:
            headers["Range"] = f"bytes={extent.offset}-{extent.offset + extent.length - 1}"
        with self._opened(extent, headers) as answer:
            if is_part and answer.status == 200:
                if self._takes_ranges:
                    _log.info("%s takes no notice of ranges: its files are read in order", self._access.uri)
                self._takes_ranges = False
            else:
                data = answer.read(extent.length + 1, decode_content=False)
                if (wrong := wrong_part(extent, answer, len(data))) is not None:
                    raise wrong
                write(memoryview(data))
                return
        self._read_in_turn(extent, write)

    def _read_in_turn(self, extent: Extent, write: Write) -> None:
        """Read a piece from the answer from which the piece before it was read, or from a new one."""
        stream = self._taken(extent) or self._begun(extent)
        reusable = False
        try:
            while stream.at < extent.offset:
                skipped = stream.answer.read(
                    min(_SKIP_BYTES, extent.offset - stream.at), decode_content=False
                )
                if not skipped:
                    raise changed(f"it ends after {stream.at} of its {extent.size} bytes")
                stream.at += len(skipped)
            data = stream.answer.read(extent.length, decode_content=False)
            if len(data) != extent.length:
                raise changed(f"{len(data)} bytes came, and {extent.length} were asked for")
            stream.at += len(data)
            reusable = stream.at < extent.size
        except HTTPError as error:
            raise http_failure(error) from error
        finally:
            self._give_back(extent.path, stream, reusable=reusable)
        write(memoryview(data))

    def _taken(self, extent: Extent) -> _Stream | None:
        """The answer from which the piece is to be read, once those before it that are asked for were read; None when
        it is to be read from a new answer."""
        begin = time.monotonic()
        until = begin + _TURN_SECONDS
        with self._moved:
            waiting = self._waiting.setdefault(extent.path, [])
            waiting.append(extent.offset)
            try:
                while True:
                    now, stream = time.monotonic(), self._streams.get(extent.path)
                    is_next = min(waiting) == extent.offset
                    if extent.path in self._beginning:
                        until = now + _TURN_SECONDS
                    elif stream is None:
                        if is_next and (not extent.offset or now >= until):
                            self._beginning.add(extent.path)
                            return None
                    elif stream.at > extent.offset:
                        return None
                    elif not stream.in_use and (
                        stream.at == extent.offset or (is_next and now >= begin + _GAP_SECONDS)
                    ):
                        stream.in_use = True
                        return stream
                    self._moved.wait(_GAP_SECONDS)
            finally:
                waiting.remove(extent.offset)
                if not waiting:
                    del self._waiting[extent.path]
                self._moved.notify_all()

    def _begun(self, extent: Extent) -> _Stream:
        """A new answer, which others may go on with."""
        try:
            stream = _Stream(self._ask(extent, {}), 0)
        except BaseException:
            with self._moved:
                self._beginning.discard(extent.path)
                self._moved.notify_all()
            raise
        with self._moved:
            self._beginning.discard(extent.path)
            current = self._streams.get(extent.path)
            if current is not None and not current.in_use and extent.path not in self._waiting:
                current.answer.close()  # it is past what is read now
                current = None
            if current is None:
                idle = [path for path, stream in self._streams.items() if not stream.in_use]
                if len(self._streams) >= _STREAMS and idle:
                    self._streams.pop(idle[0]).answer.close()
                self._streams[extent.path] = stream
            self._moved.notify_all()
        return stream

    def _give_back(self, path: bytes, stream: _Stream, *, reusable: bool) -> None:
        with self._moved:
            stream.in_use = False
            if not reusable or self._streams.get(path) is not stream:
                stream.answer.close()
                if self._streams.get(path) is stream:
                    del self._streams[path]
            self._moved.notify_all()

    @contextmanager
    def _opened(self, extent: Extent, headers: Mapping[str, str]) -> Iterator[BaseHTTPResponse]:
        answer = self._ask(extent, headers)
        try:
            yield answer
        except HTTPError as error:
            raise http_failure(error) from error
        finally:
            answer.close()

    def _ask(self, extent: Extent, headers: Mapping[str, str]) -> BaseHTTPResponse:
        """The answer for the file that was listed, as far as its headers say; raises SourceFailureError."""
        hop, linked = Hop(self._address.file(extent.path), own=True), ""
        for _ in range(MOST_REDIRECTIONS + 1):
            sent = {"Accept-Encoding": "identity", **headers, **(self._own_headers if hop.own else {})}
            pool = self._other_hosts if hop.checked else self._pool
            try:
                answer = pool.request("GET", hop.url, headers=sent, redirect=False, preload_content=False)
            except HTTPError as error:
                raise http_failure(error) from error
            if hop.own:
                linked = linked or answer.headers.get(_LINKED_ETAG, "")
            location = answer.headers.get("Location", "")
            if answer.status not in REDIRECTIONS or not location:
                try:
                    self._check(extent, answer, linked)
                except BaseException:
                    answer.close()
                    raise
                return answer
            answer.close()
            hop = self._followed(hop.url, location)
        raise _not_followed(f"it redirects more than {MOST_REDIRECTIONS} times")

    def _followed(self, url: str, location: str) -> Hop:
        if is_claim(self._access.uri):
            raise _not_followed("the claim's pod redirects to elsewhere")
        hop = next_hop(
            url=url,
            location=location,
            origin=self._address.origin,
            host=self._address.host,
            allowed=self._access.redirects,
            proxied=bool(self._access.proxy),
        )
        if hop.refusal:
            raise _not_followed(hop.refusal)
        if hop.checked and (why := _wrong_host(hop.url)):
            raise _not_followed(why)
        return hop

    def _check(self, extent: Extent, answer: BaseHTTPResponse, linked: str) -> None:
        if answer.status not in (200, 206):
            document = answer.read(LONGEST_ANSWER, decode_content=False)
            raise StoreRefusalError(
                read_answer(answer.status, document), secrets=self._secrets, kind=StoreKind.WEB
            )
        packed = answer.headers.get("Content-Encoding", "identity")
        if packed.lower() != "identity":
            raise unanswered(
                f"the source packs what it sends ({packed}), although asked not to", status=answer.status
            )
        require_tag(extent, linked or answer.headers.get("ETag"), compared=False)
        if (modified := time_of(answer.headers.get("Last-Modified", ""))) is not None:
            require_time(extent, modified)


def _wrong_host(url: str) -> str:
    """Why the host of a redirection is not followed to, by its addresses; empty where it is."""
    parts = urlsplit(url)
    try:
        addresses = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except OSError:
        return f"it redirects to {parts.hostname}, which has no address"
    return next(filter(None, (refused_address(str(address[4][0])) for address in addresses)), "")


def _not_followed(why: str) -> SourceFailureError:
    return SourceFailureError(
        "Denied",
        f"the source does not give the file: {why}; name the address at which the files are in spec.source.uri, or ask "
        "the administrator for a rule",
        common=True,
    )
