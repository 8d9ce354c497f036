"""Where an agent gets what it lacks: which one reads a slot from the source, and whom the others may ask."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

from tdcs.decide.place.near_peers import Reach, reach
from tdcs.model import slots
from tdcs.model.agent_state import MountState, Part, Peer
from tdcs.model.nearness import Place, crosses_zone

ORIGINS = 16
"""At most so many nodes read one mount from the source; more nodes get it from these and from each other."""

PEERS = 24
"""So many peers are named to an agent at most: those that have most of what it lacks."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent that can be reached, and what it says of the mount.

    Attributes:
        node: its node.
        address: of its block service.
        manifest_url: where it gives the mount's manifest as soon as it has it.
        draining: whether its worker leaves the cache.
        room: bytes that the mount may take there, its own included.
        capacity: of its cache; the node's weight.
        waits: whether others have to leave before it finds the room that it is granted: nothing is brought until then.
        crowded: whether more is there than was granted: what is not granted goes at once.
        state: of the mount; an empty one when it knows nothing of it.
        parts: those that the progress in `state` is about; empty when that is not known.
        place: of its node in the topology.
    """

    node: str
    address: str = ""
    manifest_url: str = ""
    draining: bool = False
    room: int = 0
    capacity: int = 1
    waits: bool = False
    crowded: bool = False
    state: MountState
    parts: tuple[Part, ...] = ()
    place: Place = ()


@dataclass(slots=True, kw_only=True)
class AgentNode:
    """An agent with its bitmaps as masks, while its assignment is made."""

    view: AgentView
    complete: Mask
    present: Mask
    parts: list[Part] = field(default_factory=list)
    pulled: Mask = field(default_factory=lambda: np.zeros(slots.SLOTS, dtype=bool))
    whole: Mask = field(default_factory=lambda: np.zeros(slots.SLOTS, dtype=bool))
    needed: Mask = field(default_factory=lambda: np.zeros(slots.SLOTS, dtype=bool))
    done: Mask = field(default_factory=lambda: np.zeros(slots.SLOTS, dtype=bool))
    origin: Mask = field(default_factory=lambda: np.zeros(slots.SLOTS, dtype=bool))

    @property
    def has(self) -> Mask:
        """Slots of which this agent has what others may ask it for."""
        return self.complete | self.done


def choose_origins(mount: str, nodes: Sequence[AgentNode]) -> None:
    """One origin for each slot that is to be brought, unless another node has it already."""
    pulling = [node for node in nodes if node.pulled.any()]
    if not pulling:
        return
    scores = {node.view.node: scores_of(mount, node.view.node) for node in pulling}
    # Of many nodes some read, always the same ones; of a slot that none of these shall hold, another one.
    readers = sorted(scores, key=lambda name: (-float(scores[name][0]), name))[:ORIGINS]
    ranked = np.array([_rank(node, scores[node.view.node], node.view.node in readers) for node in pulling])
    owner = np.where(ranked.max(axis=0) < 0, -1, ranked.argmax(axis=0))
    holders = np.sum([node.has for node in nodes], axis=0)
    for number, node in enumerate(pulling):
        node.origin = (owner == number) & (holders - node.has.astype(np.int64) == 0)


def _rank(node: AgentNode, scores: npt.NDArray[np.float64], reads: bool) -> npt.NDArray[np.float64]:
    """How much a node is to read each slot, from 0; below 0: not at all. One that cannot have some of a slot comes
    after all others: what one node cannot read, another one may, and gives it."""
    ranks = 1.0 + scores + reads
    ranks[slots.mask_of(node.view.state.failing)] *= 0.25
    return np.where(node.pulled, ranks, -1.0)


def scores_of(mount: str, node: str) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1, one a slot, that depend on mount and node alone."""
    seed = xxhash.xxh3_64_intdigest(f"origin\0{mount}\0{node}".encode())
    return np.random.Generator(np.random.Philox(key=seed)).random(slots.SLOTS)


