"""The webhook that the API server calls for new pods which mount a claim, over HTTPS: POST /pods.

It changes nothing but the scheduler's name of a pod, and the API server goes on without it when it does not answer
(failurePolicy Ignore): such a pod is placed by the default scheduler, without regard to its data. The chart's
admission policy says the same as the answer in CEL (``tdcs.placeByDataConditions``); one test asks both.
"""

import base64
import logging
import time
from collections.abc import Container
from typing import Any, Final

import msgspec

from tdcs.api import names
from tdcs_scheduler.http_server import Answer, Request
from tdcs_scheduler.metrics import Metrics
from tdcs_scheduler.protocol import claims_of, is_opted_out

UNNAMED: Final = frozenset({"", "default-scheduler"})
"""Schedulers of a pod that names none: the API server fills in the default one before anybody can see the pod."""


class BadReviewError(ValueError):
    """The body is not an AdmissionReview of a pod; the text says where it deviates."""


class _Claim(msgspec.Struct):
    name: str = msgspec.field(name="claimName", default="")


class _Volume(msgspec.Struct):
    claim: _Claim | None = msgspec.field(name="persistentVolumeClaim", default=None)


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    scheduler: str = msgspec.field(name="schedulerName", default="")
    node: str = msgspec.field(name="nodeName", default="")
    volumes: list[_Volume] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class Question(msgspec.Struct):
    """A pod that is about to be created; its own metadata may lack the namespace."""

    uid: str
    pod: _Pod = msgspec.field(name="object")
    namespace: str = ""


class _Review(msgspec.Struct):
    request: Question


_reviews: Final = msgspec.json.Decoder(_Review)


def decode_review(body: bytes | bytearray) -> Question:
    """The question in an AdmissionReview; raises BadReviewError."""
    try:
        return _reviews.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReviewError(f"this is no AdmissionReview of a new pod: {error}") from error


def is_placed_by_data(question: Question, *, known: Container[str]) -> bool:
    """Whether a new pod is to be placed by its data: it mounts the claim of a Dataset, and nothing says otherwise.

    Args:
        question: the pod.
        known: the Datasets that there are, as `namespace/name`.
    """
    labels, spec = question.pod.metadata.labels or {}, question.pod.spec
    if is_opted_out(labels.get(names.LABEL_PLACE_BY_DATA)) or names.LABEL_TRAINING_JOB in labels:
        return False  # the operator has decided about the pods of TrainingJobs
    if spec.node or spec.scheduler not in UNNAMED:
        return False
    mounted = [each.claim.name for each in spec.volumes or () if each.claim is not None]
    return any(claim in known for claim in claims_of(mounted, namespace=question.namespace))


def encode_answer(*, uid: str, scheduler_name: str | None) -> bytes:
    """The AdmissionReview that lets a pod in, with this scheduler unless it is None."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if scheduler_name is not None:
        patch = [{"op": "add", "path": "/spec/schedulerName", "value": scheduler_name}]
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(answer)


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
