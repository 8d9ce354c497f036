"""On which nodes the pods of a job would be, one after the other, by the extender's own ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tdcs.api import names
from tdcs.api.trainingjob import READING_ROLES, Role, TrainingJobSpec
from tdcs.cli.explain.explained_pod import request_of
from tdcs.control.job.job_children import job as indexed_job
from tdcs.decide.place.gang_fit import room_for
from tdcs.decide.place.node_eligibility import may_run, why_nowhere
from tdcs.model.kube_objects import Object
from tdcs.model.pod_resources import Amounts, pod_requests
from tdcs_scheduler.demand import Demand, waiting_pod
from tdcs_scheduler.protocol import Candidates
from tdcs_scheduler.rank import rank
from tdcs_scheduler.view import DatasetView


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPod:
    """A pod, the node that it would get, and its score there.

    Attributes:
        node: empty when no node has room for it now.
        score: 0 to 10 among the nodes that have room; None for a pod that reads no data.
        alike: how many nodes with room have the same score: kube-scheduler's other preferences choose among them.
        why_not: why it would get no node; empty when it would.
    """

    pod: str
    role: Role
    node: str
    score: int | None
    alike: int
    why_not: str = ""


def place_pods(
    *,
    job: Object,
    spec: TrainingJobSpec,
    workers: int,
    copies: Mapping[str, str],
    datasets: Sequence[Object],
    pods: Sequence[Object],
    nodes: Sequence[Object],
    free: Mapping[str, Amounts],
) -> tuple[PlannedPod, ...]:
    """Where each pod would be, those that read data first.

    Args:
        job: as it would be applied.
        spec: the same, parsed.
        workers: how many workers it would start with.
        copies: the copy of each dataset that it would read.
        datasets: all that are known, with what is on their nodes or on its way.
        pods: all that are known: some wait for the same scheduler.
        free: what each node has left for the job.
    """
    view = DatasetView()
    for dataset in datasets:
        view.on_change((dataset["metadata"]["namespace"], dataset["metadata"]["name"]), dataset)
    demand = Demand(view=view)
    for pod in pods:
        if _waits(pod):
            demand.on_pod((pod["metadata"]["namespace"], pod["metadata"]["name"]), waiting_pod(pod))
    remaining = {name: dict(amounts) for name, amounts in free.items()}
    pods_on_node = dict.fromkeys(remaining, 0)
    places = []
    for role, index, pod in _pods(job, spec, workers=workers, copies=copies):
        requested = pod_requests(pod["spec"])
        candidates = [
            name
            for node in nodes
            if (name := node["metadata"]["name"]) in remaining
            and may_run(pod["spec"], node)
            and room_for(request=requested, free=remaining[name]) > 0
        ]
        request = msgspec.structs.replace(request_of(pod), nodes=Candidates(msgspec.json.encode(candidates)))
        reads = bool(spec.datasets_of(role, index))
        scores = rank(request=request, view=view, demand=demand, synced=True).scores if reads else {}
        # Of equal scores kube-scheduler prefers the emptier node, as a rule.
        order = {
            name: (
                -scores.get(name, 0),
                pods_on_node[name],
                -remaining[name].get(names.GPU_RESOURCE, 0),
                name,
            )
            for name in candidates
        }
        node = min(candidates, key=order.__getitem__, default="")
        best = scores.get(node, 0)
        places.append(
            PlannedPod(
                pod=pod["metadata"]["name"],
                role=role,
                node=node,
                score=best if reads and node else None,
                alike=sum(scores.get(name, 0) == best for name in candidates),
                why_not="" if node else _why_not(pod["spec"], nodes),
            )
        )
        if node:
            pods_on_node[node] += 1
            for resource, amount in requested.items():
                remaining[node][resource] = remaining[node].get(resource, 0) - amount
    return tuple(places)


def _why_not(pod: Mapping[str, Any], nodes: Sequence[Object]) -> str:
    if any(may_run(pod, node) for node in nodes):
        return "no node has room for it"
    return why_nowhere(pod, nodes)


def _waits(pod: Object) -> bool:
    spec, phase = pod["spec"], (pod.get("status") or {}).get("phase")
    return (
        not spec.get("nodeName") and phase == "Pending" and spec.get("schedulerName") == names.SCHEDULER_NAME
    )


def _pods(
    job: Object, spec: TrainingJobSpec, *, workers: int, copies: Mapping[str, str]
) -> list[tuple[Role, int, Object]]:
    pods = []
    for role, role_spec in sorted(spec.by_role().items(), key=lambda item: item[0] not in READING_ROLES):
        role_job = indexed_job(owner=job, spec=spec, role=role, suspended=False, copies=copies)
        template = role_job["spec"]["template"]
        for index in range(workers if role == "Worker" else role_spec.replicas):
            metadata = {
                **(template.get("metadata") or {}),
                "name": f"{role_job['metadata']['name']}-{index}",
                "namespace": job["metadata"]["namespace"],
            }
            annotations = {
                **(metadata.get("annotations") or {}),
                names.ANNOTATION_COMPLETION_INDEX: str(index),
            }
            pod = {"metadata": {**metadata, "annotations": annotations}, "spec": template["spec"]}
            pods.append((role, index, pod))
    return pods