def peers_of(mount: str, nodes: Sequence[AgentNode], *, zone: int = -1) -> dict[str, tuple[Peer, ...]]:
    """Whom each agent may ask for what it lacks: those that have most of it, and those that will read it. What an agent
    in the same rack or zone has, or brings there, it asks none farther away for.

    Args:
        zone: the level of zones in places; negative: places have none.
    """
    moving = [_moved(node) for node in nodes]
    lacking_slots = [
        (node.pulled & ~node.has) | (moved & ~node.complete)
        for node, moved in zip(nodes, moving, strict=True)
    ]
    asking = [number for number, mask in enumerate(lacking_slots) if mask.any()]
    if not asking:
        return {}
    held_slots = np.array([node.has for node in nodes])
    reads = np.array([node.origin for node in nodes])
    any_slots = held_slots | reads | np.array([node.pulled for node in nodes])
    present = np.array([node.present for node in nodes])
    near = _reach(mount, nodes, held_slots)
    brings = reads if near is None else reads | near.gates
    value = (2.0 * held_slots + brings + 0.01 * any_slots + 0.5 * present).T.astype(np.float32)
    wanted_slots = np.array([lacking_slots[number] for number in asking])
    ranks = _ranks(wanted_slots, value, near=near, asking=asking)
    peers_by_node = {}
    for row, number in enumerate(asking):
        order = sorted(np.flatnonzero(ranks[row] > 0).tolist(), key=lambda index: (-ranks[row][index], index))
        peers = []
        for peer_index in order:
            pulled_slots = (
                lacking_slots[number]
                if near is None
                else lacking_slots[number] & near.may_ask(number, peer_index)
            )
            shared = (any_slots[peer_index] | (present[peer_index] & moving[number])) & pulled_slots
            if peer_index == number or not shared.any():
                continue
            view = nodes[peer_index].view
            peers.append(
                Peer(
                    node=view.node,
                    address=view.address,
                    slots=slots.of_mask(shared),
                    complete=slots.of_mask(held_slots[peer_index] & pulled_slots),
                    cross_zone=crosses_zone(nodes[number].view.place, view.place, level=zone),
                )
            )
            if len(peers) == PEERS:
                break
        peers_by_node[nodes[number].view.node] = tuple(peers)
    return peers_by_node


def _reach(mount: str, nodes: Sequence[AgentNode], held_slots: Mask) -> Reach | None:
    """How far the agents ask; None where all are equally near."""
    places = [node.view.place for node in nodes]
    if len(set(places)) <= 1:
        return None
    ranks = np.full(held_slots.shape, -1.0)
    for number, node in enumerate(nodes):
        if node.pulled.any():
            rank = _rank(node, scores_of(mount, node.view.node), False)
            # Nobody waits for one that has no room, and the origin waits for nobody.
            rank[node.pulled & node.view.state.no_room] *= 0.25
            rank[node.origin] += 100.0
            ranks[number] = np.where(held_slots[number], -1.0, rank)
    return reach(places, has=held_slots, ranks=ranks)


def _ranks(
    wanted_slots: Mask, value: npt.NDArray[np.float32], *, near: Reach | None, asking: Sequence[int]
) -> npt.NDArray[np.float32]:
    """How much each agent (a column) has for each of those that ask (a row), of what these may ask it for."""
    if near is None:
        return wanted_slots.astype(np.float32) @ value
    between, levels = near.between[asking], near.levels[asking]
    ranks = np.zeros(between.shape, dtype=np.float32)
    for level in np.unique(between).tolist():
        at_most = (wanted_slots & (levels >= level)).astype(np.float32) @ value
        ranks = np.where(between == level, at_most, ranks)
    return ranks


def _moved(node: AgentNode) -> Mask:
    mask = np.zeros(slots.SLOTS, dtype=bool)
    for part in node.parts:
        if part.pull == "Peers":
            mask |= slots.mask_of(part.slots)
    return mask
