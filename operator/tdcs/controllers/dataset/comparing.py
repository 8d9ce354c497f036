"""Comparisons of a mount's copies with the source: when they begin, and what becomes of wrong copies."""

from collections.abc import Callable

from tdcs.controllers.dataset.data import MountedData, drop
from tdcs.controllers.dataset.plan import Plan
from tdcs.controllers.dataset.report import Wrong
from tdcs.controllers.dataset.survey import Survey
from tdcs.controllers.dataset.verify import VerifyRun
from tdcs.engine.protocol import Engine

SAMPLE = 0.05
"""The part of the bytes that verify: Sampled compares."""

SAMPLE_FILES = 10
"""How many files it compares at least, about."""


async def begin_comparisons(
    data: MountedData, engine: Engine, plan: Plan, survey: Survey, *, on_done: Callable[[], None]
) -> None:
    """Begin to compare what is wholly placed, once, and end what nobody wants any more."""
    for key in data.verifies.keys() - plan.wants.keys():
        await data.verifies.pop(key).cancel()
    data.mended &= plan.wants.keys()
    data.wrong = {key: wrong for key, wrong in data.wrong.items() if key in plan.wants}
    for key, want in plan.wants.items():
        if want.want.verify == "None" or want.missing_bytes or not want.wanted_bytes or key in data.verifies:
            continue
        part = 1.0
        if want.want.verify == "Sampled":
            part = min(max(SAMPLE, SAMPLE_FILES / max(want.wanted_files, 1)), 1.0)
        data.verifies[key] = VerifyRun(
            engine=engine,
            table=survey.table,
            on_done=on_done,
            fraction=part,
            only=want.flags,
            seed=key,
            bandwidth=want.want.bandwidth,
        )


async def mend(data: MountedData, engine: Engine) -> None:
    """Drop copies that were found to differ from the source: the first time they are loaded again, after that
    their nodes shall not hold them, and what reads them there reads the source."""
    for key, run in list(data.verifies.items()):
        wrong = {} if run.running else run.progress.wrong
        if not wrong or key in data.wrong:
            continue
        await drop(engine, wrong)
        if key in data.mended:
            copies = {worker: frozenset(blocks) for worker, blocks in wrong.items()}
            data.wrong[key] = Wrong(
                copies=copies, files=run.progress.failures, count=run.progress.failed_files
            )
        else:
            data.mended.add(key)
            del data.verifies[key]
        data.surveyed_for = None
