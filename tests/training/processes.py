"""Workers of a job as processes on loopback, forked from a server that has imported PyTorch already."""

import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

CHECKOUT = Path(__file__).resolve().parents[2]
LINE_SECONDS = 60.0


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _run(script: str, arguments: list[str], variables: dict[str, str], out: str, errors: str) -> None:
    """The worker: a script with output into files, as a program of its own would run."""
    for number, path in ((1, out), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.environ.update(variables)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


@dataclass
class Process:
    """A worker and the files that it prints to."""

    process: BaseProcess
    out: Path
    err: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def output(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    @property
    def errors(self) -> str:
        return self.err.read_text() if self.err.exists() else ""

    def end(self, *, within: float) -> int:
        """Its exit status; fails when it has not ended by then."""
        self.process.join(within)
        code = self.process.exitcode
        assert code is not None, (
            f"the worker still runs after {within:.1f} s; it printed: {self.output} {self.errors}"
        )
        return code

    def results(self) -> list[dict[str, object]]:
        """The lines of JSON that it printed."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]

    def await_line(self, text: str) -> None:
        """Returns when it has printed the text."""
        until = time.monotonic() + LINE_SECONDS
        while text not in self.output:
            assert self.process.is_alive(), f"the worker ended without printing {text!r}: {self.errors}"
            assert time.monotonic() < until, f"the worker has not printed {text!r} within {LINE_SECONDS:g} s"
            time.sleep(0.02)


@dataclass
class Job:
    """Workers that each run a script with their rank; they are ended with the block. `folder` takes their output."""

    script: Path
    world_size: int
    folder: Path
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    of_rank: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Further variables of one rank."""
    workers: list[Process] = field(default_factory=list)

    def __enter__(self) -> "Job":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed", "torch.fx"])
        port = free_port()
        for rank in range(self.world_size):
            variables = {
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(self.world_size),
                **self.environment,
                **self.of_rank.get(rank, {}),
            }
            stem = self.folder / f"worker-{port}-{rank}"
            out, err = stem.with_suffix(".out"), stem.with_suffix(".err")
            words = (str(self.script), list(self.arguments), variables, str(out), str(err))
            process = context.Process(target=_run, args=words)
            process.start()
            self.workers.append(Process(process, out, err))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.process.is_alive():
                os.kill(worker.pid, signal.SIGCONT)
                worker.process.kill()
            worker.process.join()

    def end(self, *, within: float) -> list[int]:
        """The exit statuses of all workers."""
        until = time.monotonic() + within
        return [worker.end(within=max(0.1, until - time.monotonic())) for worker in self.workers]
