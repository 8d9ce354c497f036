"""Calls that hang harm nobody but their own caller."""

import asyncio
import threading

import pytest
from tests.support.waiting import eventually_async

from tdcs.node.csi.hang_guard import HangGuard


async def test_an_end_and_an_error_reach_the_caller() -> None:
    guard, call_event = HangGuard(threads_per_key=1), threading.Event()

    await guard.run(key="a", call=call_event.set, timeout_seconds=60)
    assert call_event.is_set()
    with pytest.raises(ZeroDivisionError):
        await guard.run(key="a", call=lambda: divmod(1, 0) and None, timeout_seconds=60)


async def test_a_hanging_call_ends_in_a_timeout_and_its_late_end_frees_its_thread() -> None:
    guard, release = HangGuard(threads_per_key=1), threading.Event()

    def hang() -> None:
        release.wait()

    with pytest.raises(TimeoutError):
        await guard.run(key="a", call=hang, timeout_seconds=0.05)
    release.set()

    await guard.run(key="a", call=hang, timeout_seconds=60)


async def test_hanging_calls_take_no_more_threads_than_allowed_and_leave_other_keys_alone() -> None:
    guard, release, started = HangGuard(threads_per_key=2), threading.Event(), []

    def hang() -> None:
        started.append(threading.get_ident())
        release.wait()

    calls = [guard.run(key="dead", call=hang, timeout_seconds=0.2) for _ in range(5)]
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(result) for result in results] == [TimeoutError] * 5
    # A thread may begin after its caller has given up.
    await eventually_async(lambda: len(started) == 2, deadline=60)
    await guard.run(key="alive", call=release.is_set, timeout_seconds=60)

    release.set()
    await guard.run(key="dead", call=release.is_set, timeout_seconds=60)
    assert len(started) == 2
