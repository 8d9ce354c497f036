"""The API server's question about a pod, and the answer: who is to place it by its data, and how.

A new pod that names no scheduler gets that of TDCS; the chart's admission policy says the same in CEL
(``tdcs.placeByDataConditions``), and one test asks both. A pod that another scheduler places, or that asks for it, gets
node affinity to its data; while it has scheduling gates each change of it renews that, the last one when it loses them.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tdcs.api import names
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NO_PLACES, NodePlaces
from tdcs.decide.place.node_score import node_scores
from tdcs.decide.place.pod_affinity import DataAffinity, near_terms, with_data
from tdcs_scheduler.protocol import (
    BadAnnotationError,
    DatasetReference,
    claims_of,
    decode_annotation,
    index_of,
    is_opted_out,
    read_by,
    with_claims,
)
from tdcs_scheduler.view import DatasetView

UNNAMED: Final = frozenset({"", "default-scheduler"})
"""Schedulers of a pod that names none: the API server fills in the default one before anybody can see the pod."""

WAYS: Final[Mapping[str, DataAffinity]] = {"preferred": "preferred", "required": "required"}
"""Values of the annotation `tdcs.io/data-affinity`."""


NO_USER_NAMESPACE: Final = (
    "its volume cannot be mounted with hostUsers: false, and the containers will not start: leave that out, and use "
    "runAsNonRoot"
)
"""API servers may cut warnings after 256 characters, of which the Dataset's name has up to 127."""

NO_DATA_TO_REQUIRE: Final = (
    "no node holds any of it, so data-affinity required is ignored and the pod runs anywhere: "
    "create it once it is loaded"
)
"""Requiring a node that does not exist would hold the pod for good: required terms are never widened, and data that is
cached as it is read waits for the pod."""


class BadReviewError(ValueError):
    """The body is not an AdmissionReview of a pod; the text says where it deviates."""


class _Claim(msgspec.Struct):
    name: str = msgspec.field(name="claimName", default="")


class _Volume(msgspec.Struct):
    claim: _Claim | None = msgspec.field(name="persistentVolumeClaim", default=None)


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    scheduler: str = msgspec.field(name="schedulerName", default="")
    node: str = msgspec.field(name="nodeName", default="")
    volumes: list[_Volume] | None = None
    affinity: dict[str, Any] | None = None
    host_users: bool | None = msgspec.field(name="hostUsers", default=None)
    gates: list[Any] | None = msgspec.field(name="schedulingGates", default=None)


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class Question(msgspec.Struct):
    """A pod that is about to be created or changed; its own metadata may lack the namespace."""

    uid: str
    pod: _Pod = msgspec.field(name="object")
    namespace: str = ""
    operation: str = "CREATE"
    before: _Pod | None = msgspec.field(name="oldObject", default=None)


class _Review(msgspec.Struct):
    request: Question


_reviews: Final = msgspec.json.Decoder(_Review)


def decode_review(body: bytes | bytearray) -> Question:
    """The question in an AdmissionReview; raises BadReviewError."""
    try:
        return _reviews.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReviewError(f"this is no AdmissionReview of a pod: {error}") from error


def patch_of(
    question: Question, *, view: DatasetView, scheduler_name: str, places: NodePlaces = NO_PLACES
) -> list[dict[str, Any]]:
    """What is to be changed of a pod so that it is placed by its data, as a JSON patch; nothing for most pods.

    Args:
        question: the pod.
        view: all Datasets and where their data is.
        scheduler_name: what pods that name no scheduler get.
        places: where nodes are.
    """
    if not _is_to_place(question, view=view):
        return []
    if way := _way(question, scheduler_name=scheduler_name):
        return _affinity(question, view=view, way=way, places=places)
    if question.pod.spec.scheduler == scheduler_name or question.operation != "CREATE":
        return []
    return [{"op": "add", "path": "/spec/schedulerName", "value": scheduler_name}]


