"""Programs that get signals while they wait for a slow source: killed ones end, others never notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes.reader.test_reader_restarts import serving
from tests.processes.reader.test_reader_shares import Tenants, tenants
from tests.support.dataplane.node import needs_fuse
from tests.support.dataplane.readers import ReaderNode
from tests.support.waiting import at_this_load, eventually

__all__ = ["tenants"]
pytestmark = needs_fuse

READ = """
import mmap, os, signal, sys
kind, path = sys.argv[1:]
signal.signal(signal.SIGUSR1, lambda *_: None)
fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if kind == "O_DIRECT" else 0))
memory = mmap.mmap(-1, 1 << 16)
if kind == "MADV_RANDOM":
    memory = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    memory.madvise(mmap.MADV_RANDOM)
elif kind == "FADV_RANDOM":
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
print("reads", flush=True)
if kind == "MADV_RANDOM":
    found = memory[:4096]
else:
    assert os.preadv(fd, [memory], 0) == len(memory)
    found = memory[:4096]
sys.stdout.buffer.write(found)
"""
KINDS = ["plain", "FADV_RANDOM", "MADV_RANDOM", "O_DIRECT"]


class Program:
    """A program that reads the beginning of the slow dataset's large file in some way."""

    def __init__(self, tenants: Tenants, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READ, kind, str(tenants.slow / "large")], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"reads\n"
        eventually(self._waits, deadline=20)

    def _waits(self) -> bool:
        return "fuse" in self._stack() or "folio" in self._stack() or "request_wait" in self._stack()

    def _stack(self) -> str:
        return Path(f"/proc/{self._process.pid}/wchan").read_text()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def found(self) -> bytes:
        """What it has read."""
        content = self._process.communicate(timeout=60)[0]
        assert self._process.returncode == 0
        return content

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=KINDS)
def program(request: pytest.FixtureRequest, tenants: Tenants) -> Iterator[Program]:
    program = Program(tenants, request.param)
    yield program
    tenants.gate.set()
    program.close()


@pytest.mark.failure_mode("program-killed-while-waiting")
def test_a_program_that_is_killed_ends_while_the_source_gives_nothing(program: Program) -> None:
    program.signal(signal.SIGKILL)
    eventually(program.has_ended, deadline=at_this_load(2))


def test_a_program_that_is_killed_after_another_signal_ends_too(program: Program) -> None:
    program.signal(signal.SIGUSR1)
    program.signal(signal.SIGKILL)
    eventually(program.has_ended, deadline=at_this_load(2))


@pytest.mark.failure_mode("program-killed-while-waiting")
def test_a_program_that_is_killed_ends_though_the_process_that_served_it_has_died(
    node: ReaderNode, program: Program
) -> None:
    program.signal(signal.SIGUSR1)
    before = serving(node)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: serving(node) not in (0, before), deadline=20)
    program.signal(signal.SIGKILL)
    eventually(program.has_ended, deadline=at_this_load(2))


@pytest.mark.failure_mode("program-killed-while-waiting")
def test_a_signal_that_ends_no_program_fails_none_of_its_reads(tenants: Tenants, program: Program) -> None:
    for _ in range(5):
        program.signal(signal.SIGUSR1)
    tenants.check_honest(1)
    assert not program.has_ended()
    tenants.gate.set()
    assert program.found() == (tenants.slow_files / "large").read_bytes()[:4096]
