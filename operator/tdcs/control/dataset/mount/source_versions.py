"""The versions of a mounted source: when it is listed, by what rules again, and what the last listing showed.

Listings go on in the background, a few at a time for all mounts of the operator. After a restart the last version is
known by its digest, and its manifest is on this disk or with the agents: nothing is listed for that.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from tdcs.control.background_task import BackgroundTask
from tdcs.control.cache_registry import Caches, Published
from tdcs.control.dataset.mount.listing_gate import ListingGate, ListingTurn
from tdcs.control.dataset.mount.loss_guard import LossGuard, SourceLossError
from tdcs.decide.dataset_conditions import HeldUpBy
from tdcs.decide.problem import Problem, of_disk, of_engine
from tdcs.decide.relisting import relisting_pause
from tdcs.decide.source_loss import PLAIN_RULE, LossRule, SecondCount
from tdcs.listing.folder import is_digest
from tdcs.listing.lister import Lister
from tdcs.listing.result import Listed
from tdcs.listing.transfer import AWAITED_SECONDS, MANIFEST_PATH, WAIT, ManifestUnavailableError
from tdcs.model.agent_state import AgentState
from tdcs.model.cache_engine import (
    EngineError,
    EngineUnavailableError,
    KeysRefusedError,
    LimitExceededError,
    SourceError,
)
from tdcs.model.listing_limit import LimitCount, ListingLimit, SourcesSize
from tdcs.model.manifest_format import BadManifestError, Totals

CHANGED_SHARE = 2.0
"""One that agents found changed, or that could not be listed, is listed for at most one part in so many of the time."""

RELISTED_AFTER = 6 * 3600.0
"""One that agents find changed, and that is the same each time it is listed, is listed after so many seconds at the
latest."""

FETCH_SECONDS = 5.0
"""So long a pass waits for a manifest that the operator has lost."""

RECOVER_SECONDS = 300.0
"""So long a version from before a restart may take to come from agents; then the mount is listed. A manifest of a
million files takes some two seconds, one after the other of each cache."""

MANIFEST_HOLDERS = 3
"""So many agents are named to others as places where a manifest can be had."""

PATHS_KEPT = 32
"""So many selections of paths are remembered with their totals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestView:
    """What is known of the versions of a mount.

    Attributes:
        listed: the last version; None before the first.
        trouble: why the source could not be listed the last time; None when it could.
        problem: why nothing is known of it: the first listing failed.
        checked_at: when the source itself was last listed; None before this process did.
        asked_at: when that listing began: it was made with the keys that the mount had then, or has got since.
    """

    listed: Listed | None = None
    trouble: Problem | None = None
    problem: Problem | None = None
    checked_at: float | None = None
    asked_at: float | None = None
    checked: str | None = None

    @property
    def took(self) -> float:
        return self.listed.seconds if self.listed is not None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """A listing under way: of the source itself or of what the cache remembers, only because agents found files changed
    (`again`) or not, for whom, and since when."""

    refresh: bool
    again: bool
    answers: Mapping[object, str | None]
    began: float
    work: BackgroundTask[Listed]


