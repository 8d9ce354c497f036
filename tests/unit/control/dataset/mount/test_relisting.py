"""A source that agents find changed, and that is the same each time it is listed."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from tdcs.control.cache_registry import Cache, CachePool, Published
from tdcs.control.dataset.mount.listing_gate import ListingGate
from tdcs.control.dataset.mount.source_versions import MountManifests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import EngineError, SourceError
from tdcs.model.listing_limit import ListingLimit
from tdcs.model.manifest_format import totals_of

DAY = 86_400.0


class Unchanging:
    """A lister of a source that takes its time and stays as it is, until a test says otherwise."""

    def __init__(self, *, seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.digest = "a" * 32
        self.begun: list[float] = []

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        **_: object,
    ) -> Listed:
        self.begun.append(self.now)
        self.now += self.seconds
        return Listed(digest=self.digest, totals=totals_of(1000), seconds=self.seconds)


def no_cache(cluster: str) -> Cache:
    raise AssertionError(cluster)


def manifests_of(lister: Unchanging, folder: Path) -> MountManifests:
    return MountManifests(
        path="/datasets/1f",
        caches=CachePool(make=no_cache, folder=ManifestFolder(folder)),
        published=lambda digest: Published(cluster="default", most=1 << 20),
        lister=lister,
        count=lambda limit: asyncio.sleep(0),
        count_elsewhere=lambda before: asyncio.sleep(0),
        gate=ListingGate(stuck_seconds=10**9),
        pause=60.0,
        now=lambda: "",
        on_done=lambda: None,
        on_refused=lambda: None,
        clock=lambda: lister.now,
    )


async def spend(
    manifests: MountManifests, lister: Unchanging, seconds: float, *, changed: int = 0, away: bool = False
) -> None:
    """Passes every five seconds, in which agents say of so many files that they have changed, or that the source gives
    them nothing."""
    until = lister.now + seconds
    while lister.now < until:
        manifests.advance(
            due=False,
            changed=changed,
            digest="",
            urls=(),
            unheard=False,
            requests={},
            namespaces=frozenset({"n"}),
            limit=lambda: ListingLimit(files=10**8),
            away=away,
        )
        while manifests.busy:
            await asyncio.sleep(0)
            manifests.view()
        lister.now += 5.0


async def test_a_source_that_gives_agents_nothing_is_listed_at_once_until_it_answers(tmp_path: Path) -> None:
    class Dying(Unchanging):
        answers = True

        async def list(self, **more: Any) -> Listed:
            listed = await super().list(**more)
            if not self.answers:
                raise SourceError(attempted="list", reason="it does not answer", remedy="", retryable=True)
            return listed

    lister = Dying(seconds=2.0)
    manifests = manifests_of(lister, tmp_path)
    await spend(manifests, lister, 600.0)
    assert len(lister.begun) == 1
    lister.answers, died_at = False, lister.now
    await spend(manifests, lister, 20.0, away=True)
    assert lister.begun[1] - died_at <= 5.0, "not only at the next check interval"
    trouble = manifests.view().trouble
    assert trouble is not None
    assert "it does not answer" in trouble.message
    lister.answers = True
    await spend(manifests, lister, 70.0)
    assert manifests.view().trouble is None, "it is tried again although no agent asks it for anything"
    listings = len(lister.begun)
    await spend(manifests, lister, DAY)
    assert len(lister.begun) == listings


async def test_a_node_that_does_not_reach_a_source_that_answers_has_it_listed_once(tmp_path: Path) -> None:
    lister = Unchanging(seconds=2.0)
    manifests = manifests_of(lister, tmp_path)
    await spend(manifests, lister, 600.0)
    await spend(manifests, lister, DAY, away=True)
    assert len(lister.begun) == 2


async def test_a_source_that_comes_and_goes_is_listed_ever_less_often(tmp_path: Path) -> None:
    lister = Unchanging(seconds=0.5)
    manifests = manifests_of(lister, tmp_path)
    await spend(manifests, lister, 600.0)
    for _ in range(360):
        await spend(manifests, lister, 5.0, away=True)
        await spend(manifests, lister, 5.0)
    assert len(lister.begun) <= 10
    pauses = [later - earlier for earlier, later in itertools.pairwise(lister.begun[2:])]
    assert pauses == sorted(pauses)


async def test_a_listing_that_a_user_asks_for_goes_on_with_none_that_began_before(tmp_path: Path) -> None:
    journals: list[bool] = []

    class Failing(Unchanging):
        async def list(
            self,
            *,
            path: str,
            refresh: bool = False,
            resume: bool = False,
            limit: ListingLimit | None = None,
            **_: object,
        ) -> Listed:
            journals.append(journal.exists())
            os.close(manifests.caches.folder.open_progress(path))
            self.now += 600.0
            raise EngineError(attempted="list", reason="its process was killed", remedy="", retryable=True)

    lister = Failing(seconds=2.0)
    manifests = manifests_of(lister, tmp_path)
    os.close(manifests.caches.folder.open_progress(manifests.path))
    journal = tmp_path / next(name for name in os.listdir(tmp_path) if name.startswith(".listing-"))
    for number, value in enumerate((None, None, "1", "1", "2", None)):
        while len(journals) <= number:  # after a failure there is a pause
            lister.now += 600.0
            manifests.advance(
                due=True,
                changed=0,
                digest="",
                urls=(),
                unheard=False,
                requests={"dataset": value},
                namespaces=frozenset({"n"}),
                limit=lambda: ListingLimit(files=10**8),
            )
            while manifests.busy:
                await asyncio.sleep(0)
                manifests.view()
    assert journals == [True, True, False, True, False, True]


@pytest.mark.parametrize("seconds", [2.0, 60.0, 1200.0])
@pytest.mark.failure_mode("file-differs-for-good")
async def test_a_file_that_stays_changed_has_the_source_listed_more_and_more_seldom(
    tmp_path: Path, seconds: float
) -> None:
    lister = Unchanging(seconds=seconds)
    manifests = manifests_of(lister, tmp_path)
    await spend(manifests, lister, DAY, changed=1)
    assert 3 <= len(lister.begun) <= 14
    gaps = [after - before for before, after in zip(lister.begun, lister.begun[1:], strict=False)]
    assert gaps == sorted(gaps)


async def test_agents_that_start_again_are_no_reason_to_list_soon(tmp_path: Path) -> None:
    lister = Unchanging(seconds=2.0)
    manifests = manifests_of(lister, tmp_path)
    for _ in range(48):  # each time none of them has tried its files yet
        await spend(manifests, lister, DAY / 48, changed=1)
        await spend(manifests, lister, 10.0, changed=0)
    assert len(lister.begun) <= 14


@pytest.mark.failure_mode("file-differs-for-good")
async def test_a_further_file_and_a_new_version_have_it_listed_soon_again(tmp_path: Path) -> None:
    lister = Unchanging(seconds=2.0)
    manifests = manifests_of(lister, tmp_path)
    await spend(manifests, lister, DAY, changed=1)
    before = len(lister.begun)
    await spend(manifests, lister, 100.0, changed=2)
    assert len(lister.begun) > before
    lister.digest = "b" * 32
    await spend(manifests, lister, DAY / 2, changed=2)
    before = len(lister.begun)
    await spend(manifests, lister, 100.0, changed=3)
    assert len(lister.begun) > before
