"""From a request to its answer: pure, apart from what the view knows."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.policy.scoring import CopyOnNodes, node_scores
from tdcs_scheduler.protocol import BadAnnotationError, DatasetReference, PrioritizeRequest, decode_annotation
from tdcs_scheduler.view import DatasetView


class Kind(enum.StrEnum):
    """Why an answer is what it is; the label `kind` of the metric of answers."""

    SCORED = "scored"
    """At least one node got a score."""

    NO_DATASET = "no_dataset"
    """The pod has no datasets annotation, or an empty one: nothing to say."""

    NO_DATA = "no_data"
    """None of the candidates holds anything of the pod's datasets, or the datasets or copies are not known."""

    BAD_ANNOTATION = "bad_annotation"
    """The annotation cannot be read."""

    NOT_SYNCED = "not_synced"
    """The Datasets have not been listed yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The answer to a request: scores of nodes (missing: 0), its kind, and a sentence that explains it."""

    kind: Kind
    reason: str
    scores: Mapping[str, int] = field(default_factory=dict)


def rank(*, request: PrioritizeRequest, view: DatasetView, synced: bool) -> Ranking:
    """Score the request's nodes by the bytes of the pod's copies that they hold.

    Scores are relative to the best *candidate*: if the node with the most bytes has no room for the pod, the order of
    the others still shows.
    """
    if request.annotation is None:
        return Ranking(kind=Kind.NO_DATASET, reason="the pod names no datasets")
    if not synced:
        return Ranking(kind=Kind.NOT_SYNCED, reason="the datasets have not been listed yet")
    try:
        references = decode_annotation(text=request.annotation)
    except BadAnnotationError as error:
        return Ranking(kind=Kind.BAD_ANNOTATION, reason=str(error))
    if not references:
        return Ranking(kind=Kind.NO_DATASET, reason="the pod's list of datasets is empty")
    found = [
        (reference, view.find(dataset=reference.dataset, copy=reference.copy)) for reference in references
    ]
    copies = _on_candidates([copy for _, copy in found if copy is not None], request.nodes)
    unknown = [reference for reference, copy in found if copy is None]
    scores = node_scores(copies)
    if not scores:
        return Ranking(kind=Kind.NO_DATA, reason=_without_data(unknown))
    return Ranking(kind=Kind.SCORED, reason=_with_data(copies, unknown), scores=scores)


def _on_candidates(copies: Sequence[CopyOnNodes], candidates: Sequence[str] | None) -> list[CopyOnNodes]:
    """The copies as far as they lie on candidates; a holder that is none may be full, or gone for good."""
    if candidates is None:
        return list(copies)
    holders = {node for copy in copies for node in copy.node_bytes}
    here = holders.intersection(candidates)
    return [
        CopyOnNodes(
            total_bytes=copy.total_bytes,
            node_bytes={node: size for node, size in copy.node_bytes.items() if node in here},
        )
        for copy in copies
    ]


def _without_data(unknown: Sequence[DatasetReference]) -> str:
    if unknown:
        return f"not known: {_names(unknown)}; no candidate holds anything of the others"
    return "no candidate holds anything of the pod's datasets"


def _with_data(copies: Sequence[CopyOnNodes], unknown: Sequence[DatasetReference]) -> str:
    nodes = len({node for copy in copies for node, held in copy.node_bytes.items() if held > 0})
    sentence = f"{nodes} candidates hold data of {len(copies)} datasets"
    return f"{sentence}; not known: {_names(unknown)}" if unknown else sentence


def _names(references: Sequence[DatasetReference]) -> str:
    return ", ".join(
        each.dataset if each.copy is None else f"{each.dataset} copy {each.copy}" for each in references
    )
