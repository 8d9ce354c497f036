"""From an S3 bucket to bytes read through FUSE: what a Dataset does, without Kubernetes."""

from __future__ import annotations

import asyncio
import hashlib
import random
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.conftest import LARGE, SMALL
from tests.engine.contract import Mounts, blocks_of, files_of, holders, used
from tests.engine.loading import placed
from tests.engine.servers import AlluxioCluster, FuseClient, S3Server
from tests.support.report import Measured
from tests.support.waiting import eventually, eventually_async

from tdcs.alluxio import AlluxioEngine
from tdcs.model.cache_engine import Source

KIB = 1 << 10
READ_TYPE = "alluxio.user.file.readtype.default"


@pytest.fixture
def content() -> dict[str, bytes]:
    """Files of a small dataset: nested, empty, tiny, of exactly one block, of several blocks."""
    source = random.Random(20)
    sizes = {
        "train/cats/0001.jpg": 9 * KIB,
        "train/dogs/0001.jpg": 11 * KIB,
        "labels.csv": 1,
        "empty": 0,
        "one-block.bin": 1024 * KIB,
        "several-blocks.bin": 3 * 1024 * KIB + 17,
    }
    return {name: source.randbytes(length) for name, length in sizes.items()}


@pytest.fixture
def source(s3: S3Server, content: dict[str, bytes]) -> Source:
    """The dataset in a bucket of its own."""
    bucket = f"b-{uuid.uuid4().hex}"
    s3.make_bucket(bucket)
    s3.put_files(bucket, {f"data/{name}": data for name, data in content.items()})
    return s3.source(f"s3://{bucket}/data")


@pytest.fixture(scope="module")
def fuse(alluxio: AlluxioCluster) -> Iterator[FuseClient]:
    """A FUSE client on the large worker's node."""
    client = alluxio.mount_fuse(LARGE)
    yield client
    client.stop()


@pytest.fixture
async def source_away(s3: S3Server) -> AsyncIterator[None]:
    """While the test runs the S3 server answers nobody, so what can be read is in the cache."""
    yield
    s3.process.resume()


async def checksums(folder: Path) -> dict[str, str]:
    """Every file below a folder with its SHA-256."""
    output = await _output("find", str(folder), "-type", "f", "-exec", "sha256sum", "{}", "+")
    lines = (line.split("  ", 1) for line in output.decode().splitlines())
    return {name.removeprefix(f"{folder}/"): digest for digest, name in lines}


async def read(file: Path) -> bytes:
    """A file's content."""
    return await _output("cat", str(file))


