"""What a pod is shown of a dataset on its node, and what it is told where that cannot be. Mounts are tested with the
plugin's process."""

import asyncio
import contextlib
import itertools
import os
import threading
from pathlib import Path

import pytest
from tests.support.waiting import eventually_async
from tests.unit.node.csi.views.builders import PATH, needs_overlays
from tests.unit.node.csi.views.node_world import VOLUME, World

from tdcs.model.cache_engine import Source
from tdcs.node.csi.volume import SourceNotReadyError, VolumeFolder

pytestmark = needs_overlays

OTHER = VolumeFolder(cluster="default", parts=("datasets", "fedcba9876543210"))


async def test_a_dataset_that_is_all_here_is_shown_by_links(world: World) -> None:
    await world.mount()
    await world.load()

    tree = await world.opened()

    assert (tree / "train/2.jpg").read_text() == "2222"
    assert (tree / "empty").read_bytes() == b""
    assert sorted(os.listdir(tree)) == ["empty", "train"]
    (report,) = world.views.reports()
    assert (report.counts.linked, report.counts.empty, report.counts.remote) == (2, 1, 0)


async def test_what_is_not_here_needs_the_client_and_the_pod_is_told(world: World) -> None:
    world.restarted(client=False)
    await world.mount()

    with pytest.raises(SourceNotReadyError, match="remote-read client of node node-a, which is not mounted"):
        await world.views.open(volume=VOLUME)


async def test_a_dataset_that_the_cache_does_not_have_is_named(world: World) -> None:
    with pytest.raises(SourceNotReadyError, match=f"{PATH} is not mounted in cache cluster default.*Mounted"):
        await world.views.open(volume=VOLUME)


async def test_an_empty_dataset_is_not_shown(world: World) -> None:
    world.files = {}
    await world.mount()

    with pytest.raises(SourceNotReadyError, match="has no file"):
        await world.views.open(volume=VOLUME)


async def test_a_new_process_shows_the_dataset_while_the_operator_is_away(world: World) -> None:
    await world.mount()
    await world.load()
    tree = await world.opened()

    world.engine.available = False
    world.restarted()

    assert await world.opened() == tree
    assert (tree / "train/1.jpg").read_text() == "111"


async def test_without_operator_and_without_a_list_the_pod_is_told(world: World) -> None:
    await world.mount()
    world.engine.available = False

    with pytest.raises(SourceNotReadyError, match="the operator does not answer"):
        await world.views.open(volume=VOLUME)


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


async def test_callers_at_the_same_time_share_one_question(world: World) -> None:
    await world.mount()
    await world.load()
    questions = itertools.count()

    async def count(operation: object) -> None:
        if getattr(operation, "name", "") == "versions":
            next(questions)
            await asyncio.sleep(0)

    world.engine.before = count
    trees = await asyncio.gather(*(world.opened() for _ in range(20)))

    assert len(set(trees)) == 1
    assert next(questions) == 1


@pytest.mark.failure_mode("kubelet-gives-up-call")
async def test_a_publish_that_kubelet_gave_up_and_the_next_one_mix_no_files_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst order of two threads in one tree: the second links its block just before the first one renames."""
    await world.mount()
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


async def test_two_datasets_have_a_view_each(world: World) -> None:
    other_uri = "s3://bucket/other"
    world.engine.sources[other_uri] = {"x": 0}
    await world.mount()
    await world.load()
    await world.engine.mount(path=OTHER.path, source=Source(uri=other_uri))
    await world.publish(OTHER.path)

    first = await world.opened()
    second = await world.opened(OTHER)

    assert os.listdir(second) == ["x"]
    assert (first / "train/1.jpg").exists()


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
