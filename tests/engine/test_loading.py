"""The operator's loader on a real Alluxio: copies are whole, equal to the source, and come at the speed asked for."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.engine.conftest import LARGE, SMALL, AlluxioWorld
from tests.engine.contract import MIB, Mounts
from tests.support.loading import listed, work_of

from tdcs.controllers.dataset.evacuation import plan_evacuation
from tdcs.controllers.dataset.loader import LoadProgress, LoadRun
from tdcs.controllers.dataset.verify import VerifyProgress, VerifyRun
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.alluxio import AlluxioEngine
from tdcs.engine.protocol import Source

FILES = (
    {f"tiny/{number:03d}": 600 + number for number in range(60)}
    | {f"small/{number:03d}": 20_000 + number for number in range(60)}
    | {"several-blocks": 2 * MIB + 20_000, "one-block": MIB, "empty": 0}
)
BYTES = sum(FILES.values())


async def loaded(engine: AlluxioEngine, work: LoadWork, *, bandwidth: int | None = None) -> LoadProgress:
    run = LoadRun(engine=engine, work=work, on_done=lambda: None, bandwidth=bandwidth)
    progress = await asyncio.wait_for(run.wait(), timeout=200)
    assert not run.incomplete, (run.error, progress.failures)
    return progress


async def verified(engine: AlluxioEngine, path: str) -> VerifyProgress:
    run = VerifyRun(engine=engine, table=await listed(engine, path), on_done=lambda: None)
    progress = await asyncio.wait_for(run.wait(), timeout=200)
    assert run.error is None
    return progress


async def test_two_copies_are_whole_and_equal_and_a_damaged_one_is_found_and_healed(
    engine: AlluxioEngine, world: AlluxioWorld, mounts: Mounts
) -> None:
    path = await mounts.add(world.source(FILES))
    table = await listed(engine, path)
    assert sum(table.size(file) for file in range(table.files)) == BYTES
    progress = await loaded(engine, work_of(table, LARGE, SMALL))
    assert progress.node_bytes == {LARGE: BYTES, SMALL: BYTES}
    assert progress.files_done == progress.files_total == len(FILES) - 1  # nothing is loaded of an empty file
    # what is not tiny was read from the source once
    tiny = sum(size for name, size in FILES.items() if name.startswith("tiny/"))
    assert progress.source_bytes == BYTES + tiny
    after = await listed(engine, path)
    assert not len(work_of(after, LARGE, SMALL))
    compared = await verified(engine, path)
    assert (compared.failed_files, compared.bytes_done) == (0, 2 * BYTES)

    broken = after.block(after.blocks_of(70).start)
    world.corrupt(SMALL, broken)
    compared = await verified(engine, path)
    assert compared.wrong == {SMALL: (broken.id,)}
    assert [failure.path for failure in compared.failures] == [after.path(70)]
    await engine.drop(worker=SMALL, block_ids=[broken.id])
    await loaded(engine, work_of(await listed(engine, path), LARGE, SMALL))
    assert (await verified(engine, path)).failed_files == 0


async def test_a_limited_load_keeps_to_its_rate(
    engine: AlluxioEngine, world: AlluxioWorld, mounts: Mounts
) -> None:
    path = await mounts.add(world.source(FILES))
    began = time.monotonic()
    await loaded(engine, work_of(await listed(engine, path), LARGE), bandwidth=MIB)
    took = time.monotonic() - began
    assert took > BYTES / MIB * 0.6, took  # the last portion is not waited for
    assert not len(work_of(await listed(engine, path), LARGE))


async def test_a_node_gives_its_last_copies_away_before_it_goes(
    engine: AlluxioEngine, world: AlluxioWorld, mounts: Mounts
) -> None:
    source = world.source(FILES)
    path = await mounts.add(source)
    await loaded(engine, work_of(await listed(engine, path), SMALL))
    plan = plan_evacuation(table=await listed(engine, path), leaving={SMALL}, room={LARGE: 1 << 30})
    assert plan.lost_bytes == 0
    progress = await loaded(engine, plan.work)
    assert progress.node_bytes == {LARGE: BYTES}
    table = await listed(engine, path)
    assert all(table.holders(block) == {LARGE, SMALL} for block in range(len(table)))


async def test_of_a_folder_too_nothing_stays_of_a_file_that_grew_after_the_listing(
    engine: AlluxioEngine, mounts: Mounts, tmp_path: Path
) -> None:
    for name in ("grown", "same ü %41"):
        (tmp_path / name).write_bytes(random.randbytes(5000))
    path = await mounts.add(Source(uri=f"file://{tmp_path}"))
    blocks = {file.path: file.blocks async for page in engine.files(path=path) for file in page}
    (tmp_path / "grown").write_bytes(random.randbytes(9000))

    failures = await engine.put(worker=LARGE, blocks=[block for found in blocks.values() for block in found])

    assert [failure.block_id for failure in failures if failure.outdated] == [blocks["grown"][0].id]
    after = {file.path: file async for page in engine.files(path=path) for file in page}
    assert {name: (file.length, len(file.blocks[0].workers)) for name, file in after.items()} == {
        "grown": (9000, 0),
        "same ü %41": (5000, 1),
    }
