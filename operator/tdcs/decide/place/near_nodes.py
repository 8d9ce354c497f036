"""How near nodes without data of a pod are to it: what they are worth when no node with data has room.

A level of the topology (rack, zone, region) counts as much of the data as lies on nodes of the same rack, zone or
region; a node is worth the mean over the levels. So of two zones the one with more of the data is better, and in it the
rack with more. Nodes with data are better than all of these (:mod:`tdcs.decide.place.node_score`); of those with as
many bytes the nearer ones to the rest are better.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np

from tdcs.decide.place.dataset_copies import CopyOnNodes
from tdcs.decide.place.node_score import MAX_SCORE, CombinedData
from tdcs.model.kube_objects import Object
from tdcs.model.nearness import Place, place_of


@dataclass(frozen=True, kw_only=True)
class NodePlaces:
    """Where the nodes of a cluster are.

    Attributes:
        keys: the topology labels, the nearest level first.
        of: the place of each node that has such labels.
    """

    keys: tuple[str, ...] = ()
    of: Mapping[str, Place] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def nodes_at(self) -> Mapping[Place, Sequence[str]]:
        """The nodes at each place."""
        nodes_by_place: dict[Place, list[str]] = {}
        for node, place in self.of.items():
            nodes_by_place.setdefault(place, []).append(node)
        return nodes_by_place

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The levels by which nodes differ: one zone for all says nothing."""
        return tuple(
            level
            for level in range(len(self.keys))
            if len({group_of(place, level) for place in self.of.values()}) > 1
        )


NO_PLACES: Final = NodePlaces()


def places_of(nodes: Iterable[Object], *, keys: Sequence[str]) -> NodePlaces:
    """Where these nodes are by their labels."""
    place_by_node = {
        str(node["metadata"]["name"]): place
        for node in nodes
        if (place := place_of(node["metadata"].get("labels"), keys))
    }
    return NodePlaces(keys=tuple(keys), of=place_by_node)


NEAR_PART: Final = 0.2
"""How much less a node with data is worth that is far from all the rest of the data."""

Shares = Mapping[int, Mapping[Place, float]]
"""For each level by which nodes differ the share of a pod's data, from 0 to 1, in each rack, zone or region, which are
named by the values of their own label and of those above."""


def shares_of(copies: Sequence[CopyOnNodes], *, places: NodePlaces) -> Shares:
    """How much of the data of these copies is where. Larger datasets weigh more; what is nowhere weighs nothing."""
    shares: dict[int, dict[Place, float]] = {level: {} for level in places.levels}
    sizes = [max(copy.total_bytes, 1) if copy.ranked else 0 for copy in copies]
    for copy, size in zip(copies, sizes, strict=True):
        for level, all_shares in shares.items():
            worth: dict[Place, int] = {}
            for node in copy.ranked:
                if (group := group_of(places.of.get(node, ()), level)) is not None:
                    worth[group] = worth.get(group, 0) + copy.worth[node]
            for group, held in worth.items():
                all_shares[group] = all_shares.get(group, 0.0) + min(held / size, 1.0) * size / sum(sizes)
    return shares


def group_of(place: Place, level: int) -> Place | None:
    """The rack, zone or region of a place; None where its label is missing."""
    return place[level:] if level < len(place) and place[level] else None


def nearness(place: Place, *, shares: Shares) -> float:
    """Between 0 and 1: how near a place is to the data; 1 where all of it is in the same rack."""
    groups = {level: group_of(place, level) for level in shares}
    group_shares = (shares[level].get(group, 0.0) for level, group in groups.items() if group is not None)
    return sum(group_shares) / max(len(shares), 1)


def nearer_first(data: CombinedData, copies: Sequence[CopyOnNodes], *, places: NodePlaces) -> CombinedData:
    """What nodes with data are worth when what they lack is read from others: of two with as many bytes the one in the
    zone with more of the data is better. Nearness counts for `NEAR_PART` of what a node is worth."""
    if not data.nodes or not places.levels:
        return data
    shares = shares_of(copies, places=places)
    near = np.array([nearness(places.of.get(node, ()), shares=shares) for node in data.nodes])
    if near.min() == near.max():
        return data
    worth = data.worth * (1.0 - NEAR_PART * (1.0 - near / near.max()))
    return CombinedData(nodes=data.nodes, worth=worth * (data.worth.max() / worth.max()))


def near_scores(
    copies: Sequence[CopyOnNodes],
    *,
    candidates: Collection[str],
    places: NodePlaces,
    awaited: Mapping[str, float],
    exact: bool = True,
) -> dict[str, int]:
    """Scores for a pod that finds its data on no candidate, up to 10; 0 is left out. None when all are alike.

    Nodes for whose data others wait least come before all others, see
    :func:`tdcs.decide.place.node_score.nodes_to_take`, and of either the near ones before those that are far.

    Args:
        exact: leave out what is no candidate. It takes a look at each of thousands.
    """
    shares = shares_of(copies, places=places)
    if not any(shares.values()):
        return {}
    part = MAX_SCORE // 2 - 1 if awaited else MAX_SCORE
    by_place = {place: math.ceil(part * nearness(place, shares=shares) - 1e-9) for place in places.nodes_at}
    least_score = min(by_place.values())  # those that are farthest are left out: there may be thousands
    near: dict[str, int] = {}
    for place, score in by_place.items():
        if score > least_score:
            near |= dict.fromkeys(places.nodes_at[place], score)
    if not awaited:
        if not exact:
            return near
        near = {node: near[node] for node in candidates if node in near}
        return near if len(near) < len(candidates) or len(set(near.values())) > 1 else {}
    least = min((awaited.get(node, 0.0) for node in candidates), default=0.0) + 1e-9
    scores = {
        node: near.get(node, 0) + (MAX_SCORE - part if awaited.get(node, 0.0) <= least else 0)
        for node in candidates
    }
    return {node: score for node, score in scores.items() if score} if len(set(scores.values())) > 1 else {}
