"""Native views: what a pod reads has the source's checksums, whatever happens to the cache."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest
from tests.engine.views.viewing import (
    CLUSTER,
    ELSEWHERE,
    HERE,
    Bench,
    contents,
    digest,
    native,
    reading,
    sums_of,
)
from tests.support.report import Measured
from tests.support.waiting import at_this_load, eventually_async

from tdcs.api import names

BACK_SECONDS = 10.0
"""Within this time after the client lost its file system, a running pod can open files of other nodes again; on a
machine so busy that a client needs more than half of it to start, within twice what it needed.
"""


async def test_what_a_pod_reads_is_right_before_during_and_after_a_load_and_turns_native(
    bench: Bench,
) -> None:
    dataset = await bench.mount(contents(small=300, large=True))
    volume = await bench.publish(dataset)

    assert native(volume) == {"zero"}
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # cold, from the source

    load = asyncio.create_task(bench.load(dataset))
    while not load.done():
        assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    await load
    await eventually_async(lambda: native(volume) == set(dataset.sums), deadline=120)

    assert await asyncio.to_thread(sums_of, volume) == dataset.sums  # warm
    for path in (*(volume / "train").rglob("*.jpg"), volume / "parts/large.bin"):
        assert path.stat().st_nlink == 2


@pytest.mark.deep("with agents on a cluster: e2e/data/test_views.py")
async def test_a_published_version_is_shown_from_the_manifest_of_the_nodes_agent(own_bench: Bench) -> None:
    dataset = await own_bench.mount(contents(small=50, large=True))
    await own_bench.load(dataset)
    manifest = own_bench.tier / names.AGENT_MANIFESTS / own_bench.published[dataset.path]
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
    (own_bench.node.cache_root / CLUSTER).unlink()  # nothing is at the default place any more

    volume = await own_bench.publish_path(dataset.path, tiers=str(own_bench.tier))
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    await own_bench.load(dataset)

    await eventually_async(lambda: native(volume) == set(dataset.sums), deadline=120)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    assert (volume / "train/n1/00001.jpg").stat().st_nlink == 2


@pytest.mark.failure_mode("reader-worker-master-dead")
async def test_a_local_dataset_is_read_while_operator_and_client_are_dead(own_bench: Bench) -> None:
    dataset = await own_bench.mount(contents(small=200))
    await own_bench.load(dataset)
    running = await own_bench.publish(dataset)
    assert native(running) == set(dataset.sums)

    own_bench.silent.set()

    assert await asyncio.to_thread(sums_of, running) == dataset.sums
    assert await asyncio.to_thread(sums_of, await own_bench.publish(dataset)) == dataset.sums
    own_bench.client.kill()
    assert await asyncio.to_thread(sums_of, running) == dataset.sums


@pytest.mark.failure_mode("reader-and-holder-killed")
async def test_files_elsewhere_are_back_in_a_running_pod_after_the_client_was_killed(
    bench: Bench, measured: Measured
) -> None:
    dataset = await bench.mount(contents(small=100))
    blocks = bench.blocks(dataset)
    await bench.place(dataset, blocks[::2], worker=HERE)
    await bench.place(dataset, blocks[1::2], worker=ELSEWHERE)
    volume = await bench.publish(dataset)
    native_files = native(volume)
    assert 0 < len(native_files) < len(dataset.sums)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums
    local = max(native_files - {"zero"}, key=lambda name: name.startswith("train/"))
    remote = max(set(dataset.sums) - native_files, key=lambda name: name.startswith("train/"))

    with reading(volume, local, dataset.sums[local]) as wrong:
        begin = time.monotonic()
        await asyncio.to_thread(bench.replace_client)

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
        f"a running pod could open files of other nodes {seconds:.1f} s after the remote-read client was killed, which "
        f"started in {started:.1f} s"
    )
    assert seconds < max(at_this_load(BACK_SECONDS), 2 * started)


@pytest.mark.failure_mode("node-plugin-killed")
async def test_a_plugin_that_is_killed_and_started_again_disturbs_no_reader(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=50, large=True))
    volume = await bench.publish(dataset)

    with reading(volume, "parts/large.bin", dataset.sums["parts/large.bin"]) as wrong:
        bench.node.kill_plugin(signal.SIGKILL)
        await bench.load(dataset)
        bench.start_plugin()
        await eventually_async(lambda: native(volume) == set(dataset.sums), deadline=120)
    assert wrong == []
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


async def test_bytes_of_removed_blocks_are_freed_and_what_a_pod_reads_stays_right(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=50, large=True))
    await bench.load(dataset)
    volume = await bench.publish(dataset)

    await bench.evict(dataset)

    await eventually_async(lambda: native(volume) == {"zero"}, deadline=120)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


@pytest.mark.failure_mode("files-change-at-source")
async def test_a_changed_source_is_for_new_pods_and_a_running_pod_keeps_what_it_has(bench: Bench) -> None:
    files = contents(small=20)
    dataset = await bench.mount(files)
    await bench.load(dataset)
    running = await bench.publish(dataset)
    name = "train/n1/00001.jpg"
    bucket = bench.sources[dataset.path].uri.removeprefix("s3://").split("/")[0]
    changed = random.randbytes(5000)
    await asyncio.to_thread(bench.s3.put, bucket, f"data/{name}", changed)
    await bench.notice(dataset.path)
    await bench.load(dataset)

    new = {**dataset.sums, name: digest(changed)}

    async def shown() -> bool:
        return await asyncio.to_thread(sums_of, await bench.publish(dataset)) == new

    await eventually_async(shown, deadline=120)
    assert await asyncio.to_thread(sums_of, running) == dataset.sums


@pytest.mark.parametrize("gone", [True, False], ids=["that is gone", "that runs"])
async def test_a_changed_file_that_is_not_here_is_read_new_although_an_older_pod_has_read_it(
    bench: Bench, gone: bool
) -> None:
    dataset = await bench.mount(contents(small=20))
    older = await bench.publish(dataset)
    assert await asyncio.to_thread(sums_of, older) == dataset.sums  # the kernel remembers all of it now
    name = "train/n1/00001.jpg"
    changed = random.randbytes(5000)
    bucket = bench.sources[dataset.path].uri.removeprefix("s3://").split("/")[0]
    await asyncio.to_thread(bench.s3.put, bucket, f"data/{name}", changed)
    await bench.notice(dataset.path)

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
