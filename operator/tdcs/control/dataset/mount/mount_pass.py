"""One pass over a mount: observe, decide, act. It gives what it found as a value, and waits for no cache."""

import asyncio
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tdcs.api import names
from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.api.conditions import CACHE_STARTING, CACHE_UNAVAILABLE
from tdcs.api.quantities import to_bytes
from tdcs.control.cache_registry import most_files
from tdcs.control.context import Stores
from tdcs.control.dataset import claimants
from tdcs.control.dataset.bandwidth import store_of, worth
from tdcs.control.dataset.mount import mount_readers
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.loss_guard import loss_rule
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import LastPass, MountDecision, MountReport
from tdcs.control.dataset.mount.mount_snapshot import UNHEARD_SECONDS, MountRequest, Snapshot, rests
from tdcs.control.dataset.mount.mounting import MountOutcome, MountUser
from tdcs.control.dataset.mount.path_settings import wanted_settings
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.control.dataset.mount.source_versions import awaited_url, manifest_of, manifest_urls
from tdcs.decide.cache import mount_identity
from tdcs.decide.cache.cache_quotas import counting, payers, quota_bytes
from tdcs.decide.cache.grants import MountDemand
from tdcs.decide.cache.load_order import Load
from tdcs.decide.cache.mount_keys import KeysAnswer
from tdcs.decide.cache.mount_standing import Claimant, standing
from tdcs.decide.cache.wants import Want
from tdcs.decide.place import holdings, placement_input
from tdcs.decide.place.agent_assignments import AssignmentInput, assign
from tdcs.decide.place.holdings import WantProgress
from tdcs.decide.place.placement_input import Hosts, ReadOn
from tdcs.decide.place.slot_nodes import WantPlacement
from tdcs.decide.problem import Problem, of_engine
from tdcs.decide.source_limits import listing_limit
from tdcs.engine.holder_table import table_seconds
from tdcs.listing.result import Listed, access_of
from tdcs.model.agent_state import AgentState, MountState, SourceAccess
from tdcs.model.cache_engine import EngineError, Source
from tdcs.model.cache_view import CacheView, is_starting, starting_text
from tdcs.model.listing_limit import ListingLimit, SourcesSize

FEW_NODES = 8
"""The assignments of so many nodes are worked out in the event loop."""

HeldBefore = Mapping[str, Mapping[str, frozenset[str]]]
"""Where each copy of each want lay: nodes by the want's key and the copy's id."""


async def reconcile(
    *, world: World, mount: Mount, asked: MountRequest, users: Sequence[Reader]
) -> MountReport:
    """One pass; at a mount at rest of which all that is looked at is the same, nothing is done.

    Args:
        world: what to work with.
        mount: the mount; its lock is held.
        asked: the Dataset of this pass, and what it asks for.
        users: all Datasets of the mount, the oldest first.
    """
    snapshot, last = Snapshot.of(world, mount, asked, users), mount.last
    if last is not None and snapshot is not None and snapshot == last.snapshot:
        return last.report
    report = _patient(
        await MountPass(world=world, mount=mount, asked=asked, users=users).run(),
        world=world,
        mount=mount,
        serves=mount_readers.serves(asked.me.dataset),
    )
    mount.last = LastPass(
        report=report,
        snapshot=snapshot if rests(world, mount, report) else None,
        times=mount.mounting.times,
    )
    return report


