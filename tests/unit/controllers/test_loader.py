"""Loading asks the source once, lets nodes feed each other, keeps to its limit, and says what it could not do."""

import asyncio
import itertools
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import loading
from tests.support.loading import work_of

from tdcs.controllers.dataset.loader import LoadRun
from tdcs.controllers.dataset.portions import FIRST, LARGEST, MIB, SMALLEST, Portion, Portions, next_portion
from tdcs.controllers.dataset.rounds import FRUITLESS, PAUSE_AFTER, READ_LANES
from tdcs.controllers.dataset.routes import COPIED_FROM
from tdcs.controllers.dataset.tally import FAILURES_KEPT, LoadProgress, Tally
from tdcs.controllers.dataset.throttle import BURST_SECONDS, Throttle
from tdcs.controllers.dataset.work import LoadWork
from tdcs.engine.memory import MemoryEngine, Operation
from tdcs.engine.protocol import Block, PutFailure, Source
from tdcs.engine.table import BlockTable

PATH = "/datasets/1"
LENGTH = COPIED_FROM


def engine_of(
    *, count: int = 20, capacity: int = 100 * COPIED_FROM, nodes: str = "ab", **more: object
) -> MemoryEngine:
    return MemoryEngine(
        sources={"s3://b/p": {f"{number:03d}": LENGTH for number in range(count)}},
        workers=dict.fromkeys(nodes, capacity),
        **more,  # type: ignore[arg-type]
    )


async def listed(engine: MemoryEngine) -> BlockTable:
    await engine.mount(path=PATH, source=Source(uri="s3://b/p"))
    return await loading.listed(engine, PATH)


async def loaded(engine: MemoryEngine, work: LoadWork, **more: object) -> LoadRun:
    """A run that has ended by itself."""
    done = asyncio.Event()
    run = LoadRun(engine=engine, work=work, on_done=done.set, retry_wait=0.001, **more)  # type: ignore[arg-type]
    await asyncio.wait_for(done.wait(), timeout=120)
    assert not run.running
    return run


async def missing(engine: MemoryEngine, *nodes: str) -> int:
    return len(work_of(await listed(engine), *nodes))


@pytest.mark.parametrize("nodes", ["a", "ab", "abc"])
async def test_however_many_copies_the_source_is_asked_for_each_byte_once(nodes: str) -> None:
    engine = engine_of(nodes=nodes, count=500, capacity=1000 * LENGTH)
    run = await loaded(engine, work_of(await listed(engine), *nodes))
    assert engine.source_bytes_read == 500 * LENGTH
    assert engine.copied_bytes == 500 * LENGTH * (len(nodes) - 1)
    assert await missing(engine, *nodes) == 0
    assert not run.incomplete
    progress = run.progress
    assert progress.node_bytes == dict.fromkeys(nodes, 500 * LENGTH)
    assert progress.cached_bytes == progress.source_bytes == 500 * LENGTH
    assert progress.bytes_done == progress.bytes_total == 500 * LENGTH * len(nodes)
    assert progress.files_done == progress.files_total == 500


async def test_what_some_node_holds_comes_from_it_and_not_from_the_source() -> None:
    engine = engine_of(nodes="abc")
    table = await listed(engine)
    await engine.put(worker="c", blocks=table.blocks(range(10)))
    before = engine.source_bytes_read
    run = await loaded(engine, work_of(await listed(engine), "a", "b"))
    assert engine.source_bytes_read - before == 10 * LENGTH
    assert run.progress.cached_bytes == 10 * LENGTH
    assert await missing(engine, "a", "b") == 0


async def test_the_smallest_files_are_read_by_every_node() -> None:
    engine = MemoryEngine(
        sources={"s3://b/p": {f"{number:03d}": COPIED_FROM - 1 for number in range(50)}},
        workers=dict.fromkeys("abc", 1 << 30),
    )
    run = await loaded(engine, work_of(await listed(engine), "a", "b", "c"))
    assert engine.copied_bytes == 0
    assert engine.source_bytes_read == run.progress.source_bytes == 3 * 50 * (COPIED_FROM - 1)
    assert await missing(engine, "a", "b", "c") == 0


async def test_also_the_smallest_files_come_from_a_node_that_holds_them() -> None:
    engine = MemoryEngine(
        sources={"s3://b/p": {f"{number:03d}": 10 for number in range(50)}},
        workers={"a": 1 << 30, "b": 1 << 30},
    )
    await loaded(engine, work_of(await listed(engine), "a"))
    await loaded(engine, work_of(await listed(engine), "b"))
    assert (engine.source_bytes_read, engine.copied_bytes) == (500, 500)


