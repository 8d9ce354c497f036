"""The fast path of a prioritize call through uvicorn: no scope, no task, no messages, and one write for the answer.

kube-scheduler waits for the extender with every pod that it places. uvicorn's own way takes half of the processor time
of a call, and wakes kube-scheduler twice: it writes the head of an answer and its body each by itself.
"""

import logging
from http import HTTPStatus
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tdcs_scheduler.app import MAX_BODY_BYTES, Extender

_log: Final = logging.getLogger(__name__)


class FastPath(HttpToolsProtocol):
    """uvicorn's protocol for an `Extender`, which answers plain prioritize calls itself, and all else as uvicorn does.

    One of these serves one connection.
    """

    def __init__(self, config: uvicorn.Config, **others: Any) -> None:
        super().__init__(config, **others)
        self._extender: Final = cast("Extender", config.app)
        # Of the call that is coming in; None: what is coming goes uvicorn's way.
        self._body: bytearray | None = None

    def on_headers_complete(self) -> None:
        """The parser has seen a request's head."""
        self._body = bytearray() if self._is_plain_call() else None
        if self._body is None:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """The parser has seen a part of a body."""
        if self._body is None:
            super().on_body(body)
        elif len(self._body) <= MAX_BODY_BYTES:
            self._body += body

    def on_message_complete(self) -> None:
        """The parser has seen the end of a request."""
        if self._body is None:
            super().on_message_complete()
            return
        body, self._body = self._body, None
        try:
            status, content_type, answer = self._extender.prioritize(body)
        except Exception:
            # Whatever leaves a callback of the parser is taken for the client's error, and not logged.
            _log.exception("a prioritize call has no answer")
            status, content_type, answer = 500, "text/plain", b"the extender failed, see its log\n"
        self._answer(status, content_type, answer)

    def _is_plain_call(self) -> bool:
        """Whether this is a prioritize call with nothing special to it, and no answer before it is still to come."""
        return (
            self.url == b"/prioritize"
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
            and self._extender.serves_scores(self.server)
        )

    def _answer(self, status: int, content_type: str, answer: bytes) -> None:
        stays = self.parser.should_keep_alive()
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"content-type: {content_type}",
            f"content-length: {len(answer)}",
            *(() if stays else ("connection: close",)),
            *(f"{name.decode()}: {value.decode()}" for name, value in self.server_state.default_headers),
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + answer)
        if stays:
            # Of a call that came in the same piece there is a timer already, which nothing else would stop.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self.transport.close()
