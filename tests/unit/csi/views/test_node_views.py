"""The views of a node as volumes and the cache change. What needs mounts is tested with the plugin's process."""

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.support.waiting import eventually_async
from tests.unit.csi.views.builders import (
    PATH,
    admit_block,
    drop_block,
    enter_journal,
    put_blocks,
    refuse_block,
)

from tdcs.api import names
from tdcs.csi.hang_guard import HangGuard
from tdcs.csi.metrics import exposition
from tdcs.csi.source import Source as Opened
from tdcs.csi.source import SourceNotReadyError
from tdcs.csi.views.node_views import NodeViews
from tdcs.csi.views.settings import ViewSettings
from tdcs.csi.volume import Volume
from tdcs.engine.memory import MemoryEngine
from tdcs.engine.protocol import Source
from tdcs.listing.lister import LocalLister
from tdcs.reader.registration import Registration

URI = "s3://bucket/data"
VOLUME = Volume(cluster="default", parts=("datasets", "0123456789abcdef"))
OTHER = Volume(cluster="default", parts=("datasets", "fedcba9876543210"))


class World:
    """A node, an engine with one dataset, and the worker's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tier = root / "cache" / "default"
        self.files = {"train/1.jpg": 3, "train/2.jpg": 4, "empty": 0}
        self.engine = MemoryEngine(sources={URI: lambda: self.files}, workers={"node-a": 1 << 20})
        self.views = self.restarted()

    def restarted(self, **changes: object) -> NodeViews:
        settings = ViewSettings(
            **{
                "node": "node-a",
                "cache_root": self.root / "cache",
                "fuse_root": self.root / "fuse",
                "kubelet": self.root / "kubelet",
                "answer_seconds": 5.0,
                "fresh_seconds": 0.0,
                "tick_seconds": 0.01,
                "tidy_seconds": 0.01,
                **changes,  # type: ignore[arg-type]
            }
        )
        self.views = NodeViews(
            settings=settings,
            engine=lambda _: self.engine,
            lister=lambda _, folder: LocalLister(engine=self.engine, folder=folder),
            guard=HangGuard(threads_per_key=2),
        )
        return self.views

    async def mount(self) -> None:
        await self.engine.mount(path=PATH, source=Source(uri=URI))

    async def load(self) -> dict[str, int]:
        """Put every block that is missing onto the node; their ids by file."""
        found = {file.path: file.blocks async for page in self.engine.files(path=PATH) for file in page}
        ids = {path: blocks[0].id for path, blocks in found.items() if blocks}
        missing = [path for path in ids if not (self.tier / names.BLOCK_FOLDER / str(ids[path])).exists()]
        put_blocks(
            self.tier,
            {ids[path]: path.removesuffix(".jpg")[-1].encode() * self.files[path] for path in missing},
        )
        return ids

    async def opened(self) -> Path:
        """The tree that a volume is given now."""
        source = await self.views.open(volume=VOLUME)
        assert isinstance(source, Opened)
        path = Path(os.readlink(f"/proc/self/fd/{source.folder}"))
        source.close()
        return path

    def trees(self) -> list[Path]:
        return sorted((self.tier / names.VIEWS_FOLDER).glob("*/*/tree"))


@contextlib.asynccontextmanager
async def watching(views: NodeViews) -> AsyncIterator[None]:
    """Run `watch` beside the test; whatever ends it early fails the test."""
    watch = asyncio.create_task(views.watch())
    try:
        yield
        assert not watch.done(), watch
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node whose disk holds nothing yet."""
    return World(tmp_path.resolve())


@pytest.fixture
async def watched(world: World) -> AsyncIterator[World]:
    """The same, with its views looked after."""
    async with watching(world.views):
        yield world


async def test_a_dataset_that_is_all_here_is_shown_without_the_client(world: World) -> None:
    await world.mount()
    await world.load()

    tree = await world.opened()

    assert (tree / "train/2.jpg").read_text() == "2222"
    assert (tree / "empty").read_bytes() == b""
    assert sorted(os.listdir(tree)) == ["empty", "train"]
    (report,) = world.views.reports()
    assert (report.counts.linked, report.counts.empty, report.counts.remote) == (2, 1, 0)


