"""From a placement and the agents' states to what each agent is assigned.

- What is missing comes from agents that have it, else from the source: each slot has one *origin* among the nodes that
  shall hold it, chosen by hash, so that it stays the same while a load goes on and the source sends each byte once.
- A slot is dropped on a node only when it is complete on every node that shall hold it, or when no Dataset wants it.
  In the first case it stays until readers have heard where it is now: they would else read it from the source.
- Slots that are on draining nodes alone, and that no load brings elsewhere, move to staying nodes without the source.
- What the one node that shall hold a slot cannot read by a fault that may be its own, another one reads for it, until
  that one cannot either: one node's error decides nothing, and the source's is not read again.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tdcs.decide.place.partition import partition_within
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.slot_sources import AgentNode, AgentView, Mask, choose_origins, peers_of, scores_of
from tdcs.model import slots
from tdcs.model.agent_state import Assignment, Check, CheckState, Part, Pull, SourceAccess
from tdcs.model.manifest_format import Totals
from tdcs.model.nearness import steps

MOVES = "moves"
"""Name of the part of slots that draining nodes give away."""

AGAIN = "read again"
"""Name of the part of slots that a node reads for another one, which cannot have some of them."""

AGAIN_TOO = "failed again"
"""Name of the part of slots that a second node could not read either: what it has of them stays, and no more comes."""

FILL_STEPS = 64
"""What reads may fill of a cache is a multiple of one such part of it, so that assignments stay while it fills."""

RELAYS = 3
"""So many agents read the source for readers when a mount is placed nowhere."""

MANIFEST_TAKERS = 4
"""So many agents get a manifest from one other agent."""

MANIFEST_GIVERS = 2
"""So many agents before it an agent waits for in turn: its giver, and the one that gives to that."""

SAMPLE_PERCENT = 5
"""The share of the files that `verify: Sampled` compares."""
SAMPLE_FILES = 10
"""How many files it compares at least, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInput:
    """All that the assignments of a mount depend on.

    Attributes:
        manifest: digest of the version.
        manifest_urls: where it can be had: from the operator, then from agents that work by it.
        totals: sums over all files.
        placements: where it shall be.
        agents: those that can be reached.
        owned: whether what no Dataset wants is dropped; else reads fill the cache, and it is kept.
        source: how it is read; None when that is not known.
        source_rate: bytes a second that all agents together may read from the source; None for no limit.
        readers: nodes on which pods read it; only of a mount that is not owned.
        expected: nodes on which some of it was before the operator started. Until their agents say what they
            have of it, nothing is read from the source.
        handover_seconds: how long a slot that is elsewhere by now stays where it was.
        zone: the level of zones in the agents' places; negative: they have none.
        early_files: see `Assignment`.
    """

    mount: str
    manifest: str
    totals: Totals
    placements: tuple[WantPlacement, ...]
    agents: tuple[AgentView, ...]
    manifest_urls: tuple[str, ...] = ()
    owned: bool = True
    source: SourceAccess | None = None
    source_rate: int | None = None
    readers: frozenset[str] = frozenset()
    expected: frozenset[str] = frozenset()
    handover_seconds: float = 0.0
    zone: int = -1
    early_files: int = 0


