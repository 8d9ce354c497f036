"""A bucket that keeps versions, seen as it was at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.dataplane.listed_source import extents_of, files_of, listed, read
from tests.support.programs.gateway_store import OWNER, GatewayStore, gateway_store

from tdcs.model.cache_engine import Source, SourceError
from tdcs.node.agent.mount.source_pieces import SourceFailureError

ODD = "umläut %41+&<x>"


class Bucket:
    """A bucket and what writes to it."""

    def __init__(self, store: GatewayStore, name: str, *, versions: bool) -> None:
        self.store, self.name = store, name
        self.client = store.client
        self.client.create_bucket(Bucket=name)
        if versions:
            self.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"data/{name}", Body=content)

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"data/{name}")

    def _now(self) -> datetime:
        """A time that nothing of the bucket is later than: its server can round the last one up."""
        answer = self.client.list_object_versions(Bucket=self.name)
        written: list[datetime] = [
            each["LastModified"] for kind in ("Versions", "DeleteMarkers") for each in answer.get(kind, [])
        ]
        return max(datetime.now(UTC), *written)

    def source(self, as_of: str = "", prefix: str = "data") -> Source:
        """As it is now, or was at a time."""
        as_of = as_of or self._now().isoformat()
        options = {"endpoint": self.store.endpoint, "asOf": as_of}
        return Source(uri=f"s3://{self.name}/{prefix}", options=options, credentials=OWNER)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayStore]:
    folder = tmp_path_factory.mktemp("versions")
    versions = folder / "kept"
    versions.mkdir()
    with gateway_store(folder / "store", options=["--versioning-dir", str(versions)]) as running:
        yield running


# What this server says of the time of a version that is not the last one is that of the next one, so each test lists
# what is the last one. Other times are asked about in tests/unit/listing/test_version_listing.py.


async def test_a_view_keeps_what_each_object_was(store: GatewayStore, tmp_path: Path) -> None:
    bucket = Bucket(store, "pictures", versions=True)
    expected = {name: b"first " + name.encode() for name in ("changed", "gone", ODD)}
    for name, content in expected.items():
        bucket.put(name, content)
    bucket.put("was deleted", b"x")
    bucket.delete("was deleted")
    source = bucket.source()
    manifest = await listed(source, tmp_path)
    bucket.put("changed", b"second, longer")
    bucket.delete("gone")
    bucket.put("new", b"new")

    assert files_of(manifest) == {name: len(content) for name, content in expected.items()}
    for name, content in expected.items():
        assert read(source, extents_of(manifest, name, piece=1 << 20)) == content
        assert read(source, extents_of(manifest, name, piece=3)) == content


async def test_a_version_that_is_removed_for_good_is_missing(store: GatewayStore, tmp_path: Path) -> None:
    bucket = Bucket(store, "removed", versions=True)
    bucket.put("a", b"first")
    source = bucket.source()
    manifest = await listed(source, tmp_path)
    bucket.put("a", b"other")
    versions = bucket.client.list_object_versions(Bucket="removed", Prefix="data/a")["Versions"]
    old = next(version for version in versions if not version["IsLatest"])
    bucket.client.delete_object(Bucket="removed", Key="data/a", VersionId=old["VersionId"])
    with pytest.raises(SourceFailureError) as refused:
        read(source, extents_of(manifest, "a", piece=1 << 20))
    assert refused.value.code == "Missing"


async def test_a_bucket_that_keeps_no_versions_is_refused(store: GatewayStore, tmp_path: Path) -> None:
    bucket = Bucket(store, "plain", versions=False)
    bucket.put("a", b"first")
    with pytest.raises(SourceError, match=r"none of its objects has a version.*without asOf"):
        await listed(bucket.source(), tmp_path)


async def test_a_time_that_has_not_come_is_refused(store: GatewayStore, tmp_path: Path) -> None:
    bucket = Bucket(store, "future", versions=True)
    with pytest.raises(SourceError, match=r"has not come yet.*a time in the past"):
        await listed(bucket.source("2999-01-01T00:00:00Z"), tmp_path)
