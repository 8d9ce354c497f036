"""Versions of a dataset as views show them: the old one, the new one, and that of a cache that was made again."""

import asyncio
from pathlib import Path

import pytest
from tests.support.waiting import eventually_async
from tests.unit.node.csi.views.builders import needs_overlays
from tests.unit.node.csi.views.node_world import VOLUME, World, watching

pytestmark = needs_overlays


async def test_a_question_that_has_just_ended_is_asked_again(world: World) -> None:
    await world.mount()
    await world.load()
    await world.opened()
    versions = world.views._versions
    ended = asyncio.create_task(asyncio.sleep(0, result=await versions.current(volume=VOLUME)))
    await ended
    versions._running[VOLUME] = ended  # as it is until its callbacks have run
    async with asyncio.timeout(60):
        await versions.renewed(volume=VOLUME)
    assert VOLUME not in versions._running


async def test_a_new_version_is_for_new_pods_and_the_old_one_stays_as_it_is(world: World) -> None:
    await world.mount()
    await world.load()
    old = await world.opened()
    world.files = {**world.files, "train/3.jpg": 5}
    await world.publish()
    await world.load()

    async def renewed() -> Path | None:
        tree = await world.opened()
        return None if tree == old else tree

    new = await eventually_async(renewed, deadline=60)

    assert new is not None
    assert (new / "train/3.jpg").exists()
    assert not (old / "train/3.jpg").exists()
    assert (old / "train/1.jpg").samefile(new / "train/1.jpg")


async def test_old_versions_that_nobody_uses_go(world: World) -> None:
    await world.mount()
    await world.load()
    await world.opened()
    world.files = {**world.files, "more": 5}
    await world.publish()
    await world.load()

    async with watching(world.restarted(keep_old_seconds=0.0)):
        new = await world.opened()
        await eventually_async(lambda: world.trees() == [new], deadline=60)


async def test_links_of_a_view_in_use_go_only_while_its_version_is_the_current_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mount()
    await world.load()
    views = world.restarted(fresh_seconds=600.0)
    await world.opened()
    (view,) = views._views.values()

    async def bind(_: object) -> None: ...

    monkeypatch.setattr(views._client, "bind", bind)
    monkeypatch.setattr(views, "_all_see", lambda _: True)
    assert await views._may_release(view)
    world.engine.available = False
    assert not await views._may_release(view)
    world.engine.available = True
    monkeypatch.setattr(views, "_all_see", lambda _: False)
    assert not await views._may_release(view)
    monkeypatch.setattr(views, "_all_see", lambda _: True)
    assert not await views._may_release(view)  # it is not tried again at once
    view.blind_until = 0.0
    assert await views._may_release(view)

    world.files = {**world.files, "train/1.jpg": 9}
    await world.publish()
    assert not await views._may_release(view)

    async def asked(_: object) -> None:
        raise AssertionError("what has changed does not become again what it was: nobody is asked")

    monkeypatch.setattr(views._client, "bind", asked)
    view.blind_until = 0.0
    assert not await views._may_release(view)
