"""Native views over a real Alluxio: what a pod reads has the source's checksums, whatever happens to the cache."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.engine.contract import BLOCK_SIZE
from tests.engine.views.viewing import (
    ELSEWHERE,
    HERE,
    Bench,
    contents,
    digest,
    native,
    pages_in_memory,
    reading,
    sums_of,
)
from tests.support.report import Measured
from tests.support.waiting import at_this_load, eventually_async

from tdcs.alluxio.profile import Profile
from tdcs.api import names
from tdcs.node.csi.views.kernel_cache import forget_unused

BACK_SECONDS = 10.0
"""Within this time after its FUSE client was killed, a running pod can open files again that are not on its node; on a
machine so busy that a client needs more than half of it to start, within twice what it needed.
"""

NOTICED_SECONDS = 10.0
"""Within this time after a change was noticed, a pod is given nothing of before."""


async def test_what_a_pod_reads_is_right_before_during_and_after_a_load_and_turns_native(
    bench: Bench,
) -> None:
    dataset = await bench.mount(contents(small=300, large=True))
    volume = await bench.publish(dataset)

    assert native(volume) == {"zero"}
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # cold, through FUSE from the source

    load = asyncio.create_task(bench.load(dataset))
    while not load.done():
        assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    await load
    one_block = set(dataset.sums) - {"parts/large.bin"}
    await eventually_async(lambda: native(volume) == one_block, deadline=120)

    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # warm
    for path in (volume / "train").rglob("*.jpg"):
        assert path.stat().st_nlink == 2
    assert (volume / "parts/large.bin").is_symlink()


@pytest.mark.deep("with agents on a cluster: e2e/data/test_views.py")
async def test_a_published_version_is_shown_from_the_manifest_of_the_nodes_agent(own_bench: Bench) -> None:
    dataset = await own_bench.mount(contents(small=50, large=True))
    published = await own_bench.notice(dataset)
    await own_bench.load(dataset)
    manifest = own_bench.tier / names.AGENT_MANIFESTS / published
    assert manifest.stat().st_nlink == 1

    volume = await own_bench.publish(dataset)

    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    assert manifest.stat().st_nlink == 2  # the view has it, too
    assert not (own_bench.tier / names.VIEWS_FOLDER / ".manifests").exists()  # nothing was listed or fetched


@pytest.mark.deep(
    "tests/engine/views/test_views.py::test_what_a_pod_reads_is_right_before_during_and_after_a_load_and_turns_native"
)
async def test_a_tier_whose_place_was_changed_has_native_views(own_bench: Bench) -> None:
    dataset = await own_bench.mount(contents(small=50, large=True))
    (own_bench.node.cache_root / own_bench.name).unlink()  # nothing is at the default place any more

    volume = await own_bench.publish_path(dataset.path, tiers=str(own_bench.tier))
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    await own_bench.load(dataset)

    await eventually_async(lambda: native(volume) == set(dataset.sums) - {"parts/large.bin"}, deadline=120)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    assert (volume / "train/n1/00001.jpg").stat().st_nlink == 2


async def test_a_client_with_changed_settings_the_stock_ones_reads_the_same(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=30, large=True))
    await bench.load(dataset)

    stock = await asyncio.to_thread(bench.cluster.mount_fuse, HERE, kind=Profile.STOCK)

    assert await asyncio.to_thread(sums_of, stock.folder / dataset.path.lstrip("/")) == dataset.sums


async def test_a_local_dataset_is_read_while_client_worker_and_master_are_dead(own_bench: Bench) -> None:
    dataset = await own_bench.mount(contents(small=200))
    await own_bench.load(dataset)
    running = await own_bench.publish(dataset)
    assert native(running) == set(dataset.sums)
    assert ".tdcs" not in os.listdir(running)

    own_bench.client.process.kill()
    own_bench.cluster.workers[HERE].kill()
    own_bench.cluster.master.kill()

    assert await asyncio.to_thread(sums_of, running) == dataset.sums
    assert await asyncio.to_thread(sums_of, await own_bench.publish(dataset)) == dataset.sums


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
            lambda: asyncio.to_thread(back), deadline=120, retry_on=(OSError, AssertionError)
        )
        seconds = time.monotonic() - begin
        assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    assert wrong == []
    started = bench.client.start_seconds
    measured(
        f"a running pod could open files of other nodes {seconds:.1f} s after its FUSE client was killed, which had "
        f"started in {started:.1f} s"
    )
    assert seconds < max(at_this_load(BACK_SECONDS), 2 * started)


async def test_a_plugin_that_is_killed_and_started_again_disturbs_no_reader(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=50, large=True))
    volume = await bench.publish(dataset)

    with reading(volume, "parts/large.bin", dataset.sums["parts/large.bin"]) as wrong:
        bench.node.kill_plugin(signal.SIGKILL)
        await bench.load(dataset)
        bench.start_plugin()
        one_block = set(dataset.sums) - {"parts/large.bin"}
        await eventually_async(lambda: native(volume) == one_block, deadline=120)
    assert wrong == []
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


async def test_bytes_of_removed_blocks_are_freed_and_what_a_pod_reads_stays_right(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=50, large=True))
    await bench.load(dataset)
    volume = await bench.publish(dataset)
    ids = [block.id for block in await bench.blocks(dataset)]

    await bench.evict(dataset)

    await eventually_async(lambda: native(volume) == {"zero"}, deadline=120)
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

    await eventually_async(shown, deadline=120)
    assert await asyncio.to_thread(sums_of, running) == dataset.sums


async def test_the_kernel_forgets_in_one_call_what_nobody_has_open(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=3))
    await bench.publish(dataset)
    point = bench.node.inside(bench.node.fuse_root / bench.name)
    file = point / dataset.path.lstrip("/") / min(dataset.sums)

    assert await asyncio.to_thread(file.read_bytes)
    assert await asyncio.to_thread(pages_in_memory, file) > 0
    await asyncio.to_thread(forget_unused, point=str(point))
    assert await asyncio.to_thread(pages_in_memory, file) == 0


@pytest.mark.parametrize("gone", [True, False], ids=["that is gone", "that runs"])
async def test_a_changed_file_that_is_not_here_is_read_new_although_an_older_pod_has_read_it(
    bench: Bench, gone: bool
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

    tree = older.stat().st_ino
    if gone:
        await asyncio.to_thread(bench.unpublish, older)

    async def renewed() -> Path | None:
        volume = await bench.publish(dataset)
        return volume if volume.stat().st_ino != tree else None  # the list of files may be some seconds old

    volume = await eventually_async(renewed, deadline=120)
    assert volume is not None
    assert await asyncio.to_thread(sums_of, volume) == new


async def test_a_running_pod_is_given_nothing_stale_once_the_operator_has_noticed_a_change(
    bench: Bench, measured: Measured
) -> None:
    longer, shorter, gone, open_, same = (f"parts/{number}" for number in range(5))
    # Files of several blocks: all of it is read through FUSE, whatever the reads have cached.
    files = {name: random.randbytes(BLOCK_SIZE + 5000) for name in (longer, shorter, gone, open_, same)}
    dataset = await bench.mount(files)
    await bench.notice(dataset)
    volume = await bench.publish(dataset)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # the kernel remembers all of it now
    changed = {
        longer: random.randbytes(2 * BLOCK_SIZE + 7000),
        shorter: random.randbytes(900),
        open_: random.randbytes(BLOCK_SIZE + 6000),
    }
    bucket = (await bench.engine.mounts())[dataset.path].removeprefix("s3://").split("/")[0]
    new = {name: content for name, content in dataset.sums.items() if name != gone}
    new |= {name: digest(content) for name, content in changed.items()}

    with reading(volume, same, dataset.sums[same]) as wrong, (volume / open_).open("rb"):
        for name, content in changed.items():
            await asyncio.to_thread(bench.s3.put, bucket, f"data/{name}", content)
        await asyncio.to_thread(bench.s3.delete, bucket, f"data/{gone}")
        await bench.notice(dataset, refresh=True)
        begin = time.monotonic()

        def shown() -> dict[str, str]:
            found = {}
            for name in dataset.sums:
                try:
                    found[name] = digest((volume / name).read_bytes())
                except FileNotFoundError:
                    if (volume / name).exists():  # the kernel still knows its name
                        found[name] = "cannot be opened"
            return found

        def stale() -> set[str]:
            found = shown()
            return {name for name in found.keys() | new.keys() if found.get(name) != new.get(name)}

        await eventually_async(
            lambda: asyncio.to_thread(lambda: not stale()), deadline=120, describe=lambda: f"stale: {stale()}"
        )
        seconds = time.monotonic() - begin
        assert (volume / longer).stat().st_size == 2 * BLOCK_SIZE + 7000
    assert wrong == []
    assert seconds < at_this_load(NOTICED_SECONDS)
    measured(f"a running pod was given nothing stale {seconds:.1f} s after a change was noticed")
