"""Wait for a condition with a deadline, and say what was seen when it never came true.

No test sleeps for a fixed time: it names the outcome it waits for. The poll
interval below only bounds how late the outcome is noticed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

POLL_SECONDS = 0.1
MOST_STRETCHED = 4.0

Describe = str | Callable[[], str]


def at_this_load(seconds: float) -> float:
    """What a promise of so many seconds comes to on this machine now: as much longer as programs wait for a core.

    A promise is made for a machine that has time for its work; a test that shares a starved one would measure the
    others. Beyond ``MOST_STRETCHED`` it is broken all the same.
    """
    return seconds * min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), MOST_STRETCHED)


def eventually(
    condition: Callable[[], T],
    *,
    deadline: float,
    describe: Describe = "",
    retry_on: tuple[type[Exception], ...] = (AssertionError,),
    interval: float = POLL_SECONDS,
) -> T:
    """Call ``condition`` until it returns something truthy, and return that.

    ``deadline`` is in seconds from now. ``describe`` (a text, or a function that is
    called only on failure) says what matters when the wait fails: objects, events,
    logs. An exception in ``retry_on`` counts as "not yet", so that a condition may be
    written with plain asserts; any other exception ends the wait at once.

    Raises AssertionError, with the last value or exception seen and the description.
    """
    __tracebackhide__ = True
    end = time.monotonic() + deadline
    while True:
        begin = time.monotonic()
        try:
            value = condition()
        except retry_on as error:
            last_answer = f"{type(error).__name__}: {error}"
        else:
            if value:
                return value
            last_answer = repr(value)
        if time.monotonic() >= end:
            raise AssertionError(_failure(condition, deadline, last_answer, describe))
        # A costly look (a list of a thousand objects) must not become most of the machine's work.
        time.sleep(max(interval, time.monotonic() - begin))


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[T]],
    *,
    deadline: float,
    describe: Describe = "",
    retry_on: tuple[type[Exception], ...] = (AssertionError,),
    interval: float = POLL_SECONDS,
) -> T: ...


@overload
async def eventually_async(
    condition: Callable[[], T],
    *,
    deadline: float,
    describe: Describe = "",
    retry_on: tuple[type[Exception], ...] = (AssertionError,),
    interval: float = POLL_SECONDS,
) -> T: ...


async def eventually_async(
    condition: Callable[[], Awaitable[T] | T],
    *,
    deadline: float,
    describe: Describe = "",
    retry_on: tuple[type[Exception], ...] = (AssertionError,),
    interval: float = POLL_SECONDS,
) -> T:
    """``eventually`` for tests with an event loop; ``condition`` may be a coroutine function."""
    __tracebackhide__ = True
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    while True:
        begin = loop.time()
        try:
            result = condition()
            value = await result if isinstance(result, Awaitable) else result
        except retry_on as error:
            last_answer = f"{type(error).__name__}: {error}"
        else:
            if value:
                return value
            last_answer = repr(value)
        if loop.time() >= end:
            raise AssertionError(_failure(condition, deadline, last_answer, describe))
        await asyncio.sleep(max(interval, loop.time() - begin))


def _failure(condition: Callable[[], object], deadline: float, seen: str, describe: Describe) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    head = f"{name} did not hold within {deadline:g} s; last seen: {seen}"
    try:
        details = describe() if callable(describe) else describe
    except Exception as error:  # the wait's own failure is the news, whatever the description ran into
        details = f"(no description: {type(error).__name__}: {error})"
    return f"{head}\n{details}" if details else head
