"""A bucket that TDCS lists itself: all names, each once, whatever they are called and however the store behaves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.programs.bucket_store import BucketStore, serving
from tests.unit.listing.conftest import MOUNT

from tdcs.listing import page_requests
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.key_ranges import split
from tdcs.listing.listed_page import ListedPage, unescaped
from tdcs.listing.lister import ProcessLister
from tdcs.listing.one_listing import list_source
from tdcs.listing.page_requests import PageError
from tdcs.listing.result import Listed
from tdcs.listing.source_keys import SourceKeys
from tdcs.listing.source_probe import probe
from tdcs.model.cache_engine import EngineError, KeysRefusedError, LimitExceededError, SourceError
from tdcs.model.listing_limit import ListingLimit
from tdcs.model.manifest import Manifest

ODD = [
    b"plain",
    b"with space",
    b"plus+sign",
    b"per%20cent",
    b"amp&lt;",
    b"question?",
    b"back\\slash",
    b"a\x01b",
    b"new\nline",
    b"quote'\"",
    "umläut-日本".encode(),
    b"dir/deep/er/x",
    b"dir-/x",
    b"dir/x",
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_requests, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(page_requests, "_MOST_PAUSE", 0.01)


def names(*folders: int, files: int = 10) -> list[bytes]:
    """Keys of so many folders."""
    return [
        b"data/train/n%05d/%05d.jpg" % (folder, number)
        for folder in range(*folders)
        for number in range(files)
    ]


async def listed(
    store: BucketStore, folder: ManifestFolder, limit: ListingLimit | None = None
) -> tuple[Listed, Manifest]:
    async with serving(store):
        listing = await list_source(source=store.source, path=MOUNT, folder=folder, limit=limit)
    return listing, folder.open(listing.digest)


def paths(manifest: Manifest) -> list[bytes]:
    return [manifest.file_path(file) for file in range(len(manifest))]


def below(keys: Iterable[bytes]) -> list[bytes]:
    return sorted(key.removeprefix(b"data/") for key in keys)


@pytest.mark.parametrize("spelled", [True, False])
async def test_names_are_the_bytes_of_the_source(folder: ManifestFolder, spelled: bool) -> None:
    store = BucketStore(keys=[b"data/" + name for name in ODD], spelled=spelled)
    listing, manifest = await listed(store, folder)
    assert sorted(paths(manifest)) == sorted(ODD)
    assert listing.totals.block_bytes == 5 * len(ODD)
    for name in ODD:
        file = manifest.file_at(name)
        assert file is not None
        assert manifest.tag(file) == f'"{(b"data/" + name).hex()[:32]}"'


async def test_a_name_that_a_store_cannot_write_is_left_out_and_named(folder: ManifestFolder) -> None:
    """It would be asked for under another name, and not be there."""
    replaced = "data/a\ufffdb".encode()
    listing, manifest = await listed(BucketStore(keys=[replaced, b"data/x"], spelled=False), folder)
    assert paths(manifest) == [b"x"]
    assert [(skip.path, "XML" in skip.reason) for skip in listing.skipped] == [(replaced[5:], True)]
    _, manifest = await listed(BucketStore(keys=[replaced]), folder)
    assert paths(manifest) == [replaced[5:]]


async def test_only_files_that_are_selected_are_part_of_the_version(folder: ManifestFolder) -> None:
    keys = [b"data/train/a.jpg", b"data/train/a.txt", b"data/val/a.jpg", b"data/train/@eaDir/a.jpg"]
    store = BucketStore(keys=keys)
    options = {"include": "train/", "exclude": "*.txt\n@eaDir/"}
    async with serving(store):
        source = replace(store.source, options={**store.source.options, **options})
        listing = await list_source(source=source, path=MOUNT, folder=folder)
    assert paths(folder.open(listing.digest)) == [b"train/a.jpg"]
    assert listing.totals.files == 1


async def test_keys_that_may_list_one_prefix_only_are_enough(folder: ManifestFolder) -> None:
    """As teams that share a bucket have them: `s3:prefix` is a condition of what they may list."""
    store = BucketStore(keys=[*names(300), b"other/secret"])
    answer, refused = store.answer, list[str]()

    async def strict(request: web.Request) -> web.Response:
        if request.method != "GET" or not request.query.get("prefix", "").startswith("data/"):
            refused.append(f"{request.method} {request.path_qs}")
            return web.Response(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
        return await answer(request)

    store.answer = strict  # type: ignore[method-assign]
    async with serving(store):
        await probe(store.source, path=None)
        assert await SourceKeys()(store.source, namespace="team")
        listing = await list_source(source=store.source, path=MOUNT, folder=folder)
    assert (listing.totals.files, refused) == (3000, [])


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "in no order"])
async def test_etags_that_are_others_in_each_listing_make_no_other_version(
    folder: ManifestFolder, shuffled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    count = itertools.count()
    # Of some objects alone: others, as gateways have them, were uploaded in one part.
    store = BucketStore(
        keys=names(300),
        etag=lambda key: f'"{next(count) if key.endswith(b"7.jpg") else 1}"',
        knows_start=False,
    )
    if shuffled:
        store.shown = lambda keys: random.Random(len(keys)).sample(keys, len(keys))
    async with serving(store):
        digests = {
            (await list_source(source=store.source, path=MOUNT, folder=folder)).digest for _ in range(3)
        }
    (digest,) = digests
    manifest = folder.open(digest)
    assert len(manifest) == 3000
    assert {manifest.tag(file) for file in range(len(manifest))} == {"mtime-ms:1795341600000"}
    assert sum("another ETag of the same object" in text for text in caplog.messages) == 3, "once a listing"


async def test_objects_that_are_written_while_they_are_listed_keep_their_etags(
    folder: ManifestFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = itertools.count()
    store = BucketStore(keys=names(2), etag=lambda _: f'"{next(count)}"')
    time = store.page

    def written(asked: Mapping[str, str]) -> bytes:
        return time(asked).replace(b"2026-11-22T10:00:00", b"2026-11-22T10:00:%02d" % len(store.asked))

    monkeypatch.setattr(store, "page", written)
    _, manifest = await listed(store, folder)
    assert all(manifest.tag(file).startswith('"') for file in range(len(manifest)))


async def test_objects_that_stand_for_folders_are_no_files(folder: ManifestFolder) -> None:
    keys = [b"data/", b"data/a/", b"data/a/x", b"data/empty/", b"data/file-of-none"]
    store = BucketStore(keys=keys, size=lambda key: 0 if key.endswith((b"/", b"none")) else 5)
    listing, manifest = await listed(store, folder)
    assert sorted(paths(manifest)) == [b"a/x", b"file-of-none"]
    assert listing.skipped_count == 0


async def test_what_no_folder_can_hold_is_left_out_and_named(folder: ManifestFolder) -> None:
    keys = [b"data//x", b"data/a", b"data/a/b", b"data/c//d", b"data/e/../f", b"data/g/"]
    listing, manifest = await listed(BucketStore(keys=keys), folder)
    assert paths(manifest) == [b"a/b"]
    assert {skip.path for skip in listing.skipped} == {b"/x", b"a", b"c//d", b"e/../f", b"g/"}


async def test_an_object_without_an_etag_is_known_by_its_time(folder: ManifestFolder) -> None:
    keys = [b"data/a", b"data/b"]
    _, manifest = await listed(
        BucketStore(keys=keys, etag=lambda key: '"x"' if key.endswith(b"a") else None), folder
    )
    assert [manifest.tag(0), manifest.tag(1)] == ['"x"', "mtime-ms:1795341600000"]


async def test_a_large_bucket_is_listed_in_ranges_and_gives_the_same_as_in_one(
    folder: ManifestFolder,
) -> None:
    keys = [*names(40, files=150), b"data/zz/last", b"data/aa"]
    whole = BucketStore(keys=list(keys))
    listing, manifest = await listed(whole, folder)
    assert sorted(paths(manifest)) == below(keys)
    assert len({query.get("start-after", "") for query in whole.asked}) == 8
    slow = BucketStore(keys=list(keys), knows_start=False)
    again, _ = await listed(slow, folder)
    assert again.digest == listing.digest
    assert (again.size.files, again.size.bytes) == (listing.size.files, listing.size.bytes)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=3), max_size=12), st.binary(max_size=3), st.integers(2, 9))
def test_ranges_hold_every_key_behind_the_last_known_one_once(
    prefixes: list[bytes], behind: bytes, lanes: int
) -> None:
    ranges = split(prefixes, behind=behind, lanes=lanes)
    assert ranges[0].after == behind
    assert ranges[-1].until is None
    assert len(ranges) <= lanes
    for before, after in itertools.pairwise(ranges):
        assert before.until == after.after
        assert before.after < after.after


async def test_a_store_that_lists_in_no_order_is_listed_as_one(folder: ManifestFolder) -> None:
    keys = names(30, files=100)
    chance = random.Random(1)

    def shuffled(page: list[bytes]) -> list[bytes]:
        return chance.sample(page, len(page))

    plain, _ = await listed(BucketStore(keys=list(keys)), folder)
    listing, _ = await listed(BucketStore(keys=list(keys), shown=shuffled), folder)
    assert listing.digest == plain.digest
    assert listing.size == plain.size
    # Folders count once there, too.
    await listed(BucketStore(keys=list(keys), shown=shuffled), folder, ListingLimit(files=plain.size.files))


@pytest.mark.parametrize(
    "failure",
    [
        (503, b"<Error><Code>SlowDown</Code></Error>"),
        (429, b""),
        (200, b"<ListBucketResult><Contents><Key>data/x</Key><Size>1</Size></Contents>"),
        (200, b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
        (200, b"<ListBucketResult><KeyCount>7</KeyCount></ListBucketResult>"),
        (200, b"<ListBucketResult><Contents><Key>data/x</Key></Contents></ListBucketResult>"),
        (200, b"<ListBucketResult><Contents><Key>y</Key><Size>1</Size></Contents></ListBucketResult>"),
        (200, b""),
        (200, b"<html>busy</html>"),
    ],
)
async def test_a_page_that_is_none_is_asked_for_again_and_what_it_named_is_forgotten(
    folder: ManifestFolder, failure: tuple[int, bytes]
) -> None:
    keys = names(30, files=100)
    plain, _ = await listed(BucketStore(keys=list(keys)), folder)
    failing = BucketStore(keys=list(keys), failures=dict.fromkeys((1, 3, 4, 5, 8, 9, 10, 11), failure))
    listing, _ = await listed(failing, folder)
    assert listing.digest == plain.digest


async def test_a_store_that_stays_away_in_the_middle_gives_no_version(folder: ManifestFolder) -> None:
    store = BucketStore(
        keys=names(30, files=100), failures=dict.fromkeys(range(4, 4000), (503, b"<Code>SlowDown</Code>"))
    )
    with pytest.raises(SourceError, match=r"busy.*503\): SlowDown"):
        await listed(store, folder)
    assert folder.digests() == frozenset()


async def test_a_store_that_ends_in_the_middle_of_its_names_gives_no_version(folder: ManifestFolder) -> None:
    """A range of keys says that nothing follows, while the next one has names."""
    store = BucketStore(keys=names(40, files=600))
    real = store.page

    def page(asked: Mapping[str, str]) -> bytes:
        text = real(asked)
        if "continuation-token" in asked and "delimiter" not in asked:
            begin, end = text.find(b"<NextContinuationToken>"), text.find(b"</NextContinuationToken>")
            if begin >= 0:
                text = (text[:begin] + text[end:]).replace(b"</NextContinuationToken>", b"")
                return text.replace(b"<IsTruncated>true", b"<IsTruncated>false")
        return text

    store.page = page  # type: ignore[method-assign]
    with pytest.raises(SourceError, match="nothing more in the middle of its names"):
        await listed(store, folder)


async def test_a_listing_ends_at_its_limit(folder: ManifestFolder) -> None:
    keys = names(40, files=150)
    for limit in (ListingLimit(files=5999), ListingLimit(files=10**6, bytes=5 * 6000 - 1)):
        with pytest.raises(LimitExceededError):
            await listed(BucketStore(keys=list(keys)), folder, limit)
    listing, _ = await listed(BucketStore(keys=list(keys)), folder, ListingLimit(files=6041, bytes=30_000))
    assert (listing.size.files, listing.size.folders) == (6041, 41)
    with pytest.raises(LimitExceededError, match="files and folders"):
        await listed(BucketStore(keys=list(keys)), folder, ListingLimit(files=6040))


async def test_a_limit_counts_each_gib_of_a_file(folder: ManifestFolder) -> None:
    def store() -> BucketStore:
        return BucketStore(
            keys=[b"data/large", b"data/small"], size=lambda key: 3 << 30 if b"large" in key else 1
        )

    listing, manifest = await listed(store(), folder, ListingLimit(files=4))
    assert listing.size.files == 4
    assert manifest.blocks == 4
    with pytest.raises(LimitExceededError, match="large"):
        await listed(store(), folder, ListingLimit(files=3))


async def test_keys_that_are_refused_are_told(folder: ManifestFolder) -> None:
    store = BucketStore(keys=[], failures={0: (403, b"<Code>SignatureDoesNotMatch</Code>")})
    with pytest.raises(KeysRefusedError, match="secretRef"):
        await listed(store, folder)


async def test_a_disk_that_takes_no_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=f"write the manifest of {MOUNT}.*into .*/file"):
        await listed(BucketStore(keys=[b"data/a"]), ManifestFolder(tmp_path / "file"))


async def test_an_empty_bucket_has_an_empty_version(folder: ManifestFolder) -> None:
    listing, manifest = await listed(BucketStore(keys=[]), folder)
    assert (listing.totals.files, len(manifest)) == (0, 0)


@pytest.mark.failure_mode("object-next-to-folder-of-same-name")
async def test_of_an_object_next_to_a_folder_of_its_name_the_folder_is_listed_and_the_object_named(
    folder: ManifestFolder,
) -> None:
    listing, manifest = await listed(BucketStore(keys=[b"data/a", b"data/a-b", b"data/a/b"]), folder)
    assert sorted(paths(manifest)) == [b"a-b", b"a/b"]
    assert [skip.path for skip in listing.skipped] == [b"a"]


async def test_a_process_lists_a_bucket(folder: ManifestFolder) -> None:
    keys = names(3)
    store = BucketStore(keys=keys)
    async with serving(store):
        lister = ProcessLister(folder=folder, source_of=lambda _: store.source)
        listing = await lister.list(path=MOUNT, limit=ListingLimit(files=100))
        assert sorted(paths(folder.open(listing.digest))) == below(keys)
        with pytest.raises(LimitExceededError):
            await lister.list(path=MOUNT, limit=ListingLimit(files=3))


def test_a_page_is_taken_wherever_it_is_cut_as_it_comes() -> None:
    store = BucketStore(keys=[b"data/" + name for name in ODD])
    text = store.page({"prefix": "data/", "encoding-type": "url"})
    for length in (1, 7, 100):
        page = ListedPage(b"data/")
        for begin in range(0, len(text), length):
            page.add(text[begin : begin + length])
        assert page.finish() == ""
        assert sorted(file.path for file in page.files) == sorted(ODD)


@given(st.binary(max_size=40))
def test_noise_is_no_page(noise: bytes) -> None:
    page = ListedPage(b"")
    page.add(noise)
    with pytest.raises(PageError):
        page.finish()


def test_references_to_characters_stand_for_them() -> None:
    assert (
        unescaped(b"&#1;&#x7f;&amp;lt;&quot;&#228;&unknown;&#9999999;")
        == b'\x01\x7f&lt;"\xc3\xa4&unknown;&#9999999;'
    )
