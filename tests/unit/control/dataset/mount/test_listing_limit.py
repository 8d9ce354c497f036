"""A listing that a limit has refused is tried again at once only when a limit has become higher."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tdcs.control.cache_registry import Cache, CachePool, Published
from tdcs.control.dataset.mount.listing_gate import ListingGate
from tdcs.control.dataset.mount.source_versions import MountManifests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.result import Listed
from tdcs.model.cache_engine import LimitExceededError
from tdcs.model.listing_limit import ListingLimit


class Refusing:
    """A lister of a source that is larger than any limit.

    Attributes:
        limits: those that it was asked with.
    """

    def __init__(self) -> None:
        self.limits: list[ListingLimit | None] = []

    async def list(
        self,
        *,
        path: str,
        refresh: bool = False,
        resume: bool = False,
        limit: ListingLimit | None = None,
        **_: object,
    ) -> Listed:
        self.limits.append(limit)
        raise LimitExceededError(attempted="list", reason="too many files", remedy="take fewer", path=path)


def no_cache(cluster: str) -> Cache:
    raise AssertionError(cluster)


@pytest.fixture
def lister() -> Refusing:
    return Refusing()


@pytest.fixture
def manifests(lister: Refusing, tmp_path: Path) -> MountManifests:
    """The versions of a mount that pauses for an hour after a failure."""
    return MountManifests(
        path="/datasets/1f",
        caches=CachePool(make=no_cache, folder=ManifestFolder(tmp_path)),
        published=lambda digest: Published(cluster="default", most=1 << 20),
        lister=lister,
        count=lambda limit: asyncio.sleep(0),
        count_elsewhere=lambda before: asyncio.sleep(0),
        gate=ListingGate(stuck_seconds=60),
        pause=3600,
        now=lambda: "",
        on_done=lambda: None,
        on_refused=lambda: None,
        clock=lambda: 0.0,
    )


async def advance(manifests: MountManifests, limit: ListingLimit, *, digest: str = "") -> None:
    """One pass with this limit, and the end of the listing that it may begin."""
    manifests.advance(
        due=True,
        changed=False,
        digest=digest,
        urls=(),
        unheard=False,
        requests={},
        namespaces=frozenset({"n"}),
        limit=lambda: limit,
    )
    async with asyncio.timeout(10):
        while manifests.busy:
            await asyncio.sleep(0)
            manifests.view()


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        (ListingLimit(files=100, bytes=1000), False),
        (ListingLimit(files=99, bytes=1000), False),  # another mount has one file more
        (ListingLimit(files=100, bytes=999), False),
        (ListingLimit(files=100, bytes=1000, files_field="another"), False),
        (ListingLimit(files=101, bytes=1000), True),
        (ListingLimit(files=100, bytes=1001), True),
        (ListingLimit(files=100), True),
        (ListingLimit(files=99, bytes=1001), True),
    ],
)
async def test_a_refused_listing_is_tried_again_at_once_only_by_a_higher_limit(
    manifests: MountManifests, lister: Refusing, changed: ListingLimit, again: bool
) -> None:
    met = ListingLimit(files=100, bytes=1000)
    await advance(manifests, met)
    await advance(manifests, changed)
    assert lister.limits == [met, *([changed] if again else [])]


async def test_a_limit_that_falls_and_rises_to_what_was_met_is_no_higher_one(
    manifests: MountManifests, lister: Refusing
) -> None:
    for files in (100, 90, 95, 100):
        await advance(manifests, ListingLimit(files=files))
    assert len(lister.limits) == 1


@pytest.mark.threat("agent-false-sums")
async def test_a_version_that_no_agent_gives_in_time_is_listed(
    manifests: MountManifests, lister: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drop_by_drop(*, digest: str, urls: tuple[str, ...], version: object) -> Listed:
        await asyncio.Event().wait()
        raise AssertionError(digest, urls, version)

    monkeypatch.setattr(manifests.caches, "totals", drop_by_drop)
    monkeypatch.setattr("tdcs.control.dataset.mount.source_versions.RECOVER_SECONDS", 0.0)
    await advance(manifests, ListingLimit(files=1), digest="0" * 32)
    assert not lister.limits
    await advance(manifests, ListingLimit(files=1), digest="0" * 32)
    assert len(lister.limits) == 1
