"""What the actor runtime costs: an act on one and more threads.

    python -m bench.training.actors

Writes results/actors.jsonl, and fails when an act on one or two threads costs more processor time than the bar.
"""

import argparse
import sys
import time
from typing import Any

from bench.training.records import keep

from tdcs_train.actors import END, ActorPlan, RegisterSpec, Runtime, Task
from tdcs_train.actors.task import Kernel, Registers

ACTS = 40_000
BAR_MICROSECONDS = 25
"""Processor time an act may cost, of a plan with as many threads as the machine has processors at most."""


def source(count: int) -> Kernel:
    """A source of `count` registers."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> Any:
        return END if number >= count else None

    return kernel


def idle(inputs: Registers, outputs: Registers, number: int) -> None:
    """Does nothing."""


def local(threads: int) -> dict[str, Any]:
    """Four actors in a row."""
    tasks = (
        Task(name="a", kernel=source(ACTS), produces=(RegisterSpec(name="a"),)),
        Task(name="b", kernel=idle, consumes=("a",), produces=(RegisterSpec(name="b"),), thread=1 % threads),
        Task(name="c", kernel=idle, consumes=("b",), produces=(RegisterSpec(name="c"),), thread=2 % threads),
        Task(name="d", kernel=idle, consumes=("c",), thread=3 % threads),
    )
    runtime = Runtime(ActorPlan(tasks))
    begin, cpu = time.perf_counter(), time.process_time()
    runtime.run()
    return {
        "what": f"4 actors on {threads} thread{'s' if threads > 1 else ''}",
        "us an act": round((time.perf_counter() - begin) / (4 * ACTS) * 1e6, 2),
        "CPU us an act": round((time.process_time() - cpu) / (4 * ACTS) * 1e6, 2),
    }


def main() -> int:
    """All cases; 1 when the bar is broken."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    rows = [local(threads) for threads in (1, 2, 4)]
    keep("actors", rows)
    return int(any(row["CPU us an act"] > BAR_MICROSECONDS for row in rows[:2]))


if __name__ == "__main__":
    sys.exit(main())
