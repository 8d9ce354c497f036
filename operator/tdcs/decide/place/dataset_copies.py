"""Copies of datasets: which bytes of them are on which nodes, and what a pod sees of several.

For one copy a node is worth its bytes there, and half of those that are on their way to it.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

FIRST_COPY: Final = "0"
"""The id of the first copy: a job reads it as long as none was chosen for it."""

#: How much less bytes on their way to a node count than bytes that are there.
ARRIVING = 2

#: How much less bytes of another copy count than bytes of the copy that a pod is to read.
OTHER_COPY = 2


@dataclass(frozen=True, kw_only=True)
class CopyOnNodes:
    """One copy of a dataset. What follows from it is worked out once: every pod that is placed asks for it.

    Attributes:
        node_bytes: bytes of the copy that are on each node.
        arriving: bytes of the copy that each node lacks and is to get.
        brought: whether Preloads brought it to their nodes: no job is dealt out to it, and for every job it counts in
            full.
    """

    total_bytes: int
    node_bytes: Mapping[str, int]
    arriving: Mapping[str, int] = field(default_factory=dict)
    brought: bool = False

    @cached_property
    def worth(self) -> Mapping[str, int]:
        """What each node counts for: its bytes, and a part of those that are on their way."""
        if not self.arriving:
            return self.node_bytes
        worth = dict(self.node_bytes)
        for node, coming in self.arriving.items():
            worth[node] = worth.get(node, 0) + coming // ARRIVING
        return worth

    @cached_property
    def ranked(self) -> Sequence[str]:
        """The nodes that are worth something, the best one first."""
        return sorted(
            (node for node, worth in self.worth.items() if worth > 0), key=lambda node: -self.worth[node]
        )

    @cached_property
    def near(self) -> "Near":
        """What the nodes are worth beside one another, when all can be chosen."""
        return self._near(self.ranked)

    def place_of_best(self, candidates: Container[str] | None) -> int | None:
        """The place in `ranked` of the best of these candidates, 0 for one that is worth as much as the first; None
        when none of them is worth anything. No candidates given: all nodes are."""
        for place, node in enumerate(self.ranked):
            if candidates is None or node in candidates:
                return 0 if self.worth[node] == self.worth[self.ranked[0]] else place
        return None

    def near_from(self, place: int | None) -> "Near":
        """What the nodes from this place on are worth beside the first of them; those before it are left out."""
        if place is None:
            return _NOWHERE
        return self._near(self.ranked[place:]) if place else self.near

    def _near(self, ranked: Sequence[str]) -> "Near":
        if not ranked:
            return _NOWHERE
        most = self.worth[ranked[0]]
        weight = max(self.total_bytes, most)
        part = weight / most
        return Near(weight=weight, nodes={node: part * self.worth[node] for node in ranked})


@dataclass(frozen=True, kw_only=True, slots=True)
class Near:
    """What nodes are worth for one copy.

    Attributes:
        weight: what the copy counts beside others: its size in bytes, and nothing when it is nowhere.
        nodes: those that are worth something: what over what the best one is worth, times the weight.
    """

    weight: int
    nodes: Mapping[str, float]


_NOWHERE: Final = Near(weight=0, nodes=MappingProxyType({}))


def merged(copies: Sequence[CopyOnNodes]) -> CopyOnNodes | None:
    """What all copies of one dataset offer together: on each node the best of them. None when there is no copy.

    A pod reads all bytes on its node, of any copy.
    """
    if not copies:
        return None
    return CopyOnNodes(
        total_bytes=max(copy.total_bytes for copy in copies),
        node_bytes=_largest([copy.node_bytes for copy in copies]),
        arriving=_largest([copy.arriving for copy in copies]),
    )


def preferring(preferred: CopyOnNodes, *, other_copies: Sequence[CopyOnNodes]) -> CopyOnNodes:
    """A dataset for a pod that is to read one of its copies: bytes of the other copies count half.

    So the pods of a job gather around its copy, and where that has no room, around another before they go where
    nothing is. What Preloads brought counts in full: no other job is dealt out to it.
    """
    if not other_copies:
        return preferred
    return CopyOnNodes(
        total_bytes=preferred.total_bytes,
        node_bytes=_largest(
            [
                preferred.node_bytes,
                *(copy.node_bytes if copy.brought else _less(copy.node_bytes) for copy in other_copies),
            ]
        ),
        arriving=_largest(
            [
                preferred.arriving,
                *(copy.arriving if copy.brought else _less(copy.arriving) for copy in other_copies),
            ]
        ),
    )


def _largest(sizes_by_node: Sequence[Mapping[str, int]]) -> dict[str, int]:
    best: dict[str, int] = {}
    for sizes in sizes_by_node:
        for node, size in sizes.items():
            best[node] = max(size, best.get(node, 0))
    return best


def _less(sizes: Mapping[str, int]) -> dict[str, int]:
    return {node: size // OTHER_COPY for node, size in sizes.items()}
