"""Node affinity to the data, for a pod that a scheduler without the extender places.

Nodes are named by `metadata.name`, which every node has: the label `kubernetes.io/hostname` may be another name, or of
several nodes. A term names one node, as the API allows it for this field. Nodes without data in the same rack, zone or
region are preferred by their labels, by less than any node with data. Each preferred term carries a condition that
every node meets, so that a later call replaces these terms and none that the pod's author wrote.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.near_nodes import NodePlaces, shares_of
from tdcs.decide.place.node_score import MAX_SCORE
from tdcs.model.kube_objects import Object

DataAffinity = Literal["preferred", "required"]

PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

MAX_WEIGHT: Final = 100
"""The largest weight of a preferred term."""

MOST_NODES: Final = 100
"""Of so many nodes, the best ones, a pod names the data: each is a term that its scheduler compares with each node."""

MOST_TERMS: Final = 200
"""Required terms of one pod: each one that it has already and that names no node with data, for each node."""


MARK: Final[Mapping[str, str]] = {"key": "tdcs.io/far", "operator": "DoesNotExist"}
"""The condition of TDCS's preferred terms, by which they are known again: no node has this label."""

NEAR_WEIGHT: Final = MAX_WEIGHT // MAX_SCORE - 1
"""What a node at nearest weighs that has no data: less than the least score of one that has."""

MOST_PLACES: Final = 20
"""Of so many racks, zones and regions, those with most of the data, a pod names the labels."""


def with_data(
    affinity: Mapping[str, Any] | None,
    *,
    scores: Mapping[str, int],
    way: DataAffinity,
    near: Sequence[Object] = (),
) -> Object:
    """The affinity of a pod with that to its data; unchanged when no node holds any of it.

    Args:
        affinity: what the pod has. Preferred terms of an earlier call, and no others, are replaced.
        scores: of the nodes that hold data, see `tdcs.decide.place.node_score.node_scores`.
        way: `preferred`: by weight, behind the pod's own terms. `required`: no other node will do; the pod's own
            requirements still hold.
        near: preferred terms of nearness, see `near_terms`.
    """
    new_affinity = dict(affinity or {})
    node = dict(new_affinity.get("nodeAffinity") or {})
    best = sorted(scores, key=lambda name: (-scores[name], name))[:MOST_NODES]
    own_terms = [term for term in node.get(PREFERRED) or () if not is_of_data(term)]
    if way == "preferred":
        terms = [
            *own_terms,
            *(
                {
                    "weight": scores[name] * MAX_WEIGHT // MAX_SCORE,
                    "preference": {**_at(name), "matchExpressions": [dict(MARK)]},
                }
                for name in best
            ),
            *near,
        ]
        node = {**node, PREFERRED: terms} if terms else {key: node[key] for key in node if key != PREFERRED}
    elif best and (terms := _required(node.get(REQUIRED), best)):
        node = {**node, REQUIRED: {"nodeSelectorTerms": terms}}
    return (
        {**new_affinity, "nodeAffinity": node}
        if node
        else {key: new_affinity[key] for key in new_affinity if key != "nodeAffinity"}
    )


def near_terms(copies: Sequence[CopyOnNodes], *, places: NodePlaces) -> list[Object]:
    """Preferred terms for nodes in the racks, zones and regions of the data, by how much of it is there: with all of
    them a node weighs `NEAR_WEIGHT` at most."""
    shares = shares_of(copies, places=places)
    terms = [(share, group, level) for level, near in shares.items() for group, share in near.items()]
    terms.sort(key=lambda term: (-term[0], term[2], term[1]))
    weighed = (
        (int(share * NEAR_WEIGHT / len(shares) + 1e-9), group, level)
        for share, group, level in terms[:MOST_PLACES]
    )
    return [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [
                    *(
                        {"key": key, "operator": "In", "values": [value]}
                        for key, value in zip(places.keys[level:], group, strict=True)
                        if value
                    ),
                    dict(MARK),
                ]
            },
        }
        for weight, group, level in weighed
        if weight
    ]


def _required(required: Mapping[str, Any] | None, best: Sequence[str]) -> list[Object]:
    """The terms of a pod, each of them for nodes of `best`; none when no node matches what the pod has.

    Those that name nodes of `best` already are kept as they are: the API server may call a webhook again for the pod
    that it has changed, and each of them together with each node would leave few terms that a node can match.
    """
    # A term that is empty matches no node, so a node's name added to it would let the pod run where it may not.
    own_terms = (
        [{}]
        if required is None
        else [term for term in required.get("nodeSelectorTerms") or () if any(term.values())]
    )
    held = set(best)
    done = [term for term in own_terms if (named_nodes := named_node(term)) and held.issuperset(named_nodes)]
    open_terms = [term for term in own_terms if term not in done]
    names = best[: max((MOST_TERMS - len(done)) // max(len(open_terms), 1), 1)]
    return [
        *done,
        *(
            {**term, "matchFields": [*(term.get("matchFields") or ()), *_at(name)["matchFields"]]}
            for term in open_terms
            for name in names
        ),
    ]


def _at(name: str) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def is_of_data(term: Mapping[str, Any]) -> bool:
    """Whether a preferred term is one of TDCS, for a node with data or for nodes near it."""
    return MARK in ((term.get("preference") or {}).get("matchExpressions") or ())


def is_near(term: Mapping[str, Any]) -> bool:
    """Whether a preferred term is one of `near_terms`."""
    return is_of_data(term) and not named_node(term["preference"])


def named_node(term: Mapping[str, Any]) -> list[str]:
    """The nodes that a term of a node selector is for by their names: one at most, as the API has it."""
    return [
        str(name)
        for requirement in term.get("matchFields") or ()
        if requirement.get("key") == "metadata.name" and requirement.get("operator") == "In"
        for name in requirement.get("values") or ()
    ]
