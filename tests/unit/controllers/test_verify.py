"""What is cached is compared with its source, all of it or a sample."""

import asyncio

from tests.support.loading import work_of
from tests.unit.controllers.test_loader import LENGTH, engine_of, listed, loaded

from tdcs.controllers.dataset.verify import VerifyRun
from tdcs.engine.memory import MemoryEngine, Operation
from tdcs.engine.protocol import EngineUnavailableError
from tdcs.engine.table import BlockTable


async def cached(engine: MemoryEngine, *nodes: str) -> BlockTable:
    await loaded(engine, work_of(await listed(engine), *nodes))
    return await listed(engine)


async def verified(engine: MemoryEngine, table: BlockTable, **more: object) -> VerifyRun:
    done = asyncio.Event()
    run = VerifyRun(engine=engine, table=table, on_done=done.set, **more)  # type: ignore[arg-type]
    await asyncio.wait_for(done.wait(), timeout=120)
    return run


async def test_equal_copies_are_found_equal() -> None:
    engine = engine_of()
    run = await verified(engine, await cached(engine, "a", "b"))
    progress = run.progress
    assert (progress.blocks_done, progress.blocks_total) == (20, 20)
    assert progress.bytes_done == 2 * 20 * LENGTH
    assert (progress.failed_files, progress.wrong, run.error) == (0, {}, None)


async def test_a_copy_that_differs_is_named_with_its_file_and_its_worker() -> None:
    engine = engine_of()
    table = await cached(engine, "a", "b")
    broken = table.block(7)
    engine.corrupted.add(("b", broken.id))
    progress = (await verified(engine, table)).progress
    assert progress.wrong == {"b": (broken.id,)}
    assert [(failure.path, failure.retryable) for failure in progress.failures] == [("007", False)]
    assert "b differs from the source" in progress.failures[0].reason
    assert progress.failed_files == 1


async def test_a_sample_reads_its_part_of_the_source_and_another_seed_another_part() -> None:
    engine = engine_of(count=200, capacity=10_000 * LENGTH)
    table = await cached(engine, "a")
    seen: list[set[str]] = []
    for seed in ("one", "two"):
        read: set[str] = set()

        async def note(operation: Operation, read: set[str] = read) -> None:
            read.add(operation.name)

        before = engine.source_bytes_read
        engine.before = note
        run = await verified(engine, table, fraction=0.1, seed=seed)
        assert engine.source_bytes_read - before == 20 * LENGTH
        assert run.progress.blocks_total == 20
        seen.append(read)
    one = VerifyRun(engine=engine, table=table, on_done=lambda: None, fraction=0.1, seed="one")
    two = VerifyRun(engine=engine, table=table, on_done=lambda: None, fraction=0.1, seed="two")
    assert one._chosen != two._chosen
    await one.cancel()
    await two.cancel()


async def test_what_is_not_cached_is_not_compared() -> None:
    engine = engine_of()
    table = await listed(engine)
    await engine.put(worker="a", blocks=table.blocks(range(5)))
    before = engine.source_bytes_read
    run = await verified(engine, await listed(engine))
    assert run.progress.blocks_total == 5
    assert engine.source_bytes_read - before == 5 * LENGTH


async def test_a_source_that_cannot_be_read_ends_it_with_the_reason() -> None:
    engine = engine_of(count=100, capacity=10_000 * LENGTH)
    table = await cached(engine, "a")

    async def away(operation: Operation) -> None:
        if operation.name == "digest" and not operation.worker:
            raise EngineUnavailableError(
                attempted="read", reason="the endpoint does not answer", remedy="Wait", retryable=True
            )

    engine.before = away
    run = await verified(engine, table)
    assert run.error is not None
    assert run.progress.blocks_done == 0
    assert run.progress.failed_files < 100
    assert "does not answer" in run.progress.failures[0].reason
    assert run.progress.wrong == {}


async def test_it_can_be_stopped() -> None:
    engine = engine_of()
    table = await cached(engine, "a")

    async def never(operation: Operation) -> None:
        await asyncio.Event().wait()

    engine.before = never
    run = VerifyRun(engine=engine, table=table, on_done=lambda: None)
    await asyncio.sleep(0)
    await run.cancel()
    assert not run.running
