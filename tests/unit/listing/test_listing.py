"""A listing of a mount makes its manifest."""

from __future__ import annotations

import pytest
from tests.support.twins.local_lister import LocalLister
from tests.unit.listing.conftest import MOUNT, URI, mounted

from tdcs.listing.folder import ManifestFolder
from tdcs.model.cache_engine import NoSuchPathError


async def test_a_listing_writes_the_manifest_and_says_its_sums(folder: ManifestFolder) -> None:
    engine = await mounted({"a/x": 5, "a/y": 3 << 20, "b//bad": 7, "empty": 0})

    listed = await LocalLister(engine=engine, folder=folder).list(path=MOUNT)

    assert folder.digests() == {listed.digest}
    manifest = folder.open(listed.digest)
    assert manifest.header.source == URI
    assert [manifest.file_path(file) for file in range(3)] == [b"empty", b"a/x", b"a/y"]
    assert (listed.totals.files, listed.totals.blocks, listed.totals.block_bytes) == (3, 4, 5 + (3 << 20))
    assert [skip.path for skip in listed.skipped] == [b"b//bad"]
    assert listed.totals == manifest.totals()


async def test_a_version_that_did_not_change_has_the_same_digest(folder: ManifestFolder) -> None:
    engine = await mounted({"a": 5})
    lister = LocalLister(engine=engine, folder=folder)
    first = await lister.list(path=MOUNT)

    assert (await lister.list(path=MOUNT, refresh=True)).digest == first.digest
    engine.sources[URI] = {"a": 6}
    assert (await lister.list(path=MOUNT, refresh=True)).digest != first.digest


async def test_a_path_that_is_not_mounted_is_refused_by_name(folder: ManifestFolder) -> None:
    with pytest.raises(NoSuchPathError, match="/datasets/2e"):
        await LocalLister(engine=await mounted({"a": 5}), folder=folder).list(path="/datasets/2e")
