"""Runs the test tiers in order, quick ones first, and says what passed, what was skipped and why.

    python tests/tiers.py                 every tier
    python tests/tiers.py lint unit       only these
    python tests/tiers.py --keep e2e      leave the local cluster running afterwards
    python tests/tiers.py --rights        compare the rights that the chart grants with those used, too
    python tests/tiers.py --again         try failed tests of the tiers with real servers once more, and name them

The run stops at the first tier that fails; lint, types, contracts and unit run at once, and so do processes and
training, compile and controlplane: what training and compile print comes when they have ended. The e2e tier makes
the local cluster when there is none and removes it again; a cluster that was there before is used and
left alone.
"""

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".local" / "logs"
QUICK = ("lint", "types", "contracts", "unit")
"""The tiers that run at once: unit tests wait a part of their time, and the others have a core each at most. What these
print comes when a command has ended."""
PAIRS = (("processes", "training"), ("compile", "controlplane"))
"""Of each pair one tier waits most of its time while the other computes with one process: they run at once."""
RIGHTS = "TDCS_RIGHTS"
"""Names the folder in which tiers with an API server record which rights TDCS's accounts used."""
KEPT_RIGHTS = 5
"""Folders of so many earlier runs are kept, for people; each run compares its own."""
TYPED = (
    "operator/tdcs",
    "scheduler_plugin/tdcs_scheduler",
    "labs/tdcs_labs",
    "training/tdcs_train",
    "deploy/local/tdcs_local",
    "deploy/examples",
    "tests",
    "e2e",
    "bench",
)


@dataclass
class TierResult:
    """What a tier did: test counts, the reasons of its skips, and whether all went well."""

    ok: bool = True
    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    """Tests that failed, and passed in a second run: of that run's machine or of the code, a reader decides."""
    reasons: dict[str, list[str]] = field(default_factory=dict)
    """Of each test that failed, what each of its runs said of it."""

    def add(self, other: "TierResult") -> None:
        """Count another part of the same tier."""
        self.ok = self.ok and other.ok
        self.passed += other.passed
        self.failed += other.failed
        self.skips += other.skips
        self.flaky += other.flaky
        for test, said in other.reasons.items():
            self.reasons.setdefault(test, []).extend(said)


@dataclass(frozen=True)
class Wishes:
    """What the command line asks of a tier."""

    keep: bool = False
    again: bool = False
    rights: bool = False


def main(argv: Sequence[str]) -> int:
    """Run the tiers named on the command line; the exit status is 0 only if all of them passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"one of {', '.join(TIERS)}")
    parser.add_argument("--keep", action="store_true", help="do not remove the local cluster that e2e made")
    parser.add_argument(
        "--again",
        action="store_true",
        help="in processes, controlplane, engine and e2e: run up to "
        f"{MOST_AGAIN} failed tests once more in a new process; those that pass then are named as flaky",
    )
    parser.add_argument(
        "--rights",
        action="store_true",
        help="in controlplane and e2e: record which rights TDCS's accounts use, and compare them at the end with "
        "those that the chart grants",
    )
    options = parser.parse_args(argv)
    if unknown := [name for name in options.tiers if name not in TIERS]:
        parser.error(f"no such tier: {', '.join(unknown)}; choose from {', '.join(TIERS)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    used = folder_for_rights(LOGS / "rights") if options.rights else None
    os.environ[RIGHTS] = str(used or "")
    groups = at_once(options.tiers or list(TIERS))
    chosen = [name for names in groups for name in names]
    rows: list[tuple[str, float, TierResult]] = []
    wishes = Wishes(keep=options.keep, again=options.again, rights=options.rights)
    for names in groups:
        title = ", ".join(names)
        print(f"\n=== {title} " + "=" * (70 - len(title)), flush=True)
        with ThreadPoolExecutor(len(names)) as pool:
            rows += pool.map(lambda name: (name, *timed(name, wishes)), names)
        if not all(outcome.ok for _, _, outcome in rows):
            break
    else:
        if used and any(used.iterdir()):
            print("\n=== rights " + "=" * 64, flush=True)
            begin = time.monotonic()
            compared = checks((sys.executable, "-m", "tests.support.rights", "compare", str(used)))
            rows.append(("rights", time.monotonic() - begin, compared))
    return report(rows, not_run=chosen[len(rows) :])


def at_once(chosen: Sequence[str]) -> list[list[str]]:
    """Tiers one after the other, but for the quick ones, and for pairs."""
    quick = [name for name in chosen if name in QUICK]
    groups = [quick][: len(quick)]
    for name in chosen:
        if name in QUICK or any(name in group for group in groups):
            continue
        partners = [other for pair in PAIRS if name in pair for other in pair if other in chosen]
        groups.append(partners or [name])
    return groups


def timed(name: str, wishes: Wishes) -> tuple[float, TierResult]:
    """Run a tier: the seconds that it took, and what it did."""
    begin = time.monotonic()
    outcome = TIERS[name](wishes)
    return time.monotonic() - begin, outcome


def folder_for_rights(parent: Path) -> Path:
    """An empty folder of this run's own, next to those of some earlier runs."""
    made = parent / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    made.mkdir(parents=True)
    for older in sorted(parent.iterdir())[: -1 - KEPT_RIGHTS]:
        shutil.rmtree(older, ignore_errors=True)
    return made


