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

T = TypeVar("T")

SYNC_SECONDS = 120.0
"""An API server that still refuses a view after so long will not grant it by itself."""


async def until_synced(informers: Sequence[InformerSet]) -> None:
    """Wait until all views are filled.

    Raises:
        KubeError: the server refuses one of them for `SYNC_SECONDS`.
    """
    while True:
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for informer in informers:
                    await informer.wait_synced()
            return
        except TimeoutError:
            problems = [problem for informer in informers if (problem := informer.problem()) is not None]
        for problem in problems:
            if not isinstance(problem, UnavailableError):
                raise problem
        reason = problems[0] if problems else "it has not answered yet"
        _log.warning("still waiting for the API server: %s", reason)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What the server answers, asked again until it does.

    Raises:
        KubeError: it refuses for `SYNC_SECONDS`.
    """
    begun, failures = time.monotonic(), 0
    while True:
        try:
            return await ask()
        except KubeError as error:
            if not isinstance(error, UnavailableError) and time.monotonic() - begun > SYNC_SECONDS:
                raise
            failures += 1
            pause = backoff(failures=failures)
            _log.warning("%s; trying again in %.1f s", error, pause)
            await asyncio.sleep(pause)
