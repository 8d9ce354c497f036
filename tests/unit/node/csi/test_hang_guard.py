"""Calls that hang harm nobody but their own caller."""

import asyncio
import threading

import pytest
from tests.support.waiting import eventually_async

from tdcs.node.csi.hang_guard import HangGuard


def unwanted(_result: object) -> None:
    raise AssertionError("the result was wanted")


async def test_a_result_and_an_error_reach_the_caller() -> None:
    guard = HangGuard(threads_per_key=1)

    assert await guard.run(key="a", call=lambda: 7, timeout_seconds=60, discard=unwanted) == 7
    with pytest.raises(ZeroDivisionError):
        await guard.run(key="a", call=lambda: 1 // 0, timeout_seconds=60, discard=unwanted)


async def test_a_hanging_call_ends_in_a_timeout_and_its_late_result_is_discarded() -> None:
    guard, release, discarded = HangGuard(threads_per_key=1), threading.Event(), asyncio.Event()

    def hang() -> str:
        release.wait()
        return "late"

    with pytest.raises(TimeoutError):
        await guard.run(key="a", call=hang, timeout_seconds=0.05, discard=lambda _late: discarded.set())
    release.set()

    await asyncio.wait_for(discarded.wait(), timeout=60)


async def test_hanging_calls_take_no_more_threads_than_allowed_and_leave_other_keys_alone() -> None:
    guard, release, started = HangGuard(threads_per_key=2), threading.Event(), []

    def hang() -> None:
        started.append(threading.get_ident())
        release.wait()

    calls = [
        guard.run(key="dead", call=hang, timeout_seconds=0.2, discard=lambda _none: None) for _ in range(5)
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(result) for result in results] == [TimeoutError] * 5
    # A thread may begin after its caller has given up.
    await eventually_async(lambda: len(started) == 2, deadline=60)
    assert await guard.run(key="alive", call=lambda: 1, timeout_seconds=60, discard=unwanted) == 1

    release.set()
    assert await guard.run(key="dead", call=lambda: 2, timeout_seconds=60, discard=unwanted) == 2
    assert len(started) == 2