async def test_a_question_that_has_just_ended_is_asked_again(world: World) -> None:
    await world.mount()
    await world.load()
    await world.opened()
    versions = world.views._versions
    ended = asyncio.create_task(asyncio.sleep(0, result=await versions.current(volume=VOLUME)))
    await ended
    versions._running[VOLUME] = ended  # as it is until its callbacks have run
    async with asyncio.timeout(10):
        await versions.renewed(volume=VOLUME, listing=False)
    assert VOLUME not in versions._running


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
        async with asyncio.timeout(10):
            while new == old:
                with contextlib.suppress(SourceNotReadyError):
                    new = await world.opened()
                await asyncio.sleep(0.01)
        for file in ("train/1.jpg", "train/2.jpg"):
            await eventually_async((old / file).is_symlink, deadline=10)
        await eventually_async((new / "train/7.jpg").exists, deadline=10)
    assert (new / "train/7.jpg").read_text() == "777"


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
        await eventually_async(lambda: file.exists() and os.path.samefile(file, block), deadline=10)


async def test_the_remote_read_client_hears_which_journal_a_version_belongs_to(world: World) -> None:
    enter_journal(world.tier, "one")
    world.restarted(reader_root=world.root / "reader", overlays=False)
    await world.mount()

    with pytest.raises(SourceNotReadyError, match="not mounted"):
        await world.views.open(volume=VOLUME)

    (file,) = (world.root / "reader" / names.READER_VERSIONS).iterdir()
    assert msgspec.json.decode(file.read_bytes(), type=Registration).journal == "one"


async def test_metrics_tell_what_is_native_and_what_only_views_hold(world: World) -> None:
    await world.mount()
    ids = await world.load()
    await world.opened()
    drop_block(world.tier, ids["train/1.jpg"])

    async def noticed() -> bool:
        await world.opened()
        return any(report.counts.kept_bytes for report in world.views.reports())

    await eventually_async(noticed, deadline=60)
    text = exposition(reports=world.views.reports()).decode()

    for line in (
        r'tdcs_view_files\{cache_cluster="default",form="link",path="/datasets/\w+",version="\w+"\} 2.0',
        r"tdcs_view_kept_bytes\{.*\} 3.0",
        r"tdcs_view_used\{.*\} 0.0",
        r"tdcs_view_manifest_age_seconds\{.*\} \d",
        r'tdcs_view_repairs_total\{.*what="released"\} 0.0',
    ):
        assert re.search(line, text), text


async def test_what_is_not_here_needs_the_client_and_the_pod_is_told(world: World) -> None:
    await world.mount()

    with pytest.raises(SourceNotReadyError, match="cache cluster default is not mounted on node node-a"):
        await world.views.open(volume=VOLUME)


async def test_a_dataset_that_the_cache_does_not_have_is_named(world: World) -> None:
    with pytest.raises(SourceNotReadyError, match=f"{PATH} is not mounted in cache cluster default.*Mounted"):
        await world.views.open(volume=VOLUME)


async def test_an_empty_dataset_is_not_shown(world: World) -> None:
    world.files = {}
    await world.mount()

    with pytest.raises(SourceNotReadyError, match="has no file"):
        await world.views.open(volume=VOLUME)


async def test_a_new_process_shows_the_dataset_while_the_master_is_away(world: World) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()

    world.engine.available = False
    world.restarted()

    assert await world.opened() == tree
    assert (tree / "train/1.jpg").read_text() == "111"


async def test_without_master_and_without_a_list_the_pod_is_told(world: World) -> None:
    await world.mount()
    world.engine.available = False

    with pytest.raises(SourceNotReadyError, match="the master of cache cluster default does not answer"):
        await world.views.open(volume=VOLUME)


async def test_a_master_that_is_slow_to_tell_versions_keeps_no_pod_waiting_for_its_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mount()
    await world.load()
    world.restarted(answer_seconds=0.2)

    async def never() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(world.engine, "versions", never)

    assert ((await world.opened()) / "train/1.jpg").read_text() == "111"


async def test_a_damaged_list_is_not_used_and_replaced(world: World) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()
    (tree.parent / "manifest").write_bytes(b"damaged")

    world.restarted()
    world.engine.available = False
    with pytest.raises(SourceNotReadyError, match="does not answer"):
        await world.views.open(volume=VOLUME)
    world.engine.available = True

    assert await world.opened() == tree


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


async def test_callers_at_the_same_time_share_one_listing(world: World) -> None:
    await world.mount()
    await world.load()
    asked = itertools.count()

    async def count(operation: object) -> None:
        if getattr(operation, "name", "") == "files":
            next(asked)
            await asyncio.sleep(0)

    world.engine.before = count
    trees = await asyncio.gather(*(world.opened() for _ in range(20)))

    assert len(set(trees)) == 1
    assert next(asked) == 1


