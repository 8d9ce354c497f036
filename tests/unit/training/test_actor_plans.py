"""Plans of actors that are refused before they run, and what a plan says of its memory."""

import subprocess
import sys

import pytest

from tdcs_train.actors import ActorPlan, Kind, RegisterSpec, Runtime, Task, check
from tdcs_train.actors.task import no_kernel
from tdcs_train.errors import InputError


def actor(name: str, consumes: str = "", produces: str = "", **more: object) -> Task:
    """An actor that does nothing; `produces` are names, each with `*count` and `+initial` if wanted."""
    specs = []
    for text in produces.split():
        spec, _, initial = text.partition("+")
        register, _, count = spec.partition("*")
        specs.append(RegisterSpec(name=register, count=int(count or 2), initial=int(initial or 0)))
    return Task(name=name, kernel=no_kernel, consumes=tuple(consumes.split()), produces=tuple(specs), **more)  # type: ignore[arg-type]


ACCUMULATE = Kind.ACCUMULATE
BAD = {
    "a cycle": (
        [actor("a", "z", "x"), actor("b", "x", "y"), actor("c", "y", "z")],
        "the actors a -> b -> c -> a wait for each other: a cycle without credits",
    ),
    "an actor that waits for itself": ([actor("a", "x", "x")], "the actors a -> a wait for each other"),
    "too few for an accumulator": (
        [
            actor("read", "", "x"),
            actor("sum", "x", "s", kind=ACCUMULATE, times=4),
            actor("spread", "s", "r", kind=Kind.REPEAT, times=4),
            actor("pair", "x r"),
        ],
        "too few registers: x of read has 2 and needs 4",
    ),
    "different rates": (
        [actor("read", "", "x"), actor("sum", "x", "s", kind=ACCUMULATE, times=2), actor("pair", "x s")],
        "at different rates",
    ),
    "too few initial credits": (
        [
            actor("a", "back", "x*4"),
            actor("sum", "x", "back+1", kind=ACCUMULATE, times=2),
        ],
        "different rates|too few initial credits",
    ),
    "no producer": ([actor("a", "x")], "the actor a consumes x, which no actor produces"),
    "one name for two actors": ([actor("a"), actor("a")], "two actors have the name a"),
    "one name for two registers": (
        [actor("a", "", "x"), actor("b", "", "x")],
        "two registers have the name x",
    ),
    "no register": ([actor("a", "", "x*0"), actor("b", "x")], "the register x of a: count"),
    "more credits than registers": ([actor("a", "", "x*1+2"), actor("b", "x")], "initial from 0 to count"),
    "registers that lag and are there before the first act": (
        [
            Task(
                name="a",
                kernel=no_kernel,
                produces=(RegisterSpec(name="x", initial=1, lag=1),),
            ),
            actor("b", "x"),
        ],
        "the register x of a: lag is 1; it must not be negative, and neither initial",
    ),
    "times of a normal actor": ([actor("a", "", "x"), actor("b", "x", times=2)], "times is 2, which normal"),
    "a repeating source": (
        [actor("a", "", "x", kind=Kind.REPEAT, times=2)],
        "of kind repeat and consumes nothing",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_plan_that_could_not_run_is_refused_with_actor_and_register(what: str) -> None:
    tasks, message = BAD[what]
    with pytest.raises(InputError, match=message):
        check(ActorPlan(tuple(tasks)))


def test_the_number_of_registers_that_a_refusal_asks_for_is_enough_and_no_more() -> None:
    def plan(count: int) -> ActorPlan:
        return ActorPlan(
            (
                actor("read", "", f"x*{count}"),
                actor("sum", "x", "s", kind=ACCUMULATE, times=4),
                actor("spread", "s", "r", kind=Kind.REPEAT, times=4),
                actor("pair", "x r"),
            )
        )

    check(plan(4))
    with pytest.raises(InputError, match="has 3 and needs 4"):
        check(plan(3))


def test_a_cycle_with_credits_is_accepted() -> None:
    check(ActorPlan((actor("a", "z", "x"), actor("b", "x", "z+1"))))


PEAK = """
import re, numpy
from tdcs_train.actors import *

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

def fill(inputs, outputs, number):
    if number >= 40:
        return END
    numpy.frombuffer(outputs["x"].memory, dtype=numpy.uint8)[:] = number

def use(inputs, outputs, number):
    assert (numpy.frombuffer(inputs["x"].memory, dtype=numpy.uint8)[::4096] == number).all()

plan = ActorPlan((Task(name="fill", kernel=fill, produces=(RegisterSpec(name="x", count=4, size=32 << 20),)),
                  Task(name="use", kernel=use, consumes=("x",), thread=1)))
before = peak()
Runtime(plan).run()
print(plan.memory_bytes, peak() - before)
"""


def test_a_run_takes_the_memory_of_its_plan_and_a_tenth_more_at_most() -> None:
    result = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    planned, peak = map(int, result.stdout.split())
    assert planned == 128 << 20
    assert 0.95 * planned < peak <= 1.1 * planned


def test_a_plan_is_checked_before_anything_is_made() -> None:
    with pytest.raises(InputError, match="a cycle without credits"):
        Runtime(ActorPlan((actor("a", "x", "x"),)))
