"""Native views over a real Alluxio: what a pod reads has the source's checksums, whatever happens to the cache."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.engine.contract import BLOCK_SIZE, MIB
from tests.engine.servers import AlluxioCluster, S3Server, random_network
from tests.engine.viewing import ELSEWHERE, HERE, Bench, digest, machine_as_node, native, sums_of, viewing
from tests.support.report import Measured
from tests.support.waiting import eventually_async

from tdcs.api import names

STRANGE = [
    "with space.jpg",
    "ünïcode-日本.jpg",
    "a:b.jpg",
    "100%25.jpg",
    "x" * 255,
    "d:e/f g/%41+&=#.jpg",
]


def contents(*, small: int, large: bool = False, names: Sequence[str] = ()) -> dict[str, bytes]:
    """A dataset: an empty file, small files in folders, these names and, if asked for, a file of several blocks."""
    files = {name: random.randbytes(random.randint(1, 4000)) for name in names} | {"zero": b""}
    files |= {f"train/n{number % 7}/{number:05}.jpg": random.randbytes(3000) for number in range(small)}
    if large:
        files["parts/large.bin"] = random.randbytes(3 * BLOCK_SIZE + 17)
    return files


@contextmanager
def reading(volume: Path, name: str, expected: str) -> Iterator[list[str]]:
    """Open and read one file again and again; yields what went wrong."""
    wrong: list[str] = []
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(0.02):
            try:
                if digest((volume / name).read_bytes()) != expected:
                    wrong.append("other bytes")
            except OSError as error:
                wrong.append(str(error))

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join(timeout=30)


@pytest.fixture
async def bench(alluxio_home: Path, s3: S3Server, tmp_path: Path) -> AsyncIterator[Bench]:
    """A cluster of the test's own, its FUSE client and the plugin."""
    cluster = AlluxioCluster(
        home=alluxio_home,
        folder=tmp_path / "alluxio",
        network=random_network(),
        workers={HERE: 256 * MIB, ELSEWHERE: 64 * MIB},
        overrides={"alluxio.user.block.size.bytes.default": f"{BLOCK_SIZE}B"},
    )
    with machine_as_node() as node:
        async with viewing(cluster=cluster, s3=s3, node=node, block_size=BLOCK_SIZE) as bench:
            yield bench
            print(node.log())


async def test_what_a_pod_reads_is_right_before_during_and_after_a_load_and_turns_native(
    bench: Bench,
) -> None:
    dataset = await bench.mount(contents(small=300, large=True, names=STRANGE))
    volume = await bench.publish(dataset)

    assert native(volume) == {"zero"}
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # cold, through FUSE from the source

    load = asyncio.create_task(bench.load(dataset))
    while not load.done():
        assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    await load
    one_block = set(dataset.sums) - {"parts/large.bin"}
    await eventually_async(lambda: native(volume) == one_block, deadline=60)

    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # warm
    for path in (volume / "train").rglob("*.jpg"):
        assert path.stat().st_nlink == 2
    assert (volume / "parts/large.bin").is_symlink()


async def test_a_local_dataset_is_read_while_client_worker_and_master_are_dead(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=200))
    await bench.load(dataset)
    running = await bench.publish(dataset)
    assert native(running) == set(dataset.sums)
    assert ".tdcs" not in os.listdir(running)

    bench.client.process.kill()
    bench.cluster.workers[HERE].kill()
    bench.cluster.master.kill()

    assert await asyncio.to_thread(sums_of, running) == dataset.sums
    assert await asyncio.to_thread(sums_of, await bench.publish(dataset)) == dataset.sums


