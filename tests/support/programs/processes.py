"""Programs that tests run next to themselves, and that never outlive the tests.

Each runs in a session of its own, so a Ctrl-C at the terminal reaches pytest
alone, which then stops its processes in order. When pytest itself is killed,
the kernel kills them (see ``die_with_parent``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.waiting import eventually

_LAUNCHER = Path(__file__).with_name("die_with_parent.py")
TAIL_LINES = 20


class ProcessFailed(Exception):
    """A program could not be started, or ended when it should run. The message carries its log's tail."""


@functools.cache
def _starter() -> ThreadPoolExecutor:
    """The one thread that starts processes: it lives as long as the interpreter.

    The kernel sends the parent-death signal when the *thread* that forked ends. A
    process started from a test's short-lived thread would die with that thread.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")


class Process:
    """One program: started, watched, killed and started again with the same arguments.

    ``ready`` is polled after each start and must become true within ``start_deadline``
    seconds. Its output goes to ``log``, appended over restarts.
    """

    def __init__(
        self,
        *,
        name: str,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        ready: Callable[[], bool] | None = None,
        start_deadline: float = 60,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self._env = dict(os.environ if env is None else env)
        self._ready = ready
        self._start_deadline = start_deadline
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running program; raises ProcessFailed when it does not run."""
        if self._popen is None or not self.alive:
            raise ProcessFailed(self._message("is not running"))
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether the program runs (a paused one does)."""
        if self._popen is None or self._popen.returncode is not None:
            return False
        # WNOWAIT leaves an ended process unreaped: its id, which is also the id of its
        # process group, can then not be given to a stranger before ``kill`` has signalled it.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._popen.pid, flags) is None

    def launch(self) -> None:
        """Start the program without waiting until it is ready (see ``wait_ready``)."""
        if self.alive:
            raise ProcessFailed(self._message("was asked to start, but runs already"))
        program = shutil.which(self.argv[0])
        if program is None:
            raise ProcessFailed(f"{self.name}: no executable {self.argv[0]}")
        launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), program, *self.argv[1:]]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._popen = (
                _starter()
                .submit(
                    subprocess.Popen,
                    launcher,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    start_new_session=True,
                )
                .result()
            )

    def wait_ready(self) -> None:
        """Wait until ``ready`` holds. Fails at once if the program ends, else after ``start_deadline``."""

        def is_ready() -> bool:
            if not self.alive:
                raise ProcessFailed(self._message("ended while it was starting"))
            return self._ready is None or self._ready()

        eventually(
            is_ready,
            deadline=self._start_deadline,
            describe=lambda: self._message("did not become ready"),
            interval=0.05,
        )

    def start(self) -> None:
        """Start the program and wait until it is ready."""
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """SIGKILL, as a crash would look to everybody else; returns when the process is gone."""
        self._signal_group(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()

    def stop(self, *, deadline: float = 10) -> None:
        """SIGTERM, then SIGKILL after ``deadline`` seconds."""
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.alive, deadline=deadline, interval=0.02)
        self.kill()  # also whatever the program has left behind in its group

    def restart(self) -> None:
        """Kill and start again, and wait until it is ready."""
        self.kill()
        self.start()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Killed while the block runs, then started again: what happens meanwhile, it learns before it acts.

        A paused kube-scheduler acts on what it knew as soon as it is resumed; a new one lists first.
        """
        self.kill()
        try:
            yield
        finally:
            self.start()

    def pause(self) -> None:
        """SIGSTOP: the process is there but answers nobody, like a hung or partitioned one."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: undo ``pause``."""
        self._signal_group(signal.SIGCONT)

    def tail(self, *, lines: int = TAIL_LINES, since: int = 0) -> str:
        """The last ``lines`` of the log, of what was written after byte ``since``."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # Long lines are common (a component logs its flags); 400 bytes a line bounds the read.
            file.seek(max(since, size - lines * 400))
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _signal_group(self, number: signal.Signals) -> None:
        if self._popen is None or self._popen.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

    def _message(self, what: str) -> str:
        return f"{self.name} {what}; log {self.log}, its end:\n{self.tail()}"
