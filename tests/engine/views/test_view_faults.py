"""What pods read while parts of the cache die, hang and come back: the source's bytes, and the local ones at once."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.engine.views.viewing import (
    ELSEWHERE,
    HERE,
    Bench,
    Dataset,
    contents,
    digest,
    native,
    reading,
    sums_of,
)
from tests.support.waiting import at_this_load, eventually_async

from tdcs.api import names

UNPUBLISH_SECONDS = 10.0
"""Longer than that nobody shall wait for a volume to go, whatever is dead."""


async def spread(bench: Bench, *, small: int) -> Dataset:
    """A dataset of which a third is on this node, a third on another one, and a third at its source only."""
    dataset = await bench.mount(contents(small=small, large=True))
    blocks = bench.blocks(dataset)
    await bench.place(dataset, blocks[::3], worker=HERE)
    await bench.place(dataset, blocks[1::3], worker=ELSEWHERE)
    return dataset


def one_of(found: set[str]) -> str:
    """A file that is not empty."""
    return min(found - {"zero"})


@pytest.mark.failure_mode("reader-and-master-hang")
async def test_a_volume_goes_at_once_while_client_and_operator_hang_and_local_data_is_served(
    bench: Bench,
) -> None:
    partial, whole = await spread(bench, small=30), await bench.mount(contents(small=30))
    await bench.load(whole)
    volumes = [await bench.publish(partial), await bench.publish(whole)]
    far = volumes[0] / one_of(set(partial.sums) - native(volumes[0]))
    bench.silent.set()
    try:
        bench.client.reader.pause()
        stuck = asyncio.create_task(asyncio.to_thread(far.read_bytes))  # waits for the client in the kernel
        try:
            for volume in volumes:
                begin = time.monotonic()
                target = await asyncio.to_thread(bench.unpublish, volume)
                assert time.monotonic() - begin < at_this_load(UNPUBLISH_SECONDS)
                assert bench.node.mounts(target) == []
                assert not target.exists()
        finally:
            bench.client.reader.resume()
        again = await bench.publish(whole)  # the newest list that the node has must do
        assert await asyncio.to_thread(sums_of, again) == whole.sums
    finally:
        bench.silent.clear()
    await asyncio.wait([stuck], timeout=60)
    assert stuck.done()


@pytest.mark.failure_mode("blocks-evicted-while-read")
async def test_bytes_of_evicted_blocks_are_freed_while_pods_read_them_natively(bench: Bench) -> None:
    dataset = await bench.mount(contents(small=40))
    await bench.load(dataset)
    volume = await bench.publish(dataset)
    assert native(volume) == set(dataset.sums)
    name = one_of(native(volume))

    with reading(volume, name, dataset.sums[name]) as wrong, (volume / name).open("rb") as opened:
        await bench.evict(dataset)
        await eventually_async(lambda: native(volume) == {"zero"}, deadline=120)
        await eventually_async(lambda: bench.metric("tdcs_view_kept_bytes") == 0, deadline=120)
        assert await asyncio.to_thread(sums_of, volume) == dataset.sums
        assert digest(opened.read()) == dataset.sums[name]  # who has it open keeps it
    assert wrong == []

    await bench.load(dataset)
    await eventually_async(lambda: native(volume) == set(dataset.sums), deadline=120)
    assert await asyncio.to_thread(sums_of, volume) == dataset.sums


@pytest.mark.deep(
    "tests/engine/views/test_view_faults.py::test_bytes_of_evicted_blocks_are_freed_while_pods_read_them_natively"
)
@pytest.mark.failure_mode("blocks-gone-without-other-way")
async def test_bytes_that_a_pod_could_not_read_otherwise_are_counted_and_freed_when_it_ends(
    own_bench: Bench,
) -> None:
    dataset = await own_bench.mount(contents(small=40))
    await own_bench.load(dataset)
    volume = await own_bench.publish(dataset)
    folder = next((own_bench.tier / names.VIEWS_FOLDER).glob("*/*/tree"))
    secluded = own_bench.start_secluded(volume)
    assert native(secluded) == set(dataset.sums)
    await asyncio.to_thread(own_bench.replace_client)

    await own_bench.evict(dataset)

    # They are on the disk, for this pod sees no mount that is made now.
    size = int(own_bench.manifest(dataset).lengths.sum())
    await eventually_async(lambda: own_bench.metric("tdcs_view_kept_bytes") == size, deadline=120)
    assert await asyncio.to_thread(sums_of, secluded) == dataset.sums

    own_bench.unpublish(volume)
    own_bench.end_pods()
    await eventually_async(lambda: native(folder) == {"zero"}, deadline=120)
    await eventually_async(lambda: own_bench.metric("tdcs_view_kept_bytes") == 0, deadline=120)
