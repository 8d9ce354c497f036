"""One pass over a mount: observe, decide, act. It gives what it found as a value, and waits for no cache."""

import asyncio
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.conditions import CACHE_STARTING, CACHE_UNAVAILABLE
from tdcs.api.source_uri import is_claim
from tdcs.control.cache_registry import ClaimSources
from tdcs.control.context import Stores
from tdcs.control.dataset import cache_users
from tdcs.control.dataset.mount import mount_limits, mount_readers, read_nodes
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.loss_guard import loss_rule
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import (
    AgentWork,
    LastPass,
    MountDecision,
    MountReport,
    progress_of,
    report_of,
)
from tdcs.control.dataset.mount.mount_snapshot import UNHEARD_SECONDS, MountRequest, Snapshot, rests
from tdcs.control.dataset.mount.mounting import MountOutcome, MountUser
from tdcs.control.dataset.mount.read_nodes import HeldBefore
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.control.dataset.mount.source_versions import awaited_url, manifest_of, manifest_urls
from tdcs.decide.cache import mount_identity
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
from tdcs.decide.problem import Problem, of_engine
from tdcs.decide.served_claim import needs_source
from tdcs.engine.holder_table import table_seconds
from tdcs.listing.result import Listed, access_of
from tdcs.model.agent_state import AgentState, Assignment, SourceAccess
from tdcs.model.cache_engine import Source
from tdcs.model.cache_view import CacheView, is_starting, starting_text
from tdcs.model.manifest_format import Totals
from tdcs.model.nearness import level_of_zones

FEW_NODES = 8
"""The assignments of so many nodes are worked out in the event loop."""


async def reconcile(
    *, world: World, mount: Mount, request: MountRequest, users: Sequence[Reader]
) -> MountReport:
    """One pass; at a mount at rest of which all that is looked at is the same, nothing is done.

    Args:
        world: what to work with.
        mount: the mount; its lock is held.
        request: the Dataset of this pass, and what it asks for.
        users: all Datasets of the mount, the oldest first.
    """
    snapshot, last = Snapshot.of(world, mount, request, users), mount.last
    if last is not None and snapshot is not None and snapshot == last.snapshot:
        return last.report
    report = _patient(
        await MountPass(world=world, mount=mount, request=request, users=users).run(),
        world=world,
        mount=mount,
        serves=mount_readers.serves(request.me.dataset),
    )
    mount.last = LastPass(
        report=report,
        snapshot=snapshot if rests(world, mount, report) else None,
        times=mount.mounting.times,
    )
    return report


