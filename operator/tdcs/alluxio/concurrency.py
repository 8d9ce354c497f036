"""Many awaitable calls, only so many of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


async def bounded(call: Callable[[A], Awaitable[R]], items: Iterable[A], *, limit: int) -> list[R]:
    """Results of `call` for all items, in their order, with at most `limit` calls in flight.

    The first error ends the others and is raised.
    """
    todo = enumerate(items)
    results: dict[int, R] = {}

    async def run() -> None:
        for index, item in todo:
            results[index] = await call(item)

    tasks = [asyncio.create_task(run()) for _ in range(limit)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[index] for index in sorted(results)]
