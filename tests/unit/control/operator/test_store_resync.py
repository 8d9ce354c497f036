"""A view that is fed by events is compared with the server's list when something may have been missed."""

import asyncio
from typing import Any

import pytest
from tests.support.waiting import eventually_async
from tests.unit.kube.fake import ScriptedApi, UnavailableError, error, pod

from tdcs.control.store_resync import StoreResync
from tdcs.kube.api import ObjectList
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import PODS, Resource

View = dict[Resource, dict[Key, Object]]


def following(api: ScriptedApi, view: View, told: list[str]) -> StoreResync:
    def missed(resource: Resource, obj: Object, *, deleted: bool) -> None:
        name = obj["metadata"]["name"]
        told.append(f"{'-' if deleted else '+'}{name}")
        if deleted:
            view[resource].pop(("n", name))
        else:
            view[resource]["n", name] = obj

    return StoreResync(api=api, views=view, missed=missed, pause=0)


def known(*names: str) -> View:
    return {PODS: {("n", name): pod(name, 1) for name in names}}


def listed(*names: str) -> ObjectList:
    return ObjectList(items=[pod(name, 1) for name in names], resource_version="2")


async def test_what_the_list_lacks_is_gone_and_what_only_it_has_is_new() -> None:
    view, told = known("ghost", "alive"), list[str]()
    resync = following(ScriptedApi(lists=[listed("alive", "missed")]), view, told)
    resync.doubt(PODS)
    await eventually_async(lambda: len(told) == 2, deadline=60)
    assert told == ["-ghost", "+missed"]
    assert sorted(name for _, name in view[PODS]) == ["alive", "missed"]


async def test_a_change_that_no_event_told_is_taken_from_the_list() -> None:
    view, told = known("changed", "alive"), list[str]()
    view[PODS]["n", "changed"] = pod("changed", 0)
    resync = following(ScriptedApi(lists=[listed("alive", "changed")]), view, told)
    resync.doubt(PODS)
    await eventually_async(lambda: told == ["+changed"], deadline=60)
    assert view[PODS]["n", "changed"]["metadata"]["resourceVersion"] == "1"


async def test_many_doubts_are_one_list_and_a_doubt_while_it_is_read_is_another() -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedApi):
        async def list(self, resource: Resource, **asked: Any) -> ObjectList:
            reading.set()
            await go_on.wait()
            return await super().list(resource, **asked)

    api = Slow(lists=[listed("alive")])
    resync = following(api, known("alive"), [])
    for _ in range(3):
        resync.doubt(PODS)
    async with asyncio.timeout(60):
        await reading.wait()
    resync.doubt(PODS)
    go_on.set()
    await eventually_async(lambda: api.listed == 2, deadline=60)
    await resync.close()
    assert api.listed == 2


async def test_what_an_event_changes_while_the_list_is_read_is_newer_than_the_list() -> None:
    view, told = known("made anew"), list[str]()

    class Racing(ScriptedApi):
        async def list(self, resource: Resource, **asked: Any) -> ObjectList:
            view[PODS]["n", "made anew"] = pod("made anew", 3)
            return await super().list(resource, **asked)

    api = Racing(lists=[listed()])
    following(api, view, told).doubt(PODS)
    await eventually_async(lambda: api.listed == 1, deadline=60)
    await asyncio.sleep(0)
    assert told == []
    assert view[PODS]


async def test_a_server_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdcs.control.store_resync.backoff", lambda **_: 0.0)
    view, told = known("ghost"), list[str]()
    following(ScriptedApi(lists=[error(UnavailableError), listed()]), view, told).doubt(PODS)
    await eventually_async(lambda: told == ["-ghost"], deadline=60)
