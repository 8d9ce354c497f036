"""What is wanted of a mount, what it gets of the cache, and what its agents are to do for that."""

import asyncio
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.source_uri import is_claim
from tdcs.control.cache_registry import ClaimSources
from tdcs.control.context import Stores
from tdcs.control.dataset import cache_users
from tdcs.control.dataset.mount import mount_limits, mount_readers, read_nodes
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import AgentWork, MountDecision, MountReport, progress_of
from tdcs.control.dataset.mount.mount_snapshot import UNHEARD_SECONDS, MountRequest
from tdcs.control.dataset.mount.read_nodes import HeldBefore
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.control.dataset.mount.source_versions import awaited_url, manifest_urls
from tdcs.decide.cache.cache_quotas import payers
from tdcs.decide.cache.grants import GrantTier, MountDemand, MountGrant
from tdcs.decide.cache.mount_keys import KeysAnswer
from tdcs.decide.cache.mount_standing import CacheUser, Standing, standing
from tdcs.decide.cache.wants import Want
from tdcs.decide.place import placement_input
from tdcs.decide.place.agent_assignments import AssignmentInput, assign
from tdcs.decide.place.holdings import WantProgress
from tdcs.decide.place.placement_input import CacheNodes, Hosts, ReadOn
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.place.wanted_clones import Clone
from tdcs.decide.served_claim import needs_source
from tdcs.engine.holder_table import table_seconds
from tdcs.listing.result import Listed, access_of
from tdcs.model.agent_state import AgentState, Assignment, SourceAccess
from tdcs.model.cache_engine import Source
from tdcs.model.cache_view import CacheView
from tdcs.model.manifest_format import Totals
from tdcs.model.nearness import level_of_zones