async def test_bytes_of_a_block_that_was_evicted_are_freed_when_no_pod_uses_the_view(watched: World) -> None:
    await watched.mount()
    ids = await watched.load()
    tree = await watched.opened()
    drop_block(watched.tier, ids["train/1.jpg"])

    def released() -> bool:
        (report,) = watched.views.reports()
        return report.repairs.released == 1 and report.counts.kept_bytes == 0

    await eventually_async(released, deadline=60)
    assert (tree / "train/1.jpg").is_symlink()
    assert not (tree / "train/2.jpg").is_symlink()


async def test_a_block_that_comes_later_is_linked_into_the_same_tree(watched: World) -> None:
    await watched.mount()
    ids = await watched.load()
    tree = await watched.opened()
    drop_block(watched.tier, ids["train/1.jpg"])
    await eventually_async(lambda: (tree / "train/1.jpg").is_symlink(), deadline=60)

    put_blocks(watched.tier, {ids["train/1.jpg"]: b"111"})

    await eventually_async(lambda: (tree / "train/1.jpg").is_file(), deadline=60)
    assert (tree / "train/1.jpg").read_text() == "111"


async def test_a_block_that_is_refused_later_leaves_the_view_and_comes_back_when_it_is_right(
    watched: World,
) -> None:
    await watched.mount()
    ids = await watched.load()
    tree = await watched.opened()
    first = tree / "train/1.jpg"
    assert not first.is_symlink()

    refuse_block(watched.tier, ids["train/1.jpg"])
    await eventually_async(first.is_symlink, deadline=60)
    assert not (tree / "train/2.jpg").is_symlink()

    drop_block(watched.tier, ids["train/1.jpg"])
    put_blocks(watched.tier, {ids["train/1.jpg"]: b"111"})
    admit_block(watched.tier, ids["train/1.jpg"])
    await eventually_async(lambda: not first.is_symlink() and first.read_text() == "111", deadline=60)


async def test_a_view_that_nobody_uses_goes_and_its_list_stays_for_the_next(world: World) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()

    async with watching(world.restarted(keep_unused_seconds=0.0)):
        await eventually_async(lambda: not tree.exists(), deadline=60)

    assert (tree.parent / "manifest").exists()
    world.restarted()
    assert await world.opened() == tree


async def test_of_a_dataset_that_left_the_cache_nothing_stays(world: World) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()
    await world.engine.unmount(path=PATH)

    async with watching(world.restarted(keep_unused_seconds=0.0)):
        await eventually_async(lambda: not tree.parent.exists(), deadline=60)


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


