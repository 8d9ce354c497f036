"""What the actor runtime costs: an act on one and more threads, and registers between two processes on loopback.

    python -m bench.training.actors

Writes results/actors.jsonl, and fails when an act on one or two threads costs more processor time than the bar.
"""

import argparse
import socket
import subprocess
import sys
import time
from typing import Any

from bench.training.records import keep

from tdcs_train.actors import END, ActorPlan, RegisterSpec, Runtime, Task
from tdcs_train.actors.network.network import Network
from tdcs_train.actors.task import Kernel, Registers

ACTS = 40_000
BAR_MICROSECONDS = 25
"""Processor time an act may cost, of a plan with as many threads as the machine has processors at most."""


def source(count: int, size: int = 0) -> Kernel:
    """A source of `count` registers of `size` meant bytes."""

    def kernel(inputs: Registers, outputs: Registers, number: int) -> Any:
        if number >= count:
            return END
        for register in outputs.values():
            register.length = size
        return None

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


def plan(count: int, size: int) -> ActorPlan:
    """A source, and a sink on another machine."""
    return ActorPlan(
        (
            Task(
                name="source",
                kernel=source(count, size),
                produces=(RegisterSpec(name="x", size=size, count=4, pull_count=4),),
            ),
            Task(name="sink", kernel=idle, consumes=("x",), machine=1),
        )
    )


def machine(number: int, ports: list[int], count: int, size: int) -> float:
    """One of the two machines; its seconds from start to end."""
    addresses = {place: ("127.0.0.1", port) for place, port in enumerate(ports)}
    network = Network(plan(count, size), number, addresses, timeout=30)
    runtime = Runtime(plan(count, size), machine=number, network=network)
    begin = time.perf_counter()
    runtime.run()
    return time.perf_counter() - begin


def remote(count: int, size: int) -> dict[str, Any]:
    """Registers pulled by another process."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [first.getsockname()[1], second.getsockname()[1]]
    words = [sys.executable, "-m", "bench.training.actors", "--machine", *map(str, (*ports, count, size))]
    with subprocess.Popen(words) as other:
        seconds = machine(0, ports, count, size)
        other.wait(60)
    return {
        "what": f"registers of {size} bytes, pulled by another process",
        "us a register": round(seconds / count * 1e6, 1),
        "MB/s": round(count * size / seconds / 1e6, 1),
    }


def main() -> int:
    """All cases; 1 when the bar is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machine", type=int, nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.machine:
        first, second, count, size = asked.machine
        machine(1, [first, second], count, size)
        return 0
    rows = [local(threads) for threads in (1, 2, 4)]
    keep("actors", [*rows, remote(4000, 1000), remote(150, 4_000_000)])
    return int(any(row["CPU us an act"] > BAR_MICROSECONDS for row in rows[:2]))


if __name__ == "__main__":
    sys.exit(main())
