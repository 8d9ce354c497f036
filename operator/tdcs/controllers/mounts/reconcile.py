"""One pass over a mount: observe, decide, act. It gives what it found as a value, and waits for no cache."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tdcs.api import names
from tdcs.api.cachecluster import Scaling
from tdcs.api.quantities import to_bytes
from tdcs.api.sharing import CacheQuota
from tdcs.controllers.cache_view import CacheView
from tdcs.controllers.cachemanager import claimants
from tdcs.controllers.cachemanager.bandwidth import store_of, worth
from tdcs.controllers.cachemanager.quotas import counting, payers, quota_bytes
from tdcs.controllers.mounts import placement, problem, readers
from tdcs.controllers.mounts.access.limits import listing_limit
from tdcs.controllers.mounts.manifests import manifest_of, manifest_urls
from tdcs.controllers.mounts.mount import Mount
from tdcs.controllers.mounts.mounting import MountUser
from tdcs.controllers.mounts.path_settings import wanted_settings
from tdcs.controllers.mounts.placement import Hosts
from tdcs.controllers.mounts.readers import Reader
from tdcs.controllers.mounts.report import LastPass, MountDecision, MountReport
from tdcs.controllers.mounts.snapshot import UNHEARD_SECONDS, MountRequest, Snapshot, World, rests
from tdcs.engine.agents import FileFailure, SourceAccess
from tdcs.engine.protocol import EngineError, Source
from tdcs.listing.limit import ListingLimit
from tdcs.listing.result import Listed
from tdcs.planning import holdings
from tdcs.planning.assignments import AssignmentInput, assign
from tdcs.planning.grants import MountDemand
from tdcs.planning.placement import WantPlacement
from tdcs.planning.standing import Claimant, standing
from tdcs.policy.preload import Load


async def reconcile(
    *, world: World, mount: Mount, asked: MountRequest, users: Sequence[Reader]
) -> MountReport:
    """One pass.

    Args:
        world: what to work with.
        mount: the mount; its lock is held.
        asked: the Dataset of this pass, and what it asks for.
        users: all Datasets of the mount.
    """
    snapshot, last = Snapshot.of(world, mount, asked, users), mount.last
    if last is not None and snapshot is not None and snapshot == last.snapshot:
        return last.report
    report = await _pass(world, mount, asked, users)
    mount.last = LastPass(
        report=report,
        snapshot=snapshot if rests(world, mount, report) else None,
        times=mount.mounting.times,
    )
    return report


async def _pass(world: World, mount: Mount, asked: MountRequest, users: Sequence[Reader]) -> MountReport:
    context, before = world.context, mount.report or MountReport()
    # Observe: the cache as it was last heard of.
    view = world.observer.view(mount.cluster)
    if view.failure is not None:
        return replace(before, problem=problem.of_engine(view.failure, mounted=before.listed is not None))
    if not view.answered:
        return replace(before, problem=None)
    # Mounted, with the right keys.
    times = mount.mounting.times
    outcome = mount.mounting.advance(user=_user(world, mount, asked, users, view), mounts=view.mounts)
    if mount.mounting.times != times:
        mount.forget()
        before = mount.report or MountReport()
    if not outcome.there:
        return replace(before, there=False, problem=outcome.problem)
    before = replace(before, there=True, problem=None, trouble=outcome.trouble, differs=outcome.differs)
    # Its version.
    known = world.nodes_of(mount.cluster)
    holders = [known.agents[node] for node in known.holders.get(mount.path, ())]
    published = view.versions.get(mount.path, "")
    heard = any(published == manifest_of(state, mount.path) for state in holders)
    mount.manifests.advance(
        due=asked.check_due and outcome.trouble is None,
        changed=any(one.code in {"Changed", "Missing"} for one in before.failures.files),
        digest=published,
        urls=manifest_urls(world.caches.manifest_url, mount.path, holders, digest=published),
        unheard=not heard and world.clock() - view.since < context.settings.return_seconds,
        asked=dict(asked.answers),
        limit=_limit(world, mount),
    )
    versions = mount.manifests.view()
    before = replace(before, trouble=before.trouble or versions.trouble, checked=versions.checked)
    if versions.listed is None:
        return replace(before, problem=versions.problem)
    # What is wanted, and where it goes.
    wants = readers.all_wants(stores=context.stores, users=users, now=context.now())
    urls = manifest_urls(world.caches.manifest_url, mount.path, holders, digest=versions.listed.digest)
    totals = await mount.manifests.totals({want.paths for want in wants}, urls=urls)
    if totals is None:
        return replace(before, listed=versions.listed, decided=False)
    held_before = _held_before(world, mount, users)
    wants = readers.with_ids(wants, stores=context.stores, held=held_before)
    claims = claimants.of_mount(context=context, users=users, queue=world.queue_order())
    further = claimants.clones_of(context=context, users=users, claims=claims)
    wants = [*wants, *claimants.clone_wants(users, wants, further)]
    limits = world.spec_of(mount.cluster)
    follows = limits.scaling.follow_jobs or claimants.has_elastic_job(context.stores, claims)
    before = replace(
        before, read_on=_read_on(world, before, users, limits.scaling, held_before, follows=follows)
    )
    found = placement.hosts(
        path=mount.path,
        known=known,
        expected=placement.nodes_of(held_before) if wants else (),
        now=world.clock(),
        patience=context.settings.return_seconds,
        readers=before.read_on or (),
    )
    if found.waiting:
        return replace(before, listed=versions.listed, decided=False)
    standing_ = standing(
        list(claims.values()),
        size=versions.listed.totals.block_bytes,
        policies=world.policies,
        now=context.now(),
    )
    quotas = limits.quotas
    grant = await world.mounts.manager.grant(
        cluster=mount.cluster,
        demand=MountDemand(
            path=mount.path,
            manifest=versions.listed.digest,
            wants=tuple(wants),
            totals=totals,
            candidates=found.candidates,
            tier=standing_.tier,
            value=standing_.value,
            held_before=held_before,
            payers=payers(wants, quotas=quotas, namespaces=context.stores.namespaces),
            filled={}
            if wants
            else {node: one.held_bytes for node, one in found.held.items() if one.held_bytes},
        ),
        nodes=found.spaces,
        quotas=_quotas_left(world, mount, quotas),
    )
    # Act: what each agent shall do, and how the cache treats the path.
    owned = grant.evicted or any(user.dataset.spec.preload.enabled for user in users)
    unsure = world.clock() - view.since < UNHEARD_SECONDS
    before_start = readers.holding_nodes(users=users) | found.draining if unsure else frozenset[str]()
    concerned = frozenset(found.agents)
    if owned:
        concerned = placement.concerned(found, grant.placements, expected=before_start)
    granted = world.mounts.manager.granted(cluster=mount.cluster, path=mount.path, own=grant, nodes=concerned)
    decision = MountDecision(
        mount=mount.path,
        placements=grant.placements,
        node_bytes=grant.node_bytes,
        draining=found.draining,
        live=frozenset(found.agents),
        granted=granted,
        standing=standing_,
        claims=claims,
        clones=further,
        source_rate=_source_rate(
            world, mount, users, found, granted.grant.placements, claims, away=before.away
        ),
    )
    given = AssignmentInput(
        mount=mount.path,
        manifest=versions.listed.digest,
        manifest_urls=urls,
        totals=versions.listed.totals,
        placements=decision.placements,
        agents=placement.agent_views(
            found,
            granted,
            world.mounts.assigner(mount.cluster).parts(mount.path, states=found.agents),
            path=mount.path,
            only=concerned,
        ),
        owned=owned,
        # Never with keys that the source has not accepted: those of another Dataset may be revoked ones.
        source=None if asked.paused else _access(mount.mounting.source),
        source_rate=decision.source_rate,
        expected=before_start,
    )
    assigner = world.mounts.assigner(mount.cluster)
    assigner.put(path=mount.path, assignments=await asyncio.to_thread(assign, given))
    settled = mount.settings.apply(
        wanted_settings(mount.path, wants, decision.placements, owned=owned, version=versions.listed.digest),
        version=view.versions.get(mount.path, ""),
        outages=view.outages,
    )
    report = _reported(
        before,
        decision,
        found,
        listed=versions.listed,
        current=assigner.current(mount.path, states=found.agents),
        settled=settled,
    )
    return replace(report, look_at=_next_look(world, report, users, limits.scaling))


def _read_on(
    world: World,
    before: MountReport,
    users: Sequence[Reader],
    limits: Scaling,
    held_before: Mapping[str, Mapping[str, frozenset[str]]],
    *,
    follows: bool,
) -> Mapping[str, float] | None:
    """Where the data of a mount goes that follows its jobs, and for a while after them. At the first look it stays
    where it was put: new nodes get theirs before others lose it."""
    now, known = world.clock(), before.read_on
    if not follows and not known:
        return None
    if known is None:
        known = dict.fromkeys(sorted(placement.nodes_of(held_before)), now)
    nodes = readers.nodes_read_on(stores=world.context.stores, users=users) if follows else ()
    return readers.lately_read_on(known, nodes=nodes, now=now, delay=limits.delay_seconds) or (
        {} if follows else None
    )


def _source_rate(
    world: World,
    mount: Mount,
    users: Sequence[Reader],
    found: Hosts,
    placements: Sequence[WantPlacement],
    claims: Mapping[str, Claimant],
    *,
    away: str,
) -> int | None:
    """The mount's share of the bandwidth of its store."""
    limits = [
        to_bytes(user.dataset.spec.source.bandwidth)
        for user in users
        if user.dataset.spec.source.bandwidth is not None
    ]
    held = sum(state.held_bytes for state in found.held.values())
    failed = sum(part.failed_bytes for state in found.states.values() for part in state.parts)
    wanted = sum(one.wanted_bytes for one in placements if one.want.load)
    # What cannot be had now takes nothing of the bandwidth.
    missing = 0.0 if away else float(max(wanted - held - failed, 0))
    waiting = sum(len(one.use.jobs.waiting) for one in claims.values())
    reading = sum(len(one.use.jobs.active) for one in claims.values())
    own = [one.want.bandwidth for one in placements if one.want.load and one.wanted_bytes]
    bounded = [limit for limit in own if limit is not None]
    return world.mounts.bandwidth.share(
        place=mount.place,
        store=store_of(users[0].dataset.spec.source),
        declared=min(limits, default=None),
        load=Load(
            name="/".join(mount.place),
            missing_bytes=missing,
            worth=worth(waiting=waiting, reading=reading, missing=missing),
            waiting_jobs=waiting,
            # What its own limit keeps it from reading is for the others.
            limit=float(sum(bounded)) if own and len(bounded) == len(own) else math.inf,
        ),
        rate=float(sum(state.source_rate for state in found.states.values())),
    )


