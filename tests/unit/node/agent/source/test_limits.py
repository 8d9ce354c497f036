"""Bounds of what is under way: bytes in memory, and bytes a second from a source."""

import threading

import pytest
from tests.support.waiting import eventually

from tdcs.node.agent.mount.transfer_limits import InFlight, RateLimit


def test_no_more_bytes_than_the_limit_are_held_at_a_time_however_many_threads_want_some() -> None:
    bound, lock = InFlight(100), threading.Lock()
    now, most = 0, 0

    def work() -> None:
        nonlocal now, most
        for _ in range(50):
            with bound.hold(30):
                with lock:
                    now += 30
                    most = max(most, now)
                with lock:
                    now -= 30

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert 30 <= most <= 100


def test_a_source_that_hangs_does_not_take_the_memory_of_another_one() -> None:
    bound, stop, many = InFlight(100, look_seconds=0.01), threading.Event(), threading.Barrier(5)

    def hang() -> None:
        with bound.hold(20, owner="hangs"):
            many.wait(20)
            stop.wait(20)

    hanging = [threading.Thread(target=hang, daemon=True) for _ in range(5)]
    for thread in hanging:
        thread.start()
    eventually(lambda: bound._held["hangs"] == 100, deadline=20)
    try:
        for _ in range(3):
            with bound.hold(40, owner="answers"):
                assert bound._held["answers"] == 40
        with bound.hold(30, owner="answers"):
            second = threading.Thread(target=bound.hold(30, owner="answers").__enter__, daemon=True)
            second.start()
            second.join(timeout=0.1)
            assert second.is_alive(), "all of it is held: no more than one piece beyond that"
    finally:
        stop.set()
    second.join(timeout=20)
    assert not second.is_alive()


def test_a_piece_that_is_larger_than_the_limit_is_held_alone() -> None:
    bound = InFlight(100)
    with bound.hold(1_000):
        waiting = threading.Thread(target=lambda: bound.hold(1).__enter__(), daemon=True)
        waiting.start()
        waiting.join(timeout=0.1)
        assert waiting.is_alive()
    waiting.join(timeout=30)
    assert not waiting.is_alive()


def test_what_is_taken_beyond_the_rate_is_waited_for_and_a_pause_saves_up_little() -> None:
    now = [0.0]
    limit = RateLimit(clock=lambda: now[0])
    assert limit.left(limit.take(1_000_000)) == 0.0, "no limit"
    limit.set(1_000)
    now[0] += 3_600
    assert limit.left(limit.take(100)) == 0.0, "what was saved up in a tenth of a second"
    waits = [limit.left(limit.take(500)) for _ in range(4)]
    assert waits == sorted(waits)
    assert 1.4 < waits[-1] < 2.1, "2,000 bytes at 1,000 a second"


def test_who_waits_at_a_low_rate_goes_on_at_the_new_one_when_that_changes() -> None:
    now = [0.0]
    limit = RateLimit(clock=lambda: now[0])
    limit.set(1_000)
    turns = [limit.take(10_000) for _ in range(5)]
    assert limit.left(turns[-1]) == 40.0
    now[0] += 10
    assert limit.left(turns[1]) == 0.0
    limit.set(100_000)
    assert [round(limit.left(turn), 3) for turn in turns[1:]] == [0.0, 0.1, 0.2, 0.3]
    limit.set(0)
    assert limit.left(turns[-1]) > 30
    limit.set(None)
    assert limit.left(turns[-1]) == 0.0


def test_a_thread_that_waits_hears_of_a_new_rate_and_of_the_end() -> None:
    limit, stopped, ended = RateLimit(), threading.Event(), list[bool]()
    limit.set(1)

    def work() -> None:
        for _ in range(3):
            ended.append(limit.wait(1_000, stopped=stopped))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=0.05)
    assert ended == [False], "the first one begins at once, the second would wait for a quarter of an hour"
    limit.set(1_000_000_000)
    thread.join(timeout=20)
    assert ended == [False, False, False]

    limit.set(1)
    limit.take(1_000)
    again = threading.Thread(target=work, daemon=True)
    again.start()
    stopped.set()
    again.join(timeout=20)
    assert ended[3:] == [True, True, True]


@pytest.mark.failure_mode("load-takes-source-bandwidth")
def test_bytes_on_demand_go_ahead_of_a_load_that_waits_longer_for_them() -> None:
    now = [0.0]
    limit = RateLimit(clock=lambda: now[0])
    limit.set(1_000)
    load = [limit.take(10_000) for _ in range(3)]
    assert [limit.left(turn) for turn in load] == [0.0, 10.0, 20.0]
    first, second = (limit.take(2_000, demand=True) for _ in range(2))
    assert limit.left(first) == 0.0, "30 s of the load are owed"
    assert limit.left(second) == 2.0, "the rate is kept among them"
    assert [limit.left(turn) for turn in load] == [4.0, 14.0, 24.0], "and by all together"
    assert limit.left(limit.take(1)) == 34.0
    now[0] += 2
    assert limit.left(second) == 0.0


def test_a_wait_that_is_given_up_gives_its_bytes_back() -> None:
    limit, stopped = RateLimit(look_seconds=0.01), threading.Event()
    limit.set(1_000)
    limit.take(100_000, demand=True)
    calls = []

    def gone() -> None:
        calls.append(1)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        limit.wait(50_000, stopped=stopped, demand=True, waiting=gone)
    assert calls == [1]
    assert 98 < limit.left(limit.take(1, demand=True)) <= 100


def test_who_waits_for_room_in_memory_says_so() -> None:
    bound = InFlight(100, look_seconds=0.01)
    waited = threading.Event()

    def work() -> None:
        with bound.hold(100, waiting=waited.set):
            pass

    with bound.hold(50):
        waiting = threading.Thread(target=work, daemon=True)
        waiting.start()
        assert waited.wait(20)
    waiting.join(timeout=20)
    assert not waiting.is_alive()
