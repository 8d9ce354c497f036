"""What of each node's cache can be granted, and which nodes hold more than that just now."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tdcs.decide.cache.grants import MountGrant
from tdcs.decide.place.slot_nodes import RESERVE_RATIO
from tdcs.model.agent_state import AgentState

STEPS = 64
"""What others take of a disk counts in so many steps, so that a placement does not follow every log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpace:
    capacity: int
    state: AgentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What a mount may have of the cache now, on the nodes that concern it.

    Attributes:
        grant: what the pass came to.
        room: bytes that it may take on each of them, its own included, beside what others are granted.
        crowded: those that hold more than was granted there: what is not granted leaves these at once.
        waits: those on which others have to leave before it finds the room that it is granted.
    """

    grant: MountGrant
    room: Mapping[str, int]
    crowded: frozenset[str]
    waits: frozenset[str]


def usable_on(node: NodeSpace, *, managed: Collection[str]) -> int:
    """Bytes that the managed mounts together may take on a node.

    Left out are a reserve, bytes that belong to no version (views keep them alive, or they are about to go), what
    other programs have of the disk, and what mounts hold there of which nothing else is known yet.
    """
    state, capacity = node.state, node.capacity
    held = {path: one.held_bytes for path, one in state.mounts.items()}
    strangers = sum(size for path, size in held.items() if path not in managed)
    free = capacity - int(capacity * RESERVE_RATIO) - strangers
    step = max(capacity // STEPS, 1)
    free -= -(-state.kept_bytes // step) * step
    if 0 < state.disk_free_bytes < capacity - state.used_bytes:
        free = min(free, sum(held.values()) - strangers + state.disk_free_bytes // step * step)
    return max(free, 0)


def physical_bytes(node: NodeSpace) -> int:
    """Bytes that blocks may take on a node."""
    return node.capacity - int(node.capacity * RESERVE_RATIO) - node.state.kept_bytes


def is_crowded(node: NodeSpace, granted: Mapping[str, int]) -> bool:
    """Whether there is more on a node than was granted, so that what was granted finds no room yet.

    Args:
        node: its cache.
        granted: bytes there by mount.
    """
    held = {path: one.held_bytes for path, one in node.state.mounts.items()}
    asked = sum(max(held.get(path, 0), granted.get(path, 0)) for path in held.keys() | granted.keys())
    return asked > physical_bytes(node)


def has_to_wait(node: NodeSpace, *, path: str, granted: int) -> bool:
    """Whether a mount has to wait on a node with what it is granted there, until others have left."""
    held = {mount: one.held_bytes for mount, one in node.state.mounts.items()}
    others = sum(there for mount, there in held.items() if mount != path)
    return granted > held.get(path, 0) and others + granted > physical_bytes(node)
