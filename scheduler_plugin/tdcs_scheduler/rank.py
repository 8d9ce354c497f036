"""From a request to its answer: pure, apart from what the view knows."""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

import numpy as np

from tdcs.api import names
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NO_PLACES, NodePlaces, near_scores, nearer_first
from tdcs.decide.place.node_score import (
    CombinedData,
    FloatArray,
    combined,
    combined_scores,
    nodes_to_take,
    without_left_nodes,
)
from tdcs_scheduler.demand import Demand
from tdcs_scheduler.protocol import (
    BadAnnotationError,
    DatasetReference,
    PrioritizeRequest,
    decode_annotation,
    nodes_to_leave,
    read_by,
    with_claims,
)
from tdcs_scheduler.view import DatasetView

N = TypeVar("N", int, float)

Combine = Callable[[Sequence[CopyOnNodes], Sequence[int | None]], CombinedData]
"""What nodes are worth for these copies, of each from this place on, see `tdcs.decide.place.node_score.combined`."""

# Scores that are given without a look whether all are of candidates: to read them costs kube-scheduler time as well,
# about a microsecond each, and to look at them costs here as much as a thousand of those.
_MANY: Final = 1024


class AnswerKind(enum.StrEnum):
    """Why an answer is what it is; the label `kind` of the metric of answers."""

    SCORED = "scored"
    """At least one node got a score."""

    NO_DATASET = "no_dataset"
    """The pod mounts no Dataset's claim and its annotation names none: nothing to say."""

    OPTED_OUT = "opted_out"
    """The pod's label says that it is not to be placed by its data."""

    NO_READER = "no_reader"
    """The pod's job has datasets, and this pod reads none of them."""

    NO_DATA = "no_data"
    """None of the candidates holds anything of the pod's datasets."""

    UNKNOWN_DATASET = "unknown_dataset"
    """The same, and some of the datasets that the pod names do not exist."""

    BAD_ANNOTATION = "bad_annotation"
    """The annotation cannot be read, and the pod mounts no Dataset's claim."""

    NOT_SYNCED = "not_synced"
    """The Datasets have not been listed yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The answer to a request: scores of nodes (missing: 0), its kind, and a sentence that explains it. `unknown`: what
    the pod names that does not exist. `unreadable`: what is wrong with its annotation, which then counts for nothing;
    else empty."""

    kind: AnswerKind
    reason: str
    unknown: tuple[str, ...] = ()
    unreadable: str = ""
    scores: Mapping[str, int] = field(default_factory=dict)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def rank(
    *,
    request: PrioritizeRequest,
    view: DatasetView,
    demand: Demand,
    synced: bool,
    exact: bool = True,
    combine: Combine | None = None,
    places: NodePlaces = NO_PLACES,
    now: Callable[[], datetime] = _utc_now,
) -> Ranking:
    """Score the request's nodes by the bytes of the pod's copies that they hold, less what other pods wait for there.

    What a pod reads is what its annotation names, and the Datasets of the claims that it mounts: of these any copy.

    Scores are relative to the best *candidate*: if the node with the most bytes has no room for the pod, the order of
    the others still shows.

    `exact`: leave out of scores and reason what is no candidate. kube-scheduler passes over it, and to look for every
    holder among thousands of names costs more than all the rest. `combine`: what remembers, where pods with the same
    data come one after another. `places`: where nodes are; when no candidate has any of the data, those in the same
    rack or zone are better than those that are far. `now`: asked for pods that leave nodes to larger ones for a while.
    Raises BadRequestError for candidates that are no list of strings, where that shows.
    """
    if request.opted_out:
        return Ranking(
            kind=AnswerKind.OPTED_OUT, reason=f"the pod is labelled {names.LABEL_PLACE_BY_DATA}=false"
        )
    if request.annotation is None and not request.claims:
        return Ranking(kind=AnswerKind.NO_DATASET, reason="the pod mounts no claim and names no datasets")
    if not synced:
        return Ranking(kind=AnswerKind.NOT_SYNCED, reason="the datasets have not been listed yet")
    named: list[DatasetReference] = []
    unreadable = ""
    if request.annotation is not None:
        try:
            named = decode_annotation(text=request.annotation)
        except BadAnnotationError as error:
            unreadable = str(error)
    references = with_claims(named, claims=request.claims, datasets=view)
    if references:
        ranking = _by_data(
            request=request,
            references=references,
            view=view,
            demand=demand,
            exact=exact,
            combine=combine,
            places=places,
        )
        if request.leave is not None:
            ranking = _leaving_nodes(ranking, leave=request.leave, candidates=request.nodes, now=now())
        return replace(ranking, unreadable=unreadable) if unreadable else ranking
    if unreadable:
        return Ranking(kind=AnswerKind.BAD_ANNOTATION, reason=unreadable, unreadable=unreadable)
    mounts = "mounts no Dataset's claim" if request.claims else "mounts no claim"
    return Ranking(kind=AnswerKind.NO_DATASET, reason=f"the pod {mounts} and names no datasets")


