"""What the operator remembers of mounted data between passes. All of it can be lost: it is found again."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tdcs.controllers.context import WorkKey
from tdcs.controllers.dataset.background import Background
from tdcs.controllers.dataset.identity import Mark
from tdcs.controllers.dataset.loader import LoadProgress, LoadRun
from tdcs.controllers.dataset.looking import Look
from tdcs.controllers.dataset.plan import MOVES, Plan, Want, WantPlan
from tdcs.controllers.dataset.report import Holdings, Progress, Trouble, Wrong
from tdcs.controllers.dataset.source import NotYetError
from tdcs.controllers.dataset.survey import Survey
from tdcs.controllers.dataset.verify import VerifyRun
from tdcs.engine.protocol import Engine, EngineError, NoSuchWorkerError

_log = logging.getLogger(__name__)

READ_TYPE = "alluxio.user.file.readtype.default"
"""Alluxio's key for what a read does to the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounting:
    """A mount under way: for which user, with what, and whether nothing is mounted there yet."""

    by: WorkKey
    mark: Mark
    anew: bool
    work: Background[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Keys that the source refused, why, and when they are worth another try."""

    mark: Mark
    cause: NotYetError
    again_at: float


@dataclass(slots=True, kw_only=True)
class MountedData:
    """One engine path: shared by all Datasets of the same source.

    Attributes:
        lock: held by the pass that works on it.
        users: the Datasets that read it, so that the end of a load wakes all of them.
        source: URI and options, and the digest of the credentials that this process mounted it with.
        marks: the same of each user's own source when it was last mounted with that, or last looked at.
        mounting: the mount under way; `unmounting` its end.
        failures: what ended the last mount of a user, until its next pass takes it.
        refusals: users whose changed keys the source has refused while the mount served with others.
        preloaded: whether the operator alone says what of it is cached.
        fills: whether reads fill the cache; None when that is to be set.
        pinned: engine paths that are protected from eviction; None when that is to be set.
        survey: the last listing, its blocks dropped once it is planned.
        surveyed_for: what its plan was made for.
        listing: the listing under way; `refreshing` when it lists the source.
        look_at: when the next one may begin at the earliest, and `refresh_at` the next one of the source.
        source_trouble: why the source could not be listed the last time.
        short_since: since when workers hold less than the listings say.
        away_since: since when workers with data of it are away.
        outdated: whether a load has met files that are others at the source than in the last listing of it, or was
            broken off before it had looked for them.
        checked_at: when the source itself was last listed for changes.
        checked: the same as a time of day, for the status.
        answered: for each user the value of its annotation when the source was last listed.
        plan: the plan made from it.
        leaving: the nodes that leave the cache, of which it makes no use.
        live: the workers that were alive then.
        runs: the loads under way, or the last ones, by want.
        signatures: what they answer for, and `before` what they had done when the listing was made.
        troubles: why the last load of a want left something out.
        tries: how many loads of a want in a row left something out.
        held_back: wants that are not loaded before `retry_at`.
        verifies: the comparisons with the source under way, or done, by want.
        mended: wants whose wrong copies were dropped once, to be loaded again.
        wrong: wants whose copies were wrong again.
    """

    cluster: str
    path: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: set[WorkKey] = field(default_factory=set)
    source: Mark | None = None
    marks: dict[WorkKey, Mark] = field(default_factory=dict)
    mounting: Mounting | None = None
    unmounting: Background[None] | None = None
    failures: dict[WorkKey, EngineError] = field(default_factory=dict)
    refusals: dict[WorkKey, Refusal] = field(default_factory=dict)
    preloaded: bool | None = None
    fills: bool | None = None
    pinned: frozenset[str] | None = None
    survey: Survey | None = None
    surveyed_at: float = 0.0
    surveyed_for: object = None
    survey_took: float = 0.0
    listing: Background[Look] | None = None
    refreshing: bool = False
    look_at: float = -math.inf
    refresh_at: float = -math.inf
    source_trouble: NotYetError | None = None
    short_since: float | None = None
    away_since: float | None = None
    outdated: bool = False
    checked_at: float | None = None
    checked: str | None = None
    answered: dict[WorkKey, str | None] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    leaving: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    runs: dict[str, LoadRun] = field(default_factory=dict)
    signatures: dict[str, int | None] = field(default_factory=dict)
    before: dict[str, LoadProgress] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    held_back: frozenset[str] = frozenset()
    verifies: dict[str, VerifyRun] = field(default_factory=dict)
    mended: set[str] = field(default_factory=set)
    wrong: dict[str, Wrong] = field(default_factory=dict)
    retry_at: float = 0.0

    @property
    def loading(self) -> bool:
        """Whether a load is under way."""
        return any(run.running for run in self.runs.values())

    def want(self, key: str) -> WantPlan | None:
        """What a want came to in the last plan."""
        return self.plan.wants.get(key)

    def has_planned(self, key: str, wants: Sequence[Want]) -> bool:
        """Whether the last plan was made for what is wanted under a key now."""
        want, plan = next((want for want in wants if want.key == key), None), self.want(key)
        return want == (plan.want if plan is not None else None)

    def held(self) -> Holdings:
        """What is cached now, as far as is known."""
        if self.survey is None:
            return Holdings()
        nodes, cached = dict(self.survey.node_bytes), self.survey.cached_bytes
        for key, run in self.runs.items():
            done = run.progress.since(self.before.get(key))
            cached += done.cached_bytes
            for node, size in done.node_bytes.items():
                nodes[node] = nodes.get(node, 0) + size
        return Holdings(
            total_bytes=self.survey.total_bytes,
            total_files=self.survey.total_files,
            cached_bytes=min(cached, self.survey.total_bytes),
            node_bytes=nodes,
        )

    def progress(self, key: str) -> Progress:
        """How far a want is."""
        plan, run = self.want(key), self.runs.get(key)
        if plan is None:
            return Progress(placed_bytes=0, wanted_bytes=0, nodes=0)
        done = run.progress.since(self.before.get(key)) if run is not None else None
        placed = plan.placed_bytes + (done.bytes_done if done else 0)
        if done and done.bytes_moving:
            # What is on its way does not lie there yet: a job that waits for all of it goes on waiting.
            placed = max(placed, min(placed + done.bytes_moving, plan.wanted_bytes - 1))
        return Progress(
            placed_bytes=min(placed, plan.wanted_bytes),
            wanted_bytes=plan.wanted_bytes,
            nodes=len(set(plan.nodes)),
            placed_files=min(plan.placed_files + (done.files_done if done else 0), plan.wanted_files),
            wanted_files=plan.wanted_files,
            bytes_per_second=int(done.bytes_per_second) if done and run and run.running else 0,
            copied_per_second=int(done.copied_per_second) if done and run and run.running else 0,
            node_bytes=done.node_bytes if done else {},
        )

    async def heed(self, wants: Sequence[Want]) -> None:
        """End the loads that nobody wants any more, and let the others keep to the bandwidth that is asked for now."""
        asked = {want.key: want for want in wants}
        for key, plan in self.plan.wants.items():
            want = asked.get(key)
            if want is not None and want == replace(plan.want, bandwidth=want.bandwidth):
                plan.want = want
        for key, run in self.runs.items():
            if key == MOVES or not run.running:
                continue
            want = asked.get(key)
            if want is None or not want.load:
                await run.cancel()
            elif run.bandwidth != want.bandwidth:
                run.set_bandwidth(want.bandwidth)

    def refused(self) -> dict[str, frozenset[int]]:
        """Blocks that a worker shall not hold, because its copies were wrong twice."""
        found: dict[str, frozenset[int]] = {}
        for wrong in self.wrong.values():
            for worker, blocks in wrong.copies.items():
                found[worker] = found.get(worker, frozenset()) | blocks
        return found

    async def stop(self) -> None:
        """End all loads; what they placed stays, and the next survey finds it."""
        for run in self.runs.values():
            await run.cancel()

    async def close(self) -> None:
        """End everything that runs in the background."""
        await self.stop()
        for run in self.verifies.values():
            await run.cancel()
        listing, self.listing = self.listing, None
        if listing is not None:
            await listing.cancel()
        mounting, self.mounting = self.mounting, None
        if mounting is not None:
            await mounting.work.cancel()
        if self.unmounting is not None:
            await self.unmounting.cancel()  # of a process that ends: the next one goes on with it

    def due_loads(self, *, wants: Sequence[Want], now: float) -> list[str]:
        """The wants whose load is to begin: of those that are still as they were planned, and that no load under way
        may be bringing."""
        if any(run.running and run.finishing for run in self.runs.values()):
            return []
        asked = {want.key: want for want in wants}
        return [
            key
            for key, work in self.plan.works().items()
            if len(work)
            and key not in self.runs
            and not (now < self.retry_at and key in self.held_back)
            and (key == MOVES or asked.get(key) == self.plan.wants[key].want)
        ]

    async def start(
        self,
        *,
        keys: Sequence[str],
        engine: Engine,
        on_done: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Make room and begin to load what the plan misses, each want at its own bandwidth.

        Copies that nobody wants are dropped only where the operator owns the placement.
        """
        if self.preloaded:
            await drop(engine, self.plan.unwanted)
        works = self.plan.works()
        for key in keys:
            want = self.want(key)
            self.signatures[key] = self.plan.signature(key)
            self.before.pop(key, None)
            self.runs[key] = LoadRun(
                engine=engine,
                work=works[key],
                on_done=on_done,
                clock=clock,
                bandwidth=want.want.bandwidth if want is not None else None,
            )

    async def settle(self, engine: Engine) -> bool:
        """Protect what was placed, and drop copies that no placement wants any more.

        Gives whether there was nothing to drop.
        """
        await self._protect(engine)
        if not self.preloaded:
            return True
        gone = bool(self.plan.surplus or self.plan.unwanted)
        await drop(engine, self.plan.surplus)
        await drop(engine, self.plan.unwanted)
        if gone:
            self.surveyed_for = None  # look at once whether they are gone
        return not gone

    async def _protect(self, engine: Engine) -> None:
        """Pin what is wanted, and nothing else: what reads have cached must be able to go."""
        wanted = {self.path} if self.preloaded else self.plan.paths(self.path)
        if self.pinned is None and self.path not in wanted:
            await engine.pin(path=self.path, pinned=False)  # whatever it was in an earlier life
        known = self.pinned or frozenset()
        for path in sorted(known - wanted):
            await engine.pin(path=path, pinned=False)
        # What lies in a folder that was let go of was let go of with it.
        for path in sorted(wanted if known - wanted else wanted - known):
            await engine.pin(path=path, pinned=True)
        self.pinned = frozenset(wanted)

    async def set_reading(self, engine: Engine, *, owned: bool, fills: bool) -> None:
        """How reads treat the cache.

        Args:
            engine: the cache.
            owned: whether the operator alone says what lies in the cache, and drops the rest.
            fills: whether reads fill the cache.
        """
        if self.fills != fills:
            read_type = "CACHE" if fills else "NO_CACHE"
            await engine.set_path_properties(path=self.path, properties={READ_TYPE: read_type})
        self.preloaded, self.fills = owned, fills

    def doubt(self) -> None:
        """Look at everything again with the next pass; what is known stands until then."""
        self.fills, self.pinned, self.surveyed_for = None, None, None

    def forget(self) -> None:
        """Nothing is known any more: the mount is gone, or is another one."""
        self.doubt()
        self.source, self.survey, self.plan, self.before = None, None, Plan(), {}
        self.runs, self.verifies = {}, {}


async def drop(engine: Engine, copies: Mapping[str, Sequence[int]]) -> None:
    """Drop copies, by worker. With a worker that is lost they are gone anyway."""
    for worker, blocks in copies.items():
        try:
            await engine.drop(worker=worker, block_ids=blocks)
        except NoSuchWorkerError as error:
            _log.info("%s", error)
