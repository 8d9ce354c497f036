"""Views while blocks come and go, and what goes when no pod uses a view."""

import itertools
import os
import re
import shutil
import threading

import pytest
from prometheus_client import generate_latest
from tests.support.waiting import eventually_async
from tests.unit.node.csi.views.builders import (
    PATH,
    admit_block,
    drop_block,
    is_placeholder,
    needs_overlays,
    put_blocks,
    refuse_block,
)
from tests.unit.node.csi.views.node_world import World, watching

from tdcs.api import names
from tdcs.node.csi.csi_metrics import registry_of

pytestmark = needs_overlays


async def test_metrics_tell_what_is_native_and_what_only_views_hold(world: World) -> None:
    await world.mount()
    ids = await world.load()
    await world.opened()
    drop_block(world.tier, ids["train/1.jpg"])

    async def noticed() -> bool:
        await world.opened()
        return any(report.counts.kept_bytes for report in world.views.reports())

    await eventually_async(noticed, deadline=60)
    text = generate_latest(registry_of(reports=world.views.reports)).decode()

    for line in (
        r'tdcs_view_files\{cache_cluster="default",form="link",path="/datasets/\w+",version="\w+"\} 2.0',
        r"tdcs_view_kept_bytes\{.*\} 3.0",
        r"tdcs_view_used\{.*\} 0.0",
        r"tdcs_view_manifest_age_seconds\{.*\} \d",
        r'tdcs_view_repairs_total\{.*what="released"\} 0.0',
    ):
        assert re.search(line, text), text


@pytest.mark.failure_mode("block-evicted")
async def test_bytes_of_a_block_that_was_evicted_are_freed_when_no_pod_uses_the_view(watched: World) -> None:
    await watched.mount()
    ids = await watched.load()
    tree = await watched.opened()
    drop_block(watched.tier, ids["train/1.jpg"])

    def released() -> bool:
        (report,) = watched.views.reports()
        return report.repairs.released == 1 and report.counts.kept_bytes == 0

    await eventually_async(released, deadline=60)
    assert is_placeholder(tree / "train/1.jpg")
    assert not is_placeholder(tree / "train/2.jpg")


async def test_a_block_that_comes_later_is_linked_into_the_same_tree(watched: World) -> None:
    await watched.mount()
    ids = await watched.load()
    tree = await watched.opened()
    drop_block(watched.tier, ids["train/1.jpg"])
    await eventually_async(lambda: is_placeholder(tree / "train/1.jpg"), deadline=60)

    put_blocks(watched.tier, {ids["train/1.jpg"]: b"111"})

    await eventually_async(lambda: not is_placeholder(tree / "train/1.jpg"), deadline=60)
    assert (tree / "train/1.jpg").read_text() == "111"


async def test_a_block_that_is_refused_later_leaves_the_view_and_comes_back_when_it_is_right(
    watched: World,
) -> None:
    await watched.mount()
    ids = await watched.load()
    tree = await watched.opened()
    first = tree / "train/1.jpg"
    assert not is_placeholder(first)

    refuse_block(watched.tier, ids["train/1.jpg"])
    await eventually_async(lambda: is_placeholder(first), deadline=60)
    assert not is_placeholder(tree / "train/2.jpg")

    drop_block(watched.tier, ids["train/1.jpg"])
    put_blocks(watched.tier, {ids["train/1.jpg"]: b"111"})
    admit_block(watched.tier, ids["train/1.jpg"])
    await eventually_async(lambda: not is_placeholder(first) and first.read_text() == "111", deadline=60)


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


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_list_that_was_kept_goes_with_its_dataset(world: World, *, restarted: bool) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()
    async with watching(world.restarted(keep_unused_seconds=0.0)):
        await eventually_async(lambda: not tree.exists(), deadline=60)
        if not restarted:
            await world.engine.unmount(path=PATH)
            await eventually_async(lambda: not tree.parent.exists(), deadline=60)
            return
    await world.engine.unmount(path=PATH)
    async with watching(world.restarted(keep_unused_seconds=0.0)):
        await eventually_async(lambda: not tree.parent.exists(), deadline=60)


async def test_a_list_that_was_kept_goes_when_pods_read_another_version(world: World) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()
    async with watching(world.restarted(keep_unused_seconds=0.0)):
        await eventually_async(lambda: not tree.exists(), deadline=60)
    assert tree.parent.exists()
    world.files = {"train/7.jpg": 3}
    await world.publish()
    await world.load()
    async with watching(world.restarted()):
        new = await world.opened()
        assert new != tree
        await eventually_async(lambda: not tree.parent.exists(), deadline=60)
        assert new.exists()


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
            "tdcs.node.csi.views.view.plan",
            "tdcs.node.csi.views.view._summary",
            "tdcs.node.csi.views.view.is_native",
        ):
            patch.setattr(name, looked)
        patch.setattr(view._store, "scan", looked)
        await eventually_async(lambda: next(ticks) > 50, deadline=60)
        watched.views.reports()
    assert view.native


async def test_volumes_are_shown_while_a_tree_that_no_pod_uses_is_deleted(
    watched: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = watched.tier / names.VIEWS_FOLDER / "of%2Fno%20dataset"
    (dataset / "v1" / "tree" / "folder").mkdir(parents=True)
    (dataset / ".gone-v0" / "tree").mkdir(parents=True)
    deleting, may_delete, original = threading.Event(), threading.Event(), shutil.rmtree

    def slow(path: str, *, dir_fd: int) -> None:
        os.stat(path, dir_fd=dir_fd)
        if path != ".overlay-trial":
            deleting.set()
            assert may_delete.wait(20)
        original(path, dir_fd=dir_fd)

    monkeypatch.setattr(shutil, "rmtree", slow)
    await watched.mount()
    await watched.load()
    await eventually_async(deleting.is_set, deadline=60, interval=0.01)
    assert (await watched.opened() / "train/2.jpg").read_text() == "2222"
    may_delete.set()
    await eventually_async(lambda: not os.listdir(dataset), deadline=60, interval=0.01)
