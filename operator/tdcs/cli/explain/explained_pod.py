"""Why any pod is where it is, whoever made it: by what the extender itself would answer for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.api import names
from tdcs.cli.explain.explained_dataset import described, readable
from tdcs.cli.explain.explained_job import DEFAULT_SCHEDULER, place
from tdcs.cli.explain.explained_room import Placer, free_room, names_its_node
from tdcs.cli.explain.pod_place import PodPlace
from tdcs.decide.place.data_location import held
from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NodePlaces, group_of, places_of, shares_of
from tdcs.decide.place.pod_affinity import PREFERRED, REQUIRED, is_near, is_of_data, named_node
from tdcs.model.humanize import counted
from tdcs.model.job_pods import pod_view
from tdcs.model.kube_objects import ENDED_POD_PHASES, Object
from tdcs.model.nearness import TOPOLOGY_LABELS
from tdcs_scheduler.demand import Demand
from tdcs_scheduler.protocol import (
    BadAnnotationError,
    DatasetReference,
    PrioritizeRequest,
    claims_of,
    decode_annotation,
    index_of,
    is_opted_out,
    read_by,
    with_claims,
)
from tdcs_scheduler.rank import rank
from tdcs_scheduler.view import DatasetView


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorld:
    """What was read from the API server.

    `datasets` are those that the pod may read, as `namespace/name`. `nodes` and `pods` (those of all namespaces) are
    None when the user may not list them: then less can be said. `topology_labels` say where nodes are, the nearest
    level first.
    """

    pod: Object
    datasets: Mapping[str, Object] = field(default_factory=dict)
    nodes: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None
    topology_labels: Sequence[str] = TOPOLOGY_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """The answer: who places the pod and how, what it reads, where it is, and how near its data is to that."""

    pod: str
    scheduler: str
    headline: str
    datasets: tuple[str, ...]
    place: PodPlace
    near: str = ""


def request_of(pod: Object) -> PrioritizeRequest:
    """What kube-scheduler would ask the extender about a pod, with all nodes as candidates."""
    metadata = pod["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    mounted = [
        (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        for volume in pod["spec"].get("volumes") or ()
    ]
    index = names.ANNOTATION_COMPLETION_INDEX
    return PrioritizeRequest(
        pod=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata.get("uid", ""),
        annotation=annotations.get(names.ANNOTATION_DATASETS),
        nodes=None,
        index=index_of(annotations.get(index) or labels.get(index)),
        claims=claims_of(mounted, namespace=metadata["namespace"]),
        opted_out=is_opted_out(labels.get(names.LABEL_PLACE_BY_DATA)),
        leave=annotations.get(names.ANNOTATION_LEAVE_NODES),
    )


def datasets_to_read(pod: Object) -> list[str]:
    """The Datasets that a pod may read, as `namespace/name`: those of its annotation, and of its claims."""
    request = request_of(pod)
    return list(dict.fromkeys([*(reference.dataset for reference in _named(request)), *request.claims]))


def explain_pod(world: PodWorld) -> PodReport:
    pod, request = world.pod, request_of(world.pod)
    view = DatasetView()
    for name, dataset in world.datasets.items():
        namespace, _, short = name.partition("/")
        view.on_change((namespace, short), dataset)
    places = places_of(world.nodes or (), keys=world.topology_labels)
    ranking = rank(request=request, view=view, demand=Demand(view=view), synced=True, places=places)
    references = (
        [] if request.opted_out else with_claims(_named(request), claims=request.claims, datasets=view)
    )
    reads = {reference.dataset: reference.copy for reference in read_by(references, index=request.index)}
    parsed, broken = readable({name: world.datasets[name] for name in reads if name in world.datasets})
    scheduler = str(pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER)
    shown_pod, named = pod_view(pod), names_its_node(pod)
    return PodReport(
        pod=request.pod,
        scheduler=scheduler,
        headline=_headline(
            request, pod, scheduler, reads=bool(reads), unreadable=ranking.unreadable, named=named
        ),
        datasets=tuple(
            broken.get(name) or described(name, parsed.get(name), reads=copy) for name, copy in reads.items()
        ),
        place=place(
            shown_pod,
            spec={**pod["spec"], "nodeName": None},
            copies=held(parsed),
            scores=ranking.scores if parsed else {},
            free=free_room(nodes=world.nodes, pods=world.pods),
            nodes=world.nodes,
            by=Placer(
                stranger="" if scheduler == names.SCHEDULER_NAME else scheduler,
                named=named,
                placed=bool(shown_pod.node),
            ),
            own_nodes={shown_pod.node},
            past=shown_pod.going or shown_pod.phase in ENDED_POD_PHASES,
        ),
        near=_nearness(shown_pod.node, held(parsed), places=places),
    )


def _nearness(node: str, copies: Sequence[CopyOnNodes], *, places: NodePlaces) -> str:
    """How much of a pod's data is in the same racks, zones and regions as its node."""
    shares, place = shares_of(copies, places=places), places.of.get(node, ())
    parts = [
        f"{shares[level].get(group, 0.0):.0%} in its {places.keys[level].rpartition('/')[2]} ({place[level]})"
        for level in shares
        if (group := group_of(place, level)) is not None
    ]
    if not parts or not any(shares.values()):
        return ""
    return (
        f"Of its data are {', '.join(parts)}: what its node lacks is read from the nearest one that has it."
    )


