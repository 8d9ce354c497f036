"""Grantable cache space of each node, and the nodes that hold more than was granted."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tdcs.decide.cache.grants import MountGrant
from tdcs.decide.place.slot_nodes import RESERVE_RATIO
from tdcs.model.agent_state import AgentState

STEPS = 64
"""Disk use of other programs is rounded to this many steps, so that placements do not follow every log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpace:
    capacity: int
    state: AgentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The cache space that a mount may use now, on its nodes.

    Attributes:
        grant: its grant.
        room: bytes that it may use on each node, including its present ones, next to the grants of others.
        crowded: nodes that hold more than was granted: data without a grant leaves them at once.
        waits: nodes on which others must leave before its grant fits.
    """

    grant: MountGrant
    room: Mapping[str, int]
    crowded: frozenset[str]
    waits: frozenset[str]


def usable_on(node: NodeSpace, *, managed: Collection[str]) -> int:
    """Bytes that the managed mounts together may use on a node.

    Excluded are a reserve, bytes of no version (kept by open views, or about to be deleted), disk use of other
    programs, and bytes of mounts that are not managed yet.
    """
    state, capacity = node.state, node.capacity
    held = {path: mount.held_bytes for path, mount in state.mounts.items()}
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
    """Whether a node holds more than was granted, so that a grant does not fit yet.

    Args:
        node: the node's cache.
        granted: granted bytes on the node, by mount.
    """
    held = {path: mount.held_bytes for path, mount in node.state.mounts.items()}
    needed = sum(max(held.get(path, 0), granted.get(path, 0)) for path in held.keys() | granted.keys())
    return needed > physical_bytes(node)


def has_to_wait(node: NodeSpace, *, path: str, granted: int) -> bool:
    """Whether a mount must wait on a node until others have freed the room of its grant."""
    held = {mount: state.held_bytes for mount, state in node.state.mounts.items()}
    held_by_others = sum(size for mount, size in held.items() if mount != path)
    return granted > held.get(path, 0) and held_by_others + granted > physical_bytes(node)
