"""The work queue hands each key to one worker at a time and loses nothing."""

import asyncio

import pytest
from tests.support import virtual_time
from tests.support.waiting import eventually_async

from tdcs.kube.queue import KeyedQueue


async def test_a_key_that_is_added_twice_is_handed_out_once() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    queue.add("b")
    queue.add("a")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_that_changes_while_it_is_worked_on_comes_again_afterwards() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), timeout=0.01)
    queue.done(key)
    assert await queue.get() == "a"


async def test_urgent_keys_are_handed_out_before_others_in_their_own_order() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    queue.add("b")
    queue.add("late", urgent=True)
    queue.add("b", urgent=True)
    queue.add("late")  # stays urgent
    assert len(queue) == 3
    assert [await queue.get() for _ in range(3)] == ["late", "b", "a"]
    assert len(queue) == 0


async def test_an_urgent_key_stays_urgent_until_the_work_on_it_succeeds() -> None:
    queue: KeyedQueue[str] = KeyedQueue(retry_first=0.0)
    queue.add("a", urgent=True)
    assert await queue.get() == "a"
    for key in "bcd":
        queue.add(key)
    queue.done("a", failed=True)
    await eventually_async(lambda: len(queue) == 4, deadline=20)
    assert await queue.get() == "a"
    queue.done("a")
    queue.add("a")
    assert [await queue.get() for _ in range(4)] == ["b", "c", "d", "a"]


async def test_a_key_that_becomes_urgent_while_it_is_worked_on_comes_first_afterwards() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add("a")
    key = await queue.get()
    queue.add("b")
    queue.add("a", urgent=True)
    queue.add("a")
    queue.done(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_the_earlier_of_two_dates_counts() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 60)
    assert await asyncio.wait_for(queue.get(), timeout=60) == "a"
    queue.close()


async def test_a_key_that_fails_waits_longer_each_time_and_alone() -> None:
    queue: KeyedQueue[str] = KeyedQueue(retry_first=100.0, retry_max=1000.0)
    waits = []
    for _ in range(3):
        queue.add("bad")
        queue.done(await queue.get(), failed=True)
        waits.append(queue.next_in("bad"))
        queue.close()
    assert 50 <= waits[0] <= 100 <= waits[1] <= 200 <= waits[2] <= 400
    queue.add("good")
    assert await queue.get() == "good"
    queue.add("bad")
    queue.done(await queue.get())
    queue.add("bad")
    queue.done(await queue.get(), failed=True)
    assert queue.next_in("bad") <= 100  # success has cleared the count
    queue.close()


async def test_the_age_of_the_oldest_key_tells_of_a_stuck_queue() -> None:
    now = 10.0
    queue: KeyedQueue[str] = KeyedQueue(clock=lambda: now)
    assert queue.oldest_age() == 0
    queue.add("a")
    now = 25.0
    queue.add("b")
    queue.add("c", urgent=True)
    assert queue.oldest_age() == 15


async def test_a_worker_of_one_lane_gets_its_keys_though_others_wait_longer() -> None:
    queue: KeyedQueue[str] = KeyedQueue(lane=lambda key: key[0])
    taking = asyncio.create_task(queue.get(lane="b"))
    queue.add("a1")
    queue.add("a2")
    await asyncio.sleep(0)
    assert not taking.done()
    queue.add("b1")
    async with asyncio.timeout(60):
        assert await taking == "b1"
        assert len(queue) == 2
        assert await queue.get() == "a1"
        assert await queue.get(lane="a") == "a2"


def test_a_key_rests_after_the_work_on_it_and_comes_again_once_for_all_that_was_added() -> None:
    async def main() -> None:
        loop, handed_out = asyncio.get_running_loop(), list[tuple[str, float]]()
        queue: KeyedQueue[str] = KeyedQueue(rest=0.1)

        async def work() -> None:
            while True:
                key = await queue.get()
                handed_out.append((key, round(loop.time(), 6)))
                queue.done(key)

        worker = asyncio.create_task(work())
        queue.add("a")
        await asyncio.sleep(0.02)
        for _ in range(5):
            queue.add("a")
        queue.add("b")  # another key's rest is no matter to it
        assert len(queue) == 1
        await asyncio.sleep(1)
        assert handed_out == [("a", 0.0), ("b", 0.02), ("a", 0.1)]
        queue.add("a")
        await asyncio.sleep(0.01)
        assert handed_out[3:] == [("a", 1.02)]  # at once after a long pause
        queue.add("a")
        queue.close()
        await asyncio.sleep(1)
        assert len(handed_out) == 4
        worker.cancel()

    virtual_time.run(main())
