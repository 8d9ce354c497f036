"""Loading goes on in portions that keep the status moving, and says what it could not do."""

import asyncio
import itertools
import time

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controllers.builders import block

from tdcs.controllers.dataset.loader import (
    FIRST,
    LARGEST,
    MIB,
    SMALLEST,
    LoadRun,
    Portion,
    Portions,
    next_portion,
    take,
)
from tdcs.engine.memory import MemoryEngine, Operation
from tdcs.engine.protocol import Block, Source


async def blocks_of(engine: MemoryEngine) -> list[Block]:
    await engine.mount(path="/datasets/1", source=Source(uri="s3://b/p"))
    return [
        block
        for page in [page async for page in engine.files(path="/datasets/1")]
        for file in page
        for block in file.blocks
    ]


async def finished(run: LoadRun, done: asyncio.Event) -> None:
    await asyncio.wait_for(done.wait(), timeout=10)
    assert not run.running


def engine_of(*, count: int = 20, capacity: int = 10_000, **more: object) -> MemoryEngine:
    return MemoryEngine(
        sources={"s3://b/p": {f"{number:03d}": 100 for number in range(count)}},
        workers={"a": capacity, "b": capacity},
        **more,  # type: ignore[arg-type]
    )


async def test_a_run_places_its_blocks_and_counts_each_byte_once() -> None:
    engine, done = engine_of(), asyncio.Event()
    blocks = await blocks_of(engine)
    run = LoadRun(engine=engine, work={"a": blocks, "b": blocks}, on_done=done.set, clock=time.monotonic)
    await finished(run, done)
    assert run.node_bytes == {"a": 2000, "b": 2000}
    assert run.cached_bytes == 2000
    assert (run.failed, run.error) == (0, None)


async def test_blocks_that_fail_are_told_and_the_others_placed() -> None:
    engine = engine_of(refuse=lambda worker, block: "broken" if block.id % 2 else None)
    blocks, done = await blocks_of(engine), asyncio.Event()
    run = LoadRun(engine=engine, work={"a": blocks}, on_done=done.set, clock=time.monotonic)
    await finished(run, done)
    assert run.failed == 10
    assert run.node_bytes == {"a": 1000}
    assert run.failures[0].reason == "broken"


async def test_a_full_worker_stops_its_own_part_only() -> None:
    engine, done = engine_of(), asyncio.Event()
    engine.set_worker(name="a", capacity=500)
    blocks = await blocks_of(engine)
    run = LoadRun(engine=engine, work={"a": blocks, "b": blocks}, on_done=done.set, clock=time.monotonic)
    await finished(run, done)
    assert run.node_bytes["b"] == 2000
    assert "a" in str(run.error)


async def test_a_run_can_be_stopped() -> None:
    async def never(operation: Operation) -> None:
        if operation.name == "put":
            await asyncio.Event().wait()

    engine, done = engine_of(), asyncio.Event()
    blocks = await blocks_of(engine)
    engine.before = never
    run = LoadRun(engine=engine, work={"a": blocks}, on_done=done.set, clock=time.monotonic)
    await asyncio.sleep(0)
    await run.cancel()
    await finished(run, done)
    assert run.node_bytes == {"a": 0}


def test_portions_grow_when_quick_and_shrink_when_slow() -> None:
    assert next_portion(Portion(size=8, count=4), seconds=0.1) == Portion(size=16, count=8)
    slow = Portion(size=SMALLEST.size * 8, count=SMALLEST.count * 8)
    assert next_portion(slow, seconds=10) == Portion(size=SMALLEST.size * 4, count=SMALLEST.count * 4)
    assert next_portion(FIRST, seconds=2) == FIRST
    assert next_portion(LARGEST, seconds=0) == LARGEST
    assert next_portion(SMALLEST, seconds=99) == SMALLEST


def test_a_portion_has_at_least_one_block_and_a_bounded_number() -> None:
    small = [block(number, length=1) for number in range(15)]
    assert take(small, start=0, portion=Portion(size=10**9, count=10)) == 10
    assert take(small, start=10, portion=Portion(size=10**9, count=10)) == 15
    large = [block(number, length=100) for number in range(3)]
    assert take(large, start=0, portion=Portion(size=10, count=10)) == 1
    assert take(large, start=0, portion=Portion(size=250, count=10)) == 2


@given(lengths=st.lists(st.integers(0, 10 * MIB), max_size=300), times=st.lists(st.floats(0, 10), min_size=1))
def test_every_block_is_handed_out_once_and_in_order(lengths: list[int], times: list[float]) -> None:
    blocks = [block(number, length=length) for number, length in enumerate(lengths)]
    portions = Portions(blocks=blocks)
    handed: list[Block] = []
    for seconds in itertools.cycle(times):
        found = portions.take()
        if not found:
            break
        handed += found
        portions.took(seconds=seconds)
    assert handed == blocks