async def test_a_publish_that_kubelet_gave_up_and_the_next_one_mix_no_files_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst order of two threads in one tree: the second links its block just before the first one renames."""
    await world.mount()
    with pytest.raises(SourceNotReadyError):
        await world.opened()  # every file leads to the client now
    await world.load()
    renames = itertools.count(1)
    begun, second_is_ready, first_is_done = threading.Event(), threading.Event(), threading.Event()

    def rename(source: bytes, target: bytes, **more: int) -> None:
        number = next(renames)
        if number == 1:
            begun.set()
            second_is_ready.wait(timeout=2)  # which never comes if nobody else works in the tree
        if number == 3:
            second_is_ready.set()
            first_is_done.wait(timeout=2)
        try:
            os.replace(source, target, **more)
        finally:
            if number == 1:
                first_is_done.set()

    monkeypatch.setattr(os, "rename", rename)
    (view,) = world.views._views.values()
    # After a long look at the disk the next one has to wait.
    await eventually_async(lambda: view.due, deadline=60)
    given_up = asyncio.create_task(world.opened())
    assert await asyncio.to_thread(begun.wait, 60)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)

    async def published() -> Path | None:
        with contextlib.suppress(SourceNotReadyError):  # kubelet calls again
            return await world.opened()
        return None

    tree = await eventually_async(published, deadline=30)
    assert tree is not None

    assert (tree / "train/1.jpg").read_text() == "1" * 3
    assert (tree / "train/2.jpg").read_text() == "2" * 4


async def test_at_rest_no_look_at_the_blocks_or_the_files_is_made(
    watched: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.mount()
    await watched.load()
    await watched.opened()
    (view,) = watched.views._views.values()
    await eventually_async(lambda: not view.due and not view.operations.busy, deadline=60)
    ticks = itertools.count()
    start = watched.views._start_ticks

    def tick() -> None:
        next(ticks)
        start()

    def looked(*_: object, **__: object) -> None:
        raise AssertionError("a look at rest")

    with monkeypatch.context() as patch:
        patch.setattr(watched.views, "_start_ticks", tick)
        for name in (
            "tdcs.csi.views.view.plan",
            "tdcs.csi.views.view._summary",
            "tdcs.csi.views.view.is_native",
        ):
            patch.setattr(name, looked)
        patch.setattr(view._store, "scan", looked)
        await eventually_async(lambda: next(ticks) > 50, deadline=60)
        watched.views.reports()
    assert view.native


async def test_two_datasets_have_a_view_each(world: World) -> None:
    other_uri = "s3://bucket/other"
    world.engine.sources[other_uri] = {"x": 0}
    await world.mount()
    await world.load()
    await world.engine.mount(path=OTHER.path, source=Source(uri=other_uri))

    first = await world.opened()
    second = await world.views.open(volume=OTHER)

    assert second is not None
    assert os.listdir(f"/proc/self/fd/{second.folder}") == ["x"]
    second.close()
    assert (first / "train/1.jpg").exists()


async def test_a_dataset_with_the_views_own_name_is_left_to_the_client(world: World) -> None:
    world.files = {".tdcs/x": 0}
    await world.mount()

    assert await world.views.open(volume=VOLUME) is None


async def test_a_full_disk_is_named_and_nothing_is_broken_for_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mount()
    await world.load()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(SourceNotReadyError, match=r"No space left on device.*disk.*full"):
            await world.views.open(volume=VOLUME)

    assert ((await world.opened()) / "train/1.jpg").read_text() == "111"


async def test_what_has_changed_is_found_by_a_listing_that_begins_after_it_was_told(world: World) -> None:
    await world.mount()
    await world.load()
    world.restarted(fresh_seconds=600.0)
    await world.opened()
    world.files = {**world.files, "train/1.jpg": 9, "more": 5}
    del world.files["train/2.jpg"]
    async for _ in world.engine.files(path=PATH, refresh=True):
        pass
    asked: list[bytes] = []

    async def forget(_: object, *, changed: list[bytes], open_too: bool) -> None:
        assert open_too
        asked.extend(changed)

    world.views._client.forget = forget  # type: ignore[method-assign, assignment]
    await world.views._forget_changed(VOLUME)
    assert asked == [b"train/1.jpg", b"train/2.jpg"]

    world.engine.available = False
    with pytest.raises(SourceNotReadyError):
        await world.views._forget_changed(VOLUME)


async def test_links_of_a_view_in_use_go_only_while_its_version_is_the_current_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mount()
    await world.load()
    views = world.restarted(fresh_seconds=600.0)
    await world.opened()
    (view,) = views._views.values()

    async def bind(_: object) -> None: ...

    monkeypatch.setattr(views, "_bind", bind)
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


async def test_a_client_that_comes_into_a_view_in_use_is_asked_for_what_has_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mount()
    await world.load()
    await world.opened()
    (view,) = world.views._views.values()
    client, done = world.views._client, list[str]()

    async def bind(_: object) -> None:
        done.append("bound")

    async def freshen(_: object, **__: object) -> None:
        done.append("freshened")

    monkeypatch.setattr(client, "bind", bind)
    monkeypatch.setattr(client, "freshen", freshen)
    monkeypatch.setattr(world.views, "_outdated", lambda *_, **__: True)
    view.fresh = True
    view.unbind()
    assert not view.fresh  # what changes while nobody reads through it is not followed

    await world.views._care(view)

    assert done == ["bound", "freshened"]


async def test_volumes_are_shown_while_a_tree_that_no_pod_uses_is_deleted(
    watched: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = watched.tier / names.VIEWS_FOLDER / "of%2Fan%20earlier%20format"
    (dataset / "v1" / "tree" / "folder").mkdir(parents=True)
    (dataset / ".gone-v0" / "tree").mkdir(parents=True)
    deleting, may_delete, original = threading.Event(), threading.Event(), shutil.rmtree

    def slow(path: str, *, dir_fd: int) -> None:
        os.stat(path, dir_fd=dir_fd)
        deleting.set()
        assert may_delete.wait(20)
        original(path, dir_fd=dir_fd)

    monkeypatch.setattr(shutil, "rmtree", slow)
    await watched.mount()
    await watched.load()
    await eventually_async(deleting.is_set, deadline=10, interval=0.01)
    assert (await watched.opened() / "train/2.jpg").read_text() == "2222"
    may_delete.set()
    await eventually_async(lambda: not os.listdir(dataset), deadline=10, interval=0.01)
