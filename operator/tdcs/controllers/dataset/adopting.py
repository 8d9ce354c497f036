"""Taking over a listing and its plan: which loads go on, and what is to be said of those that have ended."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tdcs.controllers.dataset.comparing import begin_comparisons
from tdcs.controllers.dataset.data import MountedData
from tdcs.controllers.dataset.loader import LoadRun
from tdcs.controllers.dataset.looking import Look
from tdcs.controllers.dataset.plan import MOVES
from tdcs.controllers.dataset.report import Trouble
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.protocol import Engine, EngineError
from tdcs.engine.table import BlockTable

RETRY_FIRST = 2.0
RETRY_MAX = 60.0
LISTING_LAG = 1.0


async def adopt(
    data: MountedData, seen: Look, *, engine: Engine, on_done: Callable[[], None], clock: Callable[[], float]
) -> None:
    """Take over a listing and its plan. Loads that still bring what is wanted go on; the others begin nothing more,
    and what they have on its way still arrives."""
    ended = {key: run for key, run in data.runs.items() if seen.ended.get(key) is run}
    data.runs = {key: run for key, run in data.runs.items() if key not in ended}
    known = {key: seen.moments.get(key) for key in data.runs}
    data.before = {key: one[1] for key, one in known.items() if one and one[0] is data.runs[key]}
    plan = seen.plan
    for key, run in data.runs.items():
        if plan.signature(key) != data.signatures.get(key):
            run.finish()
        if key in plan.wants:
            plan.wants[key].work = LoadWork(
                table=BlockTable()
            )  # its load brings it, or is seen to when it ends
    if MOVES in data.runs:
        plan = replace(plan, moves=None)
    await begin_comparisons(data, engine, plan, seen.survey, on_done=on_done)
    seen.survey.forget_blocks()
    question, now = seen.question, clock()
    data.survey_took = seen.took
    if question.refresh:
        data.outdated = False
        data.checked_at = now
        data.answered.update(question.asked)
    data.survey, data.surveyed_at, data.surveyed_for, data.plan = seen.survey, now, question.basis, plan
    data.leaving = question.leaving
    data.live = frozenset(worker.name for worker in question.workers if worker.live)
    data.short_since = None
    data.outdated = data.outdated or any(run.outdated for run in ended.values())
    _judge(data, now=now, ended=ended)


def _judge(data: MountedData, *, now: float, ended: Mapping[str, LoadRun]) -> None:
    """Remember why the last loads left something out, and when to try again."""
    works = {key: work for key, work in data.plan.works().items() if len(work)}
    lacking = works.keys() | data.runs.keys()
    failed = {key for key in ended.keys() & works.keys() if ended[key].incomplete}
    # A listing between two tries tells nothing new of those that failed.
    waiting = (data.troubles.keys() & lacking) - ended.keys()
    data.troubles = {key: data.troubles[key] for key in waiting} | {
        key: _trouble(ended[key], works[key]) for key in failed
    }
    data.tries = {key: data.tries.get(key, 0) + (key in failed) for key in waiting | failed}
    data.held_back = frozenset(data.troubles.keys() | (ended.keys() & works.keys()))
    if failed:
        most = max(data.tries.values())
        data.retry_at = now + min(RETRY_FIRST * 2 ** (most - 1), RETRY_MAX)
    elif not waiting:
        # A worker tells the master of new blocks with a heartbeat: what was just placed may be unlisted.
        data.retry_at = now + LISTING_LAG if ended.keys() & works.keys() else now


def _trouble(run: LoadRun, work: LoadWork) -> Trouble:
    failures = run.progress.failures
    error: EngineError | None = run.error
    cause = str(error) if error else failures[0].reason if failures else "see the operator's log"
    return Trouble(
        failed_blocks=work.copies,
        cause=cause,
        files=tuple((failure.path, failure.reason) for failure in failures),
    )
