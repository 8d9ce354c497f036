"""Why a training job waits, or why its pods are where they are, from what the API server says. Pure."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import Role, TrainingJob
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.controllers.resources import PODS, added, amounts, pod_requests
from tdcs.controllers.sizes import human
from tdcs.controllers.trainingjob.children import READERS
from tdcs.controllers.trainingjob.eligibility import may_run
from tdcs.controllers.trainingjob.line import shown
from tdcs.controllers.trainingjob.plan import copies_of
from tdcs.controllers.trainingjob.pods import PodView, newest, pod_view
from tdcs.kube.api import Object
from tdcs.policy.scoring import MAX_SCORE, CopyOnNodes, bytes_on_node, node_scores

ALTERNATIVES = 5
"""Nodes that are named beside the one that a pod is on."""


NAMED_NODES = 8
"""Nodes of a dataset that are named, those with the most bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What was read from the API server.

    `nodes` and `pods` (those of all namespaces) are None when the user may not list them: then less can be said.
    """

    job: Object
    datasets: Mapping[str, Object] = field(default_factory=dict)
    own_pods: Sequence[Object] = ()
    nodes: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another node that holds data of the pod: its score, the bytes there, and why it was not taken."""

    node: str
    score: int
    bytes: int
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """One pod: where it is and how good that is.

    Attributes:
        node: empty while it has none.
        bytes: of the job's data on that node, now.
        score: 0 to 10, as the scheduler's extender gives it, among all nodes; None for pods that read no data.
        best_score: the best of any node.
        sentence: all that in words.
    """

    pod: str
    role: str
    node: str
    phase: str
    bytes: int
    score: int | None
    best_score: int
    sentence: str
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer."""

    job: str
    state: str
    headline: str
    datasets: tuple[str, ...]
    pods: tuple[PodPlace, ...]
    remarks: tuple[str, ...]


def explain(world: World) -> Report:
    """The whole answer for one job."""
    metadata = world.job["metadata"]
    job = TrainingJob.model_validate(world.job)
    status = job.status or TrainingJobStatus()
    datasets = _readable(world.datasets)
    copies = copies_of(datasets)
    pods = newest(pod_view(pod) for pod in world.own_pods) or _gone(status)
    raw = {pod["metadata"]["name"]: pod for pod in world.own_pods}
    scores = node_scores(copies)
    free = _free(world)
    templates: dict[Role, Object] = {
        role: spec.template["spec"] for role, spec in job.spec.replica_specs.by_role().items()
    }
    places = tuple(
        _place(
            pod,
            # A pod that was placed names its node: where else it might have run is asked without that.
            spec={**(raw[pod.name]["spec"] if pod.name in raw else templates[pod.role]), "nodeName": None},
            copies=copies,
            scores=scores,
            free=free,
            nodes=world.nodes,
        )
        for pod in pods
    )
    return Report(
        job=f"{metadata['namespace']}/{metadata['name']}",
        state=status.state or "Waiting",
        headline=_headline(status),
        datasets=tuple(_dataset(use.name, datasets.get(use.name)) for use in job.spec.datasets),
        pods=places,
        remarks=tuple(_remarks(job, status, world)),
    )


def _readable(raw: Mapping[str, Object]) -> dict[str, Dataset]:
    """The Datasets that can be understood: of the others their own status says what is wrong."""
    found = {}
    for name, obj in raw.items():
        with contextlib.suppress(ValidationError):
            found[name] = Dataset.model_validate(obj)
    return found


def _headline(status: TrainingJobStatus) -> str:
    if status.state is None:
        return "the operator has not looked at it yet: is it running? (kubectl get pods -n tdcs-system)"
    verbs = {
        "Waiting": "It waits",
        "Queued": "It waits for its turn",
        "Suspended": "It is suspended",
        "Starting": "Its pods are starting",
        "Running": "It runs",
        "Restarting": "A pod failed and is made anew",
        "Succeeded": "It succeeded",
        "Failed": "It failed",
    }
    return f"{verbs[status.state]}: {status.message}" if status.message else verbs[status.state]


def _dataset(name: str, dataset: Dataset | None) -> str:
    if dataset is None or dataset.status is None:
        return f"{name}: there is no such Dataset in the job's namespace, or nobody has looked at it yet"
    held = {node.name: node.bytes for copy in dataset.status.copies for node in copy.nodes if node.bytes > 0}
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{human(count)} on {node}" for node, count in ranked[:NAMED_NODES]]
    if len(ranked) > NAMED_NODES:
        named.append(f"less or as much on {len(ranked) - NAMED_NODES} more")
    where = ", ".join(named) or "nowhere"
    total = dataset.status.total_bytes
    return f"{name}: {human(total)}, {dataset.status.cached_ratio:.0%} of it cached: {where}"


def _place(
    pod: PodView,
    *,
    spec: Mapping[str, Any],
    copies: Sequence[CopyOnNodes],
    scores: Mapping[str, int],
    free: Mapping[str, Mapping[str, int]] | None,
    nodes: Sequence[Object] | None,
) -> PodPlace:
    reads = pod.role in READERS and bool(copies)
    held = bytes_on_node(node=pod.node, copies=copies) if pod.node else 0
    score = scores.get(pod.node, 0) if reads and pod.node else None
    best = max(scores.values(), default=0)
    others = (
        tuple(_alternatives(pod, spec=spec, copies=copies, scores=scores, free=free, nodes=nodes))
        if reads
        else ()
    )
    return PodPlace(
        pod=pod.name,
        role=pod.role,
        node=pod.node,
        phase=pod.phase,
        bytes=held,
        score=score,
        best_score=best,
        sentence=_sentence(pod, held=held, score=score, best=best, reads=reads, others=others, copies=copies),
        alternatives=others,
    )


def _sentence(
    pod: PodView,
    *,
    held: int,
    score: int | None,
    best: int,
    reads: bool,
    others: Sequence[Alternative],
    copies: Sequence[CopyOnNodes],
) -> str:
    if pod.waiting is not None:
        return f"waits: {pod.waiting}"
    if not pod.node:
        return "waits for the scheduler to give it a node"
    if not reads:
        return f"is on {pod.node}; it reads no dataset, so any node is as good"
    total = sum(copy.total_bytes for copy in copies)
    if best == 0:
        return f"is on {pod.node}; nothing of its data is cached anywhere now, so no node is better"
    text = f"is on {pod.node}, which holds {human(held)} of its {human(total)} (score {score} of {MAX_SCORE})"
    if score is not None and score >= best:
        return f"{text}: no node holds more"
    better = [other for other in others if other.score > (score or 0)]
    named = "; ".join(f"{other.node} has score {other.score}, but {other.why_not}" for other in better)
    return f"{text}, though others hold more: {named}" if named else text


def _alternatives(
    pod: PodView,
    *,
    spec: Mapping[str, Any],
    copies: Sequence[CopyOnNodes],
    scores: Mapping[str, int],
    free: Mapping[str, Mapping[str, int]] | None,
    nodes: Sequence[Object] | None,
) -> list[Alternative]:
    known = {node["metadata"]["name"]: node for node in nodes or ()}
    asked = pod_requests(spec)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [
        Alternative(
            node=node,
            score=score,
            bytes=bytes_on_node(node=node, copies=copies),
            why_not=_why_not(
                spec, asked, known.get(node), None if free is None else free.get(node), nodes is not None
            ),
        )
        for node, score in ranked
        if node != pod.node
    ][:ALTERNATIVES]


def _why_not(
    spec: Mapping[str, Any],
    asked: Mapping[str, int],
    node: Object | None,
    free: Mapping[str, int] | None,
    listed: bool,
) -> str:
    if not listed:
        return "whether it had room cannot be told: you may not list nodes"
    if node is None:
        return "there is no such node any more"
    if not may_run(spec, node):
        return "its labels or taints keep the pod away"
    if free is None:
        return "whether it had room cannot be told: you may not list the pods of all namespaces"
    for resource, amount in sorted(asked.items(), key=lambda item: item[0] != names.GPU_RESOURCE):
        if free.get(resource, 0) < amount:
            there = max(free.get(resource, 0), 0)
            return f"it has {shown(resource, there)} free for the {shown(resource, amount)} that the pod asks for"
    return "it has room now; it may have been full, or without the data, when the pod was placed"


def _free(world: World) -> dict[str, dict[str, int]] | None:
    """What each node has left; None when that cannot be known."""
    if world.nodes is None or world.pods is None:
        return None
    taken: dict[str, dict[str, int]] = {}
    for pod in world.pods:
        node = pod["spec"].get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            taken[node] = added((taken.get(node, {}), pod_requests(pod["spec"])))
    return {
        (name := node["metadata"]["name"]): {
            resource: value - taken.get(name, {}).get(resource, 0)
            for resource, value in {
                PODS: 110,
                **amounts((node.get("status") or {}).get("allocatable")),
            }.items()
        }
        for node in world.nodes
    }


def _gone(status: TrainingJobStatus) -> list[PodView]:
    """The pods that the status remembers, when they themselves are gone."""
    return [PodView(name=place.pod, node=place.node, phase="gone") for place in status.placement]


def _remarks(job: TrainingJob, status: TrainingJobStatus, world: World) -> list[str]:
    found = []
    if status.locality_percent is not None:
        found.append(f"When its pods were placed, its locality was {status.locality_percent}.")
    if job.spec.scheduling.mode == "Affinity":
        found.append("Its pods prefer the nodes that held data when it was admitted (mode Affinity).")
    elif job.spec.datasets:
        found.append(
            "Its pods are ranked by data when they are placed (mode Extender), a preference and no must."
        )
    if any(pod["metadata"].get("deletionTimestamp") for pod in world.own_pods):
        found.append("Some of its pods are being deleted.")
    return found
