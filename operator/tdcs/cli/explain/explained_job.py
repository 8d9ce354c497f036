"""Why a training job waits, or why its pods are where they are, from what the API server says."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tdcs.api import names
from tdcs.api.dataset import Dataset
from tdcs.api.trainingjob import READING_ROLES, ROLES, Role, TrainingJob
from tdcs.api.trainingjob_status import DataStall, TrainingJobStatus
from tdcs.cli.explain.explained_dataset import described, readable
from tdcs.cli.explain.explained_meeting import meeting_sentence
from tdcs.cli.explain.explained_plan import plan_of, plan_remarks
from tdcs.cli.explain.explained_room import Placer, free_room, why_not
from tdcs.cli.explain.listed_objects import VIEW
from tdcs.cli.explain.past_placement import PastPlacements
from tdcs.cli.explain.pod_place import ALTERNATIVES, Alternative, PodPlace
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.place.data_location import held, wanted_near
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_score import MAX_SCORE, bytes_on_node, node_scores
from tdcs.decide.queue.data_stall import TOO_LITTLE_SECONDS
from tdcs.model.humanize import human
from tdcs.model.job_pods import PodView, newest, pod_view
from tdcs.model.kube_objects import ENDED_POD_PHASES, Object
from tdcs.model.pod_resources import pod_requests

DEFAULT_SCHEDULER = "default-scheduler"
"""Who places pods that name no scheduler."""

ENDED_STATES = frozenset({"Succeeded", "Failed"})
"""States of jobs, and phases of pods, after which nothing runs any more."""

GONE = "gone"
"""The phase of a pod that only the job's status remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWorld:
    """What was read from the API server.

    `nodes` and `pods` (those of all namespaces) are None when the user may not list them: then less can be said.
    `sees_pods`: whether the user may list the pods of the job's namespace. `turn`: what is decided about it now, if it
    waits; None: that is not known.
    """

    job: Object
    datasets: Mapping[str, Object] = field(default_factory=dict)
    own_pods: Sequence[Object] = ()
    sees_pods: bool = True
    nodes: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None
    turn: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    job: str
    state: str
    headline: str
    datasets: tuple[str, ...]
    pods: tuple[PodPlace, ...]
    remarks: tuple[str, ...]


def explain(world: JobWorld) -> JobReport:
    metadata = world.job["metadata"]
    job = TrainingJob.model_validate(world.job)
    status = job.status or TrainingJobStatus()
    datasets, broken = readable(world.datasets)
    chosen = {use.dataset: use.copy_id for use in status.copies}
    pods = _pods(job, metadata["name"], status, world.own_pods)
    own_nodes = {place.node for place in status.placement} | {pod.node for pod in pods}
    raw = {pod["metadata"]["name"]: pod for pod in world.own_pods}
    free = free_room(nodes=world.nodes, pods=world.pods)
    templates: dict[Role, Object] = {role: spec.template["spec"] for role, spec in job.spec.by_role().items()}

    def read_by(pod: PodView) -> dict[str, Dataset]:
        reads = {use.name for use in job.spec.datasets_of(pod.role, pod.number)}
        return {name: dataset for name, dataset in datasets.items() if name in reads}

    def placer(pod: PodView) -> Placer:
        return Placer(
            stranger=_stranger(job, raw.get(pod.name), pod.role),
            named=bool(templates[pod.role].get("nodeName")),
            placed=bool(pod.node),
        )

    def now(pod: PodView) -> PodPlace:
        return place(
            pod,
            # A pod that was placed names its node: where else it might have run is asked without that.
            spec={**(raw[pod.name]["spec"] if pod.name in raw else templates[pod.role]), "nodeName": None},
            copies=held(read_by(pod)),
            scores=node_scores(wanted_near(read_by(pod), chosen=chosen)),
            free=free,
            nodes=world.nodes,
            by=placer(pod),
            own_nodes=own_nodes,
            past=_is_past(pod, status),
        )

    then = PastPlacements(
        job=job, status=status, pods=pods, templates=templates, total_bytes=_total_bytes(datasets.values())
    )
    places = tuple(
        then.of(
            pod,
            by=placer(pod),
            past=_is_past(pod, status),
            held_now=bytes_on_node(node=pod.node, copies=held(datasets)),
        )
        or now(pod)
        for pod in pods
    )
    return JobReport(
        job=f"{metadata['namespace']}/{metadata['name']}",
        state=status.state or "Waiting",
        headline=_headline(status),
        datasets=tuple(
            broken.get(use.name) or described(use.name, datasets.get(use.name), reads=chosen.get(use.name))
            for use in job.spec.datasets
        ),
        pods=tuple(replace(pod_place, alternatives=()) for pod_place in places)
        if status.state == "Suspended"  # none of its pods is there, or about to be placed
        else places,
        remarks=(*_remarks(job, status, world), *_plan_remarks(job, places, world)),
    )