async def test_files_elsewhere_are_back_in_a_running_pod_after_the_client_was_killed(
    bench: Bench, measured: Measured
) -> None:
    dataset = await bench.mount(contents(small=100))
    blocks = await bench.blocks(dataset)
    await bench.place(blocks[::2], worker=HERE)
    await bench.place(blocks[1::2], worker=ELSEWHERE)
    volume = await bench.publish(dataset)
    here = native(volume)
    assert 0 < len(here) < len(dataset.sums)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    local = max(here - {"zero"}, key=lambda name: name.startswith("train/"))
    remote = max(set(dataset.sums) - here, key=lambda name: name.startswith("train/"))

    with reading(volume, local, dataset.sums[local]) as wrong:
        bench.kill_client()
        begin = time.monotonic()

        def back() -> bool:
            return digest((volume / remote).read_bytes()) == dataset.sums[remote]

        await eventually_async(
            lambda: asyncio.to_thread(back), deadline=60, retry_on=(OSError, AssertionError)
        )
        seconds = time.monotonic() - begin
        assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    assert wrong == []
    measured(
        f"a running pod could open files of other nodes {seconds:.1f} s after its FUSE client was killed"
    )


async def test_a_plugin_that_is_killed_and_started_again_disturbs_no_reader(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=50, large=True))
    volume = await bench.publish(dataset)

    with reading(volume, "parts/large.bin", dataset.sums["parts/large.bin"]) as wrong:
        bench.node.kill_plugin(signal.SIGKILL)
        await bench.load(dataset)
        bench.start_plugin()
        one_block = set(dataset.sums) - {"parts/large.bin"}
        await eventually_async(lambda: native(volume) == one_block, deadline=60)
    assert wrong == []
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


async def test_bytes_of_removed_blocks_are_freed_and_what_a_pod_reads_stays_right(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=50, large=True))
    await bench.load(dataset)
    volume = await bench.publish(dataset)
    ids = [block.id for block in await bench.blocks(dataset)]

    assert await bench.engine.drop(worker=HERE, block_ids=ids) == []

    await eventually_async(lambda: native(volume) == {"zero"}, deadline=60)
    assert not any((bench.tier / names.BLOCK_FOLDER / str(number)).exists() for number in ids)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


async def test_a_changed_source_is_for_new_pods_and_a_running_pod_keeps_what_it_has(bench: Bench) -> None:
    files = contents(small=20)
    dataset = await bench.mount(files)
    await bench.load(dataset)
    running = await bench.publish(dataset)
    name = "train/n1/00001.jpg"
    bucket = (await bench.engine.mounts())[dataset.path].removeprefix("s3://").split("/")[0]
    changed = random.randbytes(5000)
    await asyncio.to_thread(bench.s3.put, bucket, f"data/{name}", changed)
    async for _ in bench.engine.files(path=dataset.path, refresh=True):
        pass
    await bench.load(dataset)

    new = {**dataset.sums, name: digest(changed)}

    async def shown() -> bool:
        return await asyncio.to_thread(sums_of, await bench.publish(dataset)) == new

    await eventually_async(shown, deadline=60)
    assert await asyncio.to_thread(sums_of, running) == dataset.sums


async def test_a_changed_file_that_is_not_here_is_read_new_although_an_older_pod_has_read_it(
    bench: Bench,
) -> None:
    dataset = await bench.mount(contents(small=20))
    older = await bench.publish(dataset)
    assert await asyncio.to_thread(sums_of, older) == dataset.sums  # the kernel remembers all of it now
    name = "train/n1/00001.jpg"
    changed = random.randbytes(5000)
    bucket = (await bench.engine.mounts())[dataset.path].removeprefix("s3://").split("/")[0]
    await asyncio.to_thread(bench.s3.put, bucket, f"data/{name}", changed)
    async for _ in bench.engine.files(path=dataset.path, refresh=True):
        pass

    new = {**dataset.sums, name: digest(changed)}

    async def renewed() -> Path | None:
        volume = await bench.publish(dataset)
        trees = {volume.stat().st_ino, older.stat().st_ino}
        return volume if len(trees) == 2 else None  # the list of files may be some seconds old

    volume = await eventually_async(renewed, deadline=60)
    assert volume is not None
    assert await asyncio.to_thread(sums_of, volume) == new
