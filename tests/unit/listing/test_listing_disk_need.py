"""How much of the operator's disk a listing takes, as the chart says of its volume."""

import os
import re
from pathlib import Path

import pytest
from tests.support.disk_peak import DiskPeak
from tests.support.programs.bucket_store import BucketStore, serving

from tdcs.listing import early_manifests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.one_listing import list_source
from tdcs.listing.result import Listed
from tdcs.model import sorted_rows

CHART = Path(__file__).parents[3] / "charts/tdcs/values.yaml"
TIMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
FILES = 30_000


async def test_a_listing_takes_no_more_of_the_disk_than_the_chart_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all rows spilled, and the last early manifest just before the end: each has twice the names of the last
    one, so that all of them are as large as two whole manifests."""
    sentence = re.search(
        r"some (\d+) bytes a file, and up to (\w+) times as much while it is listed", CHART.read_text()
    )
    assert sentence is not None
    bytes_a_file, times = int(sentence[1]), TIMES[sentence[2]]
    monkeypatch.setattr(early_manifests, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(early_manifests, "SHARE", 0)
    monkeypatch.setattr(sorted_rows, "STRETCH", 500)
    keys = [b"data/train/n%08d/n%08d_%08d.JPEG" % (n // 1300, n // 1300, n) for n in range(FILES)]
    folder, early = ManifestFolder(tmp_path), list[Listed]()
    async with serving(BucketStore(keys=keys)) as store:
        with DiskPeak(tmp_path, processes=lambda: [os.getpid()]) as disk:
            listed = await list_source(
                source=store.source, path="/datasets/a", folder=folder, tell=early.append
            )
    size = size_of(folder, listed)
    early_bytes = sum(size_of(folder, so_far) for so_far in early)
    assert early
    assert listed.totals.files == FILES
    most = disk.bytes - early_bytes + early_manifests.GROWTH * size
    assert size <= bytes_a_file * FILES
    assert most <= times * size


def size_of(folder: ManifestFolder, listed: Listed) -> int:
    return folder.file(listed.digest).stat().st_size
