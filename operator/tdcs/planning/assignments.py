"""From a placement and the agents' states to what each agent is assigned. Pure.

- What is missing comes from agents that have it, else from the source: each slot has one *origin* among the nodes that
  shall hold it, chosen by hash, so that it stays the same while a load goes on and the source sends each byte once.
- A slot is dropped on a node only when it is complete on every node that shall hold it, or when no Dataset wants it.
- Slots that lie on draining nodes alone, and that no load brings elsewhere, move to staying nodes without the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tdcs.engine.agents import Assignment, Check, Part, Pull, SourceAccess
from tdcs.planning.manifest_format import Totals
from tdcs.planning.origins import AgentNode, AgentView, Mask, choose_origins, peers_of, scores_of
from tdcs.planning.partition import partition_within
from tdcs.planning.placement import WantPlacement
from tdcs.policy import slots

MOVES = "moves"
"""Name of the part of slots that draining nodes give away."""

RELAYS = 3
"""So many agents read the source for readers when a mount is placed nowhere."""

SAMPLE_PERCENT = 5
"""The share of the files that `verify: Sampled` compares."""
SAMPLE_FILES = 10
"""How many files it compares at least, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInput:
    """All that the assignments of a mount depend on.

    Attributes:
        mount: engine path.
        manifest: digest of the version.
        manifest_urls: where it can be had.
        totals: sums over all files.
        placements: where it shall lie.
        agents: those that can be reached.
        owned: whether what no Dataset wants is dropped; else reads fill the cache, and it is kept.
        source: how it is read; None when that is not known.
        source_rate: bytes a second that all agents together may read from the source; None for no limit.
        expected: nodes on which some of it lay before the operator started. Until their agents say what they
            have of it, nothing is read from the source.
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
    expected: frozenset[str] = frozenset()


def assign(given: AssignmentInput) -> dict[str, Assignment]:
    """What each agent is to be assigned, by node; versions are set when it is sent."""
    nodes = {view.node: _node(view, given) for view in given.agents}
    for placement in given.placements:
        pull: Pull = "All" if placement.want.load else "Nothing"
        for copy in placement.copies:
            for name, held in copy.nodes.items():
                if name in nodes:
                    now: Pull = "Nothing" if nodes[name].view.waits else pull
                    part = Part(name=placement.want.key, slots=held, paths=placement.want.paths, pull=now)
                    _add(nodes[name], part)
    for name, moved in _moves(given, nodes).items():
        _add(nodes[name], Part(name=MOVES, slots=slots.of_mask(moved), pull="Peers"))
    wanted, settled = _settled(given, nodes)
    unheard = {
        name for name in given.expected & nodes.keys() if nodes[name].view.state.manifest != given.manifest
    }
    if not unheard:
        choose_origins(given.mount, list(nodes.values()))
    bandwidth, peers = _bandwidth(given, nodes), peers_of(list(nodes.values()))
    check = next_check(given)
    found = {}
    relays = _relays(given, nodes)
    for name, node in nodes.items():
        drop = node.present & (~wanted | settled | _has_no_room(node) | node.view.crowded) & ~node.whole
        if not given.owned or node.view.draining:
            drop = np.zeros(slots.SLOTS, dtype=bool)
        nothing = not node.parts and not node.view.state.version and not node.present.any()
        if given.owned and nothing and name not in unheard | relays:
            continue
        found[name] = Assignment(
            mount=given.mount,
            version=0,
            manifest=given.manifest,
            manifest_urls=given.manifest_urls,
            parts=tuple(node.parts),
            origin=slots.of_mask(node.origin),
            drop=slots.of_mask(drop),
            peers=peers.get(name, ()),
            # Also where nothing is to be brought: readers ask any of these agents for what none of them has.
            source=given.source if not unheard else None,
            bandwidth=bandwidth,
            check=check
            if check is not None and any(part.name == check.part for part in node.parts)
            else None,
        )
    return found


def _relays(given: AssignmentInput, nodes: Mapping[str, AgentNode]) -> set[str]:
    """Agents that read the source for readers while nothing of the mount shall lie anywhere: a few, by hash."""
    if any(node.parts for node in nodes.values()) or given.source is None:
        return set()
    staying = [name for name, node in nodes.items() if not node.view.draining]
    return set(sorted(staying, key=lambda name: float(scores_of(given.mount, name)[0]))[:RELAYS])


def is_done(view: AgentView, *, name: str, held: bytes, paths: tuple[str, ...]) -> bool:
    """Whether an agent has all of a part that can be had."""
    if not any(one.name == name and (one.slots, one.paths) == (held, paths) for one in view.parts):
        return False  # its progress is that of another part of this name
    part = next((one for one in view.state.parts if one.name == name), None)
    return part is not None and part.held_bytes + part.failed_bytes >= part.wanted_bytes


def _has_placed(placement: WantPlacement, views: Mapping[str, AgentView]) -> bool:
    """Whether all nodes of a want have all of it that can be had."""
    want = placement.want
    return all(
        node in views and is_done(views[node], name=want.key, held=held, paths=want.paths)
        for copy in placement.copies
        for node, held in copy.nodes.items()
    )


def next_check(given: AssignmentInput) -> Check | None:
    """The comparison that is to be made now: one at a time, once all of its part lies on its nodes; that of a part
    that was compared last stays, so that its result does, until another one is due."""
    views = {view.node: view for view in given.agents}
    last = None
    for placement in given.placements:
        want = placement.want
        if want.verify == "None" or not placement.copies:
            continue
        checks = [views[node].state.check if node in views else None for node in placement.nodes]
        mine = [one for one in checks if one is not None and one.id == want.check]
        if len(mine) == len(placement.nodes) and all(one.done for one in mine):
            last = last or placement
        elif mine or _has_placed(placement, views):
            return _check_of(placement)
    return _check_of(last) if last is not None else None


def _check_of(placement: WantPlacement) -> Check:
    percent = 100
    if placement.want.verify == "Sampled":
        least = 100 * SAMPLE_FILES // max(placement.totals.files, 1)
        percent = min(max(SAMPLE_PERCENT, least), 100)
    return Check(id=placement.want.check, percent=percent, part=placement.want.key)


def _node(view: AgentView, given: AssignmentInput) -> AgentNode:
    known = view.state.manifest == given.manifest
    empty = np.zeros(slots.SLOTS, dtype=bool)
    return AgentNode(
        view=view,
        complete=slots.mask_of(view.state.complete) & (given.totals.sizes > 0) if known else empty,
        # What lies there of another version counts by another table: its agent drops it when it gets this one.
        present=slots.mask_of(view.state.present) if known else empty,
    )


def _add(node: AgentNode, part: Part) -> None:
    mask = slots.mask_of(part.slots)
    if not mask.any():
        return
    node.parts.append(part)
    node.wanted = node.wanted | mask
    if part.pull == "All":
        node.pulled = node.pulled | mask
    if not part.paths:
        node.whole = node.whole | mask
    if is_done(node.view, name=part.name, held=part.slots, paths=part.paths):
        node.done = node.done | mask


def _settled(given: AssignmentInput, nodes: Mapping[str, AgentNode]) -> tuple[Mask, Mask]:
    """Slots that somebody wants, and those of them that lie on every node that shall hold them."""
    wanted = np.zeros(slots.SLOTS, dtype=bool)
    settled = np.ones(slots.SLOTS, dtype=bool)
    for placement in given.placements:
        for copy in placement.copies:
            for name, held in copy.nodes.items():
                mask, node = slots.mask_of(held), nodes.get(name)
                wanted |= mask
                there = np.zeros(slots.SLOTS, dtype=bool)
                if node is not None:
                    there = node.complete | (given.totals.sizes == 0)
                    want = placement.want
                    done = is_done(node.view, name=want.key, held=held, paths=want.paths)
                    there = there | mask if done else there
                settled &= there | ~mask
    return wanted, settled & wanted


def _has_no_room(node: AgentNode) -> bool:
    """Whether what shall lie here finds no room. Then what shall lie elsewhere goes, even before it is there: two full
    nodes that are to exchange slots would else wait for each other for ever."""
    return any(failure.code == "NoRoom" for failure in node.view.state.failed)


def _moves(given: AssignmentInput, nodes: Mapping[str, AgentNode]) -> dict[str, Mask]:
    """Where slots go that lie on draining nodes alone, and that no load brings elsewhere; last copies only."""
    staying = {name: node for name, node in nodes.items() if not node.view.draining}
    draining = [node for node in nodes.values() if node.view.draining]
    if not draining or not staying:
        return {}
    alone = np.logical_or.reduce([node.present for node in draining])
    wanted = np.zeros(slots.SLOTS, dtype=bool)
    for node in staying.values():
        # A slot of which a node has a part only may have others of its blocks on the node that leaves.
        alone &= ~(node.complete | (node.pulled & node.whole))
        wanted |= node.wanted
    if given.owned:
        alone &= wanted
    chosen = slots.of_mask(alone)
    taken = {
        name: slots.bytes_in(slots.of_mask(node.pulled), given.totals.sizes) for name, node in staying.items()
    }
    given_away = partition_within(
        mount=f"{given.mount} {MOVES}",
        chosen=chosen,
        sizes=given.totals.sizes,
        weights={name: node.view.capacity for name, node in staying.items()},
        limits={name: max(node.view.room - taken[name], 0) for name, node in staying.items()},
    )
    return {name: slots.mask_of(each) for name, each in given_away.items()}


def _lacks(placement: WantPlacement, nodes: Mapping[str, AgentNode]) -> bool:
    """Whether some agent is known to lack something of a want. Of a want with a limit it is taken for granted until the
    agents say otherwise, and of one without a limit it is not: a limit holds from the first byte."""
    want = placement.want
    for copy in placement.copies:
        for name, held in copy.nodes.items():
            node = nodes.get(name)
            if node is None or is_done(node.view, name=want.key, held=held, paths=want.paths):
                continue
            known = any(part.name == want.key and part.slots == held for part in node.view.parts)
            if known or want.bandwidth is not None:
                return True
            with_data = slots.mask_of(held) & (placement.totals.sizes > 0)
            if not want.paths and (with_data & ~node.complete).any():
                return True
    return False


def _bandwidth(given: AssignmentInput, nodes: Mapping[str, AgentNode]) -> int | None:
    """Bytes a second that each agent may read from the source: the loads' limits, and no more than all of them together
    may, over the nodes that read."""
    loading = [one.want for one in given.placements if one.want.load and _lacks(one, nodes)]
    limits = [want.bandwidth for want in loading if want.bandwidth is not None]
    total = sum(limits) if limits and len(limits) == len(loading) else None
    if given.source_rate is not None:
        total = given.source_rate if total is None else min(total, given.source_rate)
    if total is None:
        return None
    reading = sum(bool((node.origin & ~node.has).any()) for node in nodes.values())
    return max(total // max(reading, 1), 1)
