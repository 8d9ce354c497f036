"""The actor runtime: credits, kinds of actors, the end of data, and what it measures."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdcs_train.actors import END, ActorError, ActorPlan, Kind, RegisterSpec, Runtime, Task
from tdcs_train.actors.pool import PooledKernel
from tdcs_train.actors.task import End, Kernel, Registers
from tdcs_train.actors.trace import chrome_trace, critical_path

WAIT = 20.0
"""Seconds after which something that should happen at once counts as hanging."""


def counting(count: int, name: str) -> Kernel:
    """A source of the numbers below `count` in the register `name`."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> End | None:
        if number >= count:
            return END
        outputs[name].value = number
        return None

    return kernel


def collecting(found: list[object], name: str) -> Kernel:
    """A sink that notes the values of the register `name`."""
    return lambda inputs, outputs, number: found.append(inputs[name].value)


def copying(source: str, target: str, change: Callable[[int], int] = lambda value: value) -> Kernel:
    """From one register to another."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> None:
        outputs[target].value = change(inputs[source].value)

    return kernel


def run(*tasks: Task, traced: bool = False) -> Runtime:
    """Run a plan to its end, in bounded time."""
    runtime = Runtime(ActorPlan(tasks), traced=traced)
    runtime.start()
    assert runtime.wait(WAIT), "the plan did not end"
    runtime.stop()
    return runtime


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.002)


class Gate:
    """A kernel that passes a value on, as often as it has been allowed to."""

    def __init__(self, source: str, target: str | None) -> None:
        self.source, self.target = source, target
        self.allowed = threading.Semaphore(0)
        self.began: list[int] = []
        self.ended = 0

    def __call__(self, inputs: Registers, outputs: Registers, number: int) -> None:
        self.began.append(inputs[self.source].value)
        assert self.allowed.acquire(timeout=WAIT)
        if self.target:
            outputs[self.target].value = inputs[self.source].value
        self.ended += 1


def line_of_four(slow: dict[str, Gate], loaded: list[int], threads: int) -> tuple[Task, ...]:
    """load -> prepare -> copy -> train with two registers each, on one to four threads."""

    def load(inputs: Registers, outputs: Registers, number: int) -> End | None:
        if number >= 12:
            return END
        outputs["loaded"].value = number + 1
        loaded.append(number + 1)
        return None

    return (
        Task(name="load", kernel=load, produces=(RegisterSpec(name="loaded"),), thread=0),
        Task(
            name="prepare",
            kernel=slow.get("prepare", copying("loaded", "prepared")),
            consumes=("loaded",),
            produces=(RegisterSpec(name="prepared"),),
            thread=1 % threads,
        ),
        Task(
            name="copy",
            kernel=copying("prepared", "copied"),
            consumes=("prepared",),
            produces=(RegisterSpec(name="copied"),),
            thread=2 % threads,
        ),
        Task(name="train", kernel=slow.get("train", lambda *_: None), consumes=("copied",), thread=3),
    )


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_while_a_slow_train_works_on_batch_3_load_has_finished_batch_8_and_waits(threads: int) -> None:
    gate, loaded = Gate("copied", None), []  # type: ignore[var-annotated]
    runtime = Runtime(ActorPlan(line_of_four({"train": gate}, loaded, threads)))
    runtime.start()
    for batch in (1, 2, 3, 4):
        wait_for(lambda batch=batch: gate.began == list(range(1, batch + 1)))  # type: ignore[misc]
        wait_for(lambda batch=batch: loaded == list(range(1, batch + 6)))  # type: ignore[misc]
        time.sleep(0.03)  # and nothing more is loaded while it may not
        assert loaded == list(range(1, batch + 6))
        gate.allowed.release()
    gate.allowed.release(20)
    assert runtime.wait(WAIT)
    runtime.stop()
    assert gate.began == list(range(1, 13))
    assert runtime.times()["load"].blocked_seconds > 0.05


def test_load_is_two_ahead_of_a_slow_prepare_and_never_more() -> None:
    gate, loaded = Gate("loaded", "prepared"), []  # type: ignore[var-annotated]
    runtime = Runtime(ActorPlan(line_of_four({"prepare": gate}, loaded, 3)))
    runtime.start()
    for batch in range(1, 8):
        # The batch that prepare works on lies in one of load's two registers, the next one in the other.
        wait_for(lambda batch=batch: gate.began[-1:] == [batch] and loaded[-1] == batch + 1)  # type: ignore[misc]
        time.sleep(0.02)
        assert loaded[-1] == batch + 1
        gate.allowed.release()
    gate.allowed.release(20)
    assert runtime.wait(WAIT)
    runtime.stop()
    assert runtime.times()["train"].starved_seconds > runtime.times()["train"].busy_seconds


def test_every_kind_of_actor_takes_and_makes_what_it_says() -> None:
    repeated: list[object] = []
    unpacked: list[object] = []
    summed: list[object] = []
    merged: list[object] = []

    def add(inputs: Registers, outputs: Registers, number: int) -> None:
        target = outputs["sum"]
        target.value = inputs["n"].value + (target.value if number % 3 else 0)

    def part(inputs: Registers, outputs: Registers, number: int) -> None:
        outputs["part"].value = (inputs["n"].value, number % 2)

    def either(inputs: Registers, outputs: Registers, number: int) -> None:
        ((name, register),) = inputs.items()
        merged.append((name, register.value))

    run(
        Task(name="source", kernel=counting(6, "n"), produces=(RegisterSpec(name="n"),)),
        Task(name="repeat", kernel=collecting(repeated, "n"), consumes=("n",), kind=Kind.REPEAT, times=2),
        Task(
            name="unpack",
            kernel=part,
            consumes=("n",),
            produces=(RegisterSpec(name="part"),),
            kind=Kind.UNPACK,
            times=2,
        ),
        Task(
            name="add",
            kernel=add,
            consumes=("n",),
            produces=(RegisterSpec(name="sum"),),
            kind=Kind.ACCUMULATE,
            times=3,
        ),
        Task(name="parts", kernel=collecting(unpacked, "part"), consumes=("part",)),
        Task(name="sums", kernel=collecting(summed, "sum"), consumes=("sum",)),
        Task(name="other", kernel=counting(2, "m"), produces=(RegisterSpec(name="m"),)),
        Task(name="either", kernel=either, consumes=("n", "m"), kind=Kind.INPUT_WISE, thread=1),
    )
    assert repeated == [number for number in range(6) for _ in range(2)]
    assert unpacked == [(number, half) for number in range(6) for half in range(2)]
    assert summed == [0 + 1 + 2, 3 + 4 + 5]
    assert sorted(merged) == [("m", 0), ("m", 1), *(("n", number) for number in range(6))]  # type: ignore[type-var]


@pytest.mark.parametrize(("keep", "wanted"), [(True, [3, 7]), (False, [3])])
def test_what_the_end_of_data_left_incomplete_is_kept_only_if_asked_for(
    keep: bool, wanted: list[int]
) -> None:
    summed: list[object] = []

    def add(inputs: Registers, outputs: Registers, number: int) -> None:
        outputs["sum"].value = inputs["n"].value + (outputs["sum"].value if number % 3 else 0)

    run(
        Task(name="source", kernel=counting(5, "n"), produces=(RegisterSpec(name="n"),)),
        Task(
            name="add",
            kernel=add,
            consumes=("n",),
            produces=(RegisterSpec(name="sum"),),
            kind=Kind.ACCUMULATE,
            times=3,
            keep_partial=keep,
        ),
        Task(name="sums", kernel=collecting(summed, "sum"), consumes=("sum",)),
    )
    assert summed == wanted


def test_a_cycle_with_an_initial_credit_runs_in_step() -> None:
    order: list[str] = []

    def forward(inputs: Registers, outputs: Registers, number: int) -> None:
        order.append(f"forward {number}")
        return

    def update(inputs: Registers, outputs: Registers, number: int) -> None:
        order.append(f"update {number}")

    run(
        Task(name="data", kernel=counting(3, "batch"), produces=(RegisterSpec(name="batch"),)),
        Task(
            name="forward",
            kernel=forward,
            consumes=("batch", "updated"),
            produces=(RegisterSpec(name="gradient"),),
        ),
        Task(
            name="update",
            kernel=update,
            consumes=("gradient",),
            produces=(RegisterSpec(name="updated", initial=1),),
            thread=1,
        ),
    )
    assert order == [f"{kind} {number}" for number in range(3) for kind in ("forward", "update")]


def test_of_several_actors_that_could_act_the_most_urgent_does() -> None:
    order: list[str] = []
    gate = threading.Event()

    def first(inputs: Registers, outputs: Registers, number: int) -> None:
        assert gate.wait(WAIT)

    def noting(name: str) -> Kernel:
        return lambda inputs, outputs, number: order.append(name)

    runtime = Runtime(
        ActorPlan(
            (
                Task(name="a", kernel=counting(1, "a"), produces=(RegisterSpec(name="a"),), thread=1),
                Task(name="hold", kernel=first, consumes=("a",), urgency=5),
                Task(name="low", kernel=noting("low"), consumes=("b",)),
                Task(name="high", kernel=noting("high"), consumes=("b",), urgency=2),
                Task(name="b", kernel=counting(1, "b"), produces=(RegisterSpec(name="b"),), thread=2),
            )
        )
    )
    runtime.start()
    wait_for(lambda: runtime.accounts()["b"].acts == 1)
    gate.set()
    assert runtime.wait(WAIT)
    runtime.stop()
    assert order == ["high", "low"]


@given(
    counts=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    threads=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    delays=st.lists(st.sampled_from([0, 0, 0.001]), min_size=5, max_size=5),
    total=st.integers(0, 12),
)
@settings(max_examples=40, deadline=None)
def test_a_diamond_ends_with_every_value_in_order_whatever_delays(
    counts: list[int], threads: list[int], delays: list[float], total: int
) -> None:
    values: list[object] = []

    def slowly(kernel: Kernel, delay: float) -> Kernel:
        def slow(inputs: Registers, outputs: Registers, number: int) -> End | None:
            time.sleep(delay)
            return kernel(inputs, outputs, number)

        return slow

    def join(inputs: Registers, outputs: Registers, number: int) -> None:
        outputs["pair"].value = (inputs["left"].value, inputs["right"].value)

    names = ("n", "left", "right", "pair")
    kernels = (
        counting(total, "n"),
        copying("n", "left"),
        copying("n", "right", lambda n: -n),
        join,
        collecting(values, "pair"),
    )
    consumed = ((), ("n",), ("n",), ("left", "right"), ("pair",))
    specs = [(RegisterSpec(name=name, count=count),) for name, count in zip(names, counts, strict=True)]
    run(
        *(
            Task(
                name=f"actor{place}",
                kernel=slowly(kernels[place], delays[place]),
                consumes=consumed[place],
                produces=specs[place] if place < 4 else (),
                thread=threads[place],
            )
            for place in range(5)
        )
    )
    assert values == [(number, -number) for number in range(total)]


def test_acts_of_a_pool_overlap_and_leave_in_order() -> None:
    values: list[object] = []
    most = 0
    running = 0
    lock = threading.Lock()

    def work(inputs: Registers, outputs: Registers, number: int) -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02 if number % 3 == 0 else 0.001)
        outputs["out"].value = inputs["n"].value
        with lock:
            running -= 1

    pool = PooledKernel("work", work, workers=3)
    run(
        Task(name="source", kernel=counting(20, "n"), produces=(RegisterSpec(name="n", count=4),)),
        Task(name="work", kernel=pool, consumes=("n",), produces=(RegisterSpec(name="out", count=4),)),
        Task(name="end", kernel=collecting(values, "out"), consumes=("out",), thread=1),
    )
    pool.close()
    assert values == list(range(20))
    assert most == 3


@pytest.mark.parametrize("pooled", [False, True])
def test_a_kernel_that_fails_ends_the_run_with_the_name_of_its_actor(pooled: bool) -> None:
    def fail(inputs: Registers, outputs: Registers, number: int) -> None:
        if inputs["n"].value == 3:
            raise OSError("no such picture")

    kernel = PooledKernel("decode", fail, workers=2) if pooled else fail
    runtime = Runtime(
        ActorPlan(
            (
                Task(name="source", kernel=counting(100, "n"), produces=(RegisterSpec(name="n"),)),
                Task(name="decode", kernel=kernel, consumes=("n",), thread=1),
            )
        )
    )
    runtime.start()
    with pytest.raises(ActorError, match="the actor decode failed: no such picture"):
        runtime.wait(WAIT)
    runtime.stop()


def test_a_trace_shows_each_act_and_adds_up_to_the_run(tmp_path: Path) -> None:
    def slow(inputs: Registers, outputs: Registers, number: int) -> None:
        time.sleep(0.01)

    runtime = run(
        Task(name="source", kernel=counting(20, "n"), produces=(RegisterSpec(name="n"),)),
        Task(
            name="fast",
            kernel=copying("n", "m"),
            consumes=("n",),
            produces=(RegisterSpec(name="m"),),
            thread=1,
        ),
        Task(name="slow", kernel=slow, consumes=("m",), thread=2),
        traced=True,
    )
    records = {name: account.records or [] for name, account in runtime.accounts().items()}
    (tmp_path / "trace.json").write_text(json.dumps(chrome_trace(runtime.plan, records)))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    acts = [event for event in events if event["ph"] == "X"]
    assert sorted(event["args"]["act"] for event in acts if event["name"] == "slow") == list(range(20))
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"source", "fast", "slow"}
    since = records["source"][0].started
    parts = critical_path(records, last=("slow", 19), since=since)
    assert sum(parts.values()) == pytest.approx((records["slow"][-1].ended - since) / 1e9, rel=1e-6)
    # How much more, the machine's other work decides: `fast` may wait for a processor.
    assert max(parts, key=lambda name: parts[name]) == "slow"
    times = runtime.times()["slow"]
    assert times.acts == 20
    assert times.busy_seconds == pytest.approx(
        sum(act.ended - act.started for act in records["slow"]) / 1e9, rel=1e-3
    )


def test_an_act_that_never_returns_ends_the_run_with_the_name_of_its_actor() -> None:
    released, began = threading.Event(), threading.Event()

    def stuck(inputs: Registers, outputs: Registers, number: int) -> None:
        if inputs["a"].value == 2:
            began.set()
            released.wait()

    plan = ActorPlan(
        (
            Task(name="source", kernel=counting(5, "a"), produces=(RegisterSpec(name="a"),)),
            Task(name="sink", kernel=stuck, consumes=("a",), thread=1),
        )
    )
    runtime = Runtime(plan, patience=0.2)
    runtime.start()
    try:
        with pytest.raises(ActorError, match=r"the actor sink failed: its act 2 has not returned for 0\.2 s"):
            runtime.wait(WAIT)
        assert began.is_set()
        runtime.stop()  # does not wait for the act
    finally:
        released.set()


def test_acts_that_take_long_each_are_not_taken_for_one_that_never_returns() -> None:
    values: list[object] = []

    def slow(inputs: Registers, outputs: Registers, number: int) -> None:
        time.sleep(0.05)
        values.append(inputs["a"].value)

    plan = ActorPlan(
        (
            Task(name="source", kernel=counting(8, "a"), produces=(RegisterSpec(name="a"),)),
            Task(name="sink", kernel=slow, consumes=("a",), thread=1),
        )
    )
    Runtime(plan, patience=WAIT).run()
    assert values == list(range(8))
