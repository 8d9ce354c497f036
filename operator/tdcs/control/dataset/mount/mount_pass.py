"""One pass over a mount: observe, decide, act. It gives what it found as a value, and waits for no cache."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tdcs.api.conditions import CACHE_STARTING, CACHE_UNAVAILABLE
from tdcs.api.source_uri import is_claim
from tdcs.control.dataset.mount import mount_limits, mount_readers, read_nodes
from tdcs.control.dataset.mount.all_mounts import World
from tdcs.control.dataset.mount.early_load import load_early
from tdcs.control.dataset.mount.loss_guard import loss_rule
from tdcs.control.dataset.mount.mount_placer import MountPlacer, MountScope
from tdcs.control.dataset.mount.mount_readers import Reader
from tdcs.control.dataset.mount.mount_report import LastPass, MountReport, report_of
from tdcs.control.dataset.mount.mount_snapshot import MountRequest, Snapshot, rests
from tdcs.control.dataset.mount.mounting import MountOutcome, MountUser
from tdcs.control.dataset.mount.shared_mount import Mount
from tdcs.control.dataset.mount.source_versions import manifest_of, manifest_urls
from tdcs.decide.cache import mount_identity
from tdcs.decide.cache.mount_keys import KeysAnswer
from tdcs.decide.problem import Problem, of_engine
from tdcs.listing.result import Listed
from tdcs.model.agent_state import AgentState
from tdcs.model.cache_view import CacheView, is_starting, starting_text


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
class MountPass(MountScope):
    """One pass, see `reconcile`."""

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
        placer = MountPlacer(world=self.world, mount=self.mount, request=self.request, users=self.users)
        if listed is None:
            return await load_early(
                placer, view=view, before=before, cache_nodes=cache_nodes, holders=holders
            )
        needs = await placer.needs(before, listed, placer.wants(), cache_nodes, holders)
        if needs is None:
            return replace(before, listed=listed, decided=False)
        before = replace(before, read_on=needs.read_on)
        if needs.hosts.waiting or placer.keys_awaited():
            return replace(before, listed=listed, decided=False)
        grant, stands = await placer.granted(listed, needs)
        work = placer.work(view, before, listed, needs, grant, stands)
        assigner = self.world.assigner(self.mount.cluster)
        assigner.put(path=self.mount.path, assignments=await placer.assignments(listed, needs, work))
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

    def _claim_trouble(self) -> Problem | None:
        source = self.mount.mounting.source
        if source is None or not is_claim(source.uri):
            return None
        return self.claims.trouble(source)

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
            away=any(state.mounts[mount.path].source_away for state in holders),
        )