def _patient(report: MountReport, *, world: World, mount: Mount, serves: bool) -> MountReport:
    """What a pass found, without that the master is silent for no longer than its restart takes: what a Dataset
    `serves` is read meanwhile, so nobody has to act."""
    silent = [
        one for one in (report.problem, report.trouble) if one is not None and one.reason == CACHE_UNAVAILABLE
    ]
    if not silent:
        mount.silent_since = None
        return report
    clock = world.clock()
    seen = world.observer.view(mount.cluster).silent_since
    mount.silent_since = min(one for one in (mount.silent_since, seen, clock) if one is not None)
    if not serves or clock - mount.silent_since >= world.context.settings.outage_seconds:
        return report
    return replace(
        report,
        problem=None if report.problem in silent else report.problem,
        trouble=None if report.trouble in silent else report.trouble,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPass:
    """One pass, see `reconcile`."""

    world: World
    mount: Mount
    asked: MountRequest
    users: Sequence[Reader]

    @property
    def stores(self) -> Stores:
        return self.world.context.stores

    @property
    def spec(self) -> CacheClusterSpec:
        """Of the cache cluster; the default one while it cannot be read."""
        return self.world.spec_of(self.mount.cluster) or CacheClusterSpec()

    async def run(self) -> MountReport:
        world, mount, context = self.world, self.mount, self.world.context
        before, now = mount.report or MountReport(), context.now()
        # Observe: the cache as it was last heard of.
        view = world.observer.view(mount.cluster)
        if view.failure is not None:
            cause = of_engine(view.failure, mounted=before.listed is not None)
            cluster = self.stores.cache_cluster(mount.cluster)
            if is_starting(view, cluster, now=now):
                cause = replace(cause, reason=CACHE_STARTING, message=starting_text(view.failure))
            return replace(before, problem=cause)
        if not view.answered:
            return replace(before, problem=None)
        # Mounted, with the right keys.
        times, keyed_at = mount.mounting.times, mount.mounting.keyed_at
        outcome = self._mounted(view)
        if mount.mounting.keyed_at != keyed_at:
            mount.manifests.retry()
        if mount.mounting.times != times:
            mount.forget()
            before = mount.report or MountReport()
        if not outcome.there:
            return replace(before, there=False, problem=outcome.problem)
        before = replace(before, there=True, problem=None, trouble=outcome.trouble, differs=outcome.differs)
        # Its version.
        known = world.nodes_of(mount.cluster)
        holders = [known.agents[node] for node in known.holders.get(mount.path, ())]
        self._list(view, before, holders)
        versions = mount.manifests.view()
        before = replace(
            before,
            trouble=before.trouble or self._own(versions.trouble),
            checked=versions.checked,
            held_up_by=mount.manifests.held_up_by,
        )
        listed = versions.listed
        if listed is None:
            return replace(before, problem=self._own(versions.problem))
        # What is wanted, and where it goes.
        wants = mount_readers.all_wants(stores=self.stores, users=self.users, now=now)
        urls = manifest_urls(context.caches.manifest_url, mount.path, holders, digest=listed.digest)
        totals = await mount.manifests.totals({want.paths for want in wants}, urls=urls)
        if totals is None:
            return replace(before, listed=listed, decided=False)
        held_before = self._held_before()
        wants = mount_readers.with_ids(wants, stores=self.stores, held=held_before)
        claims = claimants.of_mount(context=context, users=self.users, queue=world.queue_order())
        further = claimants.clones_of(context=context, users=self.users, claims=claims)
        wants = [*wants, *claimants.clone_wants(self.users, wants, further)]
        before = replace(before, read_on=self._read_on(before, claims, wants, held_before))
        found = placement_input.hosts(
            path=mount.path,
            known=known,
            expected=placement_input.nodes_of(held_before) if wants else (),
            now=world.clock(),
            patience=context.settings.return_seconds,
            absence=context.settings.absence_seconds,
        )
        if found.waiting or self._keys_awaited():
            return replace(before, listed=listed, decided=False)
        stands = standing(
            list(claims.values()), size=listed.totals.block_bytes, policies=world.policies, now=now
        )
        quotas = self.spec.quotas
        grant = await world.manager.grant(
            cluster=mount.cluster,
            demand=MountDemand(
                path=mount.path,
                manifest=listed.digest,
                wants=tuple(wants),
                totals=totals,
                candidates=found.candidates,
                tier=stands.tier,
                value=stands.value,
                held_before=held_before,
                payers=payers(wants, quotas=quotas, namespaces=self.stores.namespaces),
                filled={} if wants else found.filled,
                readers={key: one.nodes for key, one in before.read_on.items()},
            ),
            nodes=found.spaces,
            quotas=self._quotas_left(),
        )
        # Act: what each agent shall do, and how the cache treats the path.
        owned = grant.evicted or any(user.dataset.spec.preload.enabled for user in self.users)
        unsure = world.clock() - view.since < UNHEARD_SECONDS
        expected = (
            mount_readers.holding_nodes(users=self.users) | found.draining if unsure else frozenset[str]()
        )
        concerned = frozenset(found.agents)
        if owned:
            concerned = placement_input.concerned(found, grant.placements, expected=expected)
        granted = world.manager.granted(cluster=mount.cluster, path=mount.path, own=grant, nodes=concerned)
        assigner = world.assigner(mount.cluster)
        heard = {**{node: one.state for node, one in view.away.items()}, **found.agents}
        parts = assigner.parts(mount.path, states=heard)
        informed = placement_input.informed(found, grant.placements, parts=parts)
        progress = _progress(found.held, grant.placements, manifest=listed.digest, informed=informed)
        decision = MountDecision(
            mount=mount.path,
            placements=grant.placements,
            draining=found.draining,
            live=frozenset(found.agents),
            granted=granted,
            standing=stands,
            claims=claims,
            clones=further,
            # What cannot be had now takes nothing of the bandwidth.
            source_rate=self._source_rate(
                found,
                grant.placements,
                claims,
                missing=0.0 if before.source_away else _missing(grant.placements, progress),
            ),
        )
        given = AssignmentInput(
            mount=mount.path,
            manifest=listed.digest,
            manifest_urls=urls,
            totals=listed.totals,
            placements=decision.placements,
            agents=placement_input.agent_views(
                found,
                granted,
                parts,
                path=mount.path,
                manifest_url=functools.partial(awaited_url, digest=listed.digest),
                only=concerned,
            ),
            owned=owned,
            # Never with keys that the source has not accepted: those of another Dataset may be revoked ones.
            source=None if self.asked.paused else _access(mount.mounting.source),
            source_rate=decision.source_rate,
            readers=self._fillers() if not owned else frozenset(),
            expected=expected,
            handover_seconds=context.settings.handover_seconds * table_seconds(len(found.agents)),
        )
        # A few nodes take a millisecond or two, less than the way to a thread and back.
        few = len(given.agents) <= FEW_NODES
        assigned = assign(given) if few else await asyncio.to_thread(assign, given)
        assigner.put(path=mount.path, assignments=assigned)
        settled = mount.settings.apply(
            wanted_settings(mount.path, wants, decision.placements, owned=owned, version=listed.digest),
            version=view.versions.get(mount.path, ""),
            outages=view.outages,
        )
        current = assigner.current(mount.path, states=found.agents)
        report = _reported(
            before,
            decision,
            found,
            listed=listed,
            progress=progress,
            current=current,
            informed=informed,
            settled=settled,
        )
        return replace(report, look_at=self._next_look(report))

    def _mounted(self, view: CacheView) -> MountOutcome:
        asked, path = self.asked, self.mount.path
        outcome = self.mount.mounting.advance(
            user=MountUser(
                key=asked.me.key,
                uid=asked.me.uid,
                source=asked.source,
                serves=asked.claimed and mount_readers.serves(asked.me.dataset),
                claimed=asked.claimed,
                outranked=not mount_readers.has_keys(asked.me)
                and any(mount_readers.has_keys(user) for user in self.users if user.key != asked.me.key),
                limit=self._limit,
                answer=asked.answer,
                refused=asked.refused,
            ),
            users=frozenset(user.key for user in self.users),
            mounts=view.mounts,
        )
        cause = outcome.problem
        if cause is None or cause.reason != "MountConflict" or asked.source is None:
            return outcome
        conflict = mount_readers.conflict(
            stores=self.stores,
            cluster=self.mount.cluster,
            path=path,
            source=asked.source,
            mounts=view.mounts,
            me=asked.me.key,
        )
        return replace(outcome, problem=replace(cause, message=conflict or cause.message))

    def _keys_awaited(self) -> bool:
        """Whether it is asked yet whether the source takes the keys that agents are to read with: after a restart they
        go on with those that they have."""
        asked = self.asked
        return (
            self.mount.mounting.source is None
            and asked.source is not None
            and asked.answer is KeysAnswer.AWAITED
        )

    def _own(self, cause: Problem | None) -> Problem | None:
        """What a listing has met, as far as it is the user's matter: that the source refuses the keys of another one is
        not, when it takes the user's, which are tried next."""
        asked = self.asked
        if cause is None or not cause.keys_refused or asked.source is None:
            return cause
        others = mount_identity.mark(asked.source) != self.mount.mounting.mark
        return None if others and asked.answer is KeysAnswer.TAKEN else cause

    def _list(self, view: CacheView, before: MountReport, holders: Sequence[AgentState]) -> None:
        world, mount, asked = self.world, self.mount, self.asked
        digest = view.versions.get(mount.path, "")
        heard = any(digest == manifest_of(state, mount.path) for state in holders)
        patience = world.context.settings.return_seconds
        mount.manifests.advance(
            due=asked.check_due and before.trouble is None,
            changed=before.failures.outdated,
            digest=digest,
            urls=manifest_urls(world.context.caches.manifest_url, mount.path, holders, digest=digest),
            unheard=not heard and world.clock() - view.since < patience,
            asked={user.key: user.refresh for user in self.users},
            namespaces=frozenset(user.key.namespace for user in self.users),
            limit=self._limit,
            rule=loss_rule(users=self.users, confirm_seconds=world.context.settings.loss_confirm_seconds),
        )

    def _limit(self) -> ListingLimit:
        """How large the source may be, beside the other sources of its cache and of its namespaces."""
        spec, mount = self.spec, self.mount
        namespaces: list[SourcesSize] = []
        if spec.limits.files_per_namespace is not None or spec.limits.bytes_per_namespace is not None:
            paths = mount_readers.paths_by_namespace(stores=self.stores, cluster=mount.cluster)
            own = sorted({user.key.namespace for user in self.users})
            namespaces = [self.world.others_of(mount, paths=paths.get(one, ())) for one in own]
        others = self.world.others_of(mount).files
        return listing_limit(
            spec,
            heap_files=most_files(spec),
            cluster=mount.cluster,
            others=others,
            namespaces=namespaces,
        )

    def _held_before(self) -> HeldBefore:
        """By the last decision, else by the statuses."""
        found = mount_readers.held_before(stores=self.stores, users=self.users)
        for one in self.mount.decision.placements if self.mount.decision is not None else ():
            if one.copies:
                found[one.want.key] = one.holders
        return found

    def _read_on(
        self,
        before: MountReport,
        claims: Mapping[str, Claimant],
        wants: Sequence[Want],
        held_before: HeldBefore,
    ) -> dict[str, ReadOn]:
        """Where the copies of each Dataset go that follow its jobs, and for a while after them: those of others, which
        may be another tenant's, stay. At the first look they stay where they were put: new nodes get theirs before
        others lose it."""
        now, scaling = self.world.clock(), self.spec.scaling
        found = {}
        for user in self.users:
            key = user.own_want
            known = before.read_on.get(key)
            grown = mount_readers.nodes_grown_to(stores=self.stores, user=user)
            follows = scaling.follow_jobs or claimants.has_elastic_job(self.stores, claims[key])
            if not follows and not grown and (known is None or not known.last):
                continue
            if known is None:
                own = {
                    want.key: held_before[want.key]
                    for want in wants
                    if want.dataset == key and want.key in held_before
                }
                known = ReadOn.at_first(placement_input.nodes_of(own), now=now)
            read = mount_readers.nodes_read_on(stores=self.stores, users=[user]) if follows else frozenset()
            after = known.then(read | grown, now=now, delay=scaling.delay_seconds)
            if follows or after.last:
                found[key] = after
        return found

    def _fillers(self) -> frozenset[str]:
        """The nodes on which pods read a mount that their reads fill."""
        return frozenset(mount_readers.nodes_read_on(stores=self.stores, users=self.users))

    def _next_look(self, report: MountReport) -> float | None:
        """When time alone changes what a pass decides: an awaited agent is lost, or a node was not read on for long
        enough."""
        delay, left = self.spec.scaling.delay_seconds, list[float]()
        for user in self.users if report.read_on else ():
            read_on = report.read_on.get(user.own_want)
            nodes = mount_readers.nodes_read_on(stores=self.stores, users=[user])
            nodes |= mount_readers.nodes_grown_to(stores=self.stores, user=user)
            left += [
                when + delay
                for node, when in (read_on.last if read_on is not None else {}).items()
                if node not in nodes
            ]
        return min([*left, *([report.look_at] if report.look_at is not None else ())], default=None)

    def _quotas_left(self) -> dict[str, int]:
        """What each quota allows, less what Datasets were granted of which this process has not seen what they ask for:
        after a restart the first one to be looked at would else take all of it."""
        mount, stores, quotas = self.mount, self.stores, self.spec.quotas
        left = quota_bytes(quotas)
        known = {mount.path, *self.world.manager.paths(mount.cluster)} if left else set[str]()
        for (namespace, _), obj in stores.datasets.items() if left else ():
            status = obj.get("status") or {}
            granted = int((status.get("grant") or {}).get("bytes") or 0)
            if (
                not granted
                or status.get("mountPath") in known
                or names.cache_cluster_of(obj) != mount.cluster
            ):
                continue
            for quota in counting(namespace, quotas=quotas, namespaces=stores.namespaces):
                left[quota] -= granted
        return left

    def _source_rate(
        self,
        found: Hosts,
        placements: Sequence[WantPlacement],
        claims: Mapping[str, Claimant],
        *,
        missing: float,
    ) -> int | None:
        """The mount's share of the bandwidth of its store."""
        declared: dict[str, int | None] = {user.key.namespace: None for user in self.users}
        for user in self.users:
            if (text := user.dataset.spec.source.bandwidth) is not None:
                known = declared[user.key.namespace]
                declared[user.key.namespace] = (
                    min(to_bytes(text), known) if known is not None else to_bytes(text)
                )
        loading = [one for one in placements if one.want.load]
        waiting = sum(len(one.use.jobs.waiting) for one in claims.values())
        reading = sum(len(one.use.jobs.active) for one in claims.values())
        own = [one.want.bandwidth for one in loading if one.wanted_bytes]
        limits = [limit for limit in own if limit is not None]
        return self.world.bandwidth.share(
            place=self.mount.place,
            store=store_of(self.users[0].dataset.spec.source),
            declared=declared,
            load=Load(
                name="/".join(self.mount.place),
                missing_bytes=missing,
                worth=worth(waiting=waiting, reading=reading, missing=missing),
                waiting_jobs=waiting,
                # What its own limit keeps it from reading is for the others.
                limit=float(sum(limits)) if own and len(limits) == len(own) else math.inf,
            ),
            rate=float(sum(state.source_rate for state in found.states.values())),
        )


def _progress(
    states: Mapping[str, MountState],
    placements: Sequence[WantPlacement],
    *,
    manifest: str,
    informed: frozenset[str],
) -> dict[str, WantProgress]:
    return {
        one.want.key: holdings.progress(placement=one, manifest=manifest, states=states, informed=informed)
        for one in placements
    }


def _missing(placements: Sequence[WantPlacement], progress: Mapping[str, WantProgress]) -> float:
    """Bytes that loads have still to bring; what several of them want on one node counts for each until it is there."""
    return float(sum(progress[one.want.key].missing_bytes for one in placements if one.want.load))


def _access(source: Source | None) -> SourceAccess | None:
    return None if source is None else access_of(source)


def _reported(
    before: MountReport,
    decision: MountDecision,
    found: Hosts,
    *,
    listed: Listed,
    progress: Mapping[str, WantProgress],
    current: frozenset[str],
    informed: frozenset[str],
    settled: EngineError | bool,
) -> MountReport:
    placements = {one.want.key: one for one in decision.placements}
    failures = holdings.failures({**{node: found.held[node] for node in informed}, **found.states})
    absent = found.held.keys() - found.readable.keys()
    readable = progress
    if absent:
        readable = _progress(found.readable, decision.placements, manifest=listed.digest, informed=informed)
    return replace(
        before,
        problem=of_engine(settled, mounted=True) if isinstance(settled, EngineError) else None,
        listed=listed,
        decided=True,
        decision=decision,
        settled=settled is True,
        holdings=holdings.holdings(totals=listed.totals, manifest=listed.digest, states=found.readable),
        placements=placements,
        progress=progress,
        readable=readable,
        failures=failures,
        away=holdings.away_text(found.states),
        source_away=holdings.source_is_away(found.states.values()),
        states=found.states,
        current=current,
        busy=any(state.busy for state in found.states.values()),
        absent=frozenset(absent),
        look_at=found.next_at,
    )
