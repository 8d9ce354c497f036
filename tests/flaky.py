"""`make flaky`: runs the tests of what changed many times, and names those that fail in some runs only.

    python tests/flaky.py --runs 300 --base main
    python tests/flaky.py --runs 50 tests/unit/node/agent

Each run is a process of its own with another hash seed, as a flaky test often hangs on the order of a set or on what an
earlier test left. What changed is each test file that differs from the base, and the test file of the name of each
module that does. Exits with 1 when a test failed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
QUICK = ROOT / "tests" / "unit"
"""Tests of what changed are looked for here; slower ones are run when they are named."""


@dataclass
class Outcome:
    """Of all runs: how many there were, how often each test failed, and the last words of one failure of each."""

    runs: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """What pytest printed in runs in which it ran no test."""

    def add(self, report: Path, *, code: int, printed: str) -> None:
        """Count what one run says in its report of JUnit's form, unless pytest could not run the tests at all."""
        self.runs += 1
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} or not report.is_file():
            self.broken.append(printed)
            return
        for case in ET.parse(report).iter("testcase"):  # noqa: S314  a report of our own
            for failure in (*case.iter("failure"), *case.iter("error")):
                name = f"{case.get('classname')}::{case.get('name')}"
                self.failures[name] += 1
                self.reasons[name] = (failure.get("message") or "").strip().splitlines()[0][:200]

    def text(self) -> str:
        """A line for each test that failed, the most frequent first."""
        lines = [
            f"{name} failed in {count} of {self.runs} runs: {self.reasons[name]}"
            for name, count in self.failures.most_common()
        ]
        lines += [f"pytest ran no test: {printed.strip()[-500:]}" for printed in self.broken[:1]]
        return "\n".join(lines) or f"no test failed in {self.runs} runs"


def tests_of(changed: Iterable[str], test_files: Sequence[Path]) -> list[Path]:
    """The test files among the changed files, and those named after a changed module, without doubles.

    Args:
        changed: Paths below the root of the checkout.
        test_files: The test files to choose from.
    """
    chosen = {path for name in changed for path in test_files if _is_test_of(path, ROOT / name)}
    return sorted(chosen)


def _is_test_of(test: Path, changed: Path) -> bool:
    return changed.suffix == ".py" and (test == changed or test.name == f"test_{changed.name}")


def changed_since(base: str) -> list[str]:
    """The files that differ from the commit at which the branch left the base, committed or not."""

    def git(*words: str) -> list[str]:
        ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"flaky: {ran.stderr.strip()}: name a commit or branch in --base")
        return ran.stdout.split()

    (start,) = git("merge-base", base, "HEAD")
    return [
        *git("diff", "--name-only", "--diff-filter=d", start),
        *git("ls-files", "--others", "--exclude-standard"),
    ]


def run_often(paths: Sequence[Path], *, runs: int, processes: int, seconds: float = float("inf")) -> Outcome:
    """Run the tests in so many processes, so many at a time, and count; no run begins after the seconds."""
    outcome = Outcome()
    deadline = time.monotonic() + seconds
    counting = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="tdcs-flaky-") as scratch, ThreadPoolExecutor(processes) as pool:

        def run(number: int) -> None:
            if time.monotonic() > deadline:
                return
            report = Path(scratch) / f"{number}.xml"
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-n0", f"--junitxml={report}", *map(str, paths)],
                cwd=ROOT,
                env=os.environ | {"PYTHONHASHSEED": str(number + 1)},
                capture_output=True,
                text=True,
            )
            with counting:
                outcome.add(report, code=ran.returncode, printed=ran.stdout + ran.stderr)

        list(pool.map(run, range(runs)))
    return outcome


def main() -> None:
    """Runs the tests and prints which failed how often."""
    parser = argparse.ArgumentParser(description="Find tests that fail in some runs only.")
    parser.add_argument(
        "paths", nargs="*", type=Path, help="Test files or folders; those of what changed if none."
    )
    parser.add_argument("--base", default="main", help="What is compared with, to find what changed.")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="So many runs at a time.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="No run begins later.")
    options = parser.parse_args()
    paths = options.paths or tests_of(changed_since(options.base), sorted(QUICK.rglob("test_*.py")))
    if not paths:
        print(f"nothing that unit tests are named after differs from {options.base}")
        return
    print(f"{options.runs} runs of {', '.join(os.path.relpath(path, ROOT) for path in paths)}", flush=True)
    outcome = run_often(paths, runs=options.runs, processes=options.processes, seconds=options.minutes * 60)
    print(outcome.text())
    sys.exit(1 if outcome.failures or outcome.broken else 0)


if __name__ == "__main__":
    main()
