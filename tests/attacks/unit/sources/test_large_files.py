"""Files of any length, which cost their author nothing: a cache keeps something of each of their parts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.attacks.unit.sources.listed_store import PATH, Store, set_limits, size_of
from tests.support.dataplane.agents import running_agent
from tests.support.twins.engine import MemoryEngine
from tests.unit.control.cluster import Cluster

from tdcs.api.cachecluster import CacheClusterSpec
from tdcs.decide.source_limits import listing_limit
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.folder_listing import FolderAgents
from tdcs.listing.one_listing import list_source
from tdcs.model.agent_state import FolderLimit
from tdcs.model.cache_engine import LimitExceededError, Source
from tdcs.model.file_blocks import EXTENTS
from tdcs.model.listing_limit import ListingLimit, SourcesSize
from tdcs.node.agent.mount.folder_count import count_folder

GIB, TIB = 1 << 30, 1 << 40
DEFAULT = listing_limit(CacheClusterSpec(), cluster="default", others=0)


def page(*objects: bytes) -> bytes:
    return b"".join((b"<ListBucketResult>", *objects, b"</ListBucketResult>"))


def key_first(key: str, size: int) -> bytes:
    return f"<Contents><Key>many/{key}</Key><ETag>e</ETag><Size>{size}</Size></Contents>".encode()


def size_first(key: str, size: int) -> bytes:
    return f"<Contents><Size>{size}</Size><Key>many/{key}</Key></Contents>".encode()


def check(text: bytes, limit: ListingLimit) -> None:
    with Store(page=lambda _: (200, {}, text)) as store:
        size_of(store, limit)


@pytest.mark.threat("names-by-the-million")
def test_one_object_of_any_length_that_a_store_names_is_refused_by_default_and_named() -> None:
    text = page(key_first("small", 5), key_first("a &amp; b", (1 << 63) - 1), key_first("last", 5))
    with pytest.raises(
        LimitExceededError,
        match=r"more than 10000000 files.*'a & b' of 9223372036854775807 bytes as 8589934592.*spec\.limits\.files",
    ):
        check(text, DEFAULT)


@pytest.mark.parametrize(("size", "files"), [(0, 1), (1, 1), (GIB, 1), (GIB + 1, 2), (3 * GIB, 3)])
@pytest.mark.threat("names-by-the-million")
def test_an_object_counts_once_for_each_gib_of_it_that_is_begun(size: int, files: int) -> None:
    check(page(key_first("a", size)), ListingLimit(files=files))
    with pytest.raises(LimitExceededError):
        check(page(key_first("a", size)), ListingLimit(files=files - 1))


def test_an_object_that_its_store_names_after_its_size_is_not_taken_for_the_one_before() -> None:
    with pytest.raises(LimitExceededError) as caught:
        check(page(size_first("innocent", 5), size_first("large", 9 * GIB)), ListingLimit(files=9))
    assert "innocent" not in str(caught.value)
    assert f"of {9 * GIB} bytes as 9" in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared" / "mine"
    (folder / "deep").mkdir(parents=True)
    return folder


def sparse(path: Path, size: int) -> Path:
    """A file of this length, which takes no bytes."""
    path.touch()
    os.truncate(path, size)
    return path


@pytest.mark.threat("folder-names-by-the-million")
def test_sparse_files_of_a_folder_count_for_their_length_and_no_further_than_the_limit(folder: Path) -> None:
    for number in range(40):
        sparse(folder / "deep" / f"{number}", 8 * TIB)
    (folder / "small").write_bytes(b"x")
    folder_limit = FolderLimit(folder=str(folder), files=20_000, seconds=60.0)
    assert count_folder(folder_limit).files <= 4  # the third of 8,192 blocks is too much


@pytest.mark.threat("folder-names-by-the-million")
def test_a_link_counts_as_the_file_of_the_folder_that_it_is(folder: Path) -> None:
    """As in Alluxio's listing; what is elsewhere says nothing of itself by that."""
    sparse(folder / "deep" / "large", 10 * GIB)
    sparse(folder.parent / "theirs", 1000 * GIB)
    (folder.parent / "way").symlink_to("mine/deep")
    links = {
        "a": "deep/large",
        "deep/b": "large",
        "deep/c": f"{folder}/deep/../a",
        "d": "../way/large",
        "out": "../theirs",
        "absolute": f"{folder.parent}/theirs",
        "itself": "itself",
        "none": "none at all",
        "to-folder": "deep",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    size = count_folder(FolderLimit(folder=str(folder), files=10**6, seconds=60.0))
    assert (size.files, size.folders) == (1 + len(links), 1)
    assert size.counted == 5 * 10 + 5
    assert size.bytes == 5 * 10 * GIB


async def test_a_listing_by_an_agent_counts_them_and_the_file_is_named(folder: Path, tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(folder) + b"/deep/l\xff", os.O_CREAT | os.O_WRONLY))
    os.truncate(os.fsencode(folder) + b"/deep/l\xff", 8 * TIB)
    async with running_agent(tmp_path / "tier") as agent:

        async def listed(files: int) -> SourcesSize:
            listing = await list_source(
                source=Source(uri=f"file://{folder}"),
                path=PATH,
                folder=ManifestFolder(tmp_path / "manifests"),
                limit=ListingLimit(files=files),
                agents=FolderAgents(urls={"b": agent.url}),
                cut=EXTENTS,
            )
            return listing.size

        size = await listed(8193)
        assert (size.files, size.folders, size.bytes) == (8193, 1, 8 * TIB)
        with pytest.raises(
            LimitExceededError, match=rf"'deep/l\ufffd' of {8 * TIB} bytes as 8192.*spec\.limits"
        ):
            await listed(8192)


@pytest.fixture
def engine() -> MemoryEngine:
    sources = {"s3://large": {"a": 3 * GIB}, "s3://small": {"a": 5, "b": 5}}
    return MemoryEngine(sources=sources, workers={"a": 100 * GIB}, block_size=GIB)


@pytest.fixture
async def cluster(engine: MemoryEngine) -> AsyncIterator[Cluster]:
    async with Cluster(engine=engine, nodes={"a": {}}) as cluster:
        yield cluster


async def test_the_blocks_of_a_dataset_are_not_left_to_others_and_its_status_has_files(
    cluster: Cluster,
) -> None:
    await cluster.create_cache(limits={"files": 4})
    await cluster.create_keys()
    await cluster.create_dataset("large", source={"uri": "s3://large"})
    await cluster.until_state("Ready", "large")
    assert cluster.status("large")["totalFiles"] == 1
    await cluster.create_dataset("small", source={"uri": "s3://small"})
    await cluster.until(lambda: cluster.condition("Ready", "small").get("reason") == "LimitExceeded")
    assert "more than 1 files: what spec.limits.files" in cluster.condition("Ready", "small")["message"]
    # After a restart the versions are known by their manifests, and are as large.
    await cluster.stop()
    await cluster.start()
    await set_limits(cluster, files=4, filesPerDataset=5)
    await cluster.until_state("Ready", "large")
    await cluster.until(lambda: "more than 1 files" in cluster.condition("Ready", "small")["message"])
    await set_limits(cluster, files=5)
    await cluster.until_state("Ready", "small")