def report(rows: Sequence[tuple[str, float, TierResult]], *, not_run: Sequence[str]) -> int:
    """Print one line a tier, every skip with its reason, and the closing count."""
    print(f"\n{'tier':<14}{'result':<9}{'passed':>7}{'failed':>7}{'skipped':>8}{'time':>9}")
    for name, seconds, outcome in rows:
        result = "ok" if outcome.ok else "FAILED"
        print(
            f"{name:<14}{result:<9}{outcome.passed:>7}{outcome.failed:>7}"
            f"{len(outcome.skips):>8}{seconds:>8.1f}s"
        )
    for name in not_run:
        print(f"{name:<14}not run, because an earlier tier failed")
    for name, _, outcome in rows:
        for skip in outcome.skips:
            print(f"skipped in {name}: {skip}")
        for test in outcome.flaky:
            print(f"flaky in {name}, failed at first and passed when tried again: {test}")
        for test, said in outcome.reasons.items():
            print(f"failed in {name}: {test}", *(indent(text, "    ") for text in said), sep="\n")
    passed, failed = (sum(getattr(row[2], which) for row in rows) for which in ("passed", "failed"))
    skipped = sum(len(row[2].skips) for row in rows)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if all(outcome.ok for _, _, outcome in rows) else 1


def run(*command: str) -> bool:
    """Run a command in the checkout, its output shown; True when it succeeded."""
    return status_of(*command) == 0


def status_of(*command: str, whole: bool = False) -> int:
    """Run a command in the checkout, its output shown, with `whole` when it has ended; its exit status."""
    line = "$ " + " ".join(command).replace(sys.executable, "python")
    if not whole:
        print(line, flush=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **LOCAL, "PATH": path},
        stdout=subprocess.PIPE if whole else None,
        stderr=subprocess.STDOUT if whole else None,
        text=True,
    )
    if whole:
        sys.stdout.write(f"{line}\n{done.stdout}")
        sys.stdout.flush()
    return done.returncode


# What the first tests need; a fixture of theirs brings the large training image meanwhile.
E2E_IMAGES = ("tdcs", "alluxio", "store", "toolbox")
ABSENT = 1  # what `status --quiet` says of a cluster that is not there, not even stopped
# Where bytecode is not kept, each of some hundred processes compiles the modules that it imports.
LOCAL = {"PYTHONPATH": str(ROOT / "deploy" / "local"), "PYTHONDONTWRITEBYTECODE": ""}


def checks(*commands: tuple[str, ...], whole: bool = False) -> TierResult:
    """Run checks that are not pytest; each counts as one test. With `whole`, what one prints is shown in one piece."""
    outcome = TierResult()
    for command in commands:
        good = status_of(*command, whole=whole) == 0
        outcome.add(TierResult(ok=good, passed=int(good), failed=int(not good)))
    return outcome


def pytest(folder: str, *arguments: str, again: bool = False) -> TierResult:
    """Run pytest on a folder; with `again`, what failed once more, in a process with fixtures of its own."""
    first = pytest_once(folder, *arguments)
    last = ("--last-failed", "--last-failed-no-failures=none")
    return tried_again(
        first, lambda _: pytest_once(folder, *arguments, *last, report="-again")[0], again=again
    )


