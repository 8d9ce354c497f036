"""What a user reads while it works."""

import io
import re
import threading
import time
from pathlib import Path

import pytest

from tdcs_local import progress
from tdcs_local.errors import LocalError
from tdcs_local.progress import Reporter


def test_a_step_is_one_line_with_its_result_and_its_time() -> None:
    out = io.StringIO()
    with Reporter(stream=out).step("build [it]") as step:
        step.result = "3 files"
    (line,) = out.getvalue().splitlines()
    assert re.search(r"build \[it\]: 3 files \(\d+(\.\d)? s\)", line)


def test_a_step_next_to_others_is_said_to_have_run_in_the_background() -> None:
    out = io.StringIO()
    reporter = Reporter(stream=out)

    def build() -> None:
        with reporter.step("build it"):
            pass

    other = threading.Thread(target=build)
    other.start()
    other.join()
    build()
    alongside, after = out.getvalue().splitlines()
    assert re.search(r"build it \(\d+(\.\d)? s in the background\)$", alongside)
    assert re.search(r"build it \(\d+(\.\d)? s\)$", after)


def test_a_failed_step_says_so_once_with_what_failed_and_passes_the_error_on() -> None:
    out = io.StringIO()
    reporter = Reporter(stream=out)
    with pytest.raises(LocalError), reporter.step("build all"), reporter.step("build it"):
        raise LocalError(what="the disk is full")
    inner, outer = out.getvalue().splitlines()
    assert re.search(r"build it: failed after \S+ s: the disk is full$", inner)
    assert re.search(r"build all: failed after \S+ s$", outer)


def test_a_long_step_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SIGN_OF_LIFE_SECONDS", 0.01)
    out = io.StringIO()
    deadline = time.monotonic() + 60
    with Reporter(stream=out).step("build it") as step:
        step.detail = lambda: "half done"
        while "half done" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.005)
    assert re.search(r"\.\.\. build it: half done \(\d+(\.\d)? s\)", out.getvalue())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (12.3, "12 s"), (60, "1 min 00 s"), (125.4, "2 min 05 s")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text


def test_an_error_tells_what_why_where_and_what_next() -> None:
    error = LocalError(
        what="building x failed", why="no space\nleft", log=Path("/l/x.log"), remedy="free some"
    )
    assert str(error).splitlines() == [
        "building x failed",
        "  no space",
        "  left",
        "  log: /l/x.log",
        "  try: free some",
    ]
