"""The extender's HTTP face: POST /prioritize for kube-scheduler, GET /healthz and /livez for kubelet."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from tdcs.api import names
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NO_PLACES, NodePlaces, nearer_first
from tdcs.decide.place.node_score import CombinedData, combined
from tdcs_scheduler.demand import Demand
from tdcs_scheduler.http_server import HttpAnswer, HttpRequest
from tdcs_scheduler.metrics import ExtenderMetrics
from tdcs_scheduler.protocol import BadRequestError, PrioritizeRequest, decode_request, encode_scores
from tdcs_scheduler.rank import AnswerKind, Ranking, rank
from tdcs_scheduler.view import DatasetView

# Nodes and copies of all sets together; each takes about 100 bytes. Sets are what pods are being placed for at a time.
_MOST_ENTRIES: Final = 100_000

_Key = tuple[tuple[int, int | None], ...]


class Combinations:
    """What nodes are worth for the sets of copies in the latest requests.

    A copy is recognized by its identity: the view makes a new object whenever anything of it changes. An
    entry holds references to its copies, so no other object can get their identities.
    """

    def __init__(self) -> None:
        self._combined: Final[dict[_Key, tuple[tuple[CopyOnNodes, ...], CombinedData]]] = {}
        self._entries = 0
        self._node_places = NO_PLACES

    def __len__(self) -> int:
        return len(self._combined)

    def see(self, node_places: NodePlaces) -> None:
        """Take where nodes are now."""
        if node_places is not self._node_places:
            self._combined.clear()
            self._entries, self._node_places = 0, node_places

    def combine(self, copies: Sequence[CopyOnNodes], places: Sequence[int | None]) -> CombinedData:
        """What :func:`tdcs.decide.place.node_score.combined` says of them, the nearer ones first."""
        key = tuple((id(copy), place) for copy, place in zip(copies, places, strict=True))
        entry = self._combined.pop(key, None)
        if entry is None:
            data = combined(copies, places=places)
            entry = tuple(copies), nearer_first(data, copies, places=self._node_places)
            self._entries += _size(entry)
        self._combined[key] = entry  # now the last one to be evicted
        while self._entries > _MOST_ENTRIES and len(self._combined) > 1:
            self._entries -= _size(self._combined.pop(next(iter(self._combined))))
        return entry[1]


def _size(entry: tuple[tuple[CopyOnNodes, ...], CombinedData]) -> int:
    """The number of nodes and copies; at least one, because an empty set takes memory, too."""
    copies, data = entry
    return len(data.nodes) + max(len(copies), 1)


_log: Final = logging.getLogger(__name__)

EXPLANATIONS: Final = "tdcs_scheduler.explanations"
"""The logger of lines that are JSON, and nothing else."""

_explanations: Final = logging.getLogger(EXPLANATIONS)

# A Pod has at most 1.5 MB, and 15000 names of nodes at most 4 MB.
MAX_BODY_BYTES: Final = 16 * 2**20

BAD_ANNOTATION: Final = "BadDatasetsAnnotation"
DATASET_NOT_FOUND: Final = "DatasetNotFound"

# Datasets that one event names.
_NAMED: Final = 5

# Pods are asked about again and again while they do not fit anywhere; each bad annotation is reported once.
_REMEMBERED_PODS: Final = 1024


class Freshness(Protocol):
    """How well the view reflects the API server."""

    def is_synced(self) -> bool: ...

    def age_seconds(self) -> float: ...


class ReportPod(Protocol):
    """Reports a problem of a pod to its owner; must not block."""

    def __call__(self, *, request: PrioritizeRequest, reason: str, message: str) -> None:
        """Report `message` for the pod of this request; `reason` is the reason of the event."""
        ...


class Extender:
    """What answers kube-scheduler and kubelet.

    `stale_after_seconds`: with a view older than this /healthz is red; scores go on with what is known, because data
    moves slowly and a pod without a score may land anywhere. `health_port`: a port that serves all but /prioritize,
    for probes from outside of the pod. `explain`: log a line with the reason for every answer to a pod
    with datasets. `report`: called once for each pod with an unreadable annotation, or one that names unknown Datasets.
    `demand`: what other pods wait for; by default nothing. `places`: gives where nodes are.
    """

    def __init__(
        self,
        *,
        view: DatasetView,
        freshness: Freshness,
        stale_after_seconds: float,
        health_port: int | None = None,
        explain: bool = False,
        report: ReportPod | None = None,
        demand: Demand | None = None,
        places: Callable[[], NodePlaces] = lambda: NO_PLACES,
    ) -> None:
        self._places: Final = places
        self._report: Final = report
        self._health_port: Final = health_port
        self._view: Final = view
        demand = Demand(view=view) if demand is None else demand
        self._demand: Final = demand
        self._freshness: Final = freshness
        self._stale_after_seconds: Final = stale_after_seconds
        self._explain: Final = explain
        self._reported: Final[dict[str, None]] = {}
        self._combinations: Final = Combinations()
        self.metrics: Final = ExtenderMetrics(
            view_age_seconds=freshness.age_seconds,
            datasets=lambda: len(view),
            waiting_pods=lambda: len(demand),
        )

    def handle(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/prioritize" if self._health_port == request.port:
                return HttpAnswer(404, b"scores are on the other port only\n")
            case "/prioritize" if request.method == "POST":
                return self.prioritize(request.body)
            case "/healthz" if request.method in ("GET", "HEAD"):
                return self._health()
            case "/livez" if request.method in ("GET", "HEAD"):
                return HttpAnswer(200, b"ok\n")
            case "/prioritize" | "/healthz" | "/livez":
                return HttpAnswer(405, f"{request.method} is not served at {request.path}\n".encode())
            case _:
                served = "POST /prioritize, GET /healthz, /livez"
                return HttpAnswer(404, f"nothing is served at {request.path}; there are {served}\n".encode())

    def prioritize(self, body: bytes | bytearray) -> HttpAnswer:
        if len(body) > MAX_BODY_BYTES:
            self.metrics.decode_errors.inc()
            return HttpAnswer(413, f"a request may have {MAX_BODY_BYTES} bytes\n".encode())
        started = time.perf_counter()
        try:
            request = decode_request(body=body)
            places = self._places()
            self._combinations.see(places)
            ranking = rank(
                request=request,
                view=self._view,
                demand=self._demand,
                synced=self._freshness.is_synced(),
                exact=self._explain,
                combine=self._combinations.combine,
                places=places,
            )
            explains = self._explain and ranking.kind is not AnswerKind.NO_DATASET
            line = explanation(request=request, ranking=ranking) if explains else ""
        except BadRequestError as error:
            self.metrics.decode_errors.inc()
            _log.warning("a prioritize request was refused: %s", error)
            return HttpAnswer(400, f"{error}\n".encode())
        self._demand.on_scored(request.key)
        answer = encode_scores(scores=ranking.scores)
        self.metrics.prioritize_seconds.observe(time.perf_counter() - started)
        self.metrics.answers[ranking.kind].inc()
        self._report_problem(request, ranking)
        if line:
            _explanations.info("%s", line)
        return HttpAnswer(200, answer, "application/json")

    def _report_problem(self, request: PrioritizeRequest, ranking: Ranking) -> None:
        problem = problem_of(ranking)
        if problem is not None and request.uid not in self._reported:
            while len(self._reported) >= _REMEMBERED_PODS:
                del self._reported[next(iter(self._reported))]
            self._reported[request.uid] = None
            reason, message = problem
            _log.warning("pod %s: %s", request.pod, message)
            if self._report is not None:
                self._report(request=request, reason=reason, message=message)

    def _health(self) -> HttpAnswer:
        age = self._freshness.age_seconds()
        if not self._freshness.is_synced():
            return HttpAnswer(503, b"the Datasets have not been listed yet\n")
        if age > self._stale_after_seconds:
            text = f"nothing was heard from the API server for {age:.0f} s: scores may be out of date\n"
            return HttpAnswer(503, text.encode())
        return HttpAnswer(200, b"ok\n")


def problem_of(ranking: Ranking) -> tuple[str, str] | None:
    """What is wrong with the annotation of a pod, as the reason and the sentence of an event; None when nothing is."""
    if ranking.unreadable:
        without = ranking.kind is AnswerKind.BAD_ANNOTATION
        how = (
            "without regard to its data" if without else "by the Datasets of the claims that it mounts alone"
        )
        return BAD_ANNOTATION, f"it is scheduled {how}: {ranking.unreadable}"
    if not ranking.unknown:
        return None
    named = ", ".join(ranking.unknown[:_NAMED]) + (" and others" if len(ranking.unknown) > _NAMED else "")
    # Scores of another kind come from what other pods wait for.
    is_scored = ranking.kind is AnswerKind.SCORED
    how = "with regard to the others only" if is_scored else "without regard to its data"
    return DATASET_NOT_FOUND, (
        f"there is no Dataset {named}, which the annotation {names.ANNOTATION_DATASETS} names: it is scheduled {how}. "
        "Correct the name (namespace/name), or create the Dataset before the pod"
    )


def explanation(*, request: PrioritizeRequest, ranking: Ranking) -> str:
    """One JSON object that says why the answer to `request` is `ranking`; raises BadRequestError."""
    return msgspec.json.encode(
        {
            "pod": request.pod,
            "datasets": request.annotation,
            "claims": request.claims,
            "candidates": None if request.nodes is None else len(request.nodes),
            "kind": ranking.kind,
            "reason": ranking.reason,
            "scores": ranking.scores,
        }
    ).decode()