async def test_nodes_share_the_reading_evenly() -> None:
    read: dict[str, int] = {}

    async def count(operation: Operation) -> None:
        if operation.name == "put":
            read[operation.worker] = read.get(operation.worker, 0) + operation.length

    engine = engine_of(nodes="abc", count=300, capacity=1000 * LENGTH, before=count)
    await loaded(engine, work_of(await listed(engine), "a", "b", "c"))
    assert read == dict.fromkeys("abc", 100 * LENGTH)


async def test_copies_travel_while_the_source_is_still_being_read() -> None:
    order: list[str] = []

    async def note(operation: Operation) -> None:
        if operation.length:
            order.append(operation.name)
            await asyncio.sleep(0)

    engine = engine_of(count=2000, capacity=10_000 * LENGTH, before=note)
    await loaded(engine, work_of(await listed(engine), "a", "b"))
    last_read = max(index for index, name in enumerate(order) if name == "put")
    assert order[:last_read].count("copy") > 500


async def test_what_fails_once_is_tried_again() -> None:
    tries: dict[int, int] = {}

    def refuse(worker: str, block: object) -> str | None:
        number = block.id  # type: ignore[attr-defined]
        tries[number] = tries.get(number, 0) + 1
        return "not now" if tries[number] == 1 and number % 2 else None

    engine = engine_of(refuse=refuse)
    run = await loaded(engine, work_of(await listed(engine), "a", "b"))
    assert not run.incomplete
    assert await missing(engine, "a", "b") == 0
    assert engine.source_bytes_read == 20 * LENGTH


async def test_files_that_cannot_be_read_are_named_with_their_reason_and_the_others_placed() -> None:
    engine = engine_of(
        count=60, refuse=lambda worker, block: "broken" if block.source_path.endswith("7") else None
    )
    run = await loaded(engine, work_of(await listed(engine), "a", "b"))
    progress = run.progress
    assert progress.failed_files == 6
    assert {(failure.path, failure.reason) for failure in progress.failures} == {
        (f"{number:03d}", "broken") for number in (7, 17, 27, 37, 47, 57)
    }
    assert progress.node_bytes == {"a": 54 * LENGTH, "b": 54 * LENGTH}
    assert progress.files_done == 54
    assert run.incomplete
    assert run.error is None


async def test_of_many_failures_only_the_first_few_are_kept() -> None:
    engine = engine_of(
        count=200, capacity=10_000 * LENGTH, refuse=lambda worker, block: "no" if block.id % 2 else None
    )
    run = await loaded(engine, work_of(await listed(engine), "a"))
    assert run.progress.failed_files == 100
    assert len(run.progress.failures) == FAILURES_KEPT


async def test_a_source_that_is_gone_ends_the_load_soon() -> None:
    engine = engine_of(
        count=5000, capacity=10_000 * LENGTH, refuse=lambda worker, block: "connection refused"
    )
    run = await loaded(engine, work_of(await listed(engine), "a"))
    assert "source" in str(run.error)
    assert run.error is not None
    assert run.error.retryable
    assert run.incomplete
    assert run.progress.bytes_done == 0


async def test_nodes_that_cannot_copy_read_the_source_instead() -> None:
    engine = engine_of(refuse_copy=lambda source, worker, block: "no route")
    run = await loaded(engine, work_of(await listed(engine), "a", "b"))
    assert not run.incomplete
    assert await missing(engine, "a", "b") == 0
    assert engine.source_bytes_read == 2 * 20 * LENGTH


async def test_a_full_worker_stops_its_own_part_only() -> None:
    engine = engine_of()
    engine.set_worker(name="a", capacity=5 * LENGTH)
    run = await loaded(engine, work_of(await listed(engine), "a", "b"))
    assert run.progress.node_bytes["b"] == 20 * LENGTH
    assert "a" in str(run.error)


async def test_a_worker_that_dies_leaves_the_others_complete() -> None:
    engine = engine_of(nodes="abc", count=1000, capacity=10_000 * LENGTH)

    async def die(operation: Operation) -> None:
        if operation.name == "put" and engine.source_bytes_read > 300 * LENGTH:
            engine.set_worker(name="a", live=False)

    work = work_of(await listed(engine), "a", "b", "c")
    engine.before = die
    run = await loaded(engine, work)
    assert await missing(engine, "b", "c") == 0
    assert run.error is not None
    assert run.error.worker == "a"