def _patient(report: MountReport, *, world: World, mount: Mount, serves: bool) -> MountReport:
    """What a pass found, without that the cache is silent for no longer than its restart takes: what a Dataset
    `serves` is read meanwhile, so nobody has to act."""
    silent = [
        problem
        for problem in (report.problem, report.trouble)
        if problem is not None and problem.reason == CACHE_UNAVAILABLE
    ]
    if not silent:
        mount.silent_since = None
        return report
    clock = world.clock()
    cache_silent_since = world.observer.view(mount.cluster).silent_since
    mount.silent_since = min(
        since for since in (mount.silent_since, cache_silent_since, clock) if since is not None
    )
    if not serves or clock - mount.silent_since >= world.context.settings.outage_seconds:
        return report
    return replace(
        report,
        problem=None if report.problem in silent else report.problem,
        trouble=None if report.trouble in silent else report.trouble,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
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
class MountPass:
    """One pass, see `reconcile`."""

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

    async def run(self) -> MountReport:
        """The cache as it was last heard of; the mount and its version; what is wanted and granted; what agents do."""
        before, view = self.mount.report or MountReport(), self.world.observer.view(self.mount.cluster)
        if view.failure is not None or not view.answered:
            return self._unanswered(view, before)
        before = self._have_mounted(view, before)
        if not before.is_mounted:
            return before
        cache_nodes = self.world.nodes_of(self.mount.cluster)
        holders = [cache_nodes.agents[node] for node in cache_nodes.holders.get(self.mount.path, ())]
        before, listed = self._have_listed(view, before, holders)
        if listed is None:
            return await self._load_early(view, before, cache_nodes, holders)
        needs = await self._needs(before, listed, cache_nodes, holders)
        if needs is None:
            return replace(before, listed=listed, decided=False)
        before = replace(before, read_on=needs.read_on)
        if needs.hosts.waiting or self._keys_awaited():
            return replace(before, listed=listed, decided=False)
        grant, stands = await self._granted(listed, needs)
        work = self._work(view, before, listed, needs, grant, stands)
        assigner = self.world.assigner(self.mount.cluster)
        assigner.put(path=self.mount.path, assignments=await self._assignments(listed, needs, work))
        settled = self.mount.version.publish(
            listed.digest, current=view.versions.get(self.mount.path, ""), outages=view.outages
        )
        current = assigner.current(self.mount.path, states=needs.hosts.agents)
        report = report_of(
            before, listed=listed, hosts=needs.hosts, work=work, current=current, settled=settled
        )
        # When time alone changes what a pass decides: an awaited agent is lost, or a node was not read on for long.
        dues = read_nodes.dues(
            self.stores, self.users, read_on=report.read_on, delay=self.spec.scaling.delay_seconds
        )
        looks = [*dues, *([report.look_at] if report.look_at is not None else ())]
        return replace(report, look_at=min(looks, default=None))

    async def _load_early(
        self, view: CacheView, before: MountReport, cache_nodes: CacheNodes, holders: Sequence[AgentState]
    ) -> MountReport:
        """Have agents load what the first listing has so far, where nothing has to leave for it. Nobody is given it to
        read, and it counts nowhere, before the listing has ended."""
        mount, assigner = self.mount, self.world.assigner(self.mount.cluster)
        early = mount.manifests.early
        if early is None:
            if before.early is not None:
                # The source was refused in the end. What another operator has loaded of it stays: it may be a version.
                assigner.drop_mount(mount.path)
                self.world.manager.drop_mount(cluster=mount.cluster, path=mount.path)
            return replace(before, early=None)
        manifests = {manifest_of(state, mount.path) for state in holders} - {""}
        if not all(map(mount.manifests.has_offered, manifests)):
            return before  # agents may have more by what an operator before this one gave them: they go on with that
        needs = await self._needs(before, early, cache_nodes, holders)
        if needs is None or not needs.wants or needs.hosts.waiting or self._keys_awaited():
            return before
        grant, stands = await self._granted(early, needs)
        work = self._work(view, before, early, needs, grant, stands)
        assigner.put(path=mount.path, assignments=await self._assignments(early, needs, work))
        return replace(before, early=work.decision)

    def _unanswered(self, view: CacheView, before: MountReport) -> MountReport:
        """Of a cache that does not answer, or has not yet."""
        if view.failure is None:
            return replace(before, problem=None)
        cause = of_engine(view.failure, mounted=before.listed is not None)
        cluster = self.stores.cache_cluster(self.mount.cluster)
        if is_starting(view, cluster, now=self.world.context.now()):
            cause = replace(cause, reason=CACHE_STARTING, message=starting_text(view.failure))
        return replace(before, problem=cause)

    def _have_mounted(self, view: CacheView, before: MountReport) -> MountReport:
        """Have the source mounted with the right keys. Of one that was mounted again nothing holds that was known."""
        mount = self.mount
        times, keyed_at = mount.mounting.times, mount.mounting.keyed_at
        outcome = self._mounted(view)
        if mount.mounting.keyed_at != keyed_at:
            mount.manifests.retry()
        if mount.mounting.times != times:
            mount.reset()
            before = mount.report or MountReport()
        if not outcome.is_mounted:
            return replace(before, is_mounted=False, problem=outcome.problem)
        return replace(
            before, is_mounted=True, problem=None, trouble=outcome.trouble, differs=outcome.differs
        )

    def _have_listed(
        self, view: CacheView, before: MountReport, holders: Sequence[AgentState]
    ) -> tuple[MountReport, Listed | None]:
        """Have the source listed where that is due; gives its version, None before the first one is known."""
        self._list(view, before, holders)
        versions = self.mount.manifests.view()
        before = replace(
            before,
            trouble=before.trouble or self._own(versions.trouble) or self._claim_trouble(),
            checked=versions.checked,
            held_up_by=self.mount.manifests.held_up_by,
        )
        if versions.listed is None:
            before = replace(before, problem=self._own(versions.problem))
        return before, versions.listed

    async def _needs(
        self, before: MountReport, listed: Listed, cache_nodes: CacheNodes, holders: Sequence[AgentState]
    ) -> _Needs | None:
        """What is wanted of the mount, and the nodes where it may go; None while the files of a selection of paths are
        not known."""
        world, mount, context = self.world, self.mount, self.world.context
        wants = mount_readers.all_wants(stores=self.stores, users=self.users, now=context.now())
        urls = manifest_urls(context.caches.manifest_url, mount.path, holders, digest=listed.digest)
        totals = await mount.manifests.totals({want.paths for want in wants}, urls=urls)
        if totals is None:
            return None
        held_before = self._held_before()
        wants = mount_readers.with_ids(wants, stores=self.stores, held=held_before)
        uses = cache_users.of_mount(context=context, users=self.users, queue=world.jobs.order())
        clones = cache_users.clones_of(context=context, users=self.users, uses=uses)
        wants = [*wants, *cache_users.clone_wants(self.users, wants, clones)]
        return _Needs(
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

    async def _granted(self, listed: Listed, needs: _Needs) -> tuple[MountGrant, Standing]:
        """What the mount gets of the cache, and how it stands among those that ask for it."""
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
            # What is listed in part takes only what is free.
            tier=stands.tier if mount.manifests.early is None else GrantTier.IDLE,
            value=stands.value if mount.manifests.early is None else -math.inf,
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

    def _work(
        self,
        view: CacheView,
        before: MountReport,
        listed: Listed,
        needs: _Needs,
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

    async def _assignments(self, listed: Listed, needs: _Needs, work: AgentWork) -> dict[str, Assignment]:
        """What each agent shall do."""
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
        return self._claims.reached(
            source,
            by=mount.place,
            needed=needs_source(
                missing=sum(progress.missing_bytes for progress in work.progress.values()),
                wants=[placement.want for placement in work.decision.placements],
                is_read=bool(self._fillers()),
            ),
            on_change=functools.partial(self.world.changed, mount),
        )

    @property
    def _claims(self) -> ClaimSources:
        return self.world.context.caches.get(cluster=self.mount.cluster).claims

    def _claim_trouble(self) -> Problem | None:
        source = self.mount.mounting.source
        return None if source is None or not is_claim(source.uri) else self._claims.trouble(source)

    def _mounted(self, view: CacheView) -> MountOutcome:
        request, path = self.request, self.mount.path
        limit = functools.partial(mount_limits.size_limit, self.world, self.mount, self.spec, self.users)
        outcome = self.mount.mounting.advance(
            user=MountUser(
                key=request.me.key,
                uid=request.me.uid,
                source=request.source,
                serves=request.claimed and mount_readers.serves(request.me.dataset),
                claimed=request.claimed,
                outranked=not mount_readers.has_keys(request.me)
                and any(mount_readers.has_keys(user) for user in self.users if user.key != request.me.key),
                limit=limit,
                answer=request.answer,
                refused=request.refused,
            ),
            users=frozenset(user.key for user in self.users),
            mounts=view.mounts,
        )
        cause = outcome.problem
        if cause is None or cause.reason != "MountConflict" or request.source is None:
            return outcome
        conflict = mount_readers.conflict(
            stores=self.stores,
            cluster=self.mount.cluster,
            path=path,
            source=request.source,
            mounts=view.mounts,
            me=request.me.key,
        )
        return replace(outcome, problem=replace(cause, message=conflict or cause.message))

    def _keys_awaited(self) -> bool:
        """Whether it is asked yet whether the source takes the keys that agents are to read with: after a restart they
        go on with those that they have."""
        request = self.request
        return (
            self.mount.mounting.source is None
            and request.source is not None
            and request.answer is KeysAnswer.AWAITED
        )

    def _own(self, cause: Problem | None) -> Problem | None:
        """What a listing has met, as far as it is the user's matter: that the source refuses the keys of another one is
        not, when it takes the user's, which are tried next."""
        request = self.request
        if cause is None or not cause.keys_refused or request.source is None:
            return cause
        is_foreign = mount_identity.mark(request.source) != self.mount.mounting.mark
        return None if is_foreign and request.answer is KeysAnswer.TAKEN else cause

    def _list(self, view: CacheView, before: MountReport, holders: Sequence[AgentState]) -> None:
        world, mount, request = self.world, self.mount, self.request
        digest = view.versions.get(mount.path, "")
        heard = any(digest == manifest_of(state, mount.path) for state in holders)
        patience = world.context.settings.return_seconds
        limit = functools.partial(mount_limits.size_limit, world, mount, self.spec, self.users)
        mount.manifests.advance(
            due=request.check_due and before.trouble is None,
            changed=before.failures.outdated,
            digest=digest,
            urls=manifest_urls(world.context.caches.manifest_url, mount.path, holders, digest=digest),
            unheard=not heard and world.clock() - view.since < patience,
            requests={user.key: user.refresh for user in self.users},
            namespaces=frozenset(user.key.namespace for user in self.users),
            limit=limit,
            rule=loss_rule(users=self.users, confirm_seconds=world.context.settings.loss_confirm_seconds),
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
