"""At most one holds the lease, and a dead holder is followed after its time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.kube.fake import ScriptedApi, error

from tdcs.kube.errors import ConflictError, UnavailableError
from tdcs.kube.lease import Lease, LeaseLostError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource

KEY = ("leases", "system", "operator")


class Server(ScriptedApi):
    """Objects with versions; it can be out of order."""

    down = False

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Object | None:
        if self.down:
            raise error(UnavailableError)
        return await super().get(resource, name=name, namespace=namespace)

    async def create(self, resource: Resource, *, obj: Object, dry_run: bool = False) -> Object:
        versioned = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "1"}}
        return await super().create(resource, obj=versioned)

    async def merge(
        self, resource: Resource, *, name: str, namespace: str | None = None, patch: Mapping[str, Any]
    ) -> Object:
        live = self.objects[resource.plural, namespace or "", name]
        version = live["metadata"]["resourceVersion"]
        if patch["metadata"]["resourceVersion"] != version:
            raise error(ConflictError)
        changed = {
            **live,
            "metadata": {**live["metadata"], "resourceVersion": str(int(version) + 1)},
            "spec": {**live["spec"], **patch["spec"]},
        }
        self.objects[resource.plural, namespace or "", name] = changed
        return changed

    @property
    def holder(self) -> str:
        return str(self.objects[KEY]["spec"]["holderIdentity"])


class Clock:
    """Time that passes when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def lease(api: ScriptedApi, identity: str, clock: Clock, *, renew: float = 10.0) -> Lease:
    return Lease(
        api=api,
        namespace="system",
        name="operator",
        identity=identity,
        clock=clock,
        retry=0.001,
        duration=15.0,
        renew=renew,
    )


async def holds(candidate: Lease) -> bool:
    """Whether it gets the lease now, with one of its first tries, however long these take."""
    trying = asyncio.create_task(candidate.acquire())
    for _ in range(10):
        await asyncio.sleep(0.002)
        if trying.done():
            await trying
            return True
    trying.cancel()
    return False


async def test_the_first_one_gets_it_and_the_second_waits() -> None:
    api, clock = Server(), Clock()
    assert await holds(lease(api, "a", clock))
    assert not await holds(lease(api, "b", clock))
    assert api.holder == "a"


async def test_a_dead_holder_is_followed_after_the_leases_time_as_seen_here() -> None:
    api, clock = Server(), Clock()
    assert await holds(lease(api, "a", clock))
    clock.now = 100.0  # however old the lease says it is, this one has just begun to look
    second = lease(api, "b", clock)
    assert not await holds(second)
    clock.now = 114.0
    assert not await holds(second)
    clock.now = 115.0
    assert await holds(second)
    assert api.holder == "b"
    assert api.objects[KEY]["spec"]["leaseTransitions"] == 1


async def test_a_holder_that_renews_keeps_it() -> None:
    api, clock = Server(), Clock()
    first, second = lease(api, "a", clock), lease(api, "b", clock)
    assert await holds(first)
    for _ in range(5):
        clock.now += 10.0
        assert await holds(first)  # renews
        assert not await holds(second)


async def test_a_released_lease_is_free_at_once() -> None:
    api, clock = Server(), Clock()
    first = lease(api, "a", clock)
    assert await holds(first)
    await first.release()
    assert await holds(lease(api, "b", clock))


async def test_only_its_holder_can_release_it() -> None:
    api, clock = Server(), Clock()
    assert await holds(lease(api, "a", clock))
    await lease(api, "b", clock).release()
    assert api.holder == "a"


async def test_a_holder_that_was_replaced_learns_it() -> None:
    api, clock = Server(), Clock()
    first = lease(api, "a", clock)
    assert await holds(first)
    api.objects[KEY]["spec"] = {**api.objects[KEY]["spec"], "holderIdentity": "b", "renewTime": "later"}
    with pytest.raises(LeaseLostError, match="last seen to be b"):
        await asyncio.wait_for(first.keep(), 60)


async def test_a_holder_that_cannot_renew_in_time_gives_up() -> None:
    api, clock = Server(), Clock()
    first = lease(api, "a", clock)
    assert await holds(first)
    api.down = True
    task = asyncio.create_task(first.keep())
    await asyncio.sleep(0.02)
    assert not task.done()  # a short outage is none
    clock.now = 10.0
    with pytest.raises(LeaseLostError, match="not renewed for 10 s"):
        await asyncio.wait_for(task, 60)


async def test_two_who_want_it_at_once_do_not_both_get_it() -> None:
    api, clock = Server(), Clock()
    answers = await asyncio.gather(*(holds(lease(api, name, clock)) for name in "abcdef"))
    assert sum(answers) == 1


async def test_a_holder_believes_itself_for_no_longer_than_others_do_though_the_answer_comes_late() -> None:
    api, clock = Server(), Clock()
    first, second = lease(api, "a", clock), lease(api, "b", clock)
    answer = api.merge

    async def late(*arguments: Any, **more: Any) -> Object:
        written = await answer(*arguments, **more)
        assert not await holds(second)  # it sees the renewal, and counts from now
        clock.now += 8.0
        return written

    assert await holds(first)
    api.merge = late  # type: ignore[method-assign]
    await asyncio.wait_for(first.acquire(), 60)
    clock.now += 3.0
    assert not first.is_held()  # 11 s after what others saw
    clock.now += 4.0
    api.merge = answer  # type: ignore[method-assign]
    assert await holds(second)


async def test_it_is_held_from_the_first_renewal_until_it_is_lost_or_given_up() -> None:
    api, clock = Server(), Clock()
    first = lease(api, "a", clock)
    assert not first.is_held()
    assert await holds(first)
    assert first.is_held()
    api.objects[KEY]["spec"] = {**api.objects[KEY]["spec"], "holderIdentity": "b", "renewTime": "later"}
    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(first.keep(), 60)
    assert not first.is_held()
    api.objects[KEY]["spec"] = {**api.objects[KEY]["spec"], "holderIdentity": ""}
    assert await holds(first)
    assert first.is_held()
    await first.release()
    assert not first.is_held()


async def test_a_process_that_was_paused_for_longer_than_the_lease_lasts_does_not_hold_it_any_more() -> None:
    api, clock = Server(), Clock()
    first = lease(api, "a", clock)
    assert await holds(first)
    clock.now += 60.0
    assert not first.is_held()
