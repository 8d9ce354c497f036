"""The cache manager: keeps what the mounts of each cache cluster ask for, and grants them their parts of the cache.

The pass itself is `tdcs.planning.grants.grant`. Here it is given what is seen, and asked only when that has changed.
What was granted before a restart is in the Datasets' statuses (`held_before` of each demand).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.controllers.cachemanager.room import Granted, NodeSpace, crowded_nodes, usable_bytes, waiting_nodes
from tdcs.planning.grants import GrantInput, Grants, MountDemand, MountGrant, grant
from tdcs.planning.placement import PlacementInput, WantPlacement, matches, occupied, place
from tdcs.planning.wants import Want


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The last placement of a mount, what it was made for, and the room that there was."""

    key: object
    room: object
    placements: tuple[WantPlacement, ...]


@dataclass(slots=True, kw_only=True)
class _Cluster:
    """What is known of one cache cluster."""

    demands: dict[str, MountDemand] = field(default_factory=dict)
    keys: dict[str, object] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    given: object = None
    changes: dict[str, int] = field(default_factory=dict)
    grants: Grants = field(default_factory=lambda: Grants(mounts={}, free={}, quotas={}))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


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
    ) -> Granted:
        """What a mount is granted. Others that get something else for it are named to `on_change`.

        Args:
            cluster: the cache cluster.
            demand: what the mount asks for.
            nodes: the caches of its nodes.
            quotas: the bytes of its quotas.
        """
        state = self._clusters.setdefault(cluster, _Cluster())
        async with state.lock:
            state.demands[demand.path] = demand
            usable = usable_bytes(nodes, managed=state.demands.keys())
            key = key_of(demand)
            given = (usable, dict(quotas))
            if state.keys.get(demand.path) != key or state.given != given:
                state.keys[demand.path], state.given = key, given
                inputs = GrantInput(mounts=tuple(state.demands.values()), usable=usable, quotas=quotas)
                before = state.grants
                state.grants = await asyncio.to_thread(
                    grant, inputs, place_one=lambda one: _placed(state.placed, one)
                )
                for path, found in state.grants.mounts.items():
                    if _differ(before.mounts.get(path), found):
                        state.changes[path] = state.changes.get(path, 0) + 1
                        if path != demand.path:
                            self._on_change(cluster, path)
            own = state.grants.mounts[demand.path]
            own = replace(own, placements=_with_wants(own.placements, demand.wants))
            granted = {path: one.node_bytes for path, one in state.grants.mounts.items()}
            return Granted(
                grant=own,
                room={
                    node: max(free, 0) + own.node_bytes.get(node, 0)
                    for node, free in state.grants.free.items()
                },
                crowded=crowded_nodes(nodes, granted=granted),
                waits=waiting_nodes(nodes, path=demand.path, granted=own.node_bytes),
            )

    def changes(self, *, cluster: str, path: str) -> int:
        """How often a mount was granted something else."""
        state = self._clusters.get(cluster)
        return state.changes.get(path, 0) if state is not None else 0

    def register(self, *, cluster: str, demands: Iterable[MountDemand]) -> None:
        """Take in what mounts ask for, without a pass."""
        state = self._clusters.setdefault(cluster, _Cluster())
        for demand in demands:
            state.demands[demand.path] = demand
            state.keys[demand.path] = key_of(demand)
        state.given = None

    def grants(self, cluster: str) -> Grants:
        """What the mounts of a cluster were granted last."""
        state = self._clusters.get(cluster)
        return state.grants if state is not None else Grants(mounts={}, free={}, quotas={})

    def forget(self, *, cluster: str, path: str) -> None:
        """A mount is gone: what it was granted is for the others."""
        state = self._clusters.get(cluster)
        if state is None or state.demands.pop(path, None) is None:
            return
        state.keys.pop(path, None)
        state.placed.pop(path, None)
        state.given = None
        for other in state.demands:
            self._on_change(cluster, other)


def key_of(demand: MountDemand) -> object:
    """What of a demand calls for another pass: not what has arrived by now of what was granted, and neither a limit of
    bandwidth nor a start."""
    return (
        demand.manifest,
        _lasting(demand.wants),
        [(one.node.name, one.node.has_readers) for one in demand.candidates],
        [[matches(one.labels, want.node_selector) for one in demand.candidates] for want in demand.wants],
        [one.node.capacity_bytes for one in demand.candidates],
        demand.tier,
        demand.value,
        dict(demand.payers),
        dict(demand.filled),
    )


def _placed(known: dict[str, Placed], given: PlacementInput) -> tuple[WantPlacement, ...]:
    """The placement of a mount: the last one while it was made for the same, or still finds all of its room."""
    before = known.get(given.mount)
    key = (
        given.manifest,
        _lasting(given.wants),
        [(one.node.name, one.node.capacity_bytes, one.node.has_readers) for one in given.candidates],
        [[matches(one.labels, want.node_selector) for one in given.candidates] for want in given.wants],
        dict(given.payers),
    )
    room = ({one.node.name: one.node.free_bytes for one in given.candidates}, dict(given.quotas))
    if (
        before is None
        or before.key != key
        or (before.room != room and not still_fits(given, before.placements))
    ):
        if before is not None:
            # What it was placed on by this process is newer than what statuses say.
            earlier = {
                one.want.key: {copy.id: frozenset(copy.nodes) for copy in one.copies}
                for one in before.placements
                if one.copies
            }
            given = replace(given, held_before={**given.held_before, **earlier})
        before = Placed(key=key, room=room, placements=place(given))
    known[given.mount] = replace(before, room=room)
    return _with_wants(before.placements, given.wants)


def still_fits(given: PlacementInput, placements: Sequence[WantPlacement]) -> bool:
    """Whether a placement that has all that was asked for finds its room also in what is free now.

    It is kept then, although another one might lie better: what moves has to be read again.
    """
    for one in placements:
        grows = one.want.mode == "Replicate" and one.want.node_count is None and not one.want.nodes
        if one.unplaced_bytes or len(one.copies) < one.want.copies or grows:
            return False
    free = {one.node.name: one.node.free_bytes for one in given.candidates}
    if any(size > free.get(node, 0) for node, size in occupied(given, placements).items()):
        return False
    charged: dict[str, int] = {}
    for one in placements:
        for quota in given.payers.get(one.want.key, ()):
            charged[quota] = charged.get(quota, 0) + one.charged_bytes
    return all(size <= given.quotas[quota] for quota, size in charged.items())


def _lasting(wants: tuple[Want, ...]) -> tuple[Want, ...]:
    return tuple(replace(want, bandwidth=None, load=True, verify="None", check="") for want in wants)


def _with_wants(placements: tuple[WantPlacement, ...], wants: tuple[Want, ...]) -> tuple[WantPlacement, ...]:
    if len(placements) != len(wants):
        return placements
    return tuple(
        one if one.want == want else replace(one, want=want)
        for one, want in zip(placements, wants, strict=True)
    )


def _differ(before: MountGrant | None, after: MountGrant) -> bool:
    if before is None:
        return True
    bitmaps = [
        [(one.want.key, [dict(copy.nodes) for copy in one.copies]) for one in found.placements]
        for found in (before, after)
    ]
    return (before.evicted, dict(before.node_bytes), bitmaps[0]) != (
        after.evicted,
        dict(after.node_bytes),
        bitmaps[1],
    )