def _is_to_place(question: Question, *, view: DatasetView) -> bool:
    """Whether a pod mounts a Dataset, and nobody has decided yet where it runs."""
    labels = question.pod.metadata.labels or {}
    if is_opted_out(labels.get(names.LABEL_PLACE_BY_DATA)) or names.LABEL_TRAINING_JOB in labels:
        return False  # the operator has decided about the pods of TrainingJobs
    return not question.pod.spec.node and any(claim in view for claim in _claims(question))


def _way(question: Question, *, scheduler_name: str) -> DataAffinity | None:
    """Which node affinity to its data a pod gets; None when the scheduler that asks the extender is to place it."""
    scheduler = question.pod.spec.scheduler
    requested = (question.pod.metadata.annotations or {}).get(names.ANNOTATION_DATA_AFFINITY)
    if scheduler == scheduler_name or (scheduler in UNNAMED and requested is None):
        return None
    return WAYS.get(requested or "preferred", "preferred")


def _affinity(
    question: Question, *, view: DatasetView, way: DataAffinity, places: NodePlaces
) -> list[dict[str, Any]]:
    before = question.before
    # Afterwards the API server takes no other preferences, and no wider requirements even before.
    changeable = way == "preferred" and before is not None and bool(before.spec.gates)
    if question.operation != "CREATE" and not changeable:
        return []
    copies = _copies(_read_references(question, view=view), view=view)
    affinity_before = question.pod.spec.affinity or {}
    affinity = with_data(
        affinity_before, scores=node_scores(copies), way=way, near=near_terms(copies, places=places)
    )
    return [{"op": "add", "path": "/spec/affinity", "value": affinity}] if affinity != affinity_before else []


def _claims(question: Question) -> tuple[str, ...]:
    mounted = [volume.claim.name for volume in question.pod.spec.volumes or () if volume.claim is not None]
    return claims_of(mounted, namespace=question.namespace)


def _references(question: Question, *, view: DatasetView) -> list[DatasetReference]:
    text = (question.pod.metadata.annotations or {}).get(names.ANNOTATION_DATASETS)
    try:
        named = [] if text is None else decode_annotation(text=text)
    except BadAnnotationError:
        named = []  # its claims still count
    # Its creator can read the pod's affinity, and may not learn where data of other namespaces is.
    own_references = [
        reference for reference in named if reference.dataset.startswith(f"{question.namespace}/")
    ]
    return with_claims(own_references, claims=_claims(question), datasets=view)


def _read_references(question: Question, *, view: DatasetView) -> list[DatasetReference]:
    """What this pod reads, of all that its annotation and its claims name."""
    return read_by(_references(question, view=view), index=_index(question))


def _copies(references: Sequence[DatasetReference], *, view: DatasetView) -> list[CopyOnNodes]:
    candidates = [view.find(dataset=reference.dataset, copy=reference.copy) for reference in references]
    return [copy for copy in candidates if copy is not None]


def _index(question: Question) -> int | None:
    metadata, key = question.pod.metadata, names.ANNOTATION_COMPLETION_INDEX
    return index_of((metadata.annotations or {}).get(key) or (metadata.labels or {}).get(key))


def warnings_of(question: Question, *, view: DatasetView, scheduler_name: str) -> list[str]:
    """Warnings for the creator of a pod, which kubectl shows; the pod is created all the same."""
    if question.operation != "CREATE":
        return []
    warnings = []
    mounted = [claim for claim in _claims(question) if claim in view]
    if question.pod.spec.host_users is False and mounted:
        warnings.append(f"Dataset {mounted[0]}: {NO_USER_NAMESPACE}")
    if _way(question, scheduler_name=scheduler_name) == "required" and _is_to_place(question, view=view):
        references = _read_references(question, view=view)
        if references and not node_scores(_copies(references, view=view)):
            warnings.append(f"Dataset {references[0].dataset}: {NO_DATA_TO_REQUIRE}")
    return warnings


def encode_answer(*, uid: str, patch: list[dict[str, Any]], warnings: Sequence[str] = ()) -> bytes:
    """The AdmissionReview that lets a pod in, with these changes."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = list(warnings)
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(answer)
