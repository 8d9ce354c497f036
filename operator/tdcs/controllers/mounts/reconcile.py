"""One pass over a mount: observe, decide, act. It gives what it found as a value, and waits for no cache."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tdcs.controllers.cache_observer import CacheObserver
from tdcs.controllers.cache_view import CacheView
from tdcs.controllers.caches import Caches
from tdcs.controllers.context import Context
from tdcs.controllers.mounts import placement, problem, readers
from tdcs.controllers.mounts.mount import Mount, Mounts
from tdcs.controllers.mounts.mounting import MountUser
from tdcs.controllers.mounts.path_settings import Wanted
from tdcs.controllers.mounts.placement import Hosts
from tdcs.controllers.mounts.readers import Reader
from tdcs.controllers.mounts.report import Decision, MountReport
from tdcs.controllers.nodes import node_views
from tdcs.engine.agents import AgentState, FileFailure, Part, SourceAccess
from tdcs.engine.protocol import EngineError, Source
from tdcs.listing.result import Listed
from tdcs.listing.transfer import MANIFEST_PATH
from tdcs.planning import holdings
from tdcs.planning.assignments import AgentView, AssignmentInput, assign
from tdcs.planning.manifest import Totals
from tdcs.planning.placement import PlacementInput, WantPlacement, place
from tdcs.planning.wants import Want
from tdcs.policy.placement import CacheNode

MANIFEST_HOLDERS = 3
"""So many agents are named to others as places where a manifest can be had."""


UNHEARD_SECONDS = 30.0
"""So long after its start the operator lets nothing be read that an agent may have and has not reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What passes over mounts work with."""

    context: Context
    caches: Caches
    observer: CacheObserver
    mounts: Mounts
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What of a Dataset's pass concerns its mount.

    Attributes:
        me: the Dataset.
        source: its source with its keys; None when these cannot be read.
        check_due: whether the source is to be listed for changes.
        answers: the value with which each user of the mount asks for that.
    """

    me: Reader
    source: Source | None
    check_due: bool
    answers: Mapping[object, str | None]


async def reconcile(*, world: World, mount: Mount, asked: Asked, users: Sequence[Reader]) -> MountReport:
    """One pass.

    Args:
        world: what to work with.
        mount: the mount; its lock is held.
        asked: whose pass it is, and what it asks for.
        users: all Datasets of the mount.
    """
    report = await _pass(world, mount, asked, users)
    mount.report = report
    return report


async def _pass(world: World, mount: Mount, asked: Asked, users: Sequence[Reader]) -> MountReport:
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
        before = MountReport()
    if not outcome.there:
        return replace(before, there=False, problem=outcome.problem)
    before = replace(before, there=True, problem=None, trouble=outcome.trouble, differs=outcome.differs)
    # Its version.
    published = view.versions.get(mount.path, "")
    heard = any(published == _manifest_of(state, mount.path) for state in view.agents.values())
    mount.manifests.advance(
        due=asked.check_due and outcome.trouble is None,
        changed=any(one.code in {"Changed", "Missing"} for one in before.failures.files),
        digest=published,
        urls=_manifest_urls(world, mount, view, digest=published),
        unheard=not heard and world.clock() - view.since < context.settings.return_seconds,
        asked=dict(asked.answers),
    )
    versions = mount.manifests.view()
    before = replace(
        before, trouble=before.trouble or versions.trouble, checked=versions.checked, took=versions.took
    )
    if versions.listed is None:
        return replace(before, problem=versions.problem)
    # What is wanted, and where it goes.
    wants = readers.all_wants(stores=context.stores, users=users, now=context.now())
    urls = _manifest_urls(world, mount, view, digest=versions.listed.digest)
    totals = await mount.manifests.totals({want.paths for want in wants}, urls=urls)
    if totals is None:
        return replace(before, listed=versions.listed, decided=False)
    held_before = _held_before(world, mount, users)
    found = placement.hosts(
        path=mount.path,
        digest=versions.listed.digest,
        view=view,
        nodes=node_views(nodes=context.stores.nodes, usage=context.stores.usage),
        draining=placement.draining_nodes(context.stores.cache_cluster(mount.cluster)),
        members=placement.member_nodes(context.stores.cache_cluster(mount.cluster)),
        expected=placement.nodes_of(held_before) if wants else (),
        planned=world.mounts.planned(mount.cluster),
        now=world.clock(),
        patience=context.settings.return_seconds,
    )
    if found.waiting:
        return replace(before, listed=versions.listed, decided=False)
    decision = await _decide(mount, versions.listed, wants, totals, found, held_before)
    # Act: what each agent shall do, and how the cache treats the path.
    owned = any(user.dataset.spec.preload.enabled for user in users)
    given = AssignmentInput(
        mount=mount.path,
        manifest=versions.listed.digest,
        manifest_urls=urls,
        totals=versions.listed.totals,
        placements=decision.placements,
        agents=_agents(found, world.mounts.assigner(mount.cluster).parts(mount.path, states=found.agents)),
        owned=owned,
        # Never with keys that the source has not accepted: those of another Dataset may be revoked ones.
        source=_access(mount.mounting.source),
        expected=readers.holding_nodes(users=users) | found.draining
        if world.clock() - view.since < UNHEARD_SECONDS
        else frozenset(),
    )
    assigner = world.mounts.assigner(mount.cluster)
    assigner.put(path=mount.path, assignments=await asyncio.to_thread(assign, given))
    settled = mount.settings.apply(
        _settings(mount, wants, decision, owned=owned, digest=versions.listed.digest),
        version=view.versions.get(mount.path, ""),
        outages=view.outages,
    )
    return _reported(
        before,
        decision,
        found,
        listed=versions.listed,
        current=assigner.current(mount.path, states=found.agents),
        settled=settled,
    )


