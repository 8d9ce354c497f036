"""From what is seen of a cache to the input of a placement: which nodes may hold a mount, and how much of it. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tdcs.api import names
from tdcs.controllers.cache_view import CacheView
from tdcs.engine.agents import AgentState, MountState, Part
from tdcs.kube.api import Object
from tdcs.planning.origins import AgentView
from tdcs.planning.placement import RESERVE_RATIO, Candidate, NodeView, PlacementInput, WantPlacement
from tdcs.planning.wants import Want
from tdcs.policy.placement import CacheNode

Store = Mapping[tuple[str, str], Mapping[str, Any]]
"""Objects by namespace and name."""

DISK_STEPS = 64
"""What others take of a disk counts in so many steps, so that a placement does not follow every log line."""

Planned = Mapping[str, Mapping[str, int]]
"""Bytes that each mount of a cache shall have, by node and path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The nodes of a cache as one mount sees them.

    Attributes:
        candidates: nodes that may hold some of it.
        states: what those that can be reached say of it.
        agents: the agents that can be reached.
        draining: nodes with draining workers.
        waiting: nodes with agents that are about to report: nothing is decided without them.
        held: what of it lies where, as last heard of each node, those included that may be back in a moment.
        gone_at: when the first of those counts as lost, on the clock of the view; None when none is awaited.
    """

    candidates: tuple[Candidate, ...]
    states: Mapping[str, MountState]
    agents: Mapping[str, AgentState]
    draining: frozenset[str]
    waiting: frozenset[str]
    held: Mapping[str, MountState]
    gone_at: float | None = None


def hosts(
    *,
    path: str,
    digest: str,
    view: CacheView,
    nodes: Mapping[str, NodeView],
    draining: frozenset[str],
    members: Collection[str] | None,
    expected: Collection[str],
    planned: Planned,
    now: float,
    patience: float,
) -> Hosts:
    """The nodes that a placement of a mount may use.

    An agent that cannot be reached any more keeps what it has for a while: one that restarts is back with it.

    Args:
        path: the mount.
        digest: of its version.
        view: the cache.
        nodes: the cluster's nodes.
        draining: nodes with draining workers.
        members: nodes that shall have a worker; None while that is not known. What goes from others is not coming back.
        expected: nodes on which some of it lay.
        planned: what other mounts shall have.
        now: seconds that only grow.
        patience: seconds that an agent may be away.
    """
    members = nodes.keys() if members is None else members
    here = {node: state for node, state in view.agents.items() if node in nodes}
    live = {worker.name for worker in view.workers if worker.live}
    unheard = (
        live | (set(expected) & set(members))
    ) & nodes.keys() - here.keys() - view.away.keys() - draining
    waiting = unheard if now - view.since < patience else set[str]()
    back_soon = {
        node: one.state
        for node, one in view.away.items()
        if node in nodes
        and node in members
        and node not in here
        and now - one.since < patience
        and path in one.state.mounts
        and one.state.mounts[path].held_bytes
    }
    capacities = {worker.name: worker.capacity_bytes for worker in view.workers}
    candidates = []
    for node, state in sorted({**here, **back_soon}.items()):
        if node in draining or node not in members:
            continue
        capacity = state.capacity_bytes or capacities.get(node, 0)
        candidates.append(
            Candidate(
                node=CacheNode(
                    name=node,
                    capacity_bytes=capacity,
                    free_bytes=room(
                        path=path,
                        digest=digest,
                        state=state,
                        capacity=capacity,
                        planned=planned.get(node, {}),
                    ),
                    held_bytes=_of(state, path).held_bytes,
                    free_gpus=nodes[node].free_gpus,
                ),
                labels=nodes[node].labels,
            )
        )
    return Hosts(
        candidates=tuple(candidates),
        states={node: _of(state, path) for node, state in here.items()},
        agents=here,
        draining=draining,
        waiting=frozenset(waiting),
        held={node: _of(state, path) for node, state in {**here, **back_soon}.items()},
        gone_at=min((view.away[node].since + patience for node in back_soon), default=None),
    )


def room(*, path: str, digest: str, state: AgentState, capacity: int, planned: Mapping[str, int]) -> int:
    """Bytes that a mount may take on a node, its own included: what others have there, or shall have, is taken."""
    held = {mount: one.held_bytes for mount, one in state.mounts.items()}
    others = sum(
        max(held.get(mount, 0), planned.get(mount, 0)) for mount in (held.keys() | planned.keys()) - {path}
    )
    mine = _of(state, path)
    # Blocks that belong to no version: bytes that views keep alive, or what was replaced and is about to go.
    rest = max(state.used_bytes - sum(held.values()), 0)
    others += state.kept_bytes if mine.manifest != digest else rest
    free = capacity - int(capacity * RESERVE_RATIO) - others
    if 0 < state.disk_free_bytes < capacity - state.used_bytes:
        step = max(capacity // DISK_STEPS, 1)
        free = min(free, mine.held_bytes + state.disk_free_bytes // step * step)
    return max(free, 0)


def draining_nodes(cluster: Object | None) -> frozenset[str]:
    """The nodes with draining workers a cache cluster, as its status says."""
    return _workers(cluster, draining=True) or frozenset()


def member_nodes(cluster: Object | None) -> frozenset[str] | None:
    """The nodes that shall have a worker of a cache cluster, as its status says; None when it says nothing yet."""
    return _workers(cluster, draining=False)


def _workers(cluster: Object | None, *, draining: bool) -> frozenset[str] | None:
    status = (cluster or {}).get("status")
    if not status or not status.get("workers"):
        return None
    return frozenset(
        str(worker["node"])
        for worker in status.get("workers") or ()
        if (worker.get("state") == "Draining") is draining
    )


def expected_paths(*, datasets: Store, cluster: str) -> set[str]:
    """The mounts that a complete ledger of a cache cluster has: those of Datasets that are mounted, or of which
    something was cached when they were last looked at, for a master that is away has unmounted nothing.
    """
    return {
        str(status["mountPath"])
        for dataset in datasets.values()
        if (status := dataset.get("status") or {}).get("mountPath")
        and names.cache_cluster_of(dataset) == cluster
        and not dataset["metadata"].get("deletionTimestamp")
        and (status.get("physicalBytes", 0) > 0 or _is_mounted(status.get("conditions") or ()))
    }


def nodes_of(held_before: Mapping[str, Mapping[str, frozenset[str]]]) -> frozenset[str]:
    """All nodes on which some copy of some want lay."""
    return frozenset[str]().union(*(nodes for copies in held_before.values() for nodes in copies.values()))


def _of(state: AgentState, path: str) -> MountState:
    return state.mounts.get(path) or MountState(mount=path)


def _is_mounted(conditions: Iterable[Mapping[str, object]]) -> bool:
    return any(one.get("type") == names.MOUNTED and one.get("status") == "True" for one in conditions)


def asks_the_same(one: PlacementInput, other: PlacementInput) -> bool:
    """Whether two inputs come to the same placement."""
    return _counts(one) == _counts(other)


def with_wants(placements: Sequence[WantPlacement], wants: Sequence[Want]) -> tuple[WantPlacement, ...]:
    """The same placements for wants that differ in nothing that counts for them."""
    return tuple(
        one if one.want == want else replace(one, want=want)
        for one, want in zip(placements, wants, strict=True)
    )


def _counts(given: PlacementInput) -> object:
    """What of an input calls for another placement: not what a copy has by now of what it was given, and neither a
    limit of bandwidth nor a start."""
    wants = tuple(replace(want, bandwidth=None, load=True, verify="None", check="") for want in given.wants)
    candidates = tuple(
        replace(one, node=replace(one.node, held_bytes=0, free_gpus=0), labels={}) for one in given.candidates
    )
    matching = [[_matches(one.labels, want) for one in given.candidates] for want in given.wants]
    return given.manifest, wants, candidates, matching


def _matches(labels: Mapping[str, str], want: Want) -> bool:
    """Whether a node's labels are as a want selects them."""
    return all(labels.get(key) == value for key, value in want.node_selector.items())