def _total_bytes(datasets: Collection[Dataset]) -> int:
    return sum(dataset.status.total_bytes for dataset in datasets if dataset.status is not None)


def _headline(status: TrainingJobStatus) -> str:
    if status.state is None:
        return "the operator has not looked at it yet: see tdcs doctor"
    verbs = {
        "Waiting": "It waits",
        "Queued": "It waits for its turn",
        "Suspended": "It is suspended",
        "Starting": "Its pods are starting",
        "Running": "It runs",
        "Restarting": "A pod failed and is created again",
        "Succeeded": "It succeeded",
        "Failed": "It failed",
    }
    return f"{verbs[status.state]}: {status.message}" if status.message else verbs[status.state]


def place(
    pod: PodView,
    *,
    spec: Mapping[str, Any],
    copies: Sequence[CopyOnNodes],
    scores: Mapping[str, int],
    free: Mapping[str, Mapping[str, int]] | None,
    nodes: Sequence[Object] | None,
    by: Placer,
    own_nodes: Collection[str],
    past: bool,
) -> PodPlace:
    """Where a pod is, how good that is, and where else it might be.

    Args:
        pod: as it is.
        spec: its spec, without its node.
        copies: the copies of the datasets that it reads, by node; empty: it reads none.
        scores: of the nodes with its data, as the extender gives them.
        free: what each node has left; None when that cannot be known.
        nodes: None when the user may not list them.
        own_nodes: nodes that are no alternative.
        past: whether it runs no more, or is about to.
    """
    reads = bool(copies)
    held = bytes_on_node(node=pod.node, copies=copies) if pod.node else 0
    score = scores.get(pod.node, 0) if reads and pod.node else None
    best = max(scores.values(), default=0)
    alternatives = (
        tuple(_alternatives(pod, spec=spec, copies=copies, scores=scores, free=free, nodes=nodes, by=by))
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
        sentence=_sentence(
            pod,
            held=held,
            score=score,
            best=best,
            reads=reads,
            alternatives=alternatives,
            copies=copies,
            past=past,
            by=by,
        ),
        alternatives=tuple(alternative for alternative in alternatives if alternative.node not in own_nodes)[
            :ALTERNATIVES
        ],
    )


def _sentence(
    pod: PodView,
    *,
    held: int,
    score: int | None,
    best: int,
    reads: bool,
    alternatives: Sequence[Alternative],
    copies: Sequence[CopyOnNodes],
    past: bool,
    by: Placer,
) -> str:
    if past and not pod.node:
        return "never had a node"
    if pod.waiting is not None and not past:
        return f"waits: {pod.waiting}"
    if not pod.node:
        return _unplaced(pod, by=by)
    on = f"{'was' if past else 'is'} on {pod.node}"
    if by.named:
        on = f"{on}, the node that it names itself (spec.nodeName)"
    if not reads:
        read = "it read no data: any node was as good" if past else "it reads no data: any node is as good"
        return f"{on}; {read}"
    total = sum(copy.total_bytes for copy in copies)
    if best == 0:
        return f"{on}; nothing of its data is cached anywhere now, so no node is better"
    holds = "now holds" if past else "holds"
    pronoun = "; it" if by.named else ", which"
    text = f"{on}{pronoun} {holds} {human(held)} of its {human(total)} (score {score} of {MAX_SCORE})"
    if score is not None and score >= best:
        return f"{text}: no node holds more"
    better = [alternative for alternative in alternatives if alternative.score > (score or 0)][:ALTERNATIVES]
    named = "; ".join(
        f"{alternative.node} has score {alternative.score}: {alternative.why_not}" for alternative in better
    )
    more = all(alternative.bytes > held for alternative in better)
    why = "others hold more" if more else "others are of the copy that it is to read"
    if by.named:
        scores = ", ".join(f"{alternative.node} has score {alternative.score}" for alternative in better)
        return f"{text}, though {why} ({scores}): no scheduler was asked" if scores else text
    return f"{text}, though {why}: {named}" if named else text


