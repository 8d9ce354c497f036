"""What is known of a store's name: false and missing answers count only once they are repeated."""

from collections.abc import Sequence

from tests.support.waiting import eventually_async

from tdcs.controllers.mounts.access.endpoints import Endpoints, HostAnswer


class World:
    """A name server and a clock."""

    def __init__(self) -> None:
        self.now, self.found, self.asked = 0.0, ["93.184.216.34"], 0

    def resolve(self, host: str) -> Sequence[str]:
        self.asked += 1
        if not self.found:
            raise OSError("no answer")
        return self.found

    async def later(self, endpoints: Endpoints, seconds: float) -> HostAnswer:
        """The answer after a while, and one lookup more."""
        self.now += seconds
        asked = self.asked
        endpoints.look("store.example")
        await eventually_async(lambda: self.asked > asked, deadline=10)
        await eventually_async(lambda: not endpoints.looking("store.example"), deadline=10)
        return endpoints.look("store.example")


async def test_a_failed_lookup_leaves_a_good_answer_for_a_minute() -> None:
    world = World()
    endpoints = Endpoints(resolve=world.resolve, networks=lambda: (), clock=lambda: world.now)
    assert (await world.later(endpoints, 0)).address == "93.184.216.34"
    world.found = []
    assert (await world.later(endpoints, 11)).address == "93.184.216.34"
    assert (await world.later(endpoints, 60)).failure
    await endpoints.close()


async def test_an_address_inside_the_cluster_is_settled_after_three_looks_and_a_minute() -> None:
    world = World()
    endpoints = Endpoints(resolve=world.resolve, networks=lambda: (), clock=lambda: world.now)
    await world.later(endpoints, 0)
    world.found = ["169.254.169.254"]
    found = [await world.later(endpoints, 31) for _ in range(3)]
    assert all(one.internal for one in found)
    assert [one.settled for one in found] == [False, False, True]
    world.found = ["93.184.216.34"]
    assert (await world.later(endpoints, 11)).address == "93.184.216.34"
    await endpoints.close()


async def test_an_address_is_judged_at_once_and_asked_of_no_name_server() -> None:
    world = World()
    endpoints = Endpoints(resolve=world.resolve, networks=lambda: ["10.0.0.0/8"], clock=lambda: world.now)
    assert endpoints.look("93.184.216.34").address == "93.184.216.34"
    inside = endpoints.look("10.0.0.7")
    assert inside.internal == "cluster-internal"
    assert inside.settled
    assert not world.asked
    await endpoints.close()
