"""Manifests of what a listing has so far."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.programs.bucket_store import BucketStore, serving
from tests.support.waiting import eventually_async

from tdcs.listing import early_manifests
from tdcs.listing.early_manifests import FIRST_SECONDS, EarlyManifests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import Listed
from tdcs.model.manifest_builder import ManifestBuilder


class HeldFolder(ManifestFolder):
    """Begins to write a manifest, and goes on when it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes, self.go = threading.Event(), threading.Event()

    def write(self, builder: ManifestBuilder, *, check: Callable[[], None] = lambda: None) -> str:
        self.writes.set()
        assert self.go.wait(60)
        return super().write(builder, check=check)


def builder_of(folder: ManifestFolder, *, files: int) -> ManifestBuilder:
    builder = ManifestBuilder(path="/datasets/a", source="s3://a", scratch=folder.scratch)
    builder.add_listed((b"%06d" % number, 5, b"") for number in range(files))
    return builder


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_listing_that_ends_abandons_the_early_manifest_that_is_being_written(tmp_path: Path) -> None:
    folder, clock, early = HeldFolder(tmp_path), Clock(), list[Listed]()
    manifests = EarlyManifests(folder=folder, tell=early.append, clock=clock)
    builder = builder_of(folder, files=100)
    clock.now = FIRST_SECONDS
    manifests.offer(builder)
    await asyncio.to_thread(folder.writes.wait, 60)
    closing = asyncio.create_task(manifests.close())
    await asyncio.sleep(0)
    folder.go.set()
    await closing
    assert not early
    assert not os.listdir(tmp_path)
    digest = folder.write(builder)
    assert len(folder.open(digest)) == 100


async def test_each_early_manifest_names_at_least_twice_as_many_files_as_the_last(tmp_path: Path) -> None:
    folder, clock, early = ManifestFolder(tmp_path), Clock(), list[Listed]()
    manifests = EarlyManifests(folder=folder, tell=early.append, clock=clock)
    manifests.offer(builder_of(folder, files=10))
    clock.now = FIRST_SECONDS
    for files in (10, 19, 20, 30, 40):
        manifests.offer(builder_of(folder, files=files))
        await eventually_async(lambda: manifests._work is None or manifests._work.done(), deadline=60)
    assert [listed.totals.files for listed in early] == [10, 20, 40]
    assert set(os.listdir(tmp_path)) == {listed.digest for listed in early}


async def test_the_first_page_can_be_loaded_before_another_one_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others begin is asked for after the first page, which takes as long as some pages."""
    monkeypatch.setattr(early_manifests, "FIRST_SECONDS", 0.0)
    first_page = asyncio.Event()
    early = list[Listed]()

    def tell(listed: Listed) -> None:
        early.append(listed)
        first_page.set()

    async def hold() -> None:
        if len(store.asked) > 2:  # the first page, and some of it again for its tags
            await asyncio.wait_for(first_page.wait(), 60)

    keys = [b"data/%03d/%05d" % (number // 100, number) for number in range(1000)]
    store = BucketStore(keys=keys, most_names=100, before_page=hold)
    async with serving(store):
        folder = ManifestFolder(tmp_path)
        listed = await list_source(source=store.source, path="/datasets/a", folder=folder, tell=tell)
    assert early[0].totals.files == 100
    assert listed.totals.files == 1000