FEW_NODES = 8
"""The assignments of so many nodes are worked out in the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountNeeds:
    """What is wanted of a mount, by whom, and the nodes where it may go.

    Attributes:
        wants: of its Datasets and Preloads, and further copies.
        totals: of the files under each selection of paths.
        urls: where its manifest can be had.
        held_before: where each copy of each want was.
        uses: who uses each Dataset, by its own want's key.
        clones: the further copies of each Dataset, by its own want's key.
        read_on: of each Dataset whose copies follow its jobs, the nodes on which it is read.
    """

    wants: Sequence[Want]
    totals: Mapping[tuple[str, ...], Totals]
    urls: tuple[str, ...]
    held_before: HeldBefore
    uses: Mapping[str, CacheUser]
    clones: Mapping[str, tuple[Clone, ...]]
    read_on: Mapping[str, ReadOn]
    hosts: Hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class MountScope:
    """What one pass over a mount works with, see `mount_pass.reconcile`."""

    world: World
    mount: Mount
    request: MountRequest
    users: Sequence[Reader]

    @property
    def stores(self) -> Stores:
        return self.world.context.stores

    @property
    def spec(self) -> CacheClusterSpec:
        """Of the cache cluster; the default one while it cannot be read."""
        return self.world.spec_of(self.mount.cluster) or CacheClusterSpec()

    @property
    def claims(self) -> ClaimSources:
        """The claims of the cache cluster that are served to its agents."""
        return self.world.context.caches.get(cluster=self.mount.cluster).claims


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlacer(MountScope):
    """The part of a pass that follows from a manifest: needs, then a grant, then work, then assignments."""

    def wants(self) -> list[Want]:
        """What its Datasets and Preloads want of it now."""
        return mount_readers.all_wants(stores=self.stores, users=self.users, now=self.world.context.now())

    def keys_awaited(self) -> bool:
        """Whether it is asked yet whether the source takes the keys that agents are to read with: after a restart they
        go on with those that they have."""
        request = self.request
        return (
            self.mount.mounting.source is None
            and request.source is not None
            and request.answer is KeysAnswer.AWAITED
        )

    async def needs(
        self,
        before: MountReport,
        listed: Listed,
        wants: Sequence[Want],
        cache_nodes: CacheNodes,
        holders: Sequence[AgentState],
    ) -> MountNeeds | None:
        """What is wanted of the mount, and the nodes where it may go; None while the files of a selection of paths are
        not known."""
        world, mount, context = self.world, self.mount, self.world.context
        urls = manifest_urls(context.caches.manifest_url, mount.path, holders, digest=listed.digest)
        totals = await mount.manifests.totals({want.paths for want in wants}, urls=urls)
        if totals is None:
            return None
        held_before = self._held_before()
        wants = mount_readers.with_ids(wants, stores=self.stores, held=held_before)
        uses = cache_users.of_mount(context=context, users=self.users, queue=world.jobs.order())
        clones = cache_users.clones_of(context=context, users=self.users, uses=uses)
        wants = [*wants, *cache_users.clone_wants(self.users, wants, clones)]
        return MountNeeds(
            wants=wants,
            totals=totals,
            urls=urls,
            held_before=held_before,
            uses=uses,
            clones=clones,
            read_on=read_nodes.copies_at_readers(
                world,
                self.spec.scaling,
                self.users,
                before=before.read_on,
                uses=uses,
                wants=wants,
                held_before=held_before,
            ),
            hosts=placement_input.hosts(
                path=mount.path,
                cache=cache_nodes,
                expected=placement_input.nodes_of(held_before) if wants else (),
                now=world.clock(),
                patience=context.settings.return_seconds,
                absence=context.settings.absence_seconds,
            ),
        )

    async def granted(
        self, listed: Listed, needs: MountNeeds, *, only_free: bool = False
    ) -> tuple[MountGrant, Standing]:
        """What the mount gets of the cache, and how it stands among those that ask for it.

        Args:
            only_free: whether it takes only what is free: nothing leaves the cache for it.
        """
        world, mount, hosts, quotas = self.world, self.mount, needs.hosts, self.spec.quotas
        stands = standing(
            list(needs.uses.values()),
            size=listed.totals.block_bytes,
            policies=world.policies,
            now=world.context.now(),
        )
        demand = MountDemand(
            path=mount.path,
            manifest=listed.digest,
            wants=tuple(needs.wants),
            totals=needs.totals,
            candidates=hosts.candidates,
            tier=GrantTier.IDLE if only_free else stands.tier,
            value=-math.inf if only_free else stands.value,
            held_before=needs.held_before,
            payers=payers(needs.wants, quotas=quotas, namespaces=self.stores.namespaces),
            filled={} if needs.wants else hosts.filled,
            readers={key: read_on.nodes for key, read_on in needs.read_on.items()},
        )
        quotas_left = mount_limits.quotas_left(world, mount, quotas)
        grant = await world.manager.grant(
            cluster=mount.cluster, demand=demand, nodes=hosts.spaces, quotas=quotas_left
        )
        return grant, stands

    def work(
        self,
        view: CacheView,
        before: MountReport,
        listed: Listed,
        needs: MountNeeds,
        grant: MountGrant,
        stands: Standing,
    ) -> AgentWork:
        """What follows from the grant: which agents it concerns, how far they are, and what loads may read."""
        world, mount, hosts = self.world, self.mount, needs.hosts
        owned = grant.evicted or any(user.dataset.spec.preload.enabled for user in self.users)
        unsure = world.clock() - view.since < UNHEARD_SECONDS
        expected = (
            mount_readers.holding_nodes(users=self.users) | hosts.draining if unsure else frozenset[str]()
        )
        concerned = frozenset(hosts.agents)
        if owned:
            concerned = placement_input.concerned(hosts, grant.placements, expected=expected)
        granted = world.manager.granted(cluster=mount.cluster, path=mount.path, grant=grant, nodes=concerned)
        heard = {**{node: agent.state for node, agent in view.away.items()}, **hosts.agents}
        parts = world.assigner(mount.cluster).parts(mount.path, states=heard)
        informed = placement_input.informed(hosts, grant.placements, parts=parts)
        progress = progress_of(hosts.held, grant.placements, manifest=listed.digest, informed=informed)
        decision = MountDecision(
            mount=mount.path,
            placements=grant.placements,
            draining=hosts.draining,
            live=frozenset(hosts.agents),
            granted=granted,
            standing=stands,
            uses=needs.uses,
            clones=needs.clones,
            source_rate=mount_limits.source_rate(
                world,
                mount,
                self.users,
                placements=grant.placements,
                uses=needs.uses.values(),
                # What cannot be had now takes nothing of the bandwidth.
                missing=0.0 if before.source_away else _missing(grant.placements, progress),
                rate=float(sum(state.source_rate for state in hosts.states.values())),
            ),
        )
        return AgentWork(
            decision=decision,
            owned=owned,
            expected=expected,
            concerned=concerned,
            parts=parts,
            informed=informed,
            progress=progress,
        )

    async def assignments(
        self, listed: Listed, needs: MountNeeds, work: AgentWork, *, is_early: bool = False
    ) -> dict[str, Assignment]:
        """What each agent shall do.

        Args:
            is_early: whether the listing goes on.
        """
        hosts, decision, settings = needs.hosts, work.decision, self.world.context.settings
        inputs = AssignmentInput(
            mount=self.mount.path,
            manifest=listed.digest,
            manifest_urls=needs.urls,
            totals=listed.totals,
            placements=decision.placements,
            agents=placement_input.agent_views(
                hosts,
                decision.granted,
                work.parts,
                path=self.mount.path,
                manifest_url=functools.partial(awaited_url, digest=listed.digest),
                only=work.concerned,
            ),
            owned=work.owned,
            # Never with keys that the source has not accepted: those of another Dataset may be revoked ones.
            source=None if self.request.paused else _access(self._reached(work)),
            source_rate=decision.source_rate,
            readers=self._fillers() if not work.owned else frozenset(),
            expected=work.expected,
            handover_seconds=settings.handover_seconds * table_seconds(len(hosts.agents)),
            zone=level_of_zones(settings.topology_labels),
            early_files=listed.totals.files if is_early else 0,
        )
        # A few nodes take a millisecond or two, less than the way to a thread and back.
        few = len(inputs.agents) <= FEW_NODES
        return assign(inputs) if few else await asyncio.to_thread(assign, inputs)

    def _reached(self, work: AgentWork) -> Source | None:
        """The source as agents reach it now. A claim is served by a pod as long as something of it is to be brought,
        and for a while after."""
        mount, source = self.mount, self.mount.mounting.source
        if source is None or not is_claim(source.uri):
            return source
        return self.claims.reached(
            source,
            by=mount.place,
            needed=needs_source(
                missing=sum(progress.missing_bytes for progress in work.progress.values()),
                wants=[placement.want for placement in work.decision.placements],
                is_read=bool(self._fillers()),
            ),
            on_change=functools.partial(self.world.changed, mount),
        )

    def _held_before(self) -> HeldBefore:
        """By the last decision, else by the statuses."""
        held = mount_readers.held_before(stores=self.stores, users=self.users)
        report = self.mount.report or MountReport()
        decision = report.decision or report.early
        for placement in decision.placements if decision is not None else ():
            if placement.copies:
                held[placement.want.key] = placement.holders
        return held

    def _fillers(self) -> frozenset[str]:
        """The nodes on which pods read a mount that their reads fill."""
        return frozenset(read_nodes.nodes_read_on(stores=self.stores, users=self.users))


def _access(source: Source | None) -> SourceAccess | None:
    return None if source is None else access_of(source)


def _missing(placements: Sequence[WantPlacement], progress: Mapping[str, WantProgress]) -> float:
    """Bytes that loads have still to bring; what several of them want on one node counts for each until it is there."""
    return float(
        sum(progress[placement.want.key].missing_bytes for placement in placements if placement.want.load)
    )
