"""A listing in a process of its own, of a real cache: names, blocks, and tags that a source takes for its own."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path

import pytest
from obstore.exceptions import PreconditionError
from obstore.store import S3Store
from tests.engine.contract import BLOCK_SIZE
from tests.engine.servers import AlluxioCluster, S3Server
from tests.support.twins.local_lister import LocalLister

from tdcs.alluxio import AlluxioEngine
from tdcs.listing.folder import ManifestFolder
from tdcs.listing.lister import ProcessLister
from tdcs.listing.source_size import SourceSize
from tdcs.model.cache_engine import EngineError, LimitExceededError, NoSuchPathError, Source
from tdcs.model.listing_limit import ListingLimit
from tdcs.model.manifest import Manifest

MILLISECONDS = 1_600_000_000_123


def file_in(manifest: Manifest, path: str) -> int:
    file = manifest.file_at(path.encode())
    assert file is not None
    return file


async def test_a_listing_of_a_bucket_has_every_name_and_the_etags_that_pin_a_read(
    engine: AlluxioEngine, alluxio: AlluxioCluster, s3: S3Server, tmp_path: Path
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    s3.make_bucket(bucket)
    s3.put(bucket, "data/put.bin", b"hello there")
    s3.put(bucket, "data/empty.bin", b"")
    s3.put_files(
        bucket, {"data/sub/large.bin": b"x" * (2 * BLOCK_SIZE + 1), "data/what?🐈.bin": b"no ETag of its own"}
    )
    await engine.mount(path=path, source=s3.source(f"s3://{bucket}/data"))
    folder = ManifestFolder(tmp_path)

    listed = await ProcessLister(master=alluxio.target, folder=folder, gate=asyncio.Semaphore(2)).list(
        path=path
    )

    manifest = folder.open(listed.digest)
    assert manifest.header.source == f"s3://{bucket}/data"
    assert {manifest.file_path(file) for file in range(len(manifest))} == {
        b"put.bin",
        b"empty.bin",
        b"sub/large.bin",
        "what?🐈.bin".encode(),
    }
    large = manifest.blocks_of(file_in(manifest, "sub/large.bin"))
    assert [int(manifest.block_lengths[block]) for block in large] == [BLOCK_SIZE, BLOCK_SIZE, 1]
    assert listed.totals.block_bytes == 11 + 2 * BLOCK_SIZE + 1 + len("no ETag of its own")
    assert manifest.tag(file_in(manifest, "what?🐈.bin")).startswith("mtime-ms:")
    known = {
        block.id: (file.path, block.offset)
        async for page in engine.files(path=path)
        for file in page
        for block in file.blocks
    }
    assert {
        int(manifest.block_ids[block]): (
            manifest.file_path(manifest.file_of(block)).decode(),
            manifest.offset(block),
        )
        for block in range(manifest.blocks)
    } == known

    store = S3Store(
        bucket,
        prefix="data",
        endpoint=s3.endpoint,
        region="us-east-1",
        access_key_id=s3.credentials.access_key_id,
        secret_access_key=s3.credentials.secret_access_key,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    tag = manifest.tag(file_in(manifest, "put.bin"))
    got = await store.get_async("put.bin", options={"if_match": tag})
    assert (got.meta["e_tag"], bytes(await got.bytes_async())) == (tag, b"hello there")
    s3.put(bucket, "data/put.bin", b"other bytes")
    with pytest.raises(PreconditionError):
        await store.get_async("put.bin", options={"if_match": tag})


async def test_tdcs_lists_a_bucket_as_the_master_does_and_names_that_the_master_cannot_hold(
    engine: AlluxioEngine, alluxio: AlluxioCluster, s3: S3Server, tmp_path: Path
) -> None:
    """Names, lengths, tags and ids; objects that stand for folders, odd names, absent ETags."""
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    s3.make_bucket(bucket)
    for name in (
        "put.bin",
        "sub/put.bin",
        "with space",
        "plus+sign",
        "per%20cent",
        "amp&lt;",
        "q'\"x",
        "sub-/x",
    ):
        s3.put(bucket, f"data/{name}", name.encode())
    s3.put(bucket, "data/marker/", b"")
    s3.put(bucket, "data/marker/below", b"x")
    s3.put(bucket, "data/empty.bin", b"")
    s3.put_files(bucket, {"data/what?🐈.bin": b"no ETag", "data/a\x01b": b"control"})
    s3.put_files(bucket, {f"data/many/{number % 7}/{number:04d}": b"x" for number in range(2100)})
    source = s3.source(f"s3://{bucket}/data")
    await engine.mount(path=path, source=source)
    folder = ManifestFolder(tmp_path)

    def found(digest: str) -> dict[bytes, tuple[int, str, bytes]]:
        manifest = folder.open(digest)
        return {
            manifest.file_path(file): (
                int(manifest.lengths[file]),
                manifest.tag(file),
                manifest.file_id(file),
            )
            for file in range(len(manifest))
        }

    master = await ProcessLister(master=alluxio.target, folder=folder).list(path=path)
    both = await ProcessLister(master=alluxio.target, folder=folder, source_of=lambda _: source).list(
        path=path
    )
    by_master = found(master.digest)
    own = ProcessLister(master="127.0.0.1:9", folder=folder, source_of=lambda _: source, blocks="Own")
    listed = await own.list(path=path)
    by_tdcs = found(listed.digest)

    # This store writes another name for it than it has, and takes no notice of encoding-type.
    spelled = "a\ufffdb".encode()
    assert {one.path for one in listed.skipped} == {spelled}
    assert by_master.pop(spelled)[0] == len(b"control")
    assert by_master == by_tdcs == found(both.digest)
    assert both.incomplete == 0

    def blocks(digest: str) -> set[int]:
        return set(folder.open(digest).block_ids.tolist())

    assert len(blocks(master.digest) - blocks(both.digest)) == 1, "that of the name that is another one"
    assert blocks(both.digest) <= blocks(master.digest)
    assert b"marker" not in by_tdcs
    assert (await own.list(path=path)).digest == listed.digest


async def test_files_of_a_folder_have_the_time_of_their_last_change(
    engine: AlluxioEngine, alluxio: AlluxioCluster, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.bin").write_bytes(b"abc")
    os.utime(tmp_path / "source" / "a.bin", ns=(0, MILLISECONDS * 1_000_000 + 456_789))
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    await engine.mount(path=path, source=Source(uri=f"file://{tmp_path}/source"))
    folder = ManifestFolder(tmp_path / "manifests")

    listed = await ProcessLister(master=alluxio.target, folder=folder, gate=asyncio.Semaphore(2)).list(
        path=path
    )

    assert folder.open(listed.digest).tag(0) == f"mtime-ms:{MILLISECONDS}"


async def test_a_link_that_leads_nowhere_hides_no_file_next_to_it(
    engine: AlluxioEngine, alluxio: AlluxioCluster, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a.bin").write_bytes(b"abc")
    (source / "deep" / "b.bin").write_bytes(b"abc")
    for link in ("link", "deep/link"):
        (source / link).symlink_to(tmp_path / "nothing")
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    await engine.mount(path=path, source=Source(uri=f"file://{source}"))
    folder = ManifestFolder(tmp_path / "manifests")

    listed = await LocalLister(engine=engine, folder=folder).list(path=path)

    manifest = folder.open(listed.digest)
    assert {manifest.file_path(file).decode() for file in range(listed.totals.files)} == {
        "a.bin",
        "deep/b.bin",
    }


LINKS = {
    # In a folder of two files, three by links within it, names without end by each pair of links to folders.
    "inside": "deep/b.bin",
    "deep/up": "../a.bin",
    "absolute": "{source}/a.bin",
    "a": ".",
    "b": ".",
    "deep/a": "..",
    "deep/b": "..",
    "itself": "itself",
    "parent": "..",
    "neighbour": "../neighbour",
    "key": "../neighbour/key",
    "passwd": "/etc/passwd",
    "by-two": "neighbour/key",
    "device": "/dev/zero",
}


@pytest.mark.threat("links-through-workers", "link-names", "folder-names-by-the-million")
async def test_no_link_leads_out_of_a_folder_or_to_a_folder_and_others_are_files(
    engine: AlluxioEngine, alluxio: AlluxioCluster, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a.bin").write_bytes(b"abc")
    (source / "deep" / "b.bin").write_bytes(b"abcd")
    os.mkfifo(source / "pipe")
    (tmp_path / "neighbour").mkdir()
    (tmp_path / "neighbour" / "key").write_bytes(b"secret")
    for link, target in LINKS.items():
        (source / link).symlink_to(target.format(source=source))
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    await engine.mount(path=path, source=Source(uri=f"file://{source}"))
    folder = ManifestFolder(tmp_path / "manifests")

    listed = await LocalLister(engine=engine, folder=folder).list(path=path)

    manifest = folder.open(listed.digest)
    files = {manifest.file_path(file).decode(): manifest.lengths[file] for file in range(listed.totals.files)}
    assert files == {"a.bin": 3, "deep/b.bin": 4, "inside": 4, "deep/up": 3, "absolute": 3}


@pytest.mark.parametrize("place", ["link", "link/deep", "neighbour"])
@pytest.mark.threat("link-as-source")
async def test_a_folder_that_is_reached_by_a_link_is_not_mounted(
    engine: AlluxioEngine, tmp_path: Path, place: str
) -> None:
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("source")
    (tmp_path / "neighbour").symlink_to("/etc")
    path = f"/datasets/{uuid.uuid4().hex[:16]}"
    with pytest.raises(EngineError, match="symbolic link"):
        await engine.mount(path=path, source=Source(uri=f"file://{tmp_path}/{place}"))
    assert path not in await engine.mounts()


@pytest.mark.parametrize("kind", ["folder", "bucket"])
async def test_pinning_and_a_refresh_do_not_make_another_version_of_what_is_the_same(
    engine: AlluxioEngine, alluxio: AlluxioCluster, s3: S3Server, tmp_path: Path, kind: str
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    if kind == "bucket":
        s3.make_bucket(bucket)
        s3.put(bucket, "data/put.bin", b"hello there")
        s3.put_files(bucket, {"data/without an etag.bin": b"x" * 100})
        source = s3.source(f"s3://{bucket}/data")
    else:
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "a.bin").write_bytes(b"abc")
        source = Source(uri=f"file://{tmp_path}/source")
    await engine.mount(path=path, source=source)
    folder = ManifestFolder(tmp_path / "manifests")
    lister = LocalLister(engine=engine, folder=folder)
    first = await lister.list(path=path)
    tags = [folder.open(first.digest).tag(file) for file in range(first.totals.files)]

    for pinned in (True, False):
        await engine.pin(path=path, pinned=pinned)
        again = await lister.list(path=path, refresh=True)
        assert [folder.open(again.digest).tag(file) for file in range(again.totals.files)] == tags
        assert again.digest == first.digest


async def test_a_bucket_with_more_names_than_the_limit_is_refused_before_and_while_it_is_listed(
    engine: AlluxioEngine, alluxio: AlluxioCluster, s3: S3Server, tmp_path: Path
) -> None:
    bucket, path = f"b-{uuid.uuid4().hex}", f"/datasets/{uuid.uuid4().hex[:16]}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{number:04d}.bin": b"x" for number in range(1200)})
    source, folder, check_size = s3.source(f"s3://{bucket}/data"), ManifestFolder(tmp_path), SourceSize()
    enough, less = ListingLimit(files=1200, bytes=1200), ListingLimit(files=1100)
    await check_size(source, enough, path=path)
    for limit in (less, ListingLimit(files=1200, bytes=1199)):
        with pytest.raises(LimitExceededError, match=f"s3://{bucket}/data"):
            await check_size(source, limit, path=path)
    await check_size(s3.source(f"s3://{bucket}/none"), ListingLimit(files=0), path=path)
    await engine.mount(path=path, source=source)
    lister = ProcessLister(master=alluxio.target, folder=folder, gate=asyncio.Semaphore(2))
    with pytest.raises(LimitExceededError, match=r"more than 1100 files: spec\.limits"):
        await lister.list(path=path, limit=less)
    assert not folder.digests()
    await lister.list(path=path, limit=enough)


async def test_a_path_that_is_not_mounted_is_refused_by_the_process(
    alluxio: AlluxioCluster, tmp_path: Path
) -> None:
    lister = ProcessLister(
        master=alluxio.target, folder=ManifestFolder(tmp_path), gate=asyncio.Semaphore(2), patience=5
    )

    with pytest.raises(NoSuchPathError, match="/datasets/none"):
        await lister.list(path="/datasets/none")
