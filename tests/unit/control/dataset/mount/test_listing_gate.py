"""Whose source is listed next, in virtual time."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.support import virtual_time

from tdcs.control.dataset.mount.listing_gate import AT_ONCE, STUCK_AT_ONCE, ListingGate, ListingTurn
from tdcs.listing.result import Listed

STUCK = 120.0
LONG = 900.0


class Bench:
    """A gate, and when each listing began."""

    def __init__(self) -> None:
        self.gate = ListingGate(stuck_seconds=STUCK)
        self.begun: dict[str, float] = {}
        self.tasks: list[asyncio.Task[Listed]] = []

    def list(self, name: str, seconds: float, *namespaces: str) -> ListingTurn:
        """Have a source listed that takes so long."""
        turn = ListingTurn(namespaces=frozenset(namespaces), since=0.0)

        async def work() -> Listed:
            self.begun[name] = asyncio.get_running_loop().time()
            await asyncio.sleep(seconds)
            return cast(Listed, name)

        self.tasks.append(asyncio.create_task(self.gate.run(work, turn=turn), name=name))
        return turn

    async def stop(self) -> None:
        """Cancel all that are under way."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def pass_by(seconds: float) -> None:
    """Let so much time go, and do what is due then."""
    await asyncio.sleep(seconds)
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.threat("slow-listings")
def test_behind_slow_sources_of_a_namespace_others_wait_until_one_counts_as_stuck() -> None:
    async def story() -> None:
        bench = Bench()
        for number in range(200):
            bench.list(f"slow-{number}", LONG, "attacker")
        await pass_by(100 * STUCK)
        began = asyncio.get_running_loop().time()
        bench.list("theirs", 1.0, "other")
        await pass_by(STUCK)
        assert bench.begun["theirs"] - began <= STUCK
        await bench.stop()

    virtual_time.run(story())


@pytest.mark.threat("slow-listings")
def test_behind_sources_that_take_just_not_too_long_another_namespace_is_next() -> None:
    async def story() -> None:
        bench = Bench()
        for number in range(200):
            bench.list(f"slow-{number}", STUCK - 1.0, "attacker")
        await pass_by(10.0)
        bench.list("theirs", 1.0, "other")
        bench.list("theirs too", 1.0, "third")
        await pass_by(STUCK)
        assert max(bench.begun["theirs"], bench.begun["theirs too"]) <= STUCK
        await bench.stop()

    virtual_time.run(story())


@pytest.mark.threat("slow-listings")
def test_a_namespace_with_a_source_that_hangs_takes_turns_with_one_of_many_that_do_not() -> None:
    async def story() -> None:
        bench = Bench()
        bench.list("hangs", 100 * LONG, "other")
        for number in range(200):
            bench.list(f"quick-{number}", 10.0, "attacker")
        await pass_by(STUCK + 5.0)
        bench.list("theirs", 10.0, "other")
        await pass_by(20.0)
        assert "theirs" in bench.begun
        await bench.stop()

    virtual_time.run(story())


@pytest.mark.threat("slow-listings")
def test_one_namespace_alone_has_half_of_the_places_and_each_further_one_half_of_the_rest() -> None:
    async def story() -> None:
        bench = Bench()
        for namespace, places in (("a", 4), ("b", 2), ("c", 1), ("d", 1), ("e", 0)):
            for number in range(STUCK_AT_ONCE):
                bench.list(f"{namespace}{number}", 100 * LONG, namespace)
            await pass_by(5 * STUCK)
            assert sum(name.startswith(namespace) for name in bench.begun) == places
        await bench.stop()

    virtual_time.run(story())


def test_no_more_than_a_few_go_on_at_once_and_all_have_their_turn_in_order() -> None:
    async def story() -> None:
        bench = Bench()
        for number in range(10):
            bench.list(f"{number}", 10.0, "a")
        await asyncio.gather(*bench.tasks)
        assert list(bench.begun) == [f"{number}" for number in range(10)]
        assert [bench.begun[f"{number}"] for number in range(10)] == [
            10.0 * (number // AT_ONCE) for number in range(10)
        ]

    virtual_time.run(story())


def test_what_is_waited_for_is_said_and_a_namespace_that_joins_gives_a_mount_its_own_share() -> None:
    async def story() -> None:
        bench = Bench()
        for number in range(STUCK_AT_ONCE):
            bench.list(f"slow-{number}", LONG, "attacker")
        turn = bench.list("shared", 1.0, "attacker")
        await pass_by(1.0)
        assert (turn.waits, bench.gate.held_up_by(turn)) == (True, "all")
        await pass_by(2 * STUCK)
        assert (turn.waits, bench.gate.held_up_by(turn)) == (True, "namespace")
        bench.gate.join(turn, frozenset({"attacker", "other"}))
        await pass_by(0.0)
        assert not turn.waits
        assert "shared" in bench.begun
        await bench.stop()

    virtual_time.run(story())


@pytest.mark.parametrize("when", [0.0, 10.0, STUCK + 10.0, LONG])
def test_a_cancelled_task_takes_no_place_whether_it_waits_runs_or_just_got_one(
    when: float,
) -> None:
    async def story() -> None:
        bench = Bench()
        for number in range(STUCK_AT_ONCE):
            bench.list(f"slow-{number}", LONG, *(["a"] if number % 2 else ["a", "b"]))
        await asyncio.sleep(when)
        await bench.stop()
        bench.begun.clear()
        for number in range(4):
            bench.list(f"again-{number}", LONG, "a")
        await pass_by(STUCK + 1.0)
        assert len(bench.begun) == 4
        await bench.stop()

    virtual_time.run(story())


def test_one_that_fails_gives_its_place_back() -> None:
    async def fail() -> Listed:
        raise RuntimeError("a defect")

    async def story() -> None:
        gate = ListingGate(stuck_seconds=STUCK)
        for _ in range(2 * STUCK_AT_ONCE):
            with pytest.raises(RuntimeError, match="a defect"):
                await gate.run(fail, turn=ListingTurn(namespaces=frozenset({"a"}), since=0.0))

    virtual_time.run(story())