def tried_again(
    first: tuple[TierResult, int], retry: Callable[[list[str]], TierResult], *, again: bool
) -> TierResult:
    """What is to be said of a first run, with `again` by a second one of the tests that failed."""
    outcome, code = first
    failures = list(outcome.reasons)
    # Of a run that was broken off, as by a file that cannot be imported, the other tests are not known.
    if not again or code != TESTS_FAILED or not 0 < len(failures) <= MOST_AGAIN:
        return outcome
    print(f"failed, tried again once: {', '.join(failures)}")
    second = retry(failures)
    if second.ok and second.passed >= len(failures):
        return TierResult(
            passed=outcome.passed + len(failures),
            skips=outcome.skips,
            flaky=failures,
            reasons=outcome.reasons,
        )
    outcome.add(TierResult(reasons=second.reasons))
    return outcome


def pytest_once(folder: str, *arguments: str, report: str = "") -> tuple[TierResult, int]:
    """Run pytest on a folder: what its JUnit report says, and its exit status."""
    junit = LOGS / f"junit-{folder.replace('/', '-')}{report}.xml"
    junit.unlink(missing_ok=True)
    code = status_of(
        sys.executable, "-m", "pytest", folder, f"--junitxml={junit}", "--durations=5", *arguments
    )
    return counted(folder, junit, code), code


def counted(folder: str, junit: Path, code: int) -> TierResult:
    """Counts and reasons of a JUnit report; a run without a test has failed."""
    outcome = TierResult(ok=code == 0)
    if junit.exists():
        for case in ET.parse(junit).iter("testcase"):  # noqa: S314  our own pytest wrote it
            skipped = case.find("skipped")
            failures = [*case.iter("failure"), *case.iter("error")]
            if failures:
                outcome.failed += 1
                said = [one.get("message", "no reason given")[:REASON_LETTERS] for one in failures]
                outcome.reasons[f"{case.get('classname')}.{case.get('name')}"] = said
            elif skipped is not None:
                outcome.skips.append(f"{case.get('name')}: {skipped.get('message', 'no reason given')}")
            else:
                outcome.passed += 1
    if outcome.passed + outcome.failed == 0:
        print(f"no test ran in {folder}: that is a failure, not a pass")
        outcome.ok = False
        outcome.failed += 1
    return outcome


TRAINING_SECONDS = 2400
"""The tier takes a few minutes, and on a machine with much other work several times that."""
TESTS_FAILED = 1
"""pytest's exit status when all tests have run and some failed."""
REASON_LETTERS = 1500
"""Of the message of a failed test, so many characters are repeated at the end."""
MOST_AGAIN = 3
"""More failures than this are the code's, not a busy machine's: nothing is tried again."""


def together(processes: int) -> tuple[str, ...]:
    """So many processes of pytest, a file of tests each at a time; more than cores where a tier waits much."""
    return (f"--numprocesses={processes}", "--dist=loadfile")


def lint(_: Wishes) -> TierResult:
    """Style, plain words, and documentation that builds without a warning."""
    return checks(
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        # The words of docs/vocabulary.txt and, by "-", common misspellings.
        ("codespell", "--dictionary=-", "."),
        # -E: a page that was read before gives its warnings again.
        ("sphinx-build", "-qEW", "--keep-going", "-b", "html", "docs", str(ROOT / ".local" / "docs")),
        whole=True,
    )


def types(_: Wishes) -> TierResult:
    """Types, strictly."""
    return checks(("mypy", *(path for path in TYPED if any((ROOT / path).rglob("*.py")))), whole=True)


def contracts(_: Wishes) -> TierResult:
    """The contracts between the layers."""
    return checks(("lint-imports",), whole=True)


def training(wishes: Wishes) -> TierResult:
    """What needs PyTorch, inside the root of the image that has it, with nothing but a loopback interface."""

    def failed(names: list[str]) -> TierResult:
        return training_once(*map(node_id, names), report="-again")[0]

    return tried_again(training_once(""), failed, again=wishes.again)


