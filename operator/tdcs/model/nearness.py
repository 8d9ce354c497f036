"""How near nodes are to one another, in steps: the same node, rack, zone, region, or none of them.

A node's place is the values of its topology labels, the nearest first. Which labels these are is the administrator's to
say: those of zone and region are Kubernetes' own, and racks have labels of each cluster's own.
"""

from collections.abc import Mapping, Sequence
from typing import Final

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
TOPOLOGY_LABELS: Final = (ZONE_LABEL, "topology.kubernetes.io/region")
"""Those that clouds set, the nearest first."""

Place = tuple[str, ...]
"""Values of topology labels, the nearest first; empty where a node has no such label. () is a node of which nothing is
known."""


def place_of(labels: Mapping[str, str] | None, keys: Sequence[str]) -> Place:
    """The place of a node with these labels."""
    place = tuple((labels or {}).get(key, "") for key in keys)
    return place if any(place) else ()


def steps(place: Place, other_place: Place) -> int:
    """How many levels of the topology are between two nodes: 0 in the same rack, say, where racks are the first level.

    A level is shared where all above it are, too: two zones may have a rack of the same name. Nodes that share none, or
    of which nothing is known, are as far as can be.
    """
    return next(
        (level for level, name in enumerate(place) if name and place[level:] == other_place[level:]),
        max(len(place), len(other_place)),
    )


def crosses_zone(place: Place, other_place: Place, *, level: int) -> bool:
    """Whether two nodes are in different zones; not known to be where one has no zone.

    Args:
        level: that of zones in a place; negative: places have no zones.
    """
    are_known = (
        0 <= level < len(place)
        and level < len(other_place)
        and bool(place[level])
        and bool(other_place[level])
    )
    return are_known and place[level:] != other_place[level:]


def zone_of(place: Place, *, level: int) -> Place:
    """The zone of a place, with what it is in, for zones of two regions may have one name; empty where that is not
    known."""
    return place[level:] if 0 <= level < len(place) and place[level] else ()


def rack_of(place: Place, *, zone: Place) -> Place:
    """The nearest level of a place, where that is below its zone, or nothing is said of zones; empty where it is not
    known. It is the whole place, for racks of two zones may have one name."""
    return place if place != zone and place and place[0] else ()


def level_of_zones(keys: Sequence[str]) -> int:
    """The level of Kubernetes' zones among topology labels; -1 where it is none of them."""
    return keys.index(ZONE_LABEL) if ZONE_LABEL in keys else -1
