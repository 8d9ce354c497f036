"""Manifests as files in a folder: pruned, damaged, half written."""

from __future__ import annotations

import os

import pytest
from tests.support.twins.local_lister import LocalLister
from tests.unit.listing.conftest import MOUNT, URI, mounted

from tdcs.listing.folder import ManifestFolder
from tdcs.model.manifest_format import BadManifestError


async def test_a_manifest_stays_readable_when_it_is_pruned(folder: ManifestFolder) -> None:
    engine = await mounted({"a": 5})
    lister = LocalLister(engine=engine, folder=folder)
    first = await lister.list(path=MOUNT)
    manifest = folder.open(first.digest)
    engine.sources[URI] = {"a": 6}
    second = await lister.list(path=MOUNT, refresh=True)

    assert folder.prune(keep=[second.digest]) == [first.digest]
    assert manifest.name(0) == b"a"
    assert folder.digests() == {second.digest}


def test_what_a_killed_process_left_is_removed_and_never_opened(folder: ManifestFolder) -> None:
    folder.path.mkdir()
    (folder.path / ".partial-x1").write_bytes(b"half")

    assert folder.digests() == frozenset()
    folder.clear_partial()
    assert os.listdir(folder.path) == []


def test_a_damaged_file_is_refused(folder: ManifestFolder) -> None:
    folder.path.mkdir()
    for content in (b"", b"nonsense"):
        folder.file("0" * 32).write_bytes(content)
        with pytest.raises(BadManifestError):
            folder.open("0" * 32)


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 31, "0" * 31 + "G", "0" * 32 + "\n"])
def test_what_is_no_digest_never_becomes_a_path(folder: ManifestFolder, digest: str) -> None:
    with pytest.raises(ValueError, match="no manifest's digest"):
        folder.file(digest)
