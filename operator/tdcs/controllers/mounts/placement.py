"""From what is seen of a cache to the input of a placement: which nodes may hold a mount, and how much of it. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tdcs.api import names
from tdcs.controllers.cache_view import CacheView
from tdcs.controllers.cachemanager.room import Granted, NodeSpace
from tdcs.engine.agents import AgentState, MountState, Part
from tdcs.kube.api import Object
from tdcs.planning.origins import AgentView
from tdcs.planning.placement import Candidate, NodeView, WantPlacement
from tdcs.policy.placement import CacheNode

Store = Mapping[tuple[str, str], Mapping[str, Any]]
"""Objects by namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The nodes of a cache as one mount sees them.

    Attributes:
        candidates: nodes that may hold some of it.
        states: what those that can be reached say of it.
        agents: the agents that can be reached, and those of draining workers that may be back in a moment: what only
            they have is not read from the source meanwhile.
        draining: nodes with draining workers.
        waiting: nodes with agents that are about to report: nothing is decided without them.
        held: what of it lies where, as last heard of each node, those included that may be back in a moment.
        spaces: the caches of the nodes.
        gone_at: when the first of those counts as lost, on the clock of the view; None when none is awaited.
    """

    candidates: tuple[Candidate, ...]
    states: Mapping[str, MountState]
    agents: Mapping[str, AgentState]
    draining: frozenset[str]
    waiting: frozenset[str]
    held: Mapping[str, MountState]
    spaces: Mapping[str, NodeSpace]
    gone_at: float | None = None


def hosts(
    *,
    path: str,
    view: CacheView,
    nodes: Mapping[str, NodeView],
    draining: frozenset[str],
    members: Collection[str] | None,
    expected: Collection[str],
    now: float,
    patience: float,
    readers: Collection[str] = (),
) -> Hosts:
    """The nodes that a placement of a mount may use.

    An agent that cannot be reached any more keeps what it has for a while: one that restarts is back with it.

    Args:
        path: the mount.
        view: the cache.
        nodes: the cluster's nodes.
        draining: nodes with draining workers.
        members: nodes that shall have a worker; None while that is not known. What goes from others is not coming back.
        expected: nodes on which some of it lay.
        now: seconds that only grow.
        patience: seconds that an agent may be away.
        readers: nodes on which it is read, where the data follows the jobs.
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
    leaving = {
        node: one.state
        for node, one in view.away.items()
        if node in nodes and node in draining and node not in here and now - one.since < patience
    }
    here = {**here, **leaving}
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
                    free_bytes=0,  # what it may take is for the cache manager to grant
                    held_bytes=_of(state, path).held_bytes,
                    free_gpus=nodes[node].free_gpus,
                    has_readers=node in readers,
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
        gone_at=min((view.away[node].since + patience for node in {**back_soon, **leaving}), default=None),
        spaces={
            node: NodeSpace(capacity=state.capacity_bytes or capacities.get(node, 0), state=state)
            for node, state in {**{node: one.state for node, one in view.away.items()}, **view.agents}.items()
        },
    )


def draining_nodes(cluster: Object | None) -> frozenset[str]:
    """The nodes with draining workers of a cache cluster, as its status says."""
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
    found: Hosts,
    granted: Granted,
    parts: Mapping[str, tuple[Part, ...]],
    *,
    only: frozenset[str] | None,
) -> tuple[AgentView, ...]:
    """The agents as assignments see them: all that can be reached, or those of some nodes."""
    nodes = {one.node.name: one.node for one in found.candidates}
    nothing = CacheNode(name="", capacity_bytes=1, free_bytes=0)
    return tuple(
        AgentView(
            node=node,
            address=state.address,
            draining=node in found.draining,
            room=granted.room.get(node, 0) if node in nodes else 0,
            capacity=max(nodes.get(node, nothing).capacity_bytes, 1),
            waits=node in granted.waits,
            crowded=node in granted.crowded,
            state=found.states[node],
            parts=parts.get(node, ()),
        )
        for node, state in sorted(found.agents.items())
        if only is None or node in only
    )
