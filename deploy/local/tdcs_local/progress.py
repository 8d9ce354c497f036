"""Progress for people: one line a step with the time it took, a sign of life on long ones."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.status import Status
from rich.table import Table

from tdcs_local.errors import LocalError

SIGN_OF_LIFE_SECONDS = 20.0


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``2 min 05 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes} min {remainder:02d} s"


def print_whole(table: Table) -> None:
    """Print a table with nothing cut: a terminal that is narrower breaks the lines."""
    console = Console()
    console.width = max(console.width, console.measure(table, options=Console(width=1000).options).maximum)
    console.print(table)


@dataclass
class Step:
    """A running step. ``detail`` may be set at any time to a text, or to a function that gives one."""

    title: str
    detail: str | Callable[[], str] = ""
    result: str = ""
    started: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """The step as it stands now."""
        detail = self.detail() if callable(self.detail) else self.detail
        parts = [self.title, *([detail] if detail else [])]
        return f"{': '.join(parts)} ({duration(time.monotonic() - self.started)})"


class Reporter:
    """Writes steps to stderr (stdout is for a command's answer): live on a terminal, else plain lines."""

    def __init__(self, *, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._console = Console(file=self._stream, highlight=False, soft_wrap=True)
        self._depth = 0
        self._thread = threading.get_ident()
        self._reported: BaseException | None = None

    def say(self, text: str) -> None:
        """One plain line."""
        if not self._quiet:
            self._console.print(text, markup=False, emoji=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Runs a step: its line appears when it ends, with its time; meanwhile a sign of life. A step in another
        thread than the reporter's began before the lines above it, and is said to have been in the background."""
        step = Step(title)
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(step, stop), daemon=True)
        self._depth += 1
        watcher.start()
        try:
            yield step
        except BaseException as error:
            self._finish(stop, watcher)
            took = duration(time.monotonic() - step.started)
            self.say(f"{self._time()} {step.title}: failed after {took}{self._reason(error)}")
            raise
        self._finish(stop, watcher)
        took = duration(time.monotonic() - step.started)
        if threading.get_ident() != self._thread:
            took += " in the background"
        self.say(f"{self._time()} {step.title}{': ' + step.result if step.result else ''} ({took})")

    def _finish(self, stop: threading.Event, watcher: threading.Thread) -> None:
        stop.set()
        watcher.join()
        self._depth -= 1

    def _reason(self, error: BaseException) -> str:
        """What went wrong, said by the innermost of the steps that it ends. The whole error is printed when the
        command ends, which may be long after, as it waits for what runs next to it."""
        if error is self._reported or not isinstance(error, LocalError):
            return ""
        self._reported = error
        return f": {error.what}"

    @staticmethod
    def _time() -> str:
        return time.strftime("%H:%M:%S")

    def _watch(self, step: Step, stop: threading.Event) -> None:
        if self._quiet or self._depth > 1:  # a nested step's outer one shows the life already
            return
        if self._console.is_terminal:
            with Status(step.line(), console=self._console) as status:
                while not stop.wait(0.5):
                    status.update(step.line())
            return
        while not stop.wait(SIGN_OF_LIFE_SECONDS):
            self.say(f"{self._time()}   ... {step.line()}")
