"""What the operator remembers of mounted data between passes. All of it can be lost: it is found again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tdcs.api.dataset import Placement
from tdcs.controllers.context import WorkKey
from tdcs.controllers.dataset.loader import LoadRun
from tdcs.controllers.dataset.plan import LoadPlan, NodeView, plan_load
from tdcs.controllers.dataset.report import Holdings, Progress, Trouble, holdings
from tdcs.controllers.dataset.survey import Survey
from tdcs.engine.protocol import Engine, WorkerInfo

READ_TYPE = "alluxio.user.file.readtype.default"
"""Alluxio's key for what a read does to the cache."""

RETRY_FIRST = 2.0
RETRY_MAX = 60.0
LISTING_LAG = 1.0


@dataclass(slots=True, kw_only=True)
class MountedData:
    """One engine path: shared by all Datasets of the same source.

    Attributes:
        lock: held by the pass that works on it.
        users: the Datasets that read it, so that the end of a load wakes all of them.
        mounted_with: digest of the credentials it was mounted with by this process.
        survey: the last listing, its blocks dropped once it is planned.
        plan: the plan made from it.
        run: the load under way, or the last one.
    """

    cluster: str
    path: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: set[WorkKey] = field(default_factory=set)
    mounted_with: str | None = None
    preloaded: bool | None = None
    pinned: bool | None = None
    survey: Survey | None = None
    surveyed_at: float = 0.0
    surveyed_for: object = None
    survey_took: float = 0.0
    plan: LoadPlan | None = None
    run: LoadRun | None = None
    failures: int = 0
    retry_at: float = 0.0
    trouble: Trouble | None = None

    @property
    def loading(self) -> bool:
        """Whether a load is under way."""
        return self.run is not None and self.run.running

    def held(self) -> Holdings:
        """What is cached now, as far as is known."""
        if self.survey is None:
            return Holdings()
        if self.run is None:
            return holdings(survey=self.survey)
        return holdings(survey=self.survey, loaded=self.run.node_bytes, newly_cached=self.run.cached_bytes)

    def progress(self) -> Progress:
        """How far the load is."""
        if self.plan is None:
            return Progress(placed_bytes=0, wanted_bytes=0, nodes=0)
        loaded = sum(self.run.node_bytes.values()) if self.run is not None else 0
        return Progress(
            placed_bytes=self.plan.wanted_bytes - self.plan.missing_bytes + loaded,
            wanted_bytes=self.plan.wanted_bytes,
            nodes=len(self.plan.nodes),
        )

    async def look(
        self,
        *,
        engine: Engine,
        placement: Placement,
        workers: list[WorkerInfo],
        nodes: dict[str, NodeView],
        preload: bool,
        refresh: bool,
        seen_for: object,
        clock: Callable[[], float],
    ) -> None:
        """List the files and plan anew. The counts of an ended load go into the new survey."""
        began = clock()
        survey = Survey()
        async for page in engine.files(path=self.path, refresh=refresh):
            survey.add(page)
        self.plan = None
        if preload:
            # A million blocks take seconds to plan: other objects must not wait for that.
            self.plan = await asyncio.to_thread(
                plan_load,
                dataset=self.path,
                placement=placement,
                survey=survey,
                workers=workers,
                nodes=nodes,
            )
        survey.blocks = []
        now = clock()
        self.survey_took = now - began
        self.survey, self.surveyed_at, self.surveyed_for = survey, now, seen_for
        if self.run is not None:
            self._judge(run=self.run, now=now)
            self.run = None

    def _judge(self, *, run: LoadRun, now: float) -> None:
        """Remember why the last load left something out, and when to try again."""
        missing = self.plan is not None and any(self.plan.missing.values())
        if not missing or (run.error is None and run.failed == 0):
            # A worker tells the master of new blocks with a heartbeat: what was just placed may be unlisted.
            self.failures, self.retry_at, self.trouble = 0, now + LISTING_LAG if missing else now, None
            return
        self.failures += 1
        self.retry_at = now + min(RETRY_FIRST * 2 ** (self.failures - 1), RETRY_MAX)
        cause = str(run.error) if run.error else run.failures[0].reason if run.failures else "see the log"
        left = sum(len(blocks) for blocks in self.plan.missing.values()) if self.plan else run.failed
        self.trouble = Trouble(failed_blocks=left, cause=cause)

    def start(self, *, engine: Engine, on_done: Callable[[], None], clock: Callable[[], float]) -> None:
        """Begin to load what the plan misses."""
        if self.plan is None or self.loading:
            return
        self.run = LoadRun(engine=engine, work=self.plan.missing, on_done=on_done, clock=clock)