def assign(inputs: AssignmentInput) -> dict[str, Assignment]:
    """What each agent is to be assigned, by node; versions are set when it is sent."""
    inputs = _without_old_progress(inputs)
    nodes = {view.node: _node(view, inputs) for view in inputs.agents}
    for placement in inputs.placements:
        pull: Pull = "All" if placement.want.load else "Nothing"
        for copy in placement.copies:
            for name, held in copy.nodes.items():
                if name in nodes:
                    now: Pull = "Nothing" if nodes[name].view.waits else pull
                    part = Part(name=placement.want.key, slots=held, paths=placement.want.paths, pull=now)
                    _add(nodes[name], part)
    for name, moved in _moves(inputs, nodes).items():
        _add(nodes[name], Part(name=MOVES, slots=slots.of_mask(moved), pull="Peers"))
    again, ended = _second_readers(inputs, nodes)
    for name, slots_again in again.items():
        _add(nodes[name], Part(name=AGAIN, slots=slots.of_mask(slots_again), pull="All"))
    for name, slots_ended in ended.items():
        _add(nodes[name], Part(name=AGAIN_TOO, slots=slots.of_mask(slots_ended), pull="Nothing"))
    wanted_slots, settled = _settled(inputs, nodes)
    unheard = {
        name for name in inputs.expected & nodes.keys() if nodes[name].view.state.manifest != inputs.manifest
    }
    if not unheard:
        choose_origins(inputs.mount, list(nodes.values()))
    bandwidths, peers = (
        _bandwidths(inputs, nodes),
        peers_of(inputs.mount, list(nodes.values()), zone=inputs.zone),
    )
    checks = checks_of(inputs)
    assignments = {}
    relays = _relays(inputs, nodes)
    for name, node in nodes.items():
        drop = node.present & (~wanted_slots | settled | _has_no_room(node) | node.view.crowded) & ~node.whole
        if node.view.draining:
            drop = np.zeros(slots.SLOTS, dtype=bool)
        elif not inputs.owned:
            # What reads brought beside what is wanted yields to others; without wants it is granted, or goes whole.
            yields = node.view.crowded and bool(inputs.placements)
            drop = node.present & ~node.needed & ~node.whole if yields else np.zeros(slots.SLOTS, dtype=bool)
        nothing = not node.parts and not node.view.state.version and not node.present.any()
        if inputs.owned and nothing and name not in unheard | relays:
            continue
        stays = not (_has_no_room(node) or node.view.crowded)
        moved = drop & settled if stays else np.zeros(slots.SLOTS, dtype=bool)
        assignments[name] = Assignment(
            mount=inputs.mount,
            version=0,
            manifest=inputs.manifest,
            parts=tuple(node.parts),
            origin=slots.of_mask(node.origin),
            drop=slots.of_mask(drop),
            moved=slots.of_mask(moved),
            handover_seconds=inputs.handover_seconds if moved.any() else 0.0,
            peers=peers.get(name, ()),
            # Also where nothing is to be brought: readers ask any of these agents for what none of them has.
            source=inputs.source if not unheard else None,
            bandwidth=bandwidths.get(name),
            check=_check_here(checks.get(name), node),
            fill_bytes=_fill_bytes(inputs, node.view),
            early_files=inputs.early_files,
        )
    urls = _manifest_urls(inputs, sorted(assignments), nodes)
    return {name: replace(assignment, manifest_urls=urls[name]) for name, assignment in assignments.items()}


def _without_old_progress(inputs: AssignmentInput) -> AssignmentInput:
    """Without the parts of agents that count by another version: who has all of that lacks what is new in this one."""
    agents = (
        view if view.state.manifest == inputs.manifest else dataclasses.replace(view, parts=())
        for view in inputs.agents
    )
    return dataclasses.replace(inputs, agents=tuple(agents))


def _manifest_urls(
    inputs: AssignmentInput, names: Sequence[str], nodes: Mapping[str, AgentNode]
) -> dict[str, tuple[str, ...]]:
    """Where each agent is to get the manifest: all but the first one from another agent, so that the operator sends it
    once however many agents there are. That one waits until it has it itself; when it is gone, the one that it was to
    get it from gives it. The operator is asked last. Each gives it to agents of later names alone: they never wait for
    each other."""
    urls_of = dict.fromkeys(names, inputs.manifest_urls)
    for place, name in enumerate(names):
        givers, at = list[str](), place
        while at and len(givers) < MANIFEST_GIVERS:
            at = (at - 1) // MANIFEST_TAKERS
            givers.append(nodes[names[at]].view.manifest_url)
        peer_urls = [url for url in givers if url]
        if peer_urls and inputs.manifest_urls:
            urls_of[name] = (*peer_urls, *inputs.manifest_urls[1:], inputs.manifest_urls[0])
    return urls_of


def _relays(inputs: AssignmentInput, nodes: Mapping[str, AgentNode]) -> set[str]:
    """Agents that read the source for readers while nothing of the mount shall be anywhere: a few, by hash."""
    if any(node.parts for node in nodes.values()) or inputs.source is None:
        return set()
    staying = [name for name, node in nodes.items() if not node.view.draining]
    return set(sorted(staying, key=lambda name: float(scores_of(inputs.mount, name)[0]))[:RELAYS])


