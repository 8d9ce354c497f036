"""Listing a mount and planning from it, beside the loads that are under way."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tdcs.controllers.context import WorkKey
from tdcs.controllers.dataset.loader import LoadProgress, LoadRun
from tdcs.controllers.dataset.plan import NodeView, Plan, Want
from tdcs.controllers.dataset.planner import plan_wants
from tdcs.controllers.dataset.survey import Survey
from tdcs.engine.protocol import Engine, WorkerInfo

_COUNTED = 500
"""Files that are counted in a stretch; some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a plan is asked for.

    Attributes:
        wants: what the data is wanted for, the first ones choose first.
        workers: the cache's workers.
        nodes: the cluster's nodes by name.
        held_before: nodes that each copy of a want was given before.
        leaving: nodes whose workers leave the cache.
        owned: whether what nobody wants is dropped.
        refused: ids of blocks that a node shall not hold.
        refresh: whether the source itself is listed.
        asked: of each Dataset the value of the annotation with which its user asks for that.
        basis: what of all this calls for another plan when it changes.
    """

    wants: Sequence[Want]
    workers: Sequence[WorkerInfo]
    nodes: Mapping[str, NodeView]
    held_before: Mapping[str, Sequence[frozenset[str]]] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    owned: bool = True
    refused: Mapping[str, Collection[int]] = field(default_factory=dict)
    refresh: bool = False
    asked: Mapping[WorkKey, str | None] = field(default_factory=dict)
    basis: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a listing showed, and the plan made from it.

    Attributes:
        question: what was asked.
        survey: the listing.
        plan: the plan.
        took: seconds.
        ended: loads that had ended before it began: it shows all that they did.
        moments: loads that were known when the listing ended, and what they had done by then.
    """

    question: Question
    survey: Survey
    plan: Plan
    took: float
    ended: Mapping[str, LoadRun]
    moments: Mapping[str, tuple[LoadRun, LoadProgress]]


async def look(
    *,
    engine: Engine,
    path: str,
    question: Question,
    runs: Callable[[], Mapping[str, LoadRun]],
    clock: Callable[[], float],
) -> Look:
    """List the files below a path, tell the nodes if they are others than before, and plan.

    Args:
        engine: the cache.
        path: the mounted path.
        question: what to plan for.
        runs: the loads at the moment.
        clock: seconds that only grow.

    Raises:
        EngineError: it could not be listed.
    """
    began = clock()
    ended = {key: run for key, run in runs().items() if not run.running}
    survey = Survey()
    async for page in engine.files(path=path, refresh=question.refresh):
        for begin in range(0, len(page), _COUNTED):  # a page may take a tenth of a second
            survey.add(page[begin : begin + _COUNTED])
            await asyncio.sleep(0)
    # Whoever has read some of it may remember what has changed: the nodes ask for this.
    version = await asyncio.to_thread(survey.table.version)
    if (await engine.versions()).get(path) != version:
        await engine.set_version(path=path, version=version)
    moments = {key: (run, run.progress) for key, run in runs().items()}
    moving: dict[str, int] = {}
    for run, _ in moments.values():
        for node, size in run.moving.items():
            moving[node] = moving.get(node, 0) + size
    plan = Plan()
    if question.wants or question.leaving:
        # A million blocks take seconds to plan: other objects must not wait for that.
        plan = await asyncio.to_thread(
            plan_wants,
            data=path,
            wants=question.wants,
            survey=survey,
            workers=question.workers,
            nodes=question.nodes,
            held_before=question.held_before,
            leaving=question.leaving,
            owned=question.owned,
            moving=moving,
            refused=question.refused,
        )
    return Look(
        question=question, survey=survey, plan=plan, took=clock() - began, ended=ended, moments=moments
    )
