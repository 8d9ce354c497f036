"""Objects with many folders in their names: each manifest has an entry for every one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest
from tests.attacks.unit.sources.listed_store import Store, listed, set_limits, size_of
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.decide.source_limits import MANIFEST_FILE_BYTES, listing_limit, manifest_bytes
from tdcs.listing.folder import ManifestFolder
from tdcs.model.agent_state import FolderLimit
from tdcs.model.cache_engine import LimitExceededError
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.node.agent.mount.folder_count import count_folder

LIMITED = listing_limit(
    CacheClusterSpec.model_validate({"limits": {"files": 262_144}}), cluster="default", others=0
)


def deep(number: int) -> str:
    """With the prefix `many/` a key of 1,021 bytes, of the 1,024 that S3 allows, in 505 folders."""
    return f"{number:06}/" + "a/" * 504 + "f"


def wide(number: int) -> str:
    """As long, in four folders, of which the last is its own."""
    return "/".join(("b" * 250, "c" * 250, "d" * 250, f"{number:0>250}", "f"))


def page(keys: Iterable[str], *, size_first: bool = False) -> bytes:
    def item(key: str) -> str:
        parts = [f"<Key>{key}</Key>", "<Size>5</Size>"]
        return f"<Contents>{''.join(reversed(parts) if size_first else parts)}</Contents>"

    return f"<ListBucketResult>{''.join(map(item, keys))}</ListBucketResult>".encode()


def counted(text: bytes, limit: ListingLimit = LIMITED) -> SourcesSize:
    with Store(page=lambda _: (200, {}, text)) as store:
        return size_of(store, limit)


@pytest.mark.threat("names-by-the-million")
def test_a_thousand_objects_with_half_a_million_folders_are_refused_at_the_store_and_the_reason_named() -> (
    None
):
    with pytest.raises(LimitExceededError) as caught:
        counted(page(f"many/{deep(number)}" for number in range(1000)))
    text = str(caught.value)
    assert "it has more than 262144 files and folders, of which each folder counts once" in text
    assert "once more for every 256 bytes of its path" in text
    assert "spec.limits.files of CacheCluster default" in text
    assert "fewer folders" in text


KEYS: dict[str, tuple[list[str], int]] = {
    "none": (["a", "b"], 2),
    "shared": (["a/1", "a/2", "a/b/1", "a/z", "b/1"], 5 + 3),
    "of like names": (["a-b/1", "a/1", "a/b", "ab/1"], 4 + 3),
    "of 255 and of 256 bytes": ([f"{'a' * 255}/1", f"{'b' * 255}/c/1"], 2 + 1 + 3),
    "of 767 bytes and more": (["/".join(("a" * 255, "b" * 255, "c" * 255, "d", "1"))], 1 + 1 + 2 + 3 + 4),
    "of other letters": ([f"{'ä' * 127}/1", f"{'ä' * 127}/ö/1"], 2 + 1 + 2),
}


@pytest.mark.parametrize("size_first", [False, True])
@pytest.mark.parametrize(("keys", "count"), KEYS.values(), ids=KEYS)
def test_each_folder_counts_once_and_once_more_for_every_256_bytes_of_its_path(
    keys: list[str], count: int, size_first: bool
) -> None:
    text = page((f"many/{key}" for key in keys), size_first=size_first)
    assert counted(text, ListingLimit(files=count)).files == count
    with pytest.raises(LimitExceededError, match=f"more than {count - 1} files"):
        counted(text, ListingLimit(files=count - 1))


async def test_a_listing_of_too_many_folders_writes_nothing(tmp_path: Path) -> None:
    folder = ManifestFolder(tmp_path)
    with Store(page=lambda _: (200, {}, page(["many/a/b/1", "many/c/d/1"]))) as store:
        with pytest.raises(LimitExceededError, match="more than 5 files and folders"):
            await listed(store, folder, ListingLimit(files=5))
        assert not folder.digests()


def test_an_agent_counts_alike(tmp_path: Path) -> None:
    names, count = KEYS["of 767 bytes and more"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"x" * 5)
    size = count_folder(FolderLimit(folder=str(tmp_path), files=count, seconds=60.0))
    assert size.counted + size.folders == count
    size = count_folder(FolderLimit(folder=str(tmp_path), files=count - 2, seconds=60.0))
    assert size.files == 0  # it ends at the last folder


def test_an_escaped_slash_is_one_and_a_store_that_sorts_falsely_counts_as_one_that_sorts() -> None:
    assert counted(page(["many/a&#x2F;b&#47;c"])).files == 3
    assert counted(page(["many/a/1", "many/b/1", "many/a/2", "many/b/2"])).files == 4 + 2


def test_an_empty_object_that_stands_for_a_folder_is_no_file_and_counts_by_what_is_below_it() -> None:
    def markers(*keys: str) -> bytes:
        return page(keys).replace(b"/</Key><Size>5<", b"/</Key><Size>0<")

    assert counted(markers("many/a/", "many/a/1", "many/b/", "many/b/c/")).files == 1 + 1
    assert counted(markers(*("many/a/" for _ in range(40)))).files == 0


def test_pages_that_name_nothing_but_folders_are_no_end_of_a_listing() -> None:
    def pages(number: int) -> tuple[int, dict[str, str], bytes]:
        keys = [f"many/{number:04}/"] if number < 150 else [f"many/z{number}-{name}" for name in range(100)]
        text = page(keys).replace(b"/</Key><Size>5<", b"/</Key><Size>0<")
        token = f"<NextContinuationToken>{number + 1}</NextContinuationToken></ListBucketResult>".encode()
        return (
            200,
            {},
            text.replace(b"</ListBucketResult>", token if number < 160 else b"</ListBucketResult>"),
        )

    with Store(page=pages) as store:
        assert size_of(store, LIMITED).files == 11 * 100
        with pytest.raises(LimitExceededError, match="more than 1000 files"):
            size_of(store, ListingLimit(files=1000))


@pytest.mark.parametrize("name", [deep, wide])
async def test_what_limits_allow_bounds_the_bytes_of_a_manifest(
    tmp_path: Path, name: Callable[[int], str]
) -> None:
    """Of the worst names: long ones in their own long folders, and as many folders as a name can have."""
    folder = ManifestFolder(tmp_path)
    text = page(f"many/{name(number)}" for number in range(100))
    with Store(page=lambda _: (200, {}, text)) as store:
        listing = await listed(store, folder, LIMITED)
    size, written = listing.size, len(folder.file(listing.digest).read_bytes())
    assert written <= size.files * MANIFEST_FILE_BYTES
    spec = CacheClusterSpec.model_validate({"limits": {"filesPerDataset": size.files}})
    assert written <= manifest_bytes(spec)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    sources = {"s3://deep": {"a/b/c/1": 5}, "s3://flat": {"1": 5, "2": 5}}
    engine = MemoryEngine(sources=sources, workers={"a": 1 << 30})
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        yield cluster


@pytest.mark.parametrize("limit", ["files", "filesPerNamespace"])
async def test_the_folders_of_a_dataset_are_not_left_to_others_and_its_status_has_files(
    cluster: Cluster, limit: str
) -> None:
    await cluster.create_cache(limits={limit: 5})
    await cluster.create_keys()
    await cluster.create_dataset("deep", source={"uri": "s3://deep"})
    await cluster.until_state("Ready", "deep")
    assert cluster.status("deep")["totalFiles"] == 1
    await cluster.create_dataset("flat", source={"uri": "s3://flat"})
    await cluster.until(lambda: cluster.condition("Ready", "flat").get("reason") == "LimitExceeded")
    assert f"more than 1 files: what spec.limits.{limit}" in cluster.condition("Ready", "flat")["message"]
    # After a restart the version is known by its manifest, and is as large.
    await cluster.stop()
    await cluster.start()
    await cluster.until_state("Ready", "deep")
    await cluster.until(lambda: "more than 1 files" in cluster.condition("Ready", "flat")["message"])
    await set_limits(cluster, **{limit: 6})
    await cluster.until_state("Ready", "flat")