def _unplaced(pod: PodView, *, by: Placer) -> str:
    if not by.stranger:
        return "waits for the scheduler to give it a node"
    unseen = "" if pod.scheduled else ", which has not looked at it yet: is there a scheduler of that name?"
    return f"waits for the scheduler {by.stranger} to give it a node{unseen}"


def _alternatives(
    pod: PodView,
    *,
    spec: Mapping[str, Any],
    copies: Sequence[CopyOnNodes],
    scores: Mapping[str, int],
    free: Mapping[str, Mapping[str, int]] | None,
    nodes: Sequence[Object] | None,
    by: Placer,
) -> list[Alternative]:
    node_objects = {node["metadata"]["name"]: node for node in nodes or ()}
    requested = pod_requests(spec)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [
        Alternative(
            node=node,
            score=score,
            bytes=bytes_on_node(node=node, copies=copies),
            why_not=why_not(
                spec=spec,
                requested=requested,
                node=node_objects.get(node),
                free=None if free is None else free.get(node),
                listed=nodes is not None,
                by=by,
                better=score > scores.get(pod.node, 0),
            ),
        )
        for node, score in ranked
        if node != pod.node
    ]


def _pods(
    job: TrainingJob, name: str, status: TrainingJobStatus, own_pods: Sequence[Object]
) -> list[PodView]:
    """The pods, and those that only the status remembers: all of a job without pods, else those that were cleaned
    up after its end or its suspension. While it runs, a pod that is not there was replaced."""
    live = newest(pod_view(pod) for pod in own_pods)
    if live and status.state not in ENDED_STATES | {"Suspended"}:
        return live
    live_names = {pod["metadata"]["name"] for pod in own_pods}
    gone_pods = [
        PodView(name=place.pod, role=_role_of(place.pod, job, name), node=place.node, phase=GONE)
        for place in status.placement
        if place.pod not in live_names
    ]
    return sorted([*live, *gone_pods], key=lambda pod: ROLES.index(pod.role))


def _role_of(pod: str, job: TrainingJob, name: str) -> Role:
    """The role of a pod of which only the name is left."""
    starts = ((role, names.role_job_name(job=name, role=role)) for role in job.spec.by_role())
    return next((role for role, start in starts if pod.startswith(f"{start}-")), "Worker")


def _is_past(pod: PodView, status: TrainingJobStatus) -> bool:
    return pod.going or pod.phase in ENDED_POD_PHASES | {GONE} or status.state == "Suspended"


def _remarks(job: TrainingJob, status: TrainingJobStatus, world: JobWorld) -> list[str]:
    remarks = []
    if world.turn is not None and world.turn.message != status.message:
        does = "may start" if world.turn.admitted else "waits"
        remarks.append(f"As things are now, it {does} ({world.turn.reason}): {world.turn.message}.")
    if not world.sees_pods:
        remarks.append(
            "What is said of its pods is what its status remembers: you may not list pods in its namespace (ask an "
            f"administrator to bind the ClusterRole {VIEW} to you there)."
        )
    meetings = {use.dataset: use.meeting for use in status.copies if use.meeting is not None}
    if status.locality_percent is not None:
        grew = any(meeting.way == "Grow" for meeting in meetings.values())
        when = "With the copies that come to its nodes" if grew else "When its pods were placed"
        remarks.append(f"{when}, its locality {'is' if grew else 'was'} {status.locality_percent}.")
    remarks += [text for name, meeting in meetings.items() if (text := meeting_sentence(name, meeting))]
    if status.data_stall is not None:
        remarks.append(_waits(status.data_stall))
    named = _named_nodes(job)
    if named and job.spec.datasets:
        remarks.append(
            f"No scheduler places its pods of {' and '.join(named)}, and their data is not looked at: the "
            "template names the node (spec.nodeName). Use spec.nodeSelector instead to have them placed by data among "
            "some nodes."
        )
    scheduled = any(role in READING_ROLES and role not in named for role in job.spec.by_role())
    if scheduled and job.spec.scheduling.mode == "Affinity":
        remarks.append("Its pods prefer the nodes that held data when it was admitted (mode Affinity).")
    elif scheduled and job.spec.datasets:
        remarks.append(_ranking(job, world))
    leaves_nodes = any(
        names.ANNOTATION_LEAVE_NODES in (pod["metadata"].get("annotations") or {}) for pod in world.own_pods
    )
    if leaves_nodes and job.spec.scheduling.mode == "Extender":  # the extender sees no other pods
        remarks.append(
            "When it was admitted, jobs with larger pods waited or ran: its pods left them empty nodes, also such with "
            "its data, while others had room."
        )
    if any(pod["metadata"].get("deletionTimestamp") for pod in world.own_pods):
        remarks.append("Some of its pods are being deleted.")
    return remarks