async def _output(*command: str) -> bytes:
    """What another process prints: one that waits for an answer through FUSE cannot even be killed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), timeout=120)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors.decode())
    return output


async def cached_names(engine: AlluxioEngine, path: str) -> set[str]:
    """Files under a path of which any block is cached."""
    return {file.path for file in await files_of(engine, path) if any(block.workers for block in file.blocks)}


async def test_mount_list_load_read_back_and_remove(
    engine: AlluxioEngine,
    alluxio: AlluxioCluster,
    s3: S3Server,
    fuse: FuseClient,
    mounts: Mounts,
    source: Source,
    content: dict[str, bytes],
    source_away: None,
) -> None:
    path = await mounts.add(source)
    listed = {file.path: file.length for file in await files_of(engine, path)}
    assert listed == {name: len(data) for name, data in content.items()}

    # as the operator sets it: what is not placed is read, and not cached
    await engine.set_path_properties(path=path, properties={READ_TYPE: "NO_CACHE"})
    blocks = await blocks_of(engine, path)
    await placed(engine, worker=LARGE, blocks=blocks)
    await engine.pin(path=path, pinned=True)
    assert await holders(engine, path) == {frozenset({LARGE})}
    assert await used(engine, LARGE) == sum(map(len, content.values()))
    on_disk = alluxio.block_files(LARGE)
    assert {block.id: block.length for block in blocks} == {
        number: file.stat().st_size for number, file in on_disk.items()
    }

    s3.process.pause()
    wanted = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    assert await checksums(fuse.folder / path.lstrip("/")) == wanted
    s3.process.resume()

    await engine.unmount(path=path)
    assert dict(await engine.mounts()) == {}
    eventually(lambda: alluxio.block_files(LARGE) == {}, deadline=60)


async def test_reading_caches_a_file_unless_its_path_says_no(
    engine: AlluxioEngine, s3: S3Server, fuse: FuseClient, mounts: Mounts
) -> None:
    folders, paths = [], []
    for _ in range(2):
        bucket = f"b-{uuid.uuid4().hex}"
        s3.make_bucket(bucket)
        s3.put_files(bucket, {f"data/{number:03}": random.randbytes(10 * KIB) for number in range(100)})
        paths.append(await mounts.add(s3.source(f"s3://{bucket}/data")))
        folders.append(fuse.folder / paths[-1].lstrip("/"))
    (never, control), (never_path, control_path) = folders, paths
    for path in paths:
        assert await holders(engine, path) == {frozenset()}
    await engine.set_path_properties(path=never_path, properties={READ_TYPE: "NO_CACHE"})
    await engine.set_path_properties(path=control_path, properties={READ_TYPE: "CACHE"})
    numbers = iter(range(100))

    async def cached_after_reading(*names: str) -> set[str]:
        """Which of these files are cached once a file of the other path, which was read later, is."""
        for name in names:
            await read(never / name)
        later = f"{next(numbers):03}"
        await read(control / later)

        async def arrived() -> bool:
            return later in await cached_names(engine, control_path)

        condition: Callable[[], bool | Awaitable[bool]] = arrived
        await eventually_async(condition, deadline=90)
        return await cached_names(engine, never_path) & set(names)

    probes = iter(range(100))

    async def honoured() -> bool:  # clients learn of a path's settings some seconds later
        return not await cached_after_reading(f"{next(probes):03}")

    condition: Callable[[], bool | Awaitable[bool]] = honoured
    await eventually_async(condition, deadline=60, interval=1)
    rest = [f"{number:03}" for number in probes]
    assert await cached_after_reading(*rest) == set()
    assert {block.workers for block in await blocks_of(engine, control_path)} == {
        frozenset(),
        frozenset({LARGE}),
    }


async def test_a_file_that_was_looked_at_before_it_was_loaded_is_then_read_from_the_cache(
    engine: AlluxioEngine,
    s3: S3Server,
    fuse: FuseClient,
    mounts: Mounts,
    source: Source,
    content: dict[str, bytes],
    source_away: None,
) -> None:
    path = await mounts.add(source)
    await engine.set_path_properties(path=path, properties={READ_TYPE: "NO_CACHE"})
    folder = fuse.folder / path.lstrip("/")
    # were the client to remember more than names and sizes of this, it would remember that nothing is cached
    sizes = (await _output("find", str(folder), "-type", "f", "-printf", "%P %s\\n")).decode()
    assert sorted(sizes.splitlines()) == sorted(f"{name} {len(data)}" for name, data in content.items())
    await placed(engine, worker=SMALL, blocks=await blocks_of(engine, path))
    s3.process.pause()
    wanted = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    assert await checksums(folder) == wanted
    # read from the other node's worker, and not copied from there
    assert await holders(engine, path) == {frozenset({SMALL})}


async def test_the_mount_is_read_only(
    engine: AlluxioEngine, fuse: FuseClient, mounts: Mounts, source: Source
) -> None:
    path = await mounts.add(source)
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        await _output("touch", str(fuse.folder / path.lstrip("/") / "new"))
    assert "Read-only file system" in refusal.value.stderr


async def test_many_small_files_are_loaded_and_removed(
    engine: AlluxioEngine, s3: S3Server, mounts: Mounts, measured: Measured
) -> None:
    bucket, count = f"b-{uuid.uuid4().hex}", 600
    s3.make_bucket(bucket)
    s3.put_files(
        bucket, {f"data/{number % 10}/{number}": random.randbytes(10 * KIB) for number in range(count)}
    )
    path = await mounts.add(s3.source(f"s3://{bucket}/data"))
    begin = time.monotonic()
    blocks = await blocks_of(engine, path)
    listed = time.monotonic()
    await placed(engine, worker=LARGE, blocks=blocks)
    loaded = time.monotonic()
    assert await holders(engine, path) == {frozenset({LARGE})}
    await engine.unmount(path=path)
    removed = time.monotonic()
    measured(
        f"{count} files of 10 KiB: listed in {listed - begin:.1f} s, loaded from S3 in {loaded - listed:.1f} s "
        f"({count / (loaded - listed):.0f}/s), removed in {removed - loaded:.1f} s"
    )


def test_no_process_has_logged_a_secret(alluxio: AlluxioCluster, s3: S3Server) -> None:
    secret = s3.credentials.secret_access_key
    assert [name for name, text in alluxio.logs().items() if secret in text] == []