def is_done(view: AgentView, *, name: str, held: bytes, paths: tuple[str, ...]) -> bool:
    """Whether an agent has all of a part that can be had."""
    if not any(part.name == name and (part.slots, part.paths) == (held, paths) for part in view.parts):
        return False  # its progress is that of another part of this name
    part = next((state for state in view.state.parts if state.name == name), None)
    return part is not None and part.held_bytes + part.failed_bytes >= part.wanted_bytes


def _has_placed(placement: WantPlacement, views: Mapping[str, AgentView]) -> bool:
    """Whether all nodes of a want have all of it that can be had."""
    want = placement.want
    return all(
        node in views and is_done(views[node], name=want.key, held=held, paths=want.paths)
        for copy in placement.copies
        for node, held in copy.nodes.items()
    )


def checks_of(inputs: AssignmentInput) -> dict[str, Check]:
    """The comparison that each agent is assigned, by node.

    One want of the mount is compared at a time, once all of it is on its nodes. Its comparison stays assigned until
    its verdict is known: an agent keeps the result of one comparison only, so that another one in between would make
    it start again. Nodes without a part of that want keep a comparison that has found wrong copies there, because what
    it refused is brought again when it is not assigned any more.
    """
    views = {view.node: view for view in inputs.agents}
    compared = [
        placement for placement in inputs.placements if placement.want.verify != "None" and placement.copies
    ]
    due = _due(compared, views)
    checks = {node: _check_of(due) for node in due.nodes} if due is not None else {}
    # Of several that are kept the one that an agent has goes first: it has no reason to make another one.
    for has_state in (True, False):
        for placement in compared:
            for node in placement.nodes:
                is_known = _state_of(placement, node, views) is not None
                again = placement.want.verdict and _has_placed(placement, views)
                if is_known if has_state else again:
                    checks.setdefault(node, _check_of(placement))
    return checks


def _due(compared: Sequence[WantPlacement], views: Mapping[str, AgentView]) -> WantPlacement | None:
    """The want that is compared now: the one that was begun, else the first one that is on its nodes."""
    ready: list[WantPlacement] = []
    for placement in compared:
        want = placement.want
        # What is not placed as it was asked for fails without a comparison.
        if want.verdict or not want.load or placement.totals.unknown_paths or placement.unplaced_bytes:
            continue
        states = [_state_of(placement, node, views) for node in placement.nodes]
        done = all(state is not None and state.done for state in states)
        placed = _has_placed(placement, views)
        # One that was compared and waits for data that it has lost since is in the way of no other.
        if any(states) and (placed or not done):
            return placement
        if placed:
            ready.append(placement)
    return ready[0] if ready else None


def _state_of(placement: WantPlacement, node: str, views: Mapping[str, AgentView]) -> CheckState | None:
    """How far an agent is with the comparison of a want; None when it has another one or none."""
    state = views[node].state.check if node in views else None
    return state if state is not None and state.id == placement.want.check else None


def _check_here(check: Check | None, node: AgentNode) -> Check | None:
    """The comparison of a node that holds something of what is compared."""
    return check if check is not None and any(part.name == check.part for part in node.parts) else None


def _check_of(placement: WantPlacement) -> Check:
    percent = 100
    if placement.want.verify == "Sampled":
        least = 100 * SAMPLE_FILES // max(placement.totals.files, 1)
        percent = min(max(SAMPLE_PERCENT, least), 100)
    return Check(id=placement.want.check, percent=percent, part=placement.want.key)


def _node(view: AgentView, inputs: AssignmentInput) -> AgentNode:
    is_current = view.state.manifest == inputs.manifest
    empty = np.zeros(slots.SLOTS, dtype=bool)
    return AgentNode(
        view=view,
        complete=slots.mask_of(view.state.complete) & (inputs.totals.sizes > 0) if is_current else empty,
        # What is there of another version counts by another table: its agent drops it when it gets this one.
        present=slots.mask_of(view.state.present) if is_current else empty,
    )


def _add(node: AgentNode, part: Part) -> None:
    mask = slots.mask_of(part.slots)
    if not mask.any():
        return
    node.parts.append(part)
    node.needed = node.needed | mask
    if part.pull == "All":
        node.pulled = node.pulled | mask
    if not part.paths:
        node.whole = node.whole | mask
    if is_done(node.view, name=part.name, held=part.slots, paths=part.paths):
        node.done = node.done | (mask & ~slots.mask_of(node.view.state.failing))


