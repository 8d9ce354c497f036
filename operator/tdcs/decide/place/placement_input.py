"""From what is seen of a cache to the input of a placement: which nodes may hold a mount, and how much of it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tdcs.api import names
from tdcs.decide.cache.node_room import Granted, NodeSpace
from tdcs.decide.place.copy_nodes import CacheNode
from tdcs.decide.place.slot_nodes import Candidate, NodeView, ReadingNodes, WantPlacement
from tdcs.decide.place.slot_sources import AgentView
from tdcs.model.agent_state import AgentState, MountState, Part
from tdcs.model.cache_view import CacheView
from tdcs.model.kube_objects import Object
from tdcs.model.nearness import rack_of

Store = Mapping[tuple[str, str], Mapping[str, Any]]
"""Objects by namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOn:
    """The nodes to which the copies of a Dataset go: those on which it is read, and those on which it was until a while
    ago, for the next job may come soon.

    Attributes:
        last: when it was last read on each, on the clock of the passes.
        assumed: those on which it was when this operator looked first, and was not read since: it may have been read
            there, or is there because others had no room.
    """

    last: Mapping[str, float] = field(default_factory=dict)
    assumed: frozenset[str] = frozenset()

    @classmethod
    def at_first(cls, held: Collection[str], *, now: float) -> "ReadOn":
        """From where the data is, which is all that a new operator knows."""
        return cls(last=dict.fromkeys(sorted(held), now), assumed=frozenset(held))

    def then(self, nodes: Collection[str], *, now: float, delay: float) -> "ReadOn":
        """The same now. `nodes`: on which it is read; `delay`: seconds for which a node counts on."""
        recent = {node: when for node, when in self.last.items() if now - when < delay}
        return ReadOn(
            last={**recent, **dict.fromkeys(sorted(nodes), now)},
            assumed=(self.assumed & recent.keys()).difference(nodes),
        )

    @property
    def nodes(self) -> ReadingNodes:
        """The same without times."""
        return ReadingNodes(nodes=frozenset(self.last.keys() - self.assumed), perhaps=self.assumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNodes:
    """The nodes of a cache as all mounts see them.

    Attributes:
        view: the cache as it was heard of; the rest follows from it and from the cluster's nodes.
        members: nodes that shall have a worker. What goes from others is not coming back.
        agents: the agents that can be reached.
        silent: nodes with live workers of which no agent was heard.
        candidates: nodes that may hold something, by name, in order; what one mount has there is left out.
        spaces: the caches of the nodes.
        holders: nodes with agents that know something of a mount, by its path.
    """

    view: CacheView
    nodes: Mapping[str, NodeView]
    draining: frozenset[str]
    members: Collection[str]
    agents: Mapping[str, AgentState]
    silent: frozenset[str]
    candidates: Mapping[str, Candidate]
    spaces: Mapping[str, NodeSpace]
    holders: Mapping[str, tuple[str, ...]]


def cache_nodes(
    *,
    view: CacheView,
    nodes: Mapping[str, NodeView],
    cluster: Object | None,
    before: CacheNodes | None = None,
) -> CacheNodes:
    """The nodes of a cache.

    Args:
        before: what was found the last time: what has not changed stays the same object.
    """
    draining = draining_nodes(cluster)
    member_names = member_nodes(cluster)
    members: Collection[str] = nodes.keys() if member_names is None else member_names
    agents_here = {node: state for node, state in view.agents.items() if node in nodes}
    live = {worker.name for worker in view.workers if worker.live}
    capacities = {worker.name: worker.capacity_bytes for worker in view.workers}
    spaces: dict[str, NodeSpace] = {}
    for node, state in {**{node: agent.state for node, agent in view.away.items()}, **view.agents}.items():
        capacity = state.capacity_bytes or capacities.get(node, 0)
        space = before.spaces.get(node) if before is not None else None
        is_unchanged = space is not None and space.state is state and space.capacity == capacity
        spaces[node] = (
            space if space is not None and is_unchanged else NodeSpace(capacity=capacity, state=state)
        )
    candidates: dict[str, Candidate] = {}
    for node in sorted(agents_here):
        if node in draining or node not in members:
            continue
        candidate = _candidate(nodes[node], capacity=spaces[node].capacity)
        earlier = before.candidates.get(node) if before is not None else None
        candidates[node] = earlier if earlier == candidate and earlier is not None else candidate
    holders: dict[str, list[str]] = {}
    for node in sorted(agents_here):
        for path in agents_here[node].mounts:
            holders.setdefault(path, []).append(node)
    return CacheNodes(
        view=view,
        nodes=nodes,
        draining=draining,
        members=members,
        agents=agents_here,
        silent=frozenset((live & nodes.keys()) - agents_here.keys() - view.away.keys() - draining),
        candidates=candidates,
        spaces=spaces,
        holders={path: tuple(holder_names) for path, holder_names in holders.items()},
    )


def _candidate(
    node: NodeView,
    *,
    capacity: int,
    held: int = 0,
) -> Candidate:
    return Candidate(
        node=CacheNode(
            name=node.name,
            capacity_bytes=capacity,
            free_bytes=0,  # what it may take is for the cache manager to grant
            held_bytes=held,
            free_gpus=node.free_gpus,
            zone=node.zone,
            rack=rack_of(node.place, zone=node.zone),
        ),
        labels=node.labels,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The nodes of a cache as one mount sees them.

    Attributes:
        candidates: nodes that may hold some of it.
        states: what those that can be reached say of it; of others nothing of it is known.
        agents: the agents that can be reached, and those of draining workers that may be back in a moment: what only
            they have is not read from the source meanwhile.
        draining: nodes with draining workers.
        waiting: nodes with agents that are about to report: nothing is decided without them.
        held: the last reported state of each node, with those that may be back in a moment.
        readable: the same without the nodes that were away for too long to count as there.
        spaces: the caches of the nodes.
        nodes: all nodes of the cluster.
        next_at: when the first of those stops to count as there, or counts as lost, on the clock of the view; None when
            none is awaited.
    """

    candidates: tuple[Candidate, ...]
    states: Mapping[str, MountState]
    agents: Mapping[str, AgentState]
    draining: frozenset[str]
    waiting: frozenset[str]
    held: Mapping[str, MountState]
    readable: Mapping[str, MountState]
    spaces: Mapping[str, NodeSpace]
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    next_at: float | None = None

    @property
    def filled(self) -> dict[str, int]:
        """Bytes of it by node."""
        return {node: state.held_bytes for node, state in self.held.items() if state.held_bytes}


def hosts(
    *,
    path: str,
    cache: CacheNodes,
    expected: Collection[str],
    now: float,
    patience: float,
    absence: float | None = None,
) -> Hosts:
    """The nodes that a placement of a mount may use.

    An agent that cannot be reached any more keeps its slots for a while: one that restarts is back with what it has,
    and nothing is moved. What it has counts as there for a moment only.

    Args:
        cache: the cache's nodes.
        expected: nodes on which some of it was.
        now: seconds that only grow.
        patience: seconds that an agent may be away before its slots go to others.
        absence: seconds that an agent may be away and what it has still counts as there; `patience` when left out.
    """
    view, nodes, draining, members = cache.view, cache.nodes, cache.draining, cache.members
    silent = cache.silent | {
        node
        for node in expected
        if node in members
        and node in nodes
        and node not in cache.agents
        and node not in view.away
        and node not in draining
    }
    back_soon = {
        node: agent.state
        for node, agent in view.away.items()
        if node in nodes
        and node in members
        and node not in cache.agents
        and now - agent.since < patience
        and path in agent.state.mounts
        and agent.state.mounts[path].held_bytes
    }
    leaving = {
        node: agent.state
        for node, agent in view.away.items()
        if node in nodes and node in draining and node not in cache.agents and now - agent.since < patience
    }
    states = {node: cache.agents[node].mounts[path] for node in cache.holders.get(path, ())}
    states |= {node: state.mounts[path] for node, state in leaving.items() if path in state.mounts}
    held = {**states, **{node: state.mounts[path] for node, state in back_soon.items()}}
    awaited = {node: view.away[node].since for node in {**back_soon, **leaving}}
    absence_limit = patience if absence is None else min(absence, patience)
    absent = {node for node, since in awaited.items() if now - since >= absence_limit}
    due = [since + (patience if node in absent else absence_limit) for node, since in awaited.items()]
    own_candidates = {
        node: _candidate(
            nodes[node],
            capacity=cache.spaces[node].capacity,
            held=held[node].held_bytes,
        )
        for node in held
        if node not in draining and node in members
    }
    candidates = {**cache.candidates, **own_candidates}
    if back_soon:
        candidates = {node: candidates[node] for node in sorted(candidates)}
    return Hosts(
        candidates=tuple(candidates.values()),
        states=states,
        agents={**cache.agents, **leaving} if leaving else cache.agents,
        draining=draining,
        waiting=silent if now - view.since < patience else frozenset[str](),
        held=held,
        readable={node: state for node, state in held.items() if node not in absent} if absent else held,
        spaces=cache.spaces,
        nodes=nodes,
        next_at=min(due, default=None),
    )


def informed(
    mount_hosts: Hosts, placements: Sequence[WantPlacement], *, parts: Mapping[str, tuple[Part, ...]]
) -> frozenset[str]:
    """Nodes with a last state that is about the files that they shall have now: those of agents that are away, and of
    agents that were assigned the same files in another way since.

    A source that was away when an agent went may be back by now, so a last state that says so does not count.

    Args:
        parts: what the states are about, by node, where that is known.
    """
    return frozenset(
        node
        for node in mount_hosts.held.keys() & parts.keys()
        if all(
            any(
                (part.name, part.slots, part.paths) == (placement.want.key, mask, placement.want.paths)
                for part in parts[node]
            )
            for placement in placements
            for copy in placement.copies
            if (mask := copy.nodes.get(node)) is not None
        )
        and (node in mount_hosts.agents or not mount_hosts.held[node].source_away)
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
    something was cached when they were last looked at, for a master that is away has unmounted nothing. One whose spec
    cannot be understood is not among them: it asks for nothing until somebody changes it, and the others do not wait
    for that.
    """
    return {
        str(status["mountPath"])
        for dataset in datasets.values()
        if (status := dataset.get("status") or {}).get("mountPath")
        and names.cache_cluster_of(dataset) == cluster
        and not dataset["metadata"].get("deletionTimestamp")
        and (status.get("physicalBytes", 0) > 0 or _is_mounted(status.get("conditions") or ()))
        and not _is_invalid(dataset)
    }


def nodes_of(held_before: Mapping[str, Mapping[str, frozenset[str]]]) -> frozenset[str]:
    """All nodes on which some copy of some want was."""
    return frozenset[str]().union(*(nodes for copies in held_before.values() for nodes in copies.values()))


def _is_mounted(conditions: Iterable[Mapping[str, object]]) -> bool:
    return any(
        condition.get("type") == names.MOUNTED and condition.get("status") == "True"
        for condition in conditions
    )


def _is_invalid(dataset: Mapping[str, Any]) -> bool:
    """Whether the operator has found that the spec, as it is now, cannot be understood."""
    return any(
        condition.get("type") == names.READY
        and condition.get("reason") == "InvalidSpec"
        and condition.get("observedGeneration", 0) == dataset["metadata"].get("generation", 0)
        for condition in dataset["status"].get("conditions") or ()
    )


def concerned(
    mount_hosts: Hosts, placements: Sequence[WantPlacement], *, expected: frozenset[str]
) -> frozenset[str]:
    """The nodes that have, or shall have, something to do with a mount that the operator places: few of many. All of
    them while some worker drains, for any of them may take what it has, and when it shall be on none of them."""
    holders = {node for placement in placements for node in placement.nodes}
    if mount_hosts.draining or not holders:
        return frozenset(mount_hosts.agents)
    return (
        expected
        | holders
        | {node for node, state in mount_hosts.states.items() if state.version or state.held_bytes}
    )


def agent_views(
    mount_hosts: Hosts,
    granted: Granted,
    parts: Mapping[str, tuple[Part, ...]],
    *,
    path: str,
    manifest_url: Callable[[AgentState], str],
    only: frozenset[str],
) -> tuple[AgentView, ...]:
    """The agents of some nodes as assignments see them; `manifest_url`: where each gives the mount's manifest."""
    nodes = {candidate.node.name: candidate.node for candidate in mount_hosts.candidates}
    unknown = MountState(mount=path)
    return tuple(
        AgentView(
            node=node,
            address=mount_hosts.agents[node].address,
            manifest_url=manifest_url(mount_hosts.agents[node]),
            draining=node in mount_hosts.draining,
            room=granted.room.get(node, 0) if node in nodes else 0,
            capacity=max(nodes[node].capacity_bytes, 1) if node in nodes else 1,
            waits=node in granted.waits,
            crowded=node in granted.crowded,
            state=mount_hosts.states.get(node, unknown),
            parts=parts.get(node, ()),
            place=mount_hosts.nodes[node].place if node in mount_hosts.nodes else (),
        )
        for node in sorted(only & mount_hosts.agents.keys())
    )