async def test_a_run_can_be_stopped_and_gone_on_with() -> None:
    halfway = asyncio.Event()

    async def slow(operation: Operation) -> None:
        if operation.name == "put" and engine.source_bytes_read >= 10 * LENGTH:
            halfway.set()
            await asyncio.Event().wait()

    engine = engine_of()
    work = work_of(await listed(engine), "a")
    engine.before = slow
    done = asyncio.Event()
    run = LoadRun(engine=engine, work=work, on_done=done.set)
    await asyncio.wait_for(halfway.wait(), timeout=60)
    await run.cancel()
    assert done.is_set()
    assert not run.running
    engine.before = None
    rest = work_of(await listed(engine), "a")
    assert len(rest) == 10
    await loaded(engine, rest)
    assert engine.source_bytes_read == 20 * LENGTH


async def test_progress_is_told_at_least_at_the_end() -> None:
    engine, told = engine_of(), list[LoadProgress]()
    await loaded(engine, work_of(await listed(engine), "a"), on_progress=told.append)
    assert told[-1].bytes_done == 20 * LENGTH
    assert told[-1].bytes_per_second > 0


async def test_nothing_to_do_is_done_at_once() -> None:
    engine = engine_of()
    run = await loaded(engine, work_of(await listed(engine)))
    assert run.progress.bytes_total == 0
    assert not run.incomplete


async def test_a_limited_load_takes_its_time_however_many_nodes_read() -> None:
    engine = engine_of(count=300, capacity=10_000 * LENGTH, nodes="abc")
    work = work_of(await listed(engine), "a", "b", "c")
    began = time.monotonic()
    await loaded(engine, work, bandwidth=600 * LENGTH)
    took = time.monotonic() - began
    assert took >= 0.5 * (1 - BURST_SECONDS) - 0.15, took  # 300 blocks, the last portion not waited for
    assert engine.source_bytes_read == 300 * LENGTH


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def passes(throttle: Throttle, size: int, clock: Clock, *, seconds: float) -> bool:
    """Whether a caller gets through once so much time has passed."""
    caller = asyncio.create_task(throttle.take(size))
    clock.now += seconds
    throttle.set_rate(throttle.rate)  # looks at the clock again
    for _ in range(10):
        await asyncio.sleep(0)
    passed = caller.done()
    caller.cancel()
    return passed


async def test_a_debt_has_to_be_worked_off() -> None:
    clock = Clock()
    throttle = Throttle(rate=100, clock=clock)
    assert await passes(throttle, 1000, clock, seconds=0)
    assert not await passes(throttle, 1, clock, seconds=9)
    assert await passes(throttle, 1, clock, seconds=2)


async def test_a_quiet_time_is_not_saved_up() -> None:
    clock = Clock()
    throttle = Throttle(rate=100, clock=clock)
    assert await passes(throttle, 100, clock, seconds=3600)
    assert not await passes(throttle, 1, clock, seconds=0.5)


async def test_a_lifted_limit_frees_those_who_wait() -> None:
    clock = Clock()
    throttle = Throttle(rate=1, clock=clock)
    await throttle.take(10**9)
    waiting = asyncio.create_task(throttle.take(1))
    await asyncio.sleep(0)
    throttle.set_rate(None)
    await asyncio.wait_for(waiting, timeout=60)
    with pytest.raises(ValueError, match="at least 1"):
        throttle.set_rate(0)


def test_portions_grow_when_quick_and_shrink_when_slow() -> None:
    assert next_portion(Portion(size=8, count=4), seconds=0.1) == Portion(size=16, count=8)
    slow = Portion(size=SMALLEST.size * 8, count=SMALLEST.count * 8)
    assert next_portion(slow, seconds=10) == Portion(size=SMALLEST.size * 4, count=SMALLEST.count * 4)
    assert next_portion(FIRST, seconds=2) == FIRST
    assert next_portion(LARGEST, seconds=0) == LARGEST
    assert next_portion(SMALLEST, seconds=99) == SMALLEST


def queue(lengths: list[int]) -> tuple[Portions, Callable[[int], int]]:
    portions = Portions(length=lengths.__getitem__)
    for number in range(len(lengths)):
        portions.add(number)
    return portions, lengths.__getitem__


def test_a_portion_has_at_least_one_block_and_a_bounded_number() -> None:
    portions, _ = queue([1] * (FIRST.count + 5))
    assert len(portions.take()) == FIRST.count
    assert len(portions.take()) == 5
    assert portions.take() == []
    portions, _ = queue([FIRST.size * 2, 1])
    assert portions.take() == [0]
    portions, _ = queue([100, 100, 100])
    assert portions.take(most=250) == [0, 1]


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 10 * MIB), max_size=300), times=st.lists(st.floats(0, 10), min_size=1))
def test_every_block_is_handed_out_once_and_in_order(lengths: list[int], times: list[float]) -> None:
    portions, _ = queue(lengths)
    handed = array("q")
    for seconds in itertools.cycle(times):
        found = portions.take()
        if not found:
            break
        handed.extend(found)
        portions.took(seconds=seconds)
    assert handed.tolist() == list(range(len(lengths)))


