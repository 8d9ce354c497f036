"""What remote reads cost in processor time, by process: the program that reads, the client, and the agent.

    PYTHONPATH=.:deploy/local:operator python bench/remote_reads/costs.py [--trusted] [--rounds 3]

Four kinds of reads of what another node has, by loopback, page cache dropped before each: a file of 256 MB in order,
files of 100 KB by eight threads, and pieces of 4 KiB anywhere in the large file, by one thread and by eight. Processor
time is the scheduler's own count, which is exact where ticks are not. The least of the rounds counts: other work on the
machine only adds to it. Prints one JSON line. Needs root and FUSE.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import psutil
from bench.remote_reads.peers import LARGE, LARGE_BYTES, THREADS, served
from tests.support.dataplane.readers import drop_page_cache

PIECE_BYTES: Final = 4096
_SCHEDULER: Final = 2
"""Of the clocks of a process (CPUCLOCK_SCHED of Linux) the exact one."""
PROGRAM: Final = """
import json, mmap, os, sys, threading
task = json.loads(sys.stdin.readline())
def in_order(names):
    buffer = bytearray(1 << 20)
    for name in names:
        file = os.open(name, os.O_RDONLY)
        while os.readv(file, [buffer]): pass
        os.close(file)
def anywhere(offsets):
    file = os.open(task["file"], os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    buffer = bytearray(task["size"])
    for offset in offsets:
        if os.preadv(file, [buffer], offset) != len(buffer): raise OSError("short read")
work = anywhere if "size" in task else in_order
threads = [threading.Thread(target=work, args=(share,)) for share in task["shares"]]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", flush=True)
sys.stdin.readline()
"""


def seconds_of(pid: int) -> float:
    """Processor time of all threads that a process has and had."""
    return time.clock_gettime(~pid << 3 | _SCHEDULER)


def run(task: dict[str, Any], *, pids: dict[str, int]) -> dict[str, float]:
    """Processor seconds of each process, and of the program, while the program does a task."""
    drop_page_cache()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        before = {name: seconds_of(pid) for name, pid in pids.items()}
        program.stdin.write(json.dumps(task) + "\n")
        program.stdin.flush()
        if program.stdout.readline() != "done\n":
            raise RuntimeError("the program that reads failed: see its error above")
        spent = {name: seconds_of(pid) - before[name] for name, pid in pids.items()}
        program.stdin.write("\n")
        program.stdin.flush()
        usage = os.wait4(program.pid, 0)[2]
        program.returncode = 0
    return {**spent, "program": usage.ru_utime + usage.ru_stime}


def least(rounds: int, work: Callable[[], dict[str, float]], *, units: float) -> dict[str, float]:
    """The round with the least sum, for each unit of work."""
    best = min((work() for _ in range(rounds)), key=lambda spent: sum(spent.values()))
    result = {name: round(seconds / units, 3) for name, seconds in best.items()}
    return {**result, "all": round(sum(best.values()) / units, 3)}


def shares(items: list[Any], threads: int) -> list[list[Any]]:
    return [items[number::threads] for number in range(threads)]


def serving_process(reader: int) -> int:
    """The process of a reader that serves: the one of its children with the most processor time."""
    children = [child.pid for child in psutil.Process(reader).children()]
    return max(children, key=seconds_of)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All kinds of reads."""
    with served(files=options.files, trusted=options.trusted) as (node, giver, _, root, names):
        large = str(root / LARGE)
        paths = [str(root / name) for name in names]
        warm = {"shares": [[large]]}
        run(warm, pids={})
        pids = {"client": serving_process(node.reader.pid), "agent": giver.process.pid}
        chance = random.Random(2)  # noqa: S311
        pieces = [chance.randrange(LARGE_BYTES // PIECE_BYTES) * PIECE_BYTES for _ in range(options.pieces)]

        def anywhere(threads: int) -> dict[str, float]:
            task = {"file": large, "size": PIECE_BYTES, "shares": shares(pieces, threads)}
            return least(options.rounds, lambda: run(task, pids=pids), units=len(pieces) / 1e6)

        small = {"shares": shares(paths, THREADS)}
        return {
            "bench": "costs",
            "trusted": options.trusted,
            "large_s_per_gb": least(options.rounds, lambda: run(warm, pids=pids), units=LARGE_BYTES / 1e9),
            "small_ms_per_file": least(options.rounds, lambda: run(small, pids=pids), units=len(paths) / 1e3),
            "piece_us_one_thread": anywhere(1),
            "piece_us_eight_threads": anywhere(THREADS),
        }


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1000, help="files of 100 KB")
    parser.add_argument("--pieces", type=int, default=3000, help="pieces of 4 KiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trusted", action="store_true", help="with certificates: agents are asked by TLS")
    options = parser.parse_args()
    print(json.dumps({**measure(options), "cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
