"""Why a pod was placed where it is, by what the nodes had then, as the status of its job keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tdcs.api.durations import seconds_between
from tdcs.api.trainingjob import Role, TrainingJob
from tdcs.api.trainingjob_status import Consideration, TrainingJobStatus
from tdcs.cli.explain.explained_room import Placer, why_not_then
from tdcs.cli.explain.pod_place import ALTERNATIVES, Alternative, PodPlace
from tdcs.decide.place.considered_nodes import ONE_PLACEMENT_SECONDS
from tdcs.decide.place.node_score import MAX_SCORE
from tdcs.model.humanize import human
from tdcs.model.job_pods import PodView
from tdcs.model.pod_resources import added, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPlacements:
    """The placements of a job's pods that its status says something of.

    Attributes:
        pods: all of the job.
        templates: the pod specs of its roles.
        total_bytes: of its datasets, now.
    """

    job: TrainingJob
    status: TrainingJobStatus
    pods: Sequence[PodView]
    templates: Mapping[Role, Mapping[str, Any]]
    total_bytes: int

    def of(self, pod: PodView, *, by: Placer, past: bool, held_now: int) -> PodPlace | None:
        """Where a pod is and why; None where the status says nothing of its placement.

        Args:
            pod: as it is.
            by: who placed it.
            past: whether it runs no more, or is about to.
            held_now: bytes of the job's data on its node now.
        """
        then = self._consideration(pod)
        if then is None or (pod.waiting is not None and not past):
            return None
        nodes = {node.name: node for node in then.nodes}
        own_node = nodes[pod.node]
        alternatives = [
            Alternative(
                node=node.name,
                score=node.score,
                bytes=node.cached_bytes,
                why_not=why_not_then(
                    role=pod.role,
                    requested=pod_requests(self.templates[pod.role]),
                    node=node,
                    taken_by_job=self._taken(node.name),
                    by=by,
                    better=node.score > own_node.score,
                ),
            )
            for node in sorted(nodes.values(), key=lambda node: (-node.score, node.name))
            if node.name != pod.node and node.score
        ]
        own_nodes = {place.node for place in self.status.placement} | {
            pod_view.node for pod_view in self.pods
        }
        return PodPlace(
            pod=pod.name,
            role=pod.role,
            node=pod.node,
            phase=pod.phase,
            bytes=own_node.cached_bytes,
            score=own_node.score,
            best_score=max(node.score for node in nodes.values()),
            sentence=_sentence(
                pod,
                own_bytes=own_node.cached_bytes,
                score=own_node.score,
                total=self.total_bytes,
                alternatives=alternatives,
                by=by,
                past=past,
            )
            + (f"; now it holds {human(held_now)}" if held_now != own_node.cached_bytes else ""),
            alternatives=tuple(
                alternative for alternative in alternatives if alternative.node not in own_nodes
            )[:ALTERNATIVES],
            time=then.time,
        )

    def _consideration(self, pod: PodView) -> Consideration | None:
        """What there was when a pod was placed; None where that is not known, or was of other datasets than its own."""
        reads = {use.name for use in self.job.spec.datasets_of(pod.role, pod.number)}
        if not pod.node or reads != {use.name for use in self.job.spec.datasets}:
            return None
        for then in self.status.considered:
            if pod.scheduled and seconds_between(then.time, pod.scheduled) > ONE_PLACEMENT_SECONDS:
                continue  # it was placed later
            return then if any(node.name == pod.node for node in then.nodes) else None
        return None

    def _taken(self, node: str) -> dict[str, int]:
        """What pods of the job take of a node."""
        return added(
            pod_requests(self.templates[pod_view.role]) for pod_view in self.pods if pod_view.node == node
        )


def _sentence(
    pod: PodView,
    *,
    own_bytes: int,
    score: int,
    total: int,
    alternatives: Sequence[Alternative],
    by: Placer,
    past: bool,
) -> str:
    on = f"{'was' if past else 'is'} on {pod.node}"
    if by.named:
        on = f"{on}, the node that it names itself (spec.nodeName)"
    if not score and not alternatives:
        return f"{on}; when it was placed no node held a copy of its data, so none was better"
    pronoun = "; it" if by.named else ", which"
    held_text = f"held {human(own_bytes)} of its {human(total)} when it was placed"
    text = f"{on}{pronoun} {held_text} (score {score} of {MAX_SCORE})"
    better = [alternative for alternative in alternatives if alternative.score > score][:ALTERNATIVES]
    if not better:
        return f"{text}: no node had a higher score"
    more = all(alternative.bytes > own_bytes for alternative in better)
    why = "others held more" if more else "others were of the copy that it is to read"
    named = "; ".join(
        f"{alternative.node} had score {alternative.score}: {alternative.why_not}" for alternative in better
    )
    return f"{text}, though {why}: {named}"