def concerned(
    found: Hosts, placements: Sequence[WantPlacement], *, expected: frozenset[str]
) -> frozenset[str]:
    """The nodes that have, or shall have, something to do with a mount that the operator places: few of many. All of
    them while some worker drains, for any of them may take what it has, and when it shall lie on none of them."""
    holders = {node for one in placements for node in one.nodes}
    if found.draining or not holders:
        return frozenset(found.agents)
    return (
        expected
        | holders
        | {node for node, state in found.states.items() if state.version or state.held_bytes}
    )


def agent_views(
    found: Hosts, parts: Mapping[str, tuple[Part, ...]], *, only: frozenset[str] | None
) -> tuple[AgentView, ...]:
    """The agents as assignments see them: all that can be reached, or those of some nodes."""
    nodes = {one.node.name: one.node for one in found.candidates}
    nothing = CacheNode(name="", capacity_bytes=1, free_bytes=0)
    return tuple(
        AgentView(
            node=node,
            address=state.address,
            draining=node in found.draining,
            room=nodes.get(node, nothing).free_bytes,
            capacity=max(nodes.get(node, nothing).capacity_bytes, 1),
            state=found.states[node],
            parts=parts.get(node, ()),
        )
        for node, state in sorted(found.agents.items())
        if only is None or node in only
    )
