"""Versions of a dataset as views show them: the old one, the new one, and that of a cache that was made anew."""

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec
import pytest
from tests.support.twins.engine import MemoryEngine
from tests.support.waiting import eventually_async
from tests.unit.node.csi.views.builders import PATH, enter_journal, is_placeholder, needs_overlays
from tests.unit.node.csi.views.node_world import URI, VOLUME, World, watching

from tdcs.api import names
from tdcs.engine.reader_files import Registration
from tdcs.node.csi.volume import SourceNotReadyError

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
        await versions.renewed(volume=VOLUME, listing=False)
    assert VOLUME not in versions._running


@pytest.mark.failure_mode("cache-recreated-under-pods")
async def test_a_version_of_a_cache_that_was_made_anew_gets_none_of_the_new_blocks(world: World) -> None:
    enter_journal(world.tier, "one")
    await world.mount()
    before = await world.load()
    old = await world.opened()

    enter_journal(world.tier, "two")
    world.files = {"train/7.jpg": 3, "train/8.jpg": 4}
    world.engine = MemoryEngine(sources={URI: lambda: world.files}, workers={"node-a": 1 << 20})
    await world.mount()
    assert (await world.load())["train/7.jpg"] == before["train/1.jpg"]

    async with watching(world.views):
        # A question that was under way before answers the first volumes still.
        new = old
        async with asyncio.timeout(60):
            while new == old:
                with contextlib.suppress(SourceNotReadyError):
                    new = await world.opened()
                await asyncio.sleep(0.01)
        gone = ("train/1.jpg", "train/2.jpg")
        await eventually_async(lambda: all(is_placeholder(old / file) for file in gone), deadline=60)
        await eventually_async((new / "train/7.jpg").exists, deadline=60)
    assert (new / "train/7.jpg").read_text() == "777"


@pytest.mark.failure_mode("cache-recreated-under-pods")
async def test_a_version_that_the_new_cache_has_too_gets_its_blocks_again(world: World) -> None:
    enter_journal(world.tier, "one")
    await world.mount()
    await world.load()
    tree = await world.opened()

    enter_journal(world.tier, "two")
    ids = await world.load()
    block = world.tier / names.BLOCK_FOLDER / str(ids["train/1.jpg"])
    async with watching(world.views):
        file = tree / "train/1.jpg"
        await eventually_async(lambda: file.exists() and os.path.samefile(file, block), deadline=60)


async def test_the_remote_read_client_hears_which_journal_a_version_belongs_to(world: World) -> None:
    enter_journal(world.tier, "one")
    world.restarted(client=False)
    await world.mount()

    with pytest.raises(SourceNotReadyError, match="not mounted"):
        await world.views.open(volume=VOLUME)

    (file,) = (world.root / "reader" / names.READER_VERSIONS).iterdir()
    assert msgspec.json.decode(file.read_bytes(), type=Registration).journal == "one"


async def test_a_new_version_is_for_new_pods_and_the_old_one_stays_as_it_is(world: World) -> None:
    await world.mount()
    await world.load()
    old = await world.opened()
    world.files = {**world.files, "train/3.jpg": 5}
    async for _ in world.engine.files(path=PATH, refresh=True):
        pass
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
    async for _ in world.engine.files(path=PATH, refresh=True):
        pass
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

    # Its blocks went because the file has changed; the last listing is young, and does not know it.
    world.files = {**world.files, "train/1.jpg": 9}
    async for _ in world.engine.files(path=PATH, refresh=True):
        pass
    assert not await views._may_release(view)

    async def asked(_: object) -> None:
        raise AssertionError("what has changed does not become again what it was: nobody is asked")

    monkeypatch.setattr(views._client, "bind", asked)
    view.blind_until = 0.0
    assert not await views._may_release(view)
