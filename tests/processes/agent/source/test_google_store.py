"""A bucket of Google Cloud Storage, on a server of its API: what is listed of it, and what agents read."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.dataplane.listed_source import extents_of, files_of, listed, read
from tests.support.programs.google_store import GoogleStore, google_store

from tdcs.model.cache_engine import NO_KEYS, Source, SourceError
from tdcs.node.agent.mount.source_pieces import SourceFailureError

MANY = 600  # a bucket of this server takes a time that grows with the square of its objects
NAMES = (
    *("one two", "per%20cent", "100%", "plus+sign", "a&b<c>'\"", "umläut-日本-🐈", "what?#;=", "back\\slash"),
    *("tab\there", "deep/er/x", "deep-/y", "dots..in", "~", "e\u0301", "\u00e9"),
)
LARGE = random.Random(3).randbytes(300_000)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStore]:
    many = {f"many/data/{number % 7}/{number:05}": b"%d" % number for number in range(MANY)}
    with google_store(tmp_path_factory.mktemp("google"), files=many) as running:
        yield running


@pytest.fixture
def bucket(store: GoogleStore, request: pytest.FixtureRequest) -> str:
    name = f"b{abs(hash(request.node.name)):x}"
    store.make_bucket(name)
    return name


def source_of(store: GoogleStore, bucket: str, prefix: str = "data") -> Source:
    uri = f"gs://{bucket}/{prefix}".rstrip("/")
    return Source(uri=uri, options={"endpoint": store.endpoint}, credentials=NO_KEYS)


async def test_names_of_every_kind_are_listed_and_read(
    store: GoogleStore, bucket: str, tmp_path: Path
) -> None:
    for name in NAMES:
        store.put(bucket, f"data/{name}", name.encode())
    store.put(bucket, "data/large", LARGE)
    store.put(bucket, "data/empty", b"")
    store.put(bucket, "data/folder/", b"")
    store.put(bucket, "data/folder/below", b"x")
    store.put(bucket, "database", b"not below the prefix")
    source = source_of(store, bucket)

    manifest = await listed(source, tmp_path)

    sizes = {name: len(name.encode()) for name in NAMES}
    assert files_of(manifest) == sizes | {"large": len(LARGE), "empty": 0, "folder/below": 1}
    for name in NAMES:
        assert read(source, extents_of(manifest, name, piece=1 << 20)) == name.encode()
    assert read(source, extents_of(manifest, "large", piece=70_000)) == LARGE


@pytest.mark.parametrize("pages", [1000, 23])
async def test_many_objects_are_listed_in_ranges_of_pages(
    store: GoogleStore, tmp_path: Path, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tdcs.listing.page_requests.PAGE", pages)
    manifest = await listed(source_of(store, "many"), tmp_path)

    assert files_of(manifest) == {f"{number % 7}/{number:05}": len(str(number)) for number in range(MANY)}


async def test_an_object_that_was_replaced_or_removed_since_is_refused(
    store: GoogleStore, bucket: str, tmp_path: Path
) -> None:
    for name in ("same", "replaced", "removed"):
        store.put(bucket, f"data/{name}", LARGE)
    source = source_of(store, bucket)
    before = await listed(source, tmp_path)
    store.put(bucket, "data/replaced", LARGE)  # equal bytes, and another generation
    store.delete(bucket, "data/removed")

    assert read(source, extents_of(before, "same", piece=100_000)) == LARGE
    for name, code in (("replaced", "Changed"), ("removed", "Missing")):
        with pytest.raises(SourceFailureError) as refused:
            read(source, extents_of(before, name, piece=100_000)[1:])
        assert refused.value.code == code

    after = await listed(source, tmp_path)
    assert read(source, extents_of(after, "replaced", piece=100_000)) == LARGE
    assert before.file_id(before.file_at(b"same") or 0) == after.file_id(after.file_at(b"same") or 0)


async def test_an_object_that_is_stored_packed_is_read_as_it_is_stored(
    store: GoogleStore, bucket: str, tmp_path: Path
) -> None:
    packed = gzip.compress(b"a text that is stored packed " * 5000 + LARGE)
    store.put(bucket, "data/text.json", packed, encoding="gzip")
    source = source_of(store, bucket)

    manifest = await listed(source, tmp_path)

    assert files_of(manifest) == {"text.json": len(packed)}
    assert read(source, extents_of(manifest, "text.json", piece=50_000)) == packed
    assert read(source, extents_of(manifest, "text.json", piece=1 << 20)) == packed


async def test_a_bucket_that_is_not_there_is_named(store: GoogleStore, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        await listed(source_of(store, "nobody-has-this"), tmp_path)
    assert "there is no such bucket" in str(refused.value)
    assert "404" in str(refused.value)