def _by_data(
    *,
    request: PrioritizeRequest,
    references: Sequence[DatasetReference],
    view: DatasetView,
    demand: Demand,
    exact: bool,
    combine: Combine | None,
    places: NodePlaces,
) -> Ranking:
    read = read_by(references, index=request.index)
    if not read:
        return _for_others(request=request, references=references, view=view, demand=demand)
    references = read
    looked_up = [
        (reference, view.find(dataset=reference.dataset, copy=reference.copy)) for reference in references
    ]
    copies = [copy for _, copy in looked_up if copy is not None]
    unknown = [reference for reference, copy in looked_up if copy is None]
    missing = tuple(sorted({reference.dataset for reference in unknown if reference.dataset not in view}))
    own_datasets = {reference.dataset for reference in references}
    best = [copy.place_of_best(request.nodes) for copy in copies]
    data = (
        nearer_first(combined(copies, places=best), copies, places=places)
        if combine is None
        else combine(copies, best)
    )
    awaited = demand.awaited_at(data, apart_from=own_datasets)
    if exact and awaited is not None and request.nodes is not None:
        awaited = _awaited_of_candidates(data, awaited, request.nodes)
    scores = combined_scores(data, awaited=awaited, candidates=request.nodes)
    at_hand = request.nodes is not None and request.nodes.is_decoded
    if exact or at_hand or len(scores) > _MANY:
        scores = _of_candidates(scores, request.nodes)
    if scores:
        awaited_reason = _others(0 if awaited is None else int(np.count_nonzero(awaited)))
        reason = _with_data(len(scores), len(copies), unknown) + awaited_reason
        return Ranking(kind=AnswerKind.SCORED, reason=reason, unknown=missing, scores=scores)
    candidates = request.nodes or ()
    awaited_nodes = demand.awaited(nodes=candidates, apart_from=own_datasets)
    near = near_scores(
        copies, candidates=candidates, places=places, awaited=awaited_nodes, exact=exact or not candidates
    )
    return Ranking(
        kind=AnswerKind.UNKNOWN_DATASET if missing else AnswerKind.NO_DATA,
        reason=_without_data(unknown) + (_NEAR if near else "") + _others(len(awaited_nodes)),
        unknown=missing,
        scores=near or nodes_to_take(candidates=candidates, awaited=awaited_nodes),
    )


def _for_others(
    *, request: PrioritizeRequest, references: Sequence[DatasetReference], view: DatasetView, demand: Demand
) -> Ranking:
    """Scores for a pod that reads none of its job's datasets: it leaves nodes with wanted data to pods that want it.

    Those are the pods that wait, and the readers of its own job, which may not exist yet.
    """
    candidates = request.nodes or ()
    awaited = demand.awaited(nodes=candidates, apart_from=frozenset())
    for reference in references:
        copy = view.find(dataset=reference.dataset, copy=reference.copy)
        for node in () if copy is None else copy.ranked:
            awaited[node] = awaited.get(node, 0.0) + 1.0
    return Ranking(
        kind=AnswerKind.NO_READER,
        reason="the pod reads none of its job's datasets" + _others(len(awaited)),
        scores=nodes_to_take(candidates=candidates, awaited=_of_candidates(awaited, request.nodes)),
    )


def _leaving_nodes(
    ranking: Ranking, *, leave: str, candidates: Collection[str] | None, now: datetime
) -> Ranking:
    """The ranking of a pod that leaves some of the candidates to larger pods, if others have room for it."""
    try:
        nodes = nodes_to_leave(leave, now=now)
    except BadAnnotationError as error:
        # The operator wrote it, or someone who wanted the same: without it the pod is placed by its data.
        return replace(ranking, reason=f"{ranking.reason}; {error}")
    if not nodes or candidates is None:
        return ranking
    left_count = sum(node in nodes for node in candidates)
    if left_count in (0, len(candidates)):
        return ranking
    left_text = "1 candidate is" if left_count == 1 else f"{left_count} candidates are"
    return replace(
        ranking,
        reason=f"{ranking.reason}; {left_text} left to larger pods that wait",
        scores=without_left_nodes(ranking.scores, leave=nodes, candidates=candidates),
    )


def _of_candidates(nodes: Mapping[str, N], candidates: Collection[str] | None) -> dict[str, N]:
    return {node: value for node, value in nodes.items() if candidates is None or node in candidates}


_NEAR: Final = "; those in the same rack, zone or region as the data come first"


def _without_data(unknown: Sequence[DatasetReference]) -> str:
    if unknown:
        return f"unknown: {_names(unknown)}; no candidate holds anything of the others"
    return "no candidate holds anything of the pod's datasets"


def _with_data(nodes: int, datasets: int, unknown: Sequence[DatasetReference]) -> str:
    holders = "1 candidate holds" if nodes == 1 else f"{nodes} candidates hold"
    sentence = f"{holders} data of {datasets} dataset{'' if datasets == 1 else 's'}"
    return f"{sentence}; unknown: {_names(unknown)}" if unknown else sentence


def _awaited_of_candidates(
    data: CombinedData, awaited: FloatArray, candidates: Collection[str]
) -> FloatArray | None:
    """What is awaited, without that of nodes that are no candidates; None: nothing else is."""
    is_awaited = awaited > 0.0
    is_awaited[is_awaited] = [
        node in candidates for node, is_wanted in zip(data.nodes, is_awaited, strict=True) if is_wanted
    ]
    return np.where(is_awaited, awaited, 0.0) if is_awaited.any() else None


def _others(nodes: int) -> str:
    if not nodes:
        return ""
    return f"; other pods wait for other data on {nodes} candidate{'' if nodes == 1 else 's'}"


def _names(references: Sequence[DatasetReference]) -> str:
    return ", ".join(
        reference.dataset if reference.copy is None else f"{reference.dataset} copy {reference.copy}"
        for reference in references
    )