def _next_look(world: World, report: MountReport, users: Sequence[Reader], limits: Scaling) -> float | None:
    """When time alone changes what a pass decides: an awaited agent is lost, or a node was not read on for long
    enough."""
    now = readers.nodes_read_on(stores=world.context.stores, users=users)
    left = [when + limits.delay_seconds for node, when in (report.read_on or {}).items() if node not in now]
    return min([*left, *([report.look_at] if report.look_at is not None else ())], default=None)


def _held_before(world: World, mount: Mount, users: Sequence[Reader]) -> dict[str, dict[str, frozenset[str]]]:
    """Where each copy of each want lay: by the last decision, else by the statuses."""
    found = readers.held_before(stores=world.context.stores, users=users)
    for one in mount.decision.placements if mount.decision is not None else ():
        if one.copies:
            found[one.want.key] = one.holders
    return found


def _quotas_left(world: World, mount: Mount, quotas: Sequence[CacheQuota]) -> dict[str, int]:
    """What each quota allows, less what Datasets were granted of which this process has not seen what they ask for:
    after a restart the first one to be looked at would else take all of it."""
    left, stores = quota_bytes(quotas), world.context.stores
    known = {mount.path, *world.mounts.manager.paths(mount.cluster)} if left else set[str]()
    for (namespace, _), obj in stores.datasets.items() if left else ():
        status = obj.get("status") or {}
        granted = int((status.get("grant") or {}).get("bytes") or 0)
        if not granted or status.get("mountPath") in known or names.cache_cluster_of(obj) != mount.cluster:
            continue
        for quota in counting(namespace, quotas=quotas, namespaces=stores.namespaces):
            left[quota] -= granted
    return left