class Piecemeal(MemoryEngine):
    """Reads blocks from the source piece by piece, as a worker does that is asked to keep a pace.

    Attributes:
        read: called after each piece.
    """

    read: Callable[[], None] = staticmethod(lambda: None)

    async def put(
        self, *, worker: str, blocks: Sequence[Block], pace: Callable[[int], Awaitable[None]] | None = None
    ) -> list[PutFailure]:
        for block in blocks:
            for _ in range(10):
                if pace is not None:
                    await pace(block.length // 10)
                self.read()
        return await super().put(worker=worker, blocks=blocks)


async def test_what_has_come_of_a_large_block_is_seen_before_it_is_whole() -> None:
    engine = Piecemeal(sources={"s3://b/p": {"large": 10 * MIB}}, workers={"a": 100 * MIB})
    seen: list[LoadProgress] = []
    run = LoadRun(
        engine=engine,
        work=work_of(await listed(engine), "a"),
        on_done=lambda: None,
        bandwidth=20 * MIB,
    )
    engine.read = lambda: seen.append(run.progress)
    await asyncio.wait_for(run.wait(), timeout=60)
    moving = [one.bytes_moving for one in seen]
    assert all(one.bytes_done == 0 for one in seen)
    assert len(set(moving)) > 3
    assert any(0 < one.bytes_moving < 10 * MIB and one.bytes_per_second > 0 for one in seen)
    assert (run.progress.bytes_moving, run.progress.bytes_done) == (0, 10 * MIB)
    assert run.moving == {"a": 0}


async def test_a_load_that_is_to_end_finishes_what_is_on_its_way_and_begins_nothing_more() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def before(operation: Operation) -> None:
        if operation.name == "put" and operation.length:
            begun.set()
            await go.wait()

    engine = engine_of(nodes="ab", count=2000, capacity=10_000 * LENGTH)
    table = await listed(engine)
    engine.before = before
    run = LoadRun(engine=engine, work=work_of(table, "a", "b"), on_done=lambda: None)
    await asyncio.wait_for(begun.wait(), timeout=60)
    run.finish()
    on_its_way = sum(run.moving.values())
    go.set()
    done = await asyncio.wait_for(run.wait(), timeout=60)
    assert 0 < done.bytes_done == on_its_way < done.bytes_total
    assert not run.incomplete


async def test_others_go_on_while_many_blocks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(nodes="ab", count=6000, capacity=10_000 * LENGTH)
    table = await listed(engine)
    since_others, most = 0, 0

    def counting(method: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **named: object) -> object:
            nonlocal since_others, most
            since_others += 1
            most = max(most, since_others)
            return method(*args, **named)

        return counted

    async def others() -> None:
        nonlocal since_others
        while True:
            since_others = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(Tally, "placed", counting(Tally.placed))
    monkeypatch.setattr(BlockTable, "block", counting(BlockTable.block))
    going = asyncio.create_task(others())
    run = await loaded(engine, work_of(table, "a", "b"))
    going.cancel()

    assert run.progress.files_done == 6000
    assert 0 < most <= 4 * PAUSE_AFTER  # whatever the number of lanes, and of blocks of a portion


@pytest.mark.parametrize("changed", [0, 1])
async def test_a_source_that_goes_away_is_given_up_also_after_a_file_that_had_changed(changed: int) -> None:
    engine = engine_of(count=20_000, nodes="a", capacity=100_000 * LENGTH)
    table = await listed(engine)
    asked = 0

    async def put(*, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        nonlocal asked
        asked += 1
        if asked <= changed:
            return [PutFailure(block_id=blocks[0].id, reason="changed", retryable=False, outdated=True)]
        return [PutFailure(block_id=block.id, reason="away", retryable=True) for block in blocks]

    engine.put = put  # type: ignore[method-assign, assignment]
    run = await loaded(engine, work_of(table, "a"))

    assert run.outdated is bool(changed)
    assert "not one block could be read from the source" in str(run.error)
    assert asked <= FRUITLESS + changed + READ_LANES


async def test_a_source_of_which_every_file_has_changed_is_not_taken_to_be_away() -> None:
    engine = engine_of(count=20_000, nodes="a", capacity=100_000 * LENGTH)
    table = await listed(engine)

    async def put(*, worker: str, blocks: Sequence[Block]) -> list[PutFailure]:
        return [
            PutFailure(block_id=block.id, reason="changed", retryable=False, outdated=True)
            for block in blocks
        ]

    engine.put = put  # type: ignore[method-assign, assignment]
    run = await loaded(engine, work_of(table, "a"))
    assert run.outdated
    assert run.error is None