async def _decide(
    mount: Mount,
    listed: Listed,
    wants: Sequence[Want],
    totals: Mapping[tuple[str, ...], Totals],
    found: Hosts,
    held_before: Mapping[str, tuple[frozenset[str], ...]],
) -> Decision:
    """The placement for what is seen: the last one when it was made for the same."""
    given = PlacementInput(
        mount=mount.path,
        manifest=listed.digest,
        wants=tuple(wants),
        totals=totals,
        candidates=found.candidates,
        held_before=held_before,
    )
    last = mount.decision
    if last is not None and _counts(last.given) == _counts(given) and last.draining == found.draining:
        placements = _with_wants(last.placements, wants)
    else:
        placements = await asyncio.to_thread(place, given)
    node_bytes: dict[str, int] = {}
    for one in placements:
        for node in one.nodes:
            node_bytes[node] = max(node_bytes.get(node, 0), one.bytes_for(node))
    return Decision(
        given=given,
        placements=placements,
        node_bytes=node_bytes,
        draining=found.draining,
        live=frozenset(found.agents),
    )


def _counts(given: PlacementInput) -> object:
    """What of an input calls for another placement: not what a copy has by now of what it was given, and neither a
    limit of bandwidth nor a start."""
    wants = tuple(replace(want, bandwidth=None, load=True, verify="None", check="") for want in given.wants)
    candidates = tuple(
        replace(one, node=replace(one.node, held_bytes=0, free_gpus=0), labels={}) for one in given.candidates
    )
    matching = [[placement_matches(one.labels, want) for one in given.candidates] for want in given.wants]
    return given.manifest, wants, candidates, matching


def placement_matches(labels: Mapping[str, str], want: Want) -> bool:
    """Whether a node's labels are as a want selects them."""
    return all(labels.get(key) == value for key, value in want.node_selector.items())


def _with_wants(placements: Sequence[WantPlacement], wants: Sequence[Want]) -> tuple[WantPlacement, ...]:
    return tuple(
        one if one.want == want else replace(one, want=want)
        for one, want in zip(placements, wants, strict=True)
    )


def _held_before(
    world: World, mount: Mount, users: Sequence[Reader]
) -> dict[str, tuple[frozenset[str], ...]]:
    """Where each copy of each want lay: by the last decision, else by the statuses."""
    found = readers.held_before(stores=world.context.stores, users=users)
    for one in mount.decision.placements if mount.decision is not None else ():
        if one.copies:
            found[one.want.key] = tuple(frozenset(copy.nodes) for copy in one.copies)
    return found


def _user(world: World, mount: Mount, asked: Asked, users: Sequence[Reader], view: CacheView) -> MountUser:
    conflict = None
    if asked.source is not None:
        conflict = readers.conflict(
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
        serves=readers.serves(asked.me.dataset),
        outranked=not readers.has_keys(asked.me)
        and any(readers.has_keys(user) for user in users if user.key != asked.me.key),
        conflict=conflict,
    )


def _manifest_urls(world: World, mount: Mount, view: CacheView, *, digest: str) -> tuple[str, ...]:
    """Where a manifest can be had: from the operator, and from agents that work by it."""
    own = [f"{world.caches.manifest_url}{MANIFEST_PATH}{digest}"] if world.caches.manifest_url else []
    holders = [
        state.url
        for _, state in sorted(view.agents.items())
        if state.url and _manifest_of(state, mount.path) == digest
    ]
    return (*own, *(f"{url}{MANIFEST_PATH}{digest}" for url in holders[:MANIFEST_HOLDERS]))


def _manifest_of(state: AgentState, path: str) -> str:
    """The digest by which an agent works on a mount; empty when it does not know it."""
    return state.mounts[path].manifest if path in state.mounts else ""


def _agents(found: Hosts, parts: Mapping[str, tuple[Part, ...]]) -> tuple[AgentView, ...]:
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
    )


def _access(source: Source | None) -> SourceAccess | None:
    if source is None:
        return None
    keys = source.credentials
    return SourceAccess(
        uri=source.uri,
        options=dict(source.options),
        access_key_id=keys.access_key_id if keys is not None else "",
        secret_access_key=keys.secret_access_key if keys is not None else "",
    )


def _settings(mount: Mount, wants: Sequence[Want], decision: Decision, *, owned: bool, digest: str) -> Wanted:
    """How the path is read, and what of it is protected: the root when the operator owns the placement, or somebody
    wants all of it; else the folders that are wanted as a whole. Blocks of a fraction are protected by the agents."""
    if owned or any(want.subset.whole for want in wants):
        pinned = {mount.path}
    else:
        unknown = {path for one in decision.placements for path in one.totals.unknown_paths}
        pinned = {
            f"{mount.path}/{path}"
            for want in wants
            if want.subset.fraction in {None, 1.0} and want.subset.amount is None
            for path in want.paths
            if path not in unknown
        }
    fills = not (owned or any(want.subset.whole for want in wants))
    return Wanted(fills=fills, pinned=frozenset(pinned), version=digest)


def _reported(
    before: MountReport,
    decision: Decision,
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