def _user(
    world: World, mount: Mount, asked: MountRequest, users: Sequence[Reader], view: CacheView
) -> MountUser:
    def conflict() -> str | None:
        if asked.source is None:
            return None
        return readers.conflict(
            stores=world.context.stores,
            cluster=mount.cluster,
            path=mount.path,
            source=asked.source,
            mounts=view.mounts,
            me=asked.me.key,
        )

    return MountUser(
        key=asked.me.key,
        source=asked.source,
        serves=asked.claimed and readers.serves(asked.me.dataset),
        claimed=asked.claimed,
        outranked=not readers.has_keys(asked.me)
        and any(readers.has_keys(user) for user in users if user.key != asked.me.key),
        conflict=conflict,
        limit=_limit(world, mount),
    )


def _limit(world: World, mount: Mount) -> ListingLimit:
    """How large the source of a mount may be."""
    spec = world.spec_of(mount.cluster)
    return listing_limit(spec, cluster=mount.cluster, others=world.mounts.files_of_others(mount))


def _access(source: Source | None) -> SourceAccess | None:
    if source is None:
        return None
    keys = source.credentials
    return SourceAccess(
        uri=source.uri,
        options=source.reached_options,
        access_key_id=keys.access_key_id if keys is not None else "",
        secret_access_key=keys.secret_access_key if keys is not None else "",
    )


def _reported(
    before: MountReport,
    decision: MountDecision,
    found: Hosts,
    *,
    listed: Listed,
    current: frozenset[str],
    settled: EngineError | bool,
) -> MountReport:
    progress = {
        one.want.key: holdings.progress(
            placement=one, manifest=listed.digest, states=found.held, current=current
        )
        for one in decision.placements
    }
    failures = holdings.failures(found.states)
    return replace(
        before,
        problem=problem.of_engine(settled, mounted=True) if isinstance(settled, EngineError) else None,
        listed=listed,
        decided=True,
        decision=decision,
        settled=settled is True,
        holdings=holdings.holdings(totals=listed.totals, manifest=listed.digest, states=found.held),
        placements={one.want.key: one for one in decision.placements},
        progress=progress,
        failures=failures,
        away=_away(failures.files),
        states=found.states,
        current=current,
        busy=any(state.busy for state in found.states.values()),
        look_at=found.gone_at,
    )


def _away(failures: Sequence[FileFailure]) -> str:
    return next((one.reason for one in failures if one.code == "SourceAway"), "")
