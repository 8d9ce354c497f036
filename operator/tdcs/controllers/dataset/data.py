"""What the operator remembers of mounted data between passes. All of it can be lost: it is found again."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.controllers.context import WorkKey
from tdcs.controllers.dataset.loader import LoadRun
from tdcs.controllers.dataset.plan import NodeView, Plan, Want, WantPlan, plan_wants
from tdcs.controllers.dataset.report import Holdings, Progress, Trouble
from tdcs.controllers.dataset.survey import Survey
from tdcs.controllers.dataset.verify import VerifyRun
from tdcs.engine.protocol import Engine, EngineError, WorkerInfo

READ_TYPE = "alluxio.user.file.readtype.default"
"""Alluxio's key for what a read does to the cache."""

RETRY_FIRST = 2.0
RETRY_MAX = 60.0
LISTING_LAG = 1.0

SAMPLE = 0.05
"""The part of the bytes that verify: Sampled compares."""

SAMPLE_FILES = 10
"""How many files it compares at least, about."""


@dataclass(slots=True, kw_only=True)
class MountedData:
    """One engine path: shared by all Datasets of the same source.

    Attributes:
        lock: held by the pass that works on it.
        users: the Datasets that read it, so that the end of a load wakes all of them.
        source: URI and options, and the digest of the credentials that this process mounted it with.
        survey: the last listing, its blocks dropped once it is planned.
        checked_at: when the source itself was last listed for changes.
        checked: the same as a time of day, for the status.
        plan: the plan made from it.
        runs: the loads under way, or the last ones, by want.
        troubles: why the last load of a want left something out.
        tries: how many loads of a want in a row left something out.
        verifies: the comparisons with the source under way, or done, by want.
        mended: wants whose wrong copies were dropped once, to be loaded again.
    """

    cluster: str
    path: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: set[WorkKey] = field(default_factory=set)
    source: tuple[object, ...] | None = None
    preloaded: bool | None = None
    pinned: bool | None = None
    survey: Survey | None = None
    surveyed_at: float = 0.0
    surveyed_for: object = None
    survey_took: float = 0.0
    checked_at: float | None = None
    checked: str | None = None
    plan: Plan = field(default_factory=Plan)
    runs: dict[str, LoadRun] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    verifies: dict[str, VerifyRun] = field(default_factory=dict)
    mended: set[str] = field(default_factory=set)
    retry_at: float = 0.0

    @property
    def loading(self) -> bool:
        """Whether a load is under way."""
        return any(run.running for run in self.runs.values())

    def want(self, key: str) -> WantPlan | None:
        """What a want came to in the last plan."""
        return self.plan.wants.get(key)

    def held(self) -> Holdings:
        """What is cached now, as far as is known."""
        if self.survey is None:
            return Holdings()
        nodes, cached = dict(self.survey.node_bytes), self.survey.cached_bytes
        for run in self.runs.values():
            done = run.progress
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
        done = run.progress if run is not None else None
        return Progress(
            placed_bytes=min(plan.placed_bytes + (done.bytes_done if done else 0), plan.wanted_bytes),
            wanted_bytes=plan.wanted_bytes,
            nodes=len(set(plan.nodes)),
            placed_files=min(plan.placed_files + (done.files_done if done else 0), plan.wanted_files),
            wanted_files=plan.wanted_files,
            bytes_per_second=int(done.bytes_per_second) if done and run and run.running else 0,
        )

    async def look(
        self,
        *,
        engine: Engine,
        wants: Sequence[Want],
        workers: list[WorkerInfo],
        nodes: dict[str, NodeView],
        held_before: Mapping[str, Sequence[frozenset[str]]],
        refresh: bool,
        seen_for: object,
        on_done: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """List the files and plan anew. The counts of ended loads go into the new survey."""
        began = clock()
        survey = Survey()
        async for page in engine.files(path=self.path, refresh=refresh):
            survey.add(page)
        plan = Plan()
        if wants:
            # A million blocks take seconds to plan: other objects must not wait for that.
            plan = await asyncio.to_thread(
                plan_wants,
                data=self.path,
                wants=wants,
                survey=survey,
                workers=workers,
                nodes=nodes,
                held_before=held_before,
            )
        await self._verify(engine, plan, survey, on_done=on_done)
        survey.forget_blocks()
        now = clock()
        self.survey_took = now - began
        if refresh:
            self.checked_at = now
        self.survey, self.surveyed_at, self.surveyed_for, self.plan = survey, now, seen_for, plan
        self._judge(now=now)
        self.runs = {}

    async def _verify(
        self, engine: Engine, plan: Plan, survey: Survey, *, on_done: Callable[[], None]
    ) -> None:
        """Begin to compare what is wholly placed, once, and end what nobody wants any more."""
        for key in self.verifies.keys() - plan.wants.keys():
            await self.verifies.pop(key).cancel()
        self.mended &= plan.wants.keys()
        for key, want in plan.wants.items():
            if (
                want.want.verify == "None"
                or want.missing_bytes
                or not want.wanted_bytes
                or key in self.verifies
            ):
                continue
            part = 1.0
            if want.want.verify == "Sampled":
                part = min(max(SAMPLE, SAMPLE_FILES / max(want.wanted_files, 1)), 1.0)
            self.verifies[key] = VerifyRun(
                engine=engine,
                table=survey.table,
                on_done=on_done,
                fraction=part,
                only=want.flags,
                seed=key,
                bandwidth=want.want.bandwidth,
            )

    async def mend(self, engine: Engine) -> None:
        """Drop copies that were found to differ from the source, so that they are loaded again; once a want."""
        for key, run in list(self.verifies.items()):
            wrong = {} if run.running or key in self.mended else run.progress.wrong
            if not wrong:
                continue
            for worker, blocks in wrong.items():
                await engine.drop(worker=worker, block_ids=blocks)
            self.mended.add(key)
            del self.verifies[key]
            self.surveyed_for = None

    def _judge(self, *, now: float) -> None:
        """Remember why the last loads left something out, and when to try again."""
        lacking = {key for key, want in self.plan.wants.items() if len(want.work)}
        ended = {key: run for key, run in self.runs.items() if key in lacking}
        failed = {key for key, run in ended.items() if run.incomplete}
        # A listing between two tries tells nothing new of those that failed.
        waiting = (self.troubles.keys() & lacking) - ended.keys()
        self.troubles = {key: self.troubles[key] for key in waiting} | {
            key: _trouble(ended[key], self.plan.wants[key]) for key in failed
        }
        self.tries = {key: self.tries.get(key, 0) + (key in failed) for key in waiting | failed}
        if failed:
            most = max(self.tries.values())
            self.retry_at = now + min(RETRY_FIRST * 2 ** (most - 1), RETRY_MAX)
        elif not waiting:
            # A worker tells the master of new blocks with a heartbeat: what was just placed may be unlisted.
            self.retry_at = now + LISTING_LAG if ended else now

    async def stop(self) -> None:
        """End all loads; what they placed stays, and the next survey finds it."""
        for run in self.runs.values():
            await run.cancel()

    async def close(self) -> None:
        """End everything that runs in the background."""
        await self.stop()
        for run in self.verifies.values():
            await run.cancel()

    async def start(self, *, engine: Engine, on_done: Callable[[], None], clock: Callable[[], float]) -> None:
        """Make room and begin to load what the plan misses, each want at its own bandwidth.

        Copies that nobody wants are dropped only where the operator owns the placement.
        """
        if self.preloaded:
            for worker, blocks in self.plan.unwanted.items():
                await engine.drop(worker=worker, block_ids=blocks)
        for key, want in self.plan.wants.items():
            if len(want.work):
                self.runs[key] = LoadRun(
                    engine=engine,
                    work=want.work,
                    on_done=on_done,
                    clock=clock,
                    bandwidth=want.want.bandwidth,
                )

    async def settle(self, engine: Engine) -> bool:
        """Protect what was placed, and drop copies that no placement wants any more.

        Gives whether there was nothing to drop.
        """
        if not self.preloaded:
            return True
        if not self.pinned:
            await engine.pin(path=self.path, pinned=True)
            self.pinned = True
        gone = [*self.plan.surplus.items(), *self.plan.unwanted.items()]
        for worker, blocks in gone:
            await engine.drop(worker=worker, block_ids=blocks)
        if gone:
            self.surveyed_for = None  # look at once whether they are gone
        return not gone

    async def set_reading(self, engine: Engine, *, preload: bool) -> None:
        """With preload what is placed stays as it is; without it, reads fill the cache."""
        if self.preloaded == preload:
            return
        read_type = "NO_CACHE" if preload else "CACHE"
        await engine.set_path_properties(path=self.path, properties={READ_TYPE: read_type})
        if not preload:
            await engine.pin(path=self.path, pinned=False)
            self.pinned = False
        self.preloaded = preload

    def forget(self) -> None:
        """Look at everything again with the next pass."""
        self.source, self.preloaded, self.pinned, self.survey = None, None, None, None


def _trouble(run: LoadRun, plan: WantPlan) -> Trouble:
    failures = run.progress.failures
    error: EngineError | None = run.error
    cause = str(error) if error else failures[0].reason if failures else "see the operator's log"
    return Trouble(
        failed_blocks=plan.work.copies,
        cause=cause,
        files=tuple((failure.path, failure.reason) for failure in failures),
    )
