"""Changes of a view: one at a time, each to its end, joined by whoever asks for the same."""

from __future__ import annotations

import asyncio

import pytest

from tdcs.node.csi.views.view import Operations


@pytest.mark.failure_mode("kubelet-gives-up-call")
async def test_an_operation_goes_on_when_its_caller_gives_up_and_the_next_caller_joins_it() -> None:
    operations, release, runs = Operations(), asyncio.Event(), list[str]()

    async def publish() -> None:
        runs.append("begun")
        await release.wait()
        runs.append("ended")

    first = asyncio.create_task(operations.run(name="publish", operation=publish))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert operations.busy
    second = asyncio.create_task(operations.run(name="publish", operation=publish))
    await asyncio.sleep(0)
    release.set()
    await second

    assert runs == ["begun", "ended"]
    assert not operations.busy


async def test_two_different_operations_never_overlap() -> None:
    operations, inside, most = Operations(), 0, 0

    async def change() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inside -= 1

    await asyncio.gather(*(operations.run(name=str(number), operation=change) for number in range(10)))

    assert most == 1


async def test_a_failure_reaches_everyone_who_waits_and_the_next_call_begins_again() -> None:
    operations, fails = Operations(), True

    async def change() -> None:
        await asyncio.sleep(0)
        if fails:
            raise OSError("full")

    results = await asyncio.gather(
        *(operations.run(name="publish", operation=change) for _ in range(3)), return_exceptions=True
    )
    assert [str(result) for result in results] == ["full"] * 3
    fails = False
    await operations.run(name="publish", operation=change)


async def test_closing_ends_what_is_running() -> None:
    operations = Operations()

    async def never() -> None:
        await asyncio.Event().wait()

    waiting = asyncio.create_task(operations.run(name="publish", operation=never))
    await asyncio.sleep(0)
    await operations.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not operations.busy
