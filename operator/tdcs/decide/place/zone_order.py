"""In which order nodes are chosen for a copy in a cluster with zones or racks.

A partitioned copy is kept in one zone, where it fits, since each of its readers reads most of it from other nodes. A
replicated one is spread over the zones, since its nodes read nothing from one another and the zones' readers do; and
each further copy goes to a zone without one. Nodes with readers, and those that have some of the copy already, come
before all others wherever they are: bytes that are moved cross zones, too. Within a zone the same holds of its racks:
a partitioned copy is kept in one where it fits, replicas are spread over them, and each further copy goes to one
without.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from tdcs.model.nearness import Place, steps


class Zones(StrEnum):
    """In which zones the nodes of a Dataset are."""

    AUTO = "Auto"
    """A partitioned copy in one zone, a replicated one and further copies in several."""
    TOGETHER = "Together"
    """All copies in one zone, as far as they fit."""
    SPREAD = "Spread"
    """The nodes of each copy in all zones in turn."""


class ZonedNode(Protocol):
    """What the order depends on."""

    @property
    def zone(self) -> Place: ...

    @property
    def rack(self) -> Place: ...

    @property
    def free_bytes(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def has_readers(self) -> bool: ...


Node = TypeVar("Node", bound=ZonedNode)


def together(
    ranked: Sequence[Node], *, size: int, others: Sequence[ZonedNode] = (), policy: Zones = Zones.AUTO
) -> list[Node]:
    """The nodes of the best zone first, then those of the nearest ones to it.

    Args:
        ranked: the best node first, without regard to zones.
        size: bytes of the copy.
        others: the nodes of other copies.
        policy: `TOGETHER`: in their zones and racks, else where there is none of them.
    """
    zones = _best_first(ranked, _zone, size=size, others=others, policy=policy)
    near = sorted(zones, key=lambda zone: steps(zones[0], zone) if zone != zones[0] else -1)
    order = {zone: number for number, zone in enumerate(near)}
    best_racks = _best_first(ranked, _rack, size=size, others=others, policy=policy)
    racks = {rack: number for number, rack in enumerate(best_racks)}
    return [
        node
        for tier in _tiers(ranked)
        for node in sorted(tier, key=lambda node: (order[node.zone], racks[node.rack]))
    ]


def spread(
    ranked: Sequence[Node], *, size: int, others: Sequence[ZonedNode] = (), policy: Zones = Zones.AUTO
) -> list[Node]:
    """A node of each zone in turn, the best zone first. Arguments as of `together`."""
    zones = _best_first(ranked, _zone, size=size, others=others, policy=policy)
    racks = _best_first(ranked, _rack, size=size, others=others, policy=policy)
    of_zone: Counter[Place] = Counter()
    of_rack: Counter[Place] = Counter()
    return [
        node
        for tier in _tiers(ranked)
        for node in _in_turns(_in_turns(tier, _rack, racks, of_rack), _zone, zones, of_zone)
    ]


def _in_turns(
    nodes: Sequence[Node],
    area: Callable[[ZonedNode], Place],
    order: Sequence[Place],
    chosen: Counter[Place],
) -> list[Node]:
    """A node of each zone, or rack, in turn.

    Args:
        area: the zone or rack of a node.
        order: these, the best first.
        chosen: how many nodes of each come before; it is counted on.
    """
    number_of = {place: number for number, place in enumerate(order)}
    turns = []
    for node in nodes:
        place = area(node)
        turns.append((chosen[place], number_of[place], node))
        chosen[place] += 1
    return [node for _, _, node in sorted(turns, key=lambda turn: turn[:2])]


def _zone(node: ZonedNode) -> Place:
    return node.zone


def _rack(node: ZonedNode) -> Place:
    return node.rack


def _tiers(ranked: Sequence[Node]) -> Iterator[list[Node]]:
    """Nodes among which zones decide: with readers or without, and with as much of the copy."""
    for _, tier in itertools.groupby(ranked, key=lambda node: (not node.has_readers, -node.held_bytes)):
        yield list(tier)


def _best_first(
    ranked: Sequence[Node],
    area: Callable[[ZonedNode], Place],
    *,
    size: int,
    others: Sequence[ZonedNode] = (),
    policy: Zones = Zones.AUTO,
) -> list[Place]:
    """The zones, or racks: where it is read, where some of it is, where no other copy is, where it fits, with the best
    node."""
    readers: Counter[Place] = Counter()
    held: Counter[Place] = Counter()
    free: Counter[Place] = Counter()
    for node in ranked:
        place = area(node)
        readers[place] += node.has_readers
        held[place] += max(node.held_bytes, 0)
        free[place] += node.free_bytes
    copies = Counter(map(area, others))
    sign = -1 if policy is Zones.TOGETHER else 1
    first = {zone: number for number, zone in enumerate(dict.fromkeys(map(area, ranked)))}
    return sorted(
        first,
        key=lambda place: (
            -readers[place],
            -held[place],
            sign * copies[place],
            free[place] < size,
            first[place],
        ),
    )