def _settled(inputs: AssignmentInput, nodes: Mapping[str, AgentNode]) -> tuple[Mask, Mask]:
    """Slots that somebody wants, and those of them that are on every node that shall hold them."""
    wanted_slots = np.zeros(slots.SLOTS, dtype=bool)
    settled = np.ones(slots.SLOTS, dtype=bool)
    for placement in inputs.placements:
        for copy in placement.copies:
            for name, held in copy.nodes.items():
                mask, node = slots.mask_of(held), nodes.get(name)
                wanted_slots |= mask
                present = np.zeros(slots.SLOTS, dtype=bool)
                if node is not None:
                    present = node.complete | (inputs.totals.sizes == 0)
                    want = placement.want
                    done = is_done(node.view, name=want.key, held=held, paths=want.paths)
                    # What a node cannot have is not there: another one may hold the only copy of it.
                    present = present | (mask & ~slots.mask_of(node.view.state.failing)) if done else present
                settled &= present | ~mask
    return wanted_slots, settled & wanted_slots


def _has_no_room(node: AgentNode) -> bool:
    """Whether what shall be here finds no room. Then what shall be elsewhere goes, even before it is there: two full
    nodes that are to exchange slots would else wait for each other forever."""
    return node.view.state.no_room


def _moves(inputs: AssignmentInput, nodes: Mapping[str, AgentNode]) -> dict[str, Mask]:
    """Where slots go that are on draining nodes alone, and that no load brings elsewhere; last copies only."""
    staying = {name: node for name, node in nodes.items() if not node.view.draining}
    draining = [node for node in nodes.values() if node.view.draining]
    if not draining or not staying:
        return {}
    alone = np.logical_or.reduce([node.present for node in draining])
    wanted_slots = np.zeros(slots.SLOTS, dtype=bool)
    for node in staying.values():
        # A slot of which a node has a part only may have others of its blocks on the node that leaves.
        alone &= ~(node.complete | (node.pulled & node.whole))
        wanted_slots |= node.needed
    if inputs.owned:
        alone &= wanted_slots
    room = {
        name: max(node.view.room - slots.bytes_in(slots.of_mask(node.pulled), inputs.totals.sizes), 0)
        for name, node in staying.items()
    }
    moves = {name: np.zeros(slots.SLOTS, dtype=bool) for name in staying}
    for leaver, near in _nearest_first(draining, staying):
        # What finds no room near it goes farther.
        given_away = partition_within(
            mount=f"{inputs.mount} {MOVES}",
            chosen=slots.of_mask(alone & leaver),
            sizes=inputs.totals.sizes,
            weights={name: staying[name].view.capacity for name in near},
            limits={name: room[name] for name in near},
        )
        for name, bitmap in given_away.items():
            mask = slots.mask_of(bitmap)
            moves[name] |= mask
            alone = alone & ~mask
            room[name] -= slots.bytes_in(bitmap, inputs.totals.sizes)
    return moves


def _nearest_first(
    draining: Sequence[AgentNode], staying: Mapping[str, AgentNode]
) -> Iterator[tuple[Mask, list[str]]]:
    """To which staying nodes slots of draining ones go: those of each place to the nearest ones, then to the next ones.
    Where all are as near, those of all to all."""
    places = {node.view.place for node in (*draining, *staying.values())}
    if len(places) > 1:
        for place in sorted({node.view.place for node in draining}):
            present = np.logical_or.reduce([node.present for node in draining if node.view.place == place])
            away = {name: steps(place, node.view.place) for name, node in staying.items()}
            for level in sorted(set(away.values())):
                yield present, [name for name in staying if away[name] == level]
    else:
        yield np.ones(slots.SLOTS, dtype=bool), list(staying)