def _named(request: PrioritizeRequest) -> list[DatasetReference]:
    try:
        return [] if request.annotation is None else decode_annotation(text=request.annotation)
    except BadAnnotationError:
        return []


def _affinity_to(pod: Object) -> str:
    """The node affinity by which a scheduler without the extender finds the data of a pod; empty when it has none."""
    node = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    needed = {name for term in required for name in named_node(term)}
    if needed:
        return (
            f"required node affinity to {counted(len(needed), 'node')} that held its data when it was made: it runs on "
            "no other one"
        )
    preferred = [term for term in node.get(PREFERRED) or () if is_of_data(term)]
    named_nodes = {name for term in preferred for name in named_node(term["preference"])}
    near = ", behind these to their racks, zones and regions" if any(map(is_near, preferred)) else ""
    if not named_nodes:
        return ""
    gated = pod["spec"].get("schedulingGates")
    since = (
        "now, and renewed until it has no scheduling gate"
        if gated
        else "when it was made, or lost its last gate"
    )
    return (
        f"preferred node affinity to {counted(len(named_nodes), 'node')} that held its data {since}{near}: "
        "one preference among those of that scheduler"
    )


def _headline(
    request: PrioritizeRequest, pod: Object, scheduler: str, *, reads: bool, unreadable: str, named: bool
) -> str:
    if named:
        return (
            "No scheduler placed it, and its data was not looked at: it was created with its node (spec.nodeName). Use "
            "spec.nodeSelector instead to have it placed by data among some nodes."
        )
    if request.opted_out:
        return f"It is labelled {names.LABEL_PLACE_BY_DATA}=false: {scheduler} places it without regard to its data."
    wrong = f" Its {unreadable}." if unreadable else ""
    if not reads:
        return f"It mounts no Dataset's claim, and its annotation names none: {scheduler} places it.{wrong}"
    if scheduler == names.SCHEDULER_NAME:
        return f"{scheduler} places it, by its data: a preference and no must.{wrong}"
    if near := _affinity_to(pod):
        return f"{scheduler} places it, by {near}.{wrong}"
    if scheduler == DEFAULT_SCHEDULER:
        return (
            f"{scheduler} places it, which does not know where its data is. Set schedulerName to "
            f"{names.SCHEDULER_NAME} where the pod is made, or have that done for all pods with a Dataset's claim "
            f"(chart value placeByData), and create it again.{wrong}"
        )
    return (
        f"{scheduler} places it, which ranks nodes by data only if it asks the extender of TDCS, and it has no node "
        "affinity to its data: that was on no node when it was made, or the webhook was away or is off (chart value "
        f"placeByAffinity).{wrong}"
    )