@dataclass(eq=False, slots=True, kw_only=True)
class MountManifests:
    """The versions of one mount.

    Attributes:
        path: engine path.
        caches: manifests that are there.
        published: says of a digest which version it is; None: of no mount.
        lister: lists the mount.
        count: counts the source before the cache is to learn its names again, where a listing does not do that itself;
            raises as `CheckSize`.
        count_elsewhere: counts it from another node when it has lost much, see `LossGuard.check`.
        pause: seconds before a listing that failed is tried again.
        now: the time of day.
        on_done: called when a listing has ended, or the first one has files that can be loaded.
        on_refused: called when the source has refused one.
        size: of the last version; None before the first. A listing that ends sets it at once, not the pass that takes
            the version in: other listings may end before that.
        is_refused: whether the last listing ended in that the source is not let in: nothing of it stays.
    """

    path: str
    caches: Caches
    published: Callable[[str], Published | None]
    lister: Lister
    count: Callable[[ListingLimit], Awaitable[SourcesSize | None]]
    count_elsewhere: Callable[[SourcesSize], Awaitable[SecondCount | None]]
    gate: ListingGate
    pause: float
    now: Callable[[], str]
    on_done: Callable[[], None]
    on_refused: Callable[[], None]
    clock: Callable[[], float]
    size: SourcesSize | None = field(default=None, init=False)
    is_refused: bool = field(default=False, init=False)
    _listing: _Listing | None = field(default=None, init=False)
    _turn: ListingTurn | None = field(default=None, init=False)
    _namespaces: frozenset[str] = field(default=frozenset(), init=False)
    _view: ManifestView = field(default_factory=ManifestView, init=False)
    _again_at: float = field(default=-math.inf, init=False)
    _recovered: bool = field(default=False, init=False)
    _limit: ListingLimit | None = field(default=None, init=False)
    _met: ListingLimit | None = field(default=None, init=False)
    _answered: dict[object, str | None] = field(default_factory=dict, init=False)
    _begun_for: dict[object, str] = field(default_factory=dict, init=False)
    """What Datasets asked for when the last listing began."""
    _early: Listed | None = field(default=None, init=False)
    _loads_early: bool = field(default=True, init=False)
    """Whether a first listing gives what it has so far: not again when the source was refused after that."""
    _totals: dict[tuple[str, ...], Totals] = field(default_factory=dict, init=False)
    _guard: LossGuard = field(init=False)
    _unchanged: int = field(default=0, init=False)
    """How often it was listed in turn because agents found files changed, and had none that had."""
    _changed_files: int = field(default=0, init=False)
    """How many files these were at most, since the last version that was another one. Fewer are no news: an agent that
    starts again has tried none of them yet."""
    _is_away: bool = field(default=False, init=False)
    _away_since: float = field(default=-math.inf, init=False)
    """When agents began to say that the source gives them nothing, the last time that they did."""

    def __post_init__(self) -> None:
        self._guard = LossGuard(clock=self.clock)

    def view(self) -> ManifestView:
        """What is known now; takes in a listing that has ended."""
        self._take()
        return self._view

    @property
    def busy(self) -> bool:
        """Whether a listing goes on, or has ended and was not looked at."""
        return self._listing is not None

    @property
    def held_up_by(self) -> HeldUpBy | None:
        """What the listing has waited for, if it has for a while."""
        turn = self._turn
        if turn is None or not turn.waits or self.clock() - turn.since < self.pause:
            return None
        return self.gate.held_up_by(turn)

    @property
    def early(self) -> Listed | None:
        """What the first listing has so far: it is loaded, and nothing else is done with it. None when there is none,
        or a version. It stays while a listing that was cut off is gone on with."""
        return self._early if self.view().listed is None else None

    def answered(self, key: object) -> str | None:
        """The value of a Dataset's annotation at the last listing of the source; None when it had none."""
        return self._answered.get(key)

    def advance(
        self,
        *,
        due: bool,
        changed: int,
        digest: str,
        urls: tuple[str, ...],
        unheard: bool,
        requests: Mapping[object, str | None],
        namespaces: frozenset[str],
        limit: Callable[[], ListingLimit],
        rule: LossRule = PLAIN_RULE,
        away: bool = False,
    ) -> None:
        """Begin to list the source when that is due.

        Args:
            due: whether its interval is over, or somebody asks.
            changed: how many files agents have met that are others than in the last version.
            digest: of the last version, as the cache knows it; empty when it knows none.
            urls: where its manifest may be had.
            unheard: whether agents that may have it have not been heard of yet.
            requests: of each Dataset the value of the annotation with which its user asks for a listing.
            namespaces: of the Datasets that read it.
            limit: how large the source may be. A higher one than that which a listing met is tried at once.
            rule: how much the source may have lost. A source that had lost too much is looked at at once when this
                changes.
            away: whether the source gives an agent nothing. It is listed at once, and again until a listing succeeds.
        """
        self._away_since = self.clock() if away and not self._is_away else self._away_since
        self._is_away = away
        self._namespaces = namespaces
        if self._turn is not None:
            self.gate.join(self._turn, namespaces)
        if self._met is not None and limit().exceeds(self._met):
            self._again_at, self._met = -math.inf, None
        if self._guard.allow(rule):
            self._again_at = -math.inf
        now, view = self.clock(), self._view
        if self._listing is not None or now < self._again_at:
            return
        if view.listed is None and not self._recovered and is_digest(digest):
            if unheard and not self.caches.folder.has(digest):
                return
            self._recovered = True
            self._start(self._recover(digest=digest, urls=urls))
            return
        age = now - view.checked_at if view.checked_at is not None else math.inf
        if changed > self._changed_files:
            self._unchanged = 0
        pause = relisting_pause(self._unchanged, first=self.pause / 2, most=RELISTED_AFTER)
        again = changed > 0 and age >= max(CHANGED_SHARE * view.took, pause)
        unasked = view.asked_at is None or view.asked_at < self._away_since
        # At once, but for a source that comes and goes, or that one node reaches now and then.
        away_pause = pause if self._unchanged else 0.0
        silent = (
            unasked and self._away_since > -math.inf and age >= max(CHANGED_SHARE * view.took, away_pause)
        )
        doubted = self._guard.loss is not None or silent
        if view.listed is None or due or again or doubted:
            # What the cache remembers of a source that it has listed before is enough for a mount that is known.
            refresh = due or again or doubted or not is_digest(digest)
            self._changed_files = max(changed, self._changed_files)
            self._begin_again_for(requests, doubted=doubted)
            self._start(
                # Of one that has a version, that one is served and kept.
                self._count_and_list(refresh=refresh, limit=limit, is_first=not is_digest(digest)),
                refresh=refresh,
                requests=requests,
                again=(again or silent) and not due,
            )

    async def totals(
        self, selections: Iterable[tuple[str, ...]], *, urls: tuple[str, ...]
    ) -> dict[tuple[str, ...], Totals] | None:
        """Sums of the last version over the files under each selection of paths; None when its manifest, which that
        takes, is not to be had now.
        """
        current, early = self.view().listed, self.early
        if current is None:
            # A selection of paths takes all names.
            return None if early is None or any(selections) else {(): early.totals}
        sums: dict[tuple[str, ...], Totals] = {(): current.totals}
        for paths in {selection for selection in selections if selection}:
            if paths not in self._totals:
                try:
                    async with asyncio.timeout(FETCH_SECONDS):  # which goes on for the next pass
                        await self.caches.fetch(
                            digest=current.digest, urls=urls, version=self.published(current.digest)
                        )
                except TimeoutError:
                    return None
                except ManifestUnavailableError:
                    self.relist()
                    return None
                self._totals[paths] = await asyncio.to_thread(self._sum, current.digest, paths)
            sums[paths] = self._totals[paths]
        while len(self._totals) > max(PATHS_KEPT, len(sums)):
            self._totals.pop(next(iter(self._totals)))
        return sums

    def reset(self) -> None:
        """The mount is gone: the next one may have other ids of blocks. How much its source had is remembered: one that
        is empty then is no more to be believed than before."""
        self._view = ManifestView(checked=self._view.checked)
        self._recovered, self._totals, self._again_at = True, {}, -math.inf
        self.size = self._early = None
        self.is_refused = False

    def lost(self, digest: str) -> bool:
        """The manifest of a version cannot be had: whether it is the last one, and is listed again."""
        listed = self._view.listed
        mine = listed is not None and listed.digest == digest and self._listing is None
        if mine and self._view.checked_at != -math.inf:
            self.relist()
        return mine

    def relist(self) -> None:
        """List the source again, but not at once."""
        self._view = replace(self._view, checked_at=-math.inf)
        self._again_at = self.clock() + self.pause

    def retry(self) -> None:
        """The mount has got other keys: a listing that failed is tried again at once."""
        if self._view.trouble is not None or self._view.problem is not None:
            self._again_at = -math.inf

    async def close(self) -> None:
        listing, self._listing = self._listing, None
        if listing is not None:
            await listing.work.cancel()

    def _sum(self, digest: str, paths: tuple[str, ...]) -> Totals:
        return self.caches.folder.open(digest).totals(paths)

    def _begin_again_for(self, requests: Mapping[object, str | None], *, doubted: bool) -> None:
        """Have a listing that is asked for not go on with one that began before: who asks has changed the source. One
        of a source that has lost much is to find that again, and not what was found before."""
        values = {key: value for key, value in requests.items() if value is not None}
        if doubted or values.items() - self._begun_for.items():
            with suppress(OSError):
                self.caches.folder.remove_progress(self.path)
        self._begun_for = values

    async def _recover(self, *, digest: str, urls: tuple[str, ...]) -> Listed:
        """The version before a restart. It was let in: no limit keeps it out."""
        try:
            async with asyncio.timeout(RECOVER_SECONDS):
                version = self.published(digest)
                listed = await self.caches.totals(digest=digest, urls=urls, version=version)
        except TimeoutError:
            raise ManifestUnavailableError(f"no agent has given manifest {digest} in time") from None
        self.size = listed.size
        return listed

    async def _count_and_list(
        self, *, refresh: bool, limit: Callable[[], ListingLimit], is_first: bool
    ) -> Listed:
        """A listing, and before one of the source itself a count, which takes no place of another listing."""
        begun = self.clock()
        if refresh:
            self._limit = limit()
            counted = await self.count(self._limit)
            if counted is not None:
                # Before the cache lists it: what it does not find any more it forgets.
                await self._guard.check(counted, elsewhere=self.count_elsewhere)
        seconds = self.clock() - begun
        self._turn = ListingTurn(namespaces=self._namespaces, since=self.clock())
        try:
            listed = await self.gate.run(
                lambda: self._list(refresh=refresh, limit=limit, is_first=is_first), turn=self._turn
            )
        finally:
            self._turn = None
        return msgspec.structs.replace(listed, seconds=listed.seconds + seconds)

    async def _list(self, *, refresh: bool, limit: Callable[[], ListingLimit], is_first: bool) -> Listed:
        """A listing when its turn comes, by the limit of that time, and of its end: others have been listed meanwhile,
        and what was left then was left to all of them."""
        self._limit = limit()
        may_load = is_first and self._guard.loss is None and self._loads_early
        early = self._load_early if may_load else None
        listed = await self.lister.list(
            path=self.path, refresh=refresh, resume=True, limit=self._limit, early=early
        )
        await self._guard.check(listed.size, elsewhere=self.count_elsewhere)
        self._limit = limit()
        LimitCount(self._limit, subject=self.path, path=self.path).add_size(listed.size)
        self.size = listed.size
        return listed

    def _load_early(self, so_far: Listed) -> None:
        """Take in what a listing has so far."""
        self._early = so_far
        self.on_done()

    def _start(
        self,
        work: Coroutine[Any, Any, Listed],
        *,
        refresh: bool = False,
        requests: Mapping[object, str | None] = MappingProxyType({}),
        again: bool = False,
    ) -> None:
        task = BackgroundTask(work, name=f"list {self.path}", on_done=self.on_done)
        self._listing = _Listing(
            refresh=refresh, again=again, answers=requests, began=self.clock(), work=task
        )

    def _take(self) -> None:
        done = self._listing
        if done is None or done.work.running:
            return
        self._listing = None
        try:
            listed = done.work.result()
        except (ManifestUnavailableError, FileNotFoundError, BadManifestError):
            return  # it is lost: the source is listed
        except SourceLossError:
            self._shrunk(done)
            return
        except (EngineError, OSError) as error:
            self._failed(error, done)
            return
        changed = self._view.listed is None or self._view.listed.digest != listed.digest
        if changed:
            self._totals, self._changed_files = {}, 0
        self._unchanged = self._unchanged + done.again if not changed else 0
        self._view = replace(self._view, listed=listed, problem=None)
        self._early, self.is_refused = None, False
        self._guard.accept(version=listed.digest, size=listed.size)
        if done.refresh:
            self._view = replace(self._view, trouble=None)
            self._checked(done)

    def _checked(self, done: _Listing) -> None:
        """The source itself has been looked at."""
        at, began = self.clock(), done.began
        self._view = replace(self._view, checked_at=at, asked_at=began, checked=self.now())
        self._answered.update(done.answers)

    def _shrunk(self, done: _Listing) -> None:
        """The source has lost too much: the last version stays, and the source is looked at again."""
        self._early, self.is_refused = None, True
        pause = self._guard.pause(max(self.pause, CHANGED_SHARE * (self.clock() - done.began)))
        self._again_at = self.clock() + pause
        cause = self._guard.problem(retry_after=pause)
        first = self._view.listed is None
        self._view = replace(self._view, trouble=cause, problem=cause if first else None)
        self._checked(done)

    def _failed(self, error: EngineError | OSError, done: _Listing) -> None:
        """A listing has failed: by the source, the cache, or this operator's own disk and processes."""
        pause = self.pause if isinstance(error, SourceError | LimitExceededError) else self.pause / 10
        pause = max(pause, CHANGED_SHARE * (self.clock() - done.began))
        self._again_at = self.clock() + pause
        cause = of_disk(error) if isinstance(error, OSError) else of_engine(error, mounted=True)
        if isinstance(error, LimitExceededError):
            self._met = self._limit  # looked at seldom, and at once when the limit is raised
        else:
            cause = replace(cause, retry_after=pause)
        first = self._view.listed is None
        if first:
            self._view = replace(self._view, problem=cause)
        # Of a cache that is away its own conditions tell.
        if isinstance(error, SourceError) or not (first or isinstance(error, EngineUnavailableError)):
            self._view = replace(self._view, trouble=cause)
        # A store that is away for a while, or takes other keys, has what was loaded all the same.
        is_kept = isinstance(error, KeysRefusedError) or (isinstance(error, SourceError) and error.retryable)
        if isinstance(error, SourceError | LimitExceededError) and not is_kept:
            self._loads_early = self._loads_early and self._early is None
            self._early, self.is_refused = None, True
        if isinstance(error, SourceError):
            self.on_refused()


def manifest_urls(own_url: str, path: str, holders: Iterable[AgentState], *, digest: str) -> tuple[str, ...]:
    """Where a manifest can be had: from the operator, and from agents that work by it."""
    operator_url = [f"{own_url}{MANIFEST_PATH}{digest}"] if own_url else []
    agent_urls = [state.url for state in holders if state.url and manifest_of(state, path) == digest]
    return (*operator_url, *(f"{url}{MANIFEST_PATH}{digest}" for url in agent_urls[:MANIFEST_HOLDERS]))


def awaited_url(state: AgentState, *, digest: str) -> str:
    """Where an agent gives a manifest as soon as it has it; empty when its address is not known."""
    return f"{state.url}{MANIFEST_PATH}{digest}?{WAIT}={AWAITED_SECONDS:g}" if state.url else ""


def manifest_of(state: AgentState, path: str) -> str:
    """The digest by which an agent works on a mount; empty when it does not know it."""
    return state.mounts[path].manifest if path in state.mounts else ""
