"""The webhook that the API server calls for pods which mount a claim, over HTTPS: POST /pods.

It changes nothing but the scheduler's name of a pod, or its node affinity, and the API server goes on without it when
it does not answer (failurePolicy Ignore): such a pod is placed without regard to its data. The chart's admission policy
says the same as the first in CEL (``tdcs.placeByDataConditions``); one test asks both.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from tdcs.decide.place.near_nodes import NO_PLACES, NodePlaces
from tdcs_scheduler.http_server import HttpAnswer, HttpRequest
from tdcs_scheduler.metrics import ExtenderMetrics
from tdcs_scheduler.pod_review import BadReviewError, decode_review, encode_answer, patch_of, warnings_of
from tdcs_scheduler.view import DatasetView

_log: Final = logging.getLogger(__name__)

# A Pod has at most 1.5 MB, and a review holds it twice at most.
MAX_REVIEW_BYTES: Final = 4 * 2**20

PATH: Final = "/pods"


class Webhook:
    """What answers the API server.

    `view`: all Datasets and where their data is. `scheduler_name`: set on pods that mount their claims. `places`: gives
    where nodes are.
    """

    def __init__(
        self,
        *,
        view: DatasetView,
        scheduler_name: str,
        metrics: ExtenderMetrics,
        places: Callable[[], NodePlaces] = lambda: NO_PLACES,
    ) -> None:
        self._places: Final = places
        self._view: Final = view
        self._scheduler_name: Final = scheduler_name
        self._metrics: Final = metrics

    def handle(self, request: HttpRequest) -> HttpAnswer:
        if (request.method, request.path) != ("POST", PATH):
            return HttpAnswer(404, b"there is POST /pods only\n")
        return self.review(request.body)

    def review(self, body: bytes | bytearray) -> HttpAnswer:
        if len(body) > MAX_REVIEW_BYTES:
            return HttpAnswer(413, f"a review may have {MAX_REVIEW_BYTES} bytes\n".encode())
        started = time.perf_counter()
        try:
            question = decode_review(body)
        except BadReviewError as error:
            _log.warning("a review was refused: %s", error)
            return HttpAnswer(400, f"{error}\n".encode())
        patch = patch_of(
            question, view=self._view, scheduler_name=self._scheduler_name, places=self._places()
        )
        warnings = warnings_of(question, view=self._view, scheduler_name=self._scheduler_name)
        answer = encode_answer(uid=question.uid, patch=patch, warnings=warnings)
        self._metrics.reviews[bool(patch)].inc()
        self._metrics.review_seconds.observe(time.perf_counter() - started)
        return HttpAnswer(200, answer, "application/json")