def _second_readers(
    inputs: AssignmentInput, nodes: Mapping[str, AgentNode]
) -> tuple[dict[str, Mask], dict[str, Mask]]:
    """Which nodes read slots for the only one that shall hold them and cannot have some of them by a fault that may be
    its own, and give them to it; and which could not read them either.

    The first stays so until they have them, and these stay where they are until that one has them. What a second node
    cannot read is the source's fault: nobody reads it again. It stays assigned there, for its agent would else forget
    that it has failed, and be asked once more.
    """
    if inputs.source is None or not nodes:
        return {}, {}
    pulling = np.sum([node.pulled for node in nodes.values()], axis=0)
    lying = np.logical_or.reduce([node.complete for node in nodes.values()])
    failing = {name: slots.mask_of(node.view.state.failing) for name, node in nodes.items()}
    again: dict[str, Mask] = {}
    ended: dict[str, Mask] = {}

    def add(to: dict[str, Mask], name: str, mask: Mask) -> None:
        if mask.any():
            to[name] = to[name] | mask if name in to else mask

    for name, node in nodes.items():
        unreadable = node.pulled & slots.mask_of(node.view.state.failing_here) & (pulling == 1) & ~lying
        if not unreadable.any():
            continue
        helpers = {
            helper: helper_node
            for helper, helper_node in nodes.items()
            if helper != name
            and not (helper_node.view.draining or helper_node.view.waits or helper_node.view.crowded)
        }
        for helper in helpers:
            add(ended, helper, unreadable & failing[helper])
        unreadable &= np.sum(list(failing.values()), axis=0) == 1
        pulled = {
            helper: helper_node.pulled | again.get(helper, False) for helper, helper_node in helpers.items()
        }
        read_there = partition_within(
            mount=f"{inputs.mount} {AGAIN}",
            chosen=slots.of_mask(unreadable),
            sizes=inputs.totals.sizes,
            weights={helper: helper_node.view.capacity for helper, helper_node in helpers.items()},
            limits={
                helper: max(
                    helper_node.view.room
                    - slots.bytes_in(slots.of_mask(pulled[helper]), inputs.totals.sizes),
                    0,
                )
                for helper, helper_node in helpers.items()
            },
        )
        for helper, bitmap in read_there.items():
            add(again, helper, slots.mask_of(bitmap))
    return again, ended


def _lacks(placement: WantPlacement, nodes: Mapping[str, AgentNode]) -> bool:
    """Whether some agent is known to lack something of a want. Of a want with a limit it is taken for granted until the
    agents say otherwise, and of one without a limit it is not: a limit holds from the first byte."""
    want = placement.want
    for copy in placement.copies:
        for name, held in copy.nodes.items():
            node = nodes.get(name)
            if node is None or is_done(node.view, name=want.key, held=held, paths=want.paths):
                continue
            has_part = any(part.name == want.key and part.slots == held for part in node.view.parts)
            if has_part or want.bandwidth is not None:
                return True
            with_data = slots.mask_of(held) & (placement.totals.sizes > 0)
            if not want.paths and (with_data & ~node.complete).any():
                return True
    return False


def _fill_bytes(inputs: AssignmentInput, view: AgentView) -> int:
    """Up to how many bytes of the mount reads may fill a cache."""
    if inputs.owned or view.draining:
        return 0
    step = max(view.capacity // FILL_STEPS, 1)
    return max(view.room, 0) // step * step


def _bandwidths(inputs: AssignmentInput, nodes: Mapping[str, AgentNode]) -> dict[str, int]:
    """Bytes a second that each agent may read from the source: the loads' limits, and no more than all of them together
    may, over the nodes that load; over all of them when none does, for each may read for others. Nothing: no limit."""
    loading = [
        placement.want for placement in inputs.placements if placement.want.load and _lacks(placement, nodes)
    ]
    limits = [want.bandwidth for want in loading if want.bandwidth is not None]
    total = sum(limits) if limits and len(limits) == len(loading) else None
    if inputs.source_rate is not None:
        total = inputs.source_rate if total is None else min(total, inputs.source_rate)
    if total is None:
        return {}
    reading = sum(bool((node.origin & ~node.has).any()) for node in nodes.values())
    filling = {name for name in inputs.readers if name in nodes and nodes[name].view.state.fills}
    not_filling = nodes.keys() - filling
    if not reading and filling and filling == inputs.readers and not_filling:
        # Each reader asks its own node's agent, and another one only when that one fails.
        filling_rate, other_rate = total * 9 // 10 // len(filling), total // 10 // len(not_filling)
        return {name: max(filling_rate if name in filling else other_rate, 1) for name in nodes}
    return dict.fromkeys(nodes, max(total // (reading or max(len(nodes), 1)), 1))
