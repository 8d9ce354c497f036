"""What of each node's cache can be granted, and which nodes hold more than that just now. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tdcs.engine.agents import AgentState
from tdcs.planning.grants import MountGrant
from tdcs.planning.placement import RESERVE_RATIO

STEPS = 64
"""What others take of a disk counts in so many steps, so that a placement does not follow every log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpace:
    """A node's cache.

    Attributes:
        capacity: what its worker may hold.
        state: what its agent last said.
    """

    capacity: int
    state: AgentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What a mount may have of the cache now.

    Attributes:
        grant: what the pass came to.
        room: bytes that it may take on each node, its own included, beside what others are granted.
        crowded: nodes that hold more than was granted there: what is not granted leaves these at once.
        waits: nodes on which others have to leave before it finds the room that it is granted.
    """

    grant: MountGrant
    room: Mapping[str, int]
    crowded: frozenset[str]
    waits: frozenset[str]


def usable_bytes(nodes: Mapping[str, NodeSpace], *, managed: Collection[str]) -> dict[str, int]:
    """Bytes that the managed mounts together may take on each node.

    Left out are a reserve, bytes that belong to no version (views keep them alive, or they are about to go), what
    other programs have of the disk, and what mounts hold there of which nothing else is known yet.
    """
    found = {}
    for name, node in nodes.items():
        state, capacity = node.state, node.capacity
        held = {path: one.held_bytes for path, one in state.mounts.items()}
        strangers = sum(size for path, size in held.items() if path not in managed)
        free = capacity - int(capacity * RESERVE_RATIO) - strangers
        step = max(capacity // STEPS, 1)
        free -= -(-state.kept_bytes // step) * step
        if 0 < state.disk_free_bytes < capacity - state.used_bytes:
            free = min(free, sum(held.values()) - strangers + state.disk_free_bytes // step * step)
        found[name] = max(free, 0)
    return found


def physical_bytes(node: NodeSpace) -> int:
    """Bytes that blocks may take on a node."""
    return node.capacity - int(node.capacity * RESERVE_RATIO) - node.state.kept_bytes


def crowded_nodes(
    nodes: Mapping[str, NodeSpace], *, granted: Mapping[str, Mapping[str, int]]
) -> frozenset[str]:
    """The nodes on which there is more than was granted, so that what was granted finds no room yet.

    Args:
        nodes: the caches.
        granted: bytes on each node by mount.
    """
    found = set()
    for name, node in nodes.items():
        held = {path: one.held_bytes for path, one in node.state.mounts.items()}
        asked = sum(
            max(held.get(path, 0), granted.get(path, {}).get(name, 0))
            for path in held.keys() | granted.keys()
        )
        if asked > physical_bytes(node):
            found.add(name)
    return frozenset(found)


def waiting_nodes(nodes: Mapping[str, NodeSpace], *, path: str, granted: Mapping[str, int]) -> frozenset[str]:
    """The nodes on which a mount has to wait with what it is granted, until others have left."""
    found = set()
    for name, size in granted.items():
        node = nodes.get(name)
        if node is None:
            continue
        held = {mount: one.held_bytes for mount, one in node.state.mounts.items()}
        others = sum(there for mount, there in held.items() if mount != path)
        if size > held.get(path, 0) and others + size > physical_bytes(node):
            found.add(name)
    return frozenset(found)