def node_id(name: str) -> str:
    """The id by which pytest runs a test that its JUnit report names `folder.test_file.test_name`."""
    module, test = re.fullmatch(r"((?:\w+\.)*?test_\w+)\.(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{module.replace('.', '/')}.py::{test}"


def training_once(*tests: str, report: str = "") -> tuple[TierResult, int]:
    """As `pytest_once`, for these of the tests below the folder of the tier."""
    junit = LOGS / f"junit-tests-training{report}.xml"
    junit.unlink(missing_ok=True)
    code = status_of(
        # KILL: what ends a hanging test must not wait for it
        *("timeout", "--signal=KILL", str(TRAINING_SECONDS)),
        *(sys.executable, "-m", "tdcs_local", "torch", f"--results={LOGS}", "--packages", "--"),
        *("python3", "-m", "pytest", "-c", "tests/training/pytest.ini", "--durations=5"),
        *(f"--junitxml=/results/{junit.name}", *(f"tests/training/{test}" for test in tests)),
        whole=True,
    )
    return counted("tests/training", junit, code), code


def compiled(_: Wishes) -> TierResult:
    """What needs TVM, oneDNN and OpenBLAS, in an environment of its own that is kept in the cache."""
    junit = LOGS / "junit-tests-compile.xml"
    junit.unlink(missing_ok=True)
    code = status_of(
        *(sys.executable, "-m", "tdcs_local", "compile-python", "--"),
        *("-m", "pytest", "-c", "tests/compile/pytest.ini", "--rootdir=.", "tests/compile", "--durations=5"),
        f"--junitxml={junit}",
        whole=True,
    )
    return counted("tests/compile", junit, code)


def engine(wishes: Wishes) -> TierResult:
    """Real Alluxio on a real S3 server, and the tests of our own programs in Go first."""
    modules = ROOT / "deploy" / "local" / "go"
    commands: list[tuple[str, ...]] = []
    for module, package in (("versitygw", "./store-gateway"), ("network-policies", "./rules")):
        # Fetches what the next one needs, and tries again where `go test` gives up.
        commands.append((sys.executable, "-m", "tdcs_local", "product", module))
        commands.append(("go", "-C", str(modules / module), "test", "-trimpath", package))
    outcome = checks(*commands)
    if outcome.ok:
        outcome.add(pytest("tests/engine", "-o", "timeout_func_only=true", *together(2), again=wishes.again))
    return outcome


def processes(wishes: Wishes) -> TierResult:
    """Agents, readers and node plugins as they run on a node, and what is measured of them in small."""
    # Built here, and not within the time of the test that needs it first.
    product = (sys.executable, "-m", "tdcs_local", "product")
    outcome = checks((*product, "fake-gcs-server"), (*product, "azurite"))
    if outcome.ok:
        outcome.add(pytest("tests/processes", *together(3), again=wishes.again))
    return outcome


def e2e(wishes: Wishes) -> TierResult:
    """The local cluster, the images, and the tests that run on it."""
    tool = (sys.executable, "-m", "tdcs_local")
    state = subprocess.run([*tool, "status", "--quiet"], cwd=ROOT, env={**os.environ, **LOCAL}).returncode
    outcome = TierResult()
    begin = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        if not (run(*tool, "up") and run(*tool, "images", *E2E_IMAGES)):
            outcome.add(TierResult(ok=False, failed=1))
        else:
            # Fixtures install TDCS and fill the store; what a test itself does is bounded.
            bounds = ("--timeout=600", "-o", "timeout_func_only=true")
            outcome.add(pytest("e2e", *bounds, again=wishes.again))
            if outcome.ok and wishes.rights:
                rights = (sys.executable, "-m", "tests.support.rights", "cluster", f"--since={begin}")
                outcome.ok = run(*rights)
    finally:
        if state == ABSENT and not wishes.keep:
            outcome.ok = run(*tool, "down") and outcome.ok
    return outcome


TIERS: dict[str, Callable[[Wishes], TierResult]] = {
    "lint": lint,
    "types": types,
    "contracts": contracts,
    "unit": lambda _: pytest("tests/unit", "tests/attacks/unit", *together(4)),
    "processes": processes,
    "training": training,
    "compile": compiled,
    "controlplane": lambda wishes: pytest("tests/controlplane", *together(3), again=wishes.again),
    "engine": engine,
    "e2e": e2e,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
