"""A listing of a bucket that is killed between two pages goes on behind the last one, and gives the same version."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.programs.bucket_store import BucketStore, serving
from tests.support.waiting import eventually_async
from tests.unit.listing.conftest import MOUNT

from tdcs.listing import listing_progress, page_requests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.listing_progress import ListingProgress
from tdcs.listing.one_listing import list_source
from tdcs.model.cache_engine import EngineError, LimitExceededError
from tdcs.model.listing_limit import ListingLimit
from tdcs.model.manifest_builder import ManifestBuilder

BUSY = (503, b"<Error><Code>SlowDown</Code></Error>")
LARGE = [b"data/n%02d/%05d.jpg" % (folder, number) for folder in range(40) for number in range(600)]
KEYS = [key for number, key in enumerate(LARGE) if number % 10 == 0]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_requests, "PAGE", 100)


def journal(folder: ManifestFolder) -> list[Path]:
    return list(folder.path.glob(".listing-*"))


async def reference(folder: ManifestFolder, keys: list[bytes] = KEYS) -> tuple[str, int]:
    """The version that an undisturbed listing gives, and how many requests it takes."""
    store = BucketStore(keys=list(keys))
    async with serving(store):
        listing = await list_source(source=store.source, path=MOUNT, folder=folder)
    assert journal(folder) == []
    return listing.digest, len(store.asked)


async def interrupted(
    store: BucketStore, folder: ManifestFolder, *, requests: int, killed: bool = False
) -> None:
    """List until so many requests were answered, and end that; `killed`: in a process of its own, by a signal."""
    store.failures = dict.fromkeys(range(requests, 100_000), BUSY)
    lister = ProcessLister(folder=folder, source_of=lambda _: store.source)
    before = set(psutil.Process().children())
    source = store.source
    listing = asyncio.create_task(
        lister.list(path=MOUNT) if killed else list_source(source=source, path=MOUNT, folder=folder)
    )
    await eventually_async(lambda: len(store.asked) > requests + 8, deadline=120, interval=0.01)
    if killed:
        (process,) = set(psutil.Process().children()) - before
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EngineError):
            await listing
    else:
        listing.cancel()
        await asyncio.wait([listing])
    assert len(journal(folder)) == 1
    store.failures = {}
    store.asked.clear()


@pytest.mark.parametrize(("requests", "killed"), [(12, False), (25, True)])
async def test_a_listing_that_is_killed_goes_on_behind_the_last_page(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch, requests: int, killed: bool
) -> None:
    keys = LARGE if killed else KEYS
    if killed:
        monkeypatch.setattr(page_requests, "PAGE", 1000)  # as another process has it
    digest, needed = await reference(folder, keys)
    store = BucketStore(keys=list(keys))
    async with serving(store):
        await interrupted(store, folder, requests=requests, killed=killed)
        listing = await list_source(source=store.source, path=MOUNT, folder=folder)
    assert listing.digest == digest
    assert listing.size.files >= len(keys)
    assert len(store.asked) <= needed - requests + 8, "each range asks once more behind its last page"
    assert journal(folder) == []


async def test_what_was_cut_off_or_is_too_old_or_of_another_source_is_listed_again(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, needed = await reference(folder)
    for case in ("cut off", "damaged", "too old", "another selection"):
        store = BucketStore(keys=list(KEYS))
        async with serving(store):
            await interrupted(store, folder, requests=25)
            (file,) = journal(folder)
            content, source = file.read_bytes(), store.source
            if case == "cut off":
                file.write_bytes(content[: len(content) * 2 // 3])
            elif case == "damaged":
                middle = len(content) // 2
                file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
            elif case == "too old":
                monkeypatch.setattr(listing_progress, "RESUMED_SECONDS", -1.0)
            elif case == "another selection":
                monkeypatch.setattr(listing_progress, "RESUMED_SECONDS", 1800.0)
                source = type(source)(
                    uri=source.uri, options={**source.options, "x": "y"}, credentials=source.credentials
                )
            listing = await list_source(source=source, path=MOUNT, folder=folder)
        assert listing.digest == digest
        if case in {"too old", "another selection"}:
            assert len(store.asked) == needed
        assert journal(folder) == []


async def test_a_listing_that_is_killed_behind_its_first_page_loses_none_of_its_names(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    digest, _ = await reference(folder)
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        for ends in ("begin", "add"):
            real = getattr(ListingProgress, ends)
            with monkeypatch.context() as patch:

                def last(*found: Any, real: Any = real) -> None:
                    real(*found)
                    raise Killed

                patch.setattr(ListingProgress, ends, last)
                with pytest.raises(Killed):
                    await list_source(source=store.source, path=MOUNT, folder=folder)
            assert len(journal(folder)) == 1
        listing = await list_source(source=store.source, path=MOUNT, folder=folder)
    assert listing.digest == digest


@pytest.mark.parametrize("record", [0, 1, 2])
async def test_a_damaged_record_loses_no_names(folder: ManifestFolder, record: int) -> None:
    digest, _ = await reference(folder)
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        await interrupted(store, folder, requests=25)
        (file,) = journal(folder)
        raw, begin = bytearray(file.read_bytes()), 0
        for _ in range(record):
            begin += 8 + int.from_bytes(raw[begin : begin + 4], "little")
        raw[begin + 20] ^= 1
        file.write_bytes(raw)
        listing = await list_source(source=store.source, path=MOUNT, folder=folder)
    assert listing.digest == digest


async def test_a_listing_that_finds_the_disk_full_leaves_it_no_journal(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        if journal(folder):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ManifestBuilder, "add_listed", full)
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        with pytest.raises(EngineError, match="No space left"):
            await list_source(source=store.source, path=MOUNT, folder=folder)
    assert journal(folder) == []


async def test_a_listing_that_went_on_ends_at_the_limit_as_any_other(folder: ManifestFolder) -> None:
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        await interrupted(store, folder, requests=25)
        with pytest.raises(LimitExceededError):
            await list_source(source=store.source, path=MOUNT, folder=folder, limit=ListingLimit(files=2000))
    assert journal(folder) == []


async def test_a_store_whose_names_have_no_order_is_listed_from_the_beginning(folder: ManifestFolder) -> None:
    digest, _ = await reference(folder)
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        await interrupted(store, folder, requests=25)
        store.knows_start = False
        listing = await list_source(source=store.source, path=MOUNT, folder=folder)
    assert listing.digest == digest


async def test_two_listings_of_a_mount_at_a_time_are_not_mixed(folder: ManifestFolder) -> None:
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        listings = await asyncio.gather(
            *(list_source(source=store.source, path=MOUNT, folder=folder) for _ in range(2))
        )
    assert listings[0].digest == listings[1].digest


async def test_a_listing_that_is_to_ask_the_source_takes_no_page_from_before(folder: ManifestFolder) -> None:
    """What was listed before the source changed is no answer to whoever asks what it has now."""
    store = BucketStore(keys=list(KEYS))
    async with serving(store):
        for resume in (False, True):
            store.keys = list(KEYS)
            await interrupted(store, folder, requests=25)
            store.keys = KEYS[5:]  # of the first page
            lister = ProcessLister(folder=folder, source_of=lambda _: store.source)
            listing = await lister.list(path=MOUNT, refresh=True, resume=resume)
            names = {folder.open(listing.digest).file_path(number) for number in range(listing.totals.files)}
            assert (KEYS[0].removeprefix(b"data/") in names) is resume
            assert journal(folder) == []
