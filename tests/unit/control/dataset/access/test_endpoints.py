"""What is known of a store's name: it is followed, and false and missing answers count once they are repeated."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from tests.support.waiting import eventually_async
from tests.unit.control.server import Server

from tdcs.control.context import Settings, WorkKey
from tdcs.control.dataset.access import store_endpoints as module
from tdcs.control.dataset.access.cluster_networks import ClusterNetworks
from tdcs.control.dataset.access.store_endpoints import Endpoints
from tdcs.decide.may_read import HostAnswer
from tdcs.model.kube_resources import DATASETS

STORE = "store.example"
FLAKY = 300
ONE, TWO = (WorkKey(DATASETS, "n", name) for name in ("one", "two"))


class World:
    """Name servers, a clock, and who was woken."""

    def __init__(self) -> None:
        self.now, self.addresses, self.lookups = 0.0, ["93.184.216.34"], 0
        self.networks = ClusterNetworks(api=Server(), settings=Settings(), nodes={})
        self.woken: list[WorkKey] = []
        self.hanging = threading.Event()
        self.flaky = 0
        self.times: Counter[str] = Counter()
        self.endpoints = Endpoints(
            resolve=self.resolve,
            networks=self.networks,
            pods=(),
            clock=lambda: self.now,
            on_change=self.woken.append,
        )

    def resolve(self, host: str) -> Sequence[str]:
        if host.startswith("slow"):
            self.hanging.wait(30)
            raise OSError("no answer")
        if host.startswith("flaky"):  # slow every second time
            self.flaky += 1
            self.times[host] += 1
            if self.times[host] % 2:
                self.hanging.wait(0.03)
            return self.addresses
        self.lookups += 1
        if not self.addresses:
            raise OSError("no answer")
        return self.addresses

    def look(self, host: str = STORE, *, user: WorkKey = ONE) -> HostAnswer:
        return self.endpoints.look(host, user=user)

    async def until(self, holds: Callable[[HostAnswer], object], *, host: str = STORE) -> HostAnswer:
        """Until the answer is so."""
        await eventually_async(lambda: holds(self.look(host)), deadline=20, interval=0.005)
        return self.look(host)

    async def later(self, seconds: float) -> HostAnswer:
        """The answer after a while and a whole lookup more."""
        self.now += seconds
        before = self.lookups
        await eventually_async(lambda: self.lookups >= before + 2, deadline=20, interval=0.005)
        return self.look()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.005)
    world = World()
    yield world
    world.hanging.set()
    await world.endpoints.close()


@pytest.mark.failure_mode("name-servers-fail")
async def test_a_failed_lookup_leaves_a_good_answer_for_a_minute(world: World) -> None:
    assert not world.look().known
    assert (await world.until(lambda answer: answer.known)).address == "93.184.216.34"
    world.addresses = []
    assert (await world.later(11)).address == "93.184.216.34"
    assert (await world.later(60)).failure


async def test_an_address_inside_the_cluster_is_settled_after_three_looks_and_a_minute(world: World) -> None:
    await world.until(lambda answer: answer.address)
    world.addresses = ["169.254.169.254"]
    assert not (await world.until(lambda answer: answer.internal)).settled
    for _ in range(3):
        answer = await world.later(15)
        assert answer.internal
        assert not answer.settled
    assert (await world.later(31)).settled
    world.addresses = ["93.184.216.34"]
    await world.until(lambda answer: answer.address == "93.184.216.34")


async def test_an_address_is_judged_at_once_and_asked_of_no_name_server(world: World) -> None:
    world.networks.texts = ("10.0.0.0/8",)
    assert world.look("93.184.216.34").address == "93.184.216.34"
    inside = world.look("10.0.0.7")
    assert inside.internal == "cluster-internal"
    assert inside.settled
    assert not world.lookups


async def test_only_a_changed_answer_wakes_those_who_use_the_name(world: World) -> None:
    world.look(user=TWO)
    await world.until(lambda answer: answer.address)
    world.woken.clear()
    await world.later(1)
    world.addresses = ["93.184.216.35", "93.184.216.34"]  # another order, and one address more
    await world.later(1)
    assert not world.woken
    world.addresses = ["93.184.216.35"]
    await eventually_async(lambda: len(world.woken) == 2, deadline=20)
    assert set(world.woken) == {ONE, TWO}
    world.endpoints.drop(ONE)
    world.addresses = ["93.184.216.36"]
    await eventually_async(lambda: len(world.woken) == 3, deadline=20)
    assert world.woken[2] == TWO


@pytest.mark.parametrize("host", [STORE, "93.184.216.34"])
async def test_a_network_that_the_cluster_gets_later_is_compared_too(world: World, host: str) -> None:
    assert (await world.until(lambda answer: answer.known, host=host)).address == "93.184.216.34"
    world.networks.texts = ("93.184.216.0/24",)
    await world.until(lambda answer: answer.internal == "cluster-internal", host=host)
    assert ONE in world.woken


async def test_names_that_nobody_uses_are_looked_up_no_more(world: World) -> None:
    await world.until(lambda answer: answer.known)
    world.look("other.example")  # a user has one name
    await eventually_async(lambda: world.endpoints._hosts.keys() == {"other.example"}, deadline=20)
    world.endpoints.drop(ONE)
    assert not world.endpoints._hosts
    world.endpoints.drop(ONE)


@pytest.mark.failure_mode("name-servers-fail")
@pytest.mark.threat("slow-names")
async def test_slow_names_hold_up_no_other_name_and_are_said_to_be_slow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.02)
    for number in range(2 * module.LANES):
        world.look(f"slow-{number}.example", user=WorkKey(DATASETS, "tenant", str(number)))
    await world.until(lambda answer: answer.address == "93.184.216.34")
    await world.later(1)

    slow = WorkKey(DATASETS, "tenant", "0")
    await eventually_async(
        lambda: "has answered" in world.look("slow-0.example", user=slow).failure, deadline=20
    )
    world.addresses = ["93.184.216.37"]
    await world.until(lambda answer: answer.address == "93.184.216.37")
    world.hanging.set()
    await eventually_async(
        lambda: "no answer" in world.look("slow-0.example", user=slow).failure, deadline=20
    )


def many_flaky_names(world: World) -> None:
    for number in range(FLAKY):
        world.look(f"flaky-{number}.example", user=WorkKey(DATASETS, "tenant", str(number)))


@pytest.mark.failure_mode("name-servers-fail")
@pytest.mark.threat("slow-names")
async def test_names_that_are_slow_every_second_time_hold_up_no_other_namespace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.02)
    await world.until(lambda answer: answer.address)
    many_flaky_names(world)
    before = world.flaky
    for _ in range(10):
        assert (await world.later(30)).address == "93.184.216.34"
    assert world.flaky - before < FLAKY  # or it waited for all of them each time


@pytest.mark.threat("slow-names")
async def test_a_name_that_is_queued_behind_others_of_a_namespace_is_looked_up_for_another_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.02)
    many_flaky_names(world)
    world.look(user=WorkKey(DATASETS, "tenant", "the same"))
    await eventually_async(lambda: world.flaky, deadline=20, interval=0.005)
    before = world.flaky
    await world.until(lambda answer: answer.address)
    assert world.flaky - before < FLAKY / 2


async def test_a_good_answer_is_not_kept_forever_by_a_name_server_that_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.02)
    resolve = world.endpoints._resolve
    assert (await world.until(lambda answer: answer.known)).address

    def hangs(host: str) -> Sequence[str]:
        world.hanging.wait(30)
        return resolve(host)

    monkeypatch.setattr(world.endpoints, "_resolve", hangs)
    await asyncio.sleep(0)
    world.now += 59
    assert world.look().address
    world.now += 2
    await world.until(lambda answer: answer.failure)
    world.hanging.set()
    await world.until(lambda answer: answer.address)
