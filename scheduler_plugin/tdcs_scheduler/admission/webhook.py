"""The webhook that the API server calls for new pods which mount a claim, over HTTPS: POST /pods.

It changes nothing but the scheduler's name of a pod, and the API server goes on without it when it does not answer
(failurePolicy Ignore): such a pod is placed by the default scheduler, without regard to its data.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Container, MutableMapping
from typing import Any, Final

from tdcs_scheduler.admission.review import BadReviewError, decode_review, encode_answer, is_placed_by_data
from tdcs_scheduler.metrics import Metrics

_log: Final = logging.getLogger(__name__)

# A Pod has at most 1.5 MB, and a review holds it once (a creation has no old object).
MAX_REVIEW_BYTES: Final = 4 * 2**20

PATH: Final = "/pods"


class Webhook:
    """The ASGI application.

    `known`: the Datasets that there are, as `namespace/name`. `scheduler_name`: what pods with their claims get.
    """

    def __init__(self, *, known: Container[str], scheduler_name: str, metrics: Metrics) -> None:
        self._known: Final = known
        self._scheduler_name: Final = scheduler_name
        self._metrics: Final = metrics

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        if (scope["method"], scope["path"]) != ("POST", PATH):
            await _respond(send, 404, b"there is POST /pods only\n")
            return
        body = bytearray()
        while True:
            message = await receive()
            if len(body) <= MAX_REVIEW_BYTES:
                body += message.get("body", b"")
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
        await _respond(send, *self.review(body))

    def review(self, body: bytes | bytearray) -> tuple[int, bytes]:
        """The answer to an AdmissionReview: status and body."""
        if len(body) > MAX_REVIEW_BYTES:
            return 413, f"a review may have {MAX_REVIEW_BYTES} bytes\n".encode()
        started = time.perf_counter()
        try:
            question = decode_review(body)
        except BadReviewError as error:
            _log.warning("a review was refused: %s", error)
            return 400, f"{error}\n".encode()
        ours = is_placed_by_data(question, known=self._known)
        answer = encode_answer(uid=question.uid, scheduler_name=self._scheduler_name if ours else None)
        self._metrics.reviews[ours].inc()
        self._metrics.review_seconds.observe(time.perf_counter() - started)
        return 200, answer


async def _respond(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]], status: int, body: bytes
) -> None:
    content_type = b"application/json" if status == 200 else b"text/plain; charset=utf-8"
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
