"""The workers of a job as processes on this loopback interface. Needs nothing but Python: it runs inside the root."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import connection

LAST_SECONDS = 10.0
"""For how long the other workers may still say what they know when one has failed."""


def run(words: Sequence[str], *, name: str, workers: int, within: float) -> list[str]:
    """Runs a program of Python once for each rank; what each of them printed.

    Exits when one failed, with the rank that ended first and how: the others end because of it.
    """
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(workers)}
    processes = [
        subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(workers)
    ]
    try:
        if failure := _first_failure(processes, within=within):
            sys.exit(f"{name}: {failure}")
        return [process.stdout.read() for process in processes if process.stdout]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def _first_failure(made: Sequence["subprocess.Popen[str]"], *, within: float) -> str:
    """Waits for all processes; which of them failed first and how, or nothing."""
    rank_of = {os.pidfd_open(process.pid): rank for rank, process in enumerate(made)}
    until = time.monotonic() + within
    failure = ""
    while rank_of:
        descriptors = connection.wait(list(rank_of), max(0.0, until - time.monotonic()))
        if not descriptors:
            late = ", ".join(str(rank) for rank in sorted(rank_of.values()))
            return failure or f"rank {late} still ran after {within:g} s"
        for descriptor in descriptors:
            assert isinstance(descriptor, int)
            rank = rank_of.pop(descriptor)
            os.close(descriptor)
            code = made[rank].wait()
            if code and not failure:
                failure = f"rank {rank} ended first, {_how(code)}"
                until = time.monotonic() + LAST_SECONDS
    return failure


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        return number