def _plan_remarks(job: TrainingJob, places: Sequence[PodPlace], world: JobWorld) -> list[str]:
    worker = job.spec.by_role().get("Worker")
    plan = plan_of(worker.template) if worker is not None else None
    if worker is None or plan is None:
        return []
    return plan_remarks(plan, template=worker.template, places=places, pods=world.own_pods)


def _waits(stall: DataStall) -> str:
    waited = stall.source_seconds + stall.peer_seconds + (stall.disk_seconds or 0)
    if stall.loop_seconds:
        percent = round(100 * (stall.loop_wait_seconds or 0) / stall.loop_seconds)
        loop = (
            f"Its training loop waited for batches in {percent}% of {stall.loop_seconds} s of its "
            f"processes, and its reads in {stall.percent}% of {stall.observed_seconds} s of its pods"
        )
    elif waited < TOO_LITTLE_SECONDS:
        return (
            f"Its reads waited for {waited} s in all its pods together, which is too little to say whether more cache "
            "would make it faster."
        )
    else:
        loop = f"Its reads waited in {stall.percent}% of {stall.observed_seconds} s of its pods"
    parts = [f"{stall.source_seconds} s for the source", f"{stall.peer_seconds} s for other nodes"]
    if stall.disk_seconds is not None:
        parts.append(f"{stall.disk_seconds} s for files of their own node")
    return f"{loop}: {', '.join(parts)}. So {stall.message} (advice {stall.advice})."


def _named_nodes(job: TrainingJob) -> list[Role]:
    """The roles that read data on a node that their template names."""
    return [
        role
        for role, spec in job.spec.by_role().items()
        if role in READING_ROLES and spec.template["spec"].get("nodeName")
    ]


def _ranking(job: TrainingJob, world: JobWorld) -> str:
    pods: list[tuple[Role, Object | None]] = [(pod_view(pod).role, pod) for pod in world.own_pods]
    pods = pods or [("Worker", None)]
    strangers = {_stranger(job, pod, role) for role, pod in pods if role in READING_ROLES} - {""}
    if strangers:
        templates = [role_spec.template["spec"] for role_spec in job.spec.by_role().values()]
        remedy = (
            "remove schedulerName from the template"
            if any(template.get("schedulerName") for template in templates)
            else "install TDCS with its scheduler (chart value scheduler.enabled)"
        )
        return (
            f"The scheduler of its pods is {' and '.join(sorted(strangers))}, which ranks nodes by data only if it "
            f"asks the extender of TDCS: {remedy}, or use scheduling.mode Affinity."
        )
    return "Its pods are ranked by data when they are placed (mode Extender), a preference and no must."


def _stranger(job: TrainingJob, pod: Object | None, role: Role) -> str:
    """The scheduler that places a pod, when it is not the one that was installed with TDCS; else empty.

    How that one is called is known by the operator alone, which writes it into pods that name none.
    """
    if job.spec.scheduling.mode != "Extender":
        return ""
    spec = job.spec.by_role().get(role)
    named = str(spec.template["spec"].get("schedulerName") or "") if spec is not None else ""
    placed_by = named or (str(pod["spec"].get("schedulerName") or "") if pod is not None else "")
    return (
        placed_by if (named or placed_by == DEFAULT_SCHEDULER) and placed_by != names.SCHEDULER_NAME else ""
    )
