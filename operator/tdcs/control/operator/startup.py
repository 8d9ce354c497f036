"""How an operator that starts waits for the API server: without end while it is away, not for a right that it lacks."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tdcs.kube.errors import KubeError, UnavailableError
from tdcs.kube.informer import backoff
from tdcs.kube.informer_set import InformerSet

_log = logging.getLogger(__name__)
_monotonic = time.monotonic

T = TypeVar("T")

SYNC_SECONDS = 120.0
"""An API server that still refuses after so long will not grant it by itself."""

LOOK_SECONDS = 5.0
"""Between two looks at views that are not filled yet."""


class _Refusals:
    """How long the server has refused in a row: one that has only started knows of no rights for some seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def note(self, problem: KubeError | None) -> None:
        """Take in what came last; raises it when the server has refused for `SYNC_SECONDS`."""
        if problem is None or isinstance(problem, UnavailableError):
            self._since = None
            return
        now = _monotonic()
        if self._since is None:
            self._since = now
        elif now - self._since > SYNC_SECONDS:
            raise problem


async def until_synced(informers: Sequence[InformerSet]) -> None:
    """Wait until all views are filled.

    Raises:
        KubeError: the server refuses one of them for `SYNC_SECONDS`.
    """
    refusals, said_at = [_Refusals() for _ in informers], _monotonic()
    while True:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                for informer in informers:
                    await informer.wait_synced()
            return
        except TimeoutError:
            problems = [informer.problem() for informer in informers]
        for refusal, problem in zip(refusals, problems, strict=True):
            refusal.note(problem)
        if _monotonic() - said_at > SYNC_SECONDS:
            said_at = _monotonic()
            reason = next(filter(None, problems), "it has not answered yet")
            _log.warning("still waiting for the API server: %s", reason)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What the server answers, asked again until it does.

    Raises:
        KubeError: it refuses for `SYNC_SECONDS`.
    """
    refusals, failures = _Refusals(), 0
    while True:
        try:
            return await ask()
        except KubeError as error:
            refusals.note(error)
            failures += 1
            pause = backoff(failures=failures)
            _log.warning("%s; trying again in %.1f s", error, pause)
            await asyncio.sleep(pause)
