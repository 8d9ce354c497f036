"""The API server's question about a new pod, and the answer: whether the scheduler of TDCS is to place it.

The chart's admission policy says the same in CEL (``tdcs.placeByDataConditions``); one test asks both.
"""

import base64
from collections.abc import Container
from typing import Any, Final

import msgspec

from tdcs.api import names
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
