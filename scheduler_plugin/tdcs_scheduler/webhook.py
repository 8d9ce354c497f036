"""The webhook that the API server calls for new pods which mount a claim, over HTTPS: POST /pods.

It changes nothing but the scheduler's name of a pod, and the API server goes on without it when it does not answer
(failurePolicy Ignore): such a pod is placed by the default scheduler, without regard to its data. The chart's
admission policy says the same as the answer in CEL (``tdcs.placeByDataConditions``); one test asks both.
"""

import logging
import time
from collections.abc import Container
from typing import Final

from tdcs_scheduler.http_server import Answer, Request
from tdcs_scheduler.metrics import Metrics
from tdcs_scheduler.pod_review import BadReviewError, decode_review, encode_answer, is_placed_by_data

_log: Final = logging.getLogger(__name__)

# A Pod has at most 1.5 MB, and a review holds it once (a creation has no old object).
MAX_REVIEW_BYTES: Final = 4 * 2**20

PATH: Final = "/pods"


class Webhook:
    """What answers the API server.

    `known`: the Datasets that there are, as `namespace/name`. `scheduler_name`: what pods with their claims get.
    """

    def __init__(self, *, known: Container[str], scheduler_name: str, metrics: Metrics) -> None:
        self._known: Final = known
        self._scheduler_name: Final = scheduler_name
        self._metrics: Final = metrics

    def handle(self, request: Request) -> Answer:
        if (request.method, request.path) != ("POST", PATH):
            return Answer(404, b"there is POST /pods only\n")
        return self.review(request.body)

    def review(self, body: bytes | bytearray) -> Answer:
        if len(body) > MAX_REVIEW_BYTES:
            return Answer(413, f"a review may have {MAX_REVIEW_BYTES} bytes\n".encode())
        started = time.perf_counter()
        try:
            question = decode_review(body)
        except BadReviewError as error:
            _log.warning("a review was refused: %s", error)
            return Answer(400, f"{error}\n".encode())
        ours = is_placed_by_data(question, known=self._known)
        answer = encode_answer(uid=question.uid, scheduler_name=self._scheduler_name if ours else None)
        self._metrics.reviews[ours].inc()
        self._metrics.review_seconds.observe(time.perf_counter() - started)
        return Answer(200, answer, "application/json")
