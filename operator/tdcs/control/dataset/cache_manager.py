"""The cache manager: keeps what the mounts of each cache cluster ask for, and grants them their parts of the cache.

The pass itself is `tdcs.decide.cache.grants.grant`. Here it is given what is seen, and asked only when that has
changed. What was granted before a restart is in the Datasets' statuses (`held_before` of each demand).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tdcs.decide.cache.grants import GrantInput, Grants, MountDemand, MountGrant, grant, same_placement
from tdcs.decide.cache.node_room import Granted, NodeSpace, has_to_wait, is_crowded, usable_on
from tdcs.decide.cache.wants import Want
from tdcs.decide.place.slot_nodes import WantPlacement


@dataclass(slots=True, kw_only=True)
class _Cluster:
    """What is known of one cache cluster.

    Attributes:
        demands: what each mount asks for.
        nodes: the caches as last seen, and `usable` what all mounts together may take there.
        quotas: bytes of each quota.
        due: whether something has changed since the last pass began.
        grants: what that came to; `on_nodes` the same by node.
        asking: the mounts that wait for the pass which goes on, or for the next one.
    """

    demands: dict[str, MountDemand] = field(default_factory=dict)
    nodes: dict[str, NodeSpace] = field(default_factory=dict)
    usable: dict[str, int] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    due: bool = True
    grants: Grants = field(default_factory=lambda: Grants(mounts={}, free={}, quotas={}))
    on_nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    asking: set[str] = field(default_factory=set)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take_demand(self, demand: MountDemand) -> None:
        before = self.demands.get(demand.path)
        if before is not None and not calls_for_pass(before, demand):
            # The same demand of an unchanged mount: the next pass recognizes it at a glance.
            if before.held_before == demand.held_before and before.candidates == demand.candidates:
                return
            self.demands[demand.path] = demand
            return
        self.demands[demand.path] = demand
        self.due = True
        if before is None:
            self._measure(node for node, space in self.nodes.items() if demand.path in space.state.mounts)

    def take_nodes(self, nodes: Mapping[str, NodeSpace], quotas: Mapping[str, int]) -> None:
        """Take in what the caches say, those of them that say something new."""
        changed = [node for node, space in nodes.items() if self.nodes.get(node) is not space]
        for node in self.nodes.keys() - nodes.keys():
            del self.nodes[node], self.usable[node]
            self.due = True
        self.nodes.update((node, nodes[node]) for node in changed)
        self._measure(changed)
        if self.quotas != quotas:
            self.quotas, self.due = dict(quotas), True

    def _measure(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            usable = usable_on(self.nodes[node], managed=self.demands.keys())
            if self.usable.get(node) != usable:
                self.usable[node], self.due = usable, True

    def take_grants(self, grants: Grants) -> list[str]:
        """Take in what a pass came to; the mounts that are granted something else."""
        before, self.grants = self.grants, grants
        changed = []
        for path in before.mounts.keys() | grants.mounts.keys():
            was, now = before.mounts.get(path), grants.mounts.get(path)
            if was is now:
                continue
            for node in was.node_bytes if was is not None else ():
                self.on_nodes.get(node, {}).pop(path, None)
            for node, size in now.node_bytes.items() if now is not None else ():
                self.on_nodes.setdefault(node, {})[path] = size
            if now is not None and _differ(was, now):
                changed.append(path)
        return changed

    def drop_mount(self, path: str) -> None:
        del self.demands[path]
        self._measure([node for node, space in self.nodes.items() if path in space.state.mounts])
        self.due = True


class CacheManager:
    """Grants the mounts of all cache clusters their parts.

    Args:
        on_change: called with cluster and path of a mount that is granted something else than before.
    """

    def __init__(self, *, on_change: Callable[[str, str], None]) -> None:
        self._on_change = on_change
        self._clusters: dict[str, _Cluster] = {}

    async def grant(
        self,
        *,
        cluster: str,
        demand: MountDemand,
        nodes: Mapping[str, NodeSpace],
        quotas: Mapping[str, int],
    ) -> MountGrant:
        """What a mount is granted. Others that get something else for it are named to `on_change`.

        Mounts that ask at the same time are served by one pass.

        Args:
            demand: what the mount asks for.
            nodes: the caches of its nodes; of one that has nothing new to say the same object as before.
            quotas: the bytes of its quotas.
        """
        state = self._clusters.setdefault(cluster, _Cluster())
        state.take_nodes(nodes, quotas)
        state.take_demand(demand)
        state.asking.add(demand.path)
        try:
            async with state.lock:
                return await self._granted(cluster, state, demand)
        finally:
            state.asking.discard(demand.path)

    async def _granted(self, cluster: str, state: _Cluster, demand: MountDemand) -> MountGrant:
        if demand.path not in state.demands:
            state.take_demand(demand)
        if state.due or demand.path not in state.grants.mounts:
            state.due = False
            inputs = GrantInput(
                mounts=tuple(state.demands.values()),
                usable=dict(state.usable),
                quotas=dict(state.quotas),
            )
            try:
                grants = await asyncio.to_thread(grant, inputs, before=state.grants)
            except BaseException:
                state.due = True  # what has changed is still to be granted
                raise
            for path in state.take_grants(grants):
                if path not in state.asking:
                    self._on_change(cluster, path)
        current = state.grants.mounts[demand.path]
        return replace(current, placements=_with_wants(current.placements, demand.wants))

    def granted(self, *, cluster: str, path: str, grant: MountGrant, nodes: Iterable[str]) -> Granted:
        state = self._clusters[cluster]
        room: dict[str, int] = {}
        crowded: set[str] = set()
        waits: set[str] = set()
        for node in {*nodes, *grant.node_bytes}:
            size = grant.node_bytes.get(node, 0)
            room[node] = max(state.grants.free.get(node, 0), 0) + size
            space = state.nodes.get(node)
            if space is None:
                continue
            if is_crowded(space, state.on_nodes.get(node, {})):
                crowded.add(node)
            if size and has_to_wait(space, path=path, granted=size):
                waits.add(node)
        return Granted(grant=grant, room=room, crowded=frozenset(crowded), waits=frozenset(waits))

    def register(self, *, cluster: str, demands: Iterable[MountDemand]) -> None:
        state = self._clusters.setdefault(cluster, _Cluster())
        for demand in demands:
            state.take_demand(demand)

    def paths(self, cluster: str) -> frozenset[str]:
        """The mounts of a cluster of which it is known what they ask for."""
        state = self._clusters.get(cluster)
        return frozenset(state.demands) if state is not None else frozenset()

    def grants(self, cluster: str) -> Grants:
        state = self._clusters.get(cluster)
        return state.grants if state is not None else Grants(mounts={}, free={}, quotas={})

    def lacking(self, cluster: str) -> set[str]:
        """The mounts of a cluster that were granted less than they ask for."""
        return self._granted_less(cluster, _lacks)

    def lacking_room(self, cluster: str) -> set[str]:
        """The mounts of a cluster some of whose bytes found no room; not those that lack nodes for their copies."""
        return self._granted_less(cluster, _lacks_room)

    def _granted_less(self, cluster: str, lacks: Callable[[WantPlacement], bool]) -> set[str]:
        return {
            path
            for path, grant in self.grants(cluster).mounts.items()
            if grant.evicted or any(map(lacks, grant.placements))
        }

    def drop_mount(self, *, cluster: str, path: str) -> None:
        """A mount is gone: what it was granted is for the others."""
        state = self._clusters.get(cluster)
        if state is None or path not in state.demands:
            return
        state.drop_mount(path)
        for other_path in state.demands:
            placed = state.grants.placed.get(other_path)
            if placed is None or placed.room is not None or placed.grant.evicted:
                # It has less than it asks for: what has become free may be for it.
                self._on_change(cluster, other_path)


def calls_for_pass(before: MountDemand, after: MountDemand) -> bool:
    """Whether what a mount asks for now calls for another pass: not for what has arrived by now of what was granted,
    and neither for a limit of bandwidth nor a start. That it has its first grant now does: it may choose earlier
    then, and a new operator would have it do so."""
    return not same_placement(before, after) or before.order != after.order or before.filled != after.filled


def _with_wants(placements: tuple[WantPlacement, ...], wants: tuple[Want, ...]) -> tuple[WantPlacement, ...]:
    if len(placements) != len(wants):
        return placements
    return tuple(
        placement if placement.want == want else replace(placement, want=want)
        for placement, want in zip(placements, wants, strict=True)
    )


def _lacks(placement: WantPlacement) -> bool:
    """Whether more room would give a want more bytes, copies or nodes."""
    return (
        _lacks_room(placement)
        or len(placement.copies) < placement.want.copies
        or len(set(placement.nodes)) < placement.asked_nodes
    )


def _lacks_room(placement: WantPlacement) -> bool:
    return placement.unplaced_bytes > 0


def _differ(before: MountGrant | None, after: MountGrant) -> bool:
    if before is None:
        return True
    bitmaps = [
        [
            (placement.want.key, [dict(copy.nodes) for copy in placement.copies])
            for placement in grant.placements
        ]
        for grant in (before, after)
    ]
    return (before.evicted, dict(before.node_bytes), bitmaps[0]) != (
        after.evicted,
        dict(after.node_bytes),
        bitmaps[1],
    )
