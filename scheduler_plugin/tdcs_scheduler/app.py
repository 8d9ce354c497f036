"""The extender's HTTP face: POST /prioritize for kube-scheduler, GET /healthz, /livez and /metrics for those who
watch over it.

Written against ASGI itself: one route that matters, called once for every scheduled pod, needs no framework.
"""

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

import msgspec

from tdcs_scheduler.metrics import CONTENT_TYPE, Metrics
from tdcs_scheduler.protocol import BadRequestError, PrioritizeRequest, decode_request, encode_scores
from tdcs_scheduler.rank import Kind, Ranking, rank
from tdcs_scheduler.view import DatasetView

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log: Final = logging.getLogger(__name__)

# A Pod has at most 1.5 MB, and 15000 names of nodes at most 4 MB.
_MAX_BODY_BYTES: Final = 16 * 2**20

# Pods are asked about again and again while they do not fit anywhere; each bad annotation is told once.
_REMEMBERED_COMPLAINTS: Final = 1024


class Freshness(Protocol):
    """How well the view reflects the API server."""

    def is_synced(self) -> bool:
        """Whether the Datasets have been listed once."""
        ...

    def age_seconds(self) -> float:
        """Time since the API server was last heard."""
        ...


class Complain(Protocol):
    """Tells the owner of a pod what is wrong with it; must not block."""

    def __call__(self, *, request: PrioritizeRequest, reason: str) -> None:
        """Tell about the pod of this request."""
        ...


class Extender:
    """The ASGI application.

    `stale_after_seconds`: with a view older than this /healthz is red; scores go on with what is known, because data
    moves slowly and a pod without a score may land anywhere. `monitoring_port`: a port that serves all but /prioritize,
    for probes and metrics from outside of the pod. `explain`: log a line with the reason for every answer to a pod
    with datasets. `complain`: is told once of each pod whose annotation cannot be read.
    """

    def __init__(
        self,
        *,
        view: DatasetView,
        freshness: Freshness,
        stale_after_seconds: float,
        monitoring_port: int | None = None,
        explain: bool = False,
        complain: Complain | None = None,
    ) -> None:
        self._complain: Final = complain
        self._monitoring_port: Final = monitoring_port
        self._view: Final = view
        self._freshness: Final = freshness
        self._stale_after_seconds: Final = stale_after_seconds
        self._explain: Final = explain
        self._complained: Final[dict[str, None]] = {}
        self._metrics: Final = Metrics(view_age_seconds=freshness.age_seconds, datasets=lambda: len(view))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        match path:
            case "/prioritize" if self._is_monitoring(scope):
                await _respond(send, 404, b"scores are told on the other port only\n")
            case "/prioritize" if method == "POST":
                await self._prioritize(receive, send)
            case "/healthz" if method in ("GET", "HEAD"):
                await self._healthz(send)
            case "/livez" if method in ("GET", "HEAD"):
                await _respond(send, 200, b"ok\n")
            case "/metrics" if method in ("GET", "HEAD"):
                await _respond(send, 200, self._metrics.text(), content_type=CONTENT_TYPE)
            case "/prioritize" | "/healthz" | "/livez" | "/metrics":
                await _respond(send, 405, f"{method} is not served at {path}\n".encode())
            case _:
                served = "POST /prioritize, GET /healthz, /livez, /metrics"
                await _respond(send, 404, f"nothing is served at {path}; there are {served}\n".encode())

    def _is_monitoring(self, scope: Scope) -> bool:
        server = scope.get("server")
        return self._monitoring_port is not None and server is not None and server[1] == self._monitoring_port

    async def _prioritize(self, receive: Receive, send: Send) -> None:
        body = await _read(receive)
        if body is None:
            self._metrics.decode_errors.inc()
            await _respond(send, 413, f"a request may have {_MAX_BODY_BYTES} bytes\n".encode())
            return
        started = time.perf_counter()
        try:
            request = decode_request(body=body)
        except BadRequestError as error:
            self._metrics.decode_errors.inc()
            _log.warning("a prioritize request was refused: %s", error)
            await _respond(send, 400, f"{error}\n".encode())
            return
        ranking = rank(request=request, view=self._view, synced=self._freshness.is_synced())
        answer = encode_scores(scores=ranking.scores)
        self._metrics.prioritize_seconds.observe(time.perf_counter() - started)
        self._metrics.answers[ranking.kind].inc()
        await _respond(send, 200, answer, content_type="application/json")
        self._tell(request, ranking)

    def _tell(self, request: PrioritizeRequest, ranking: Ranking) -> None:
        if ranking.kind is Kind.BAD_ANNOTATION and request.uid not in self._complained:
            while len(self._complained) >= _REMEMBERED_COMPLAINTS:
                del self._complained[next(iter(self._complained))]
            self._complained[request.uid] = None
            _log.warning("pod %s is scheduled without regard to its data: %s", request.pod, ranking.reason)
            if self._complain is not None:
                self._complain(request=request, reason=ranking.reason)
        if self._explain and ranking.kind is not Kind.NO_DATASET:
            _log.info("%s", explanation(request=request, ranking=ranking))

    async def _healthz(self, send: Send) -> None:
        age = self._freshness.age_seconds()
        if not self._freshness.is_synced():
            await _respond(send, 503, b"the Datasets have not been listed yet\n")
        elif age > self._stale_after_seconds:
            told = f"nothing was heard from the API server for {age:.0f} s: scores may be out of date\n"
            await _respond(send, 503, told.encode())
        else:
            await _respond(send, 200, b"ok\n")


def explanation(*, request: PrioritizeRequest, ranking: Ranking) -> str:
    """One JSON object that says why the answer to `request` is `ranking`."""
    return msgspec.json.encode(
        {
            "pod": request.pod,
            "datasets": request.annotation,
            "candidates": None if request.nodes is None else len(request.nodes),
            "kind": ranking.kind,
            "reason": ranking.reason,
            "scores": ranking.scores,
        }
    ).decode()


async def _read(receive: Receive) -> bytes | None:
    """The whole body, None if it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= _MAX_BODY_BYTES:
            parts.append(part)
        # A client that went away sends no more either: what came is then refused as no request.
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(parts) if size <= _MAX_BODY_BYTES else None


async def _respond(
    send: Send, status: int, body: bytes, *, content_type: str = "text/plain; charset=utf-8"
) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
