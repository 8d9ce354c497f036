"""Changes the product's expressions one by one and names the changes that no unit test notices, by mutmut.

    python tests/mutants.py                                        what decides in the read path
    python tests/mutants.py tdcs.node.extents                      one module, or all of a package
    python tests/mutants.py --tests tests/unit/decide -- tdcs.decide.place

The environment is that of `make mutants`. mutmut works on a copy of the checkout, untracked files included, in
`.local/mutants/checkout`, which each run makes new. A mutant that survives is a change that a user may or may not see:
a reader decides which of them needs a test, so survivors do not fail the run.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COPY: Final = ROOT / ".local" / "mutants" / "checkout"
LOG: Final = ROOT / ".local" / "mutants" / "mutmut.log"
MUTMUT: Final = (sys.executable, "-m", "mutmut")
MODULES: Final = (
    "tdcs.node.agent.disk.part_hashes",
    "tdcs.node.agent.disk.partial_file",
    "tdcs.node.agent.disk.shutdown_mark",
    "tdcs.node.agent.disk.unclean_start",
    "tdcs.node.extents",
    "tdcs.node.reader.serving.holder_order",
    "tdcs.node.reader.serving.read_ahead",
)
"""They decide which bytes a reader is given, of whom, and when: a wrong expression gives wrong bytes or none."""
TESTS: Final = "tests/unit/node"
READ_BY_TESTS: Final = (
    "bench",
    "charts",
    "conftest.py",
    "crds",
    "deploy",
    "docs",
    "labs",
    "scheduler_plugin",
    "training",
)
SOURCES: Final = ("src", "scheduler_plugin", "labs", "training")
NO_TESTS, SURVIVED, UNCHECKED = "no tests", "survived", "not checked"
PATIENCE_SECONDS: Final = 60
"""With the tests of the last mutants when the time is up."""
LAST_LINES: Final = 40
"""Of mutmut's log, when it fails."""


class MutantsError(Exception):
    """The run says nothing about the tests; the text says why and what to do."""


def source_of(module: str) -> str:
    """Pattern of the files of a module or package in the copy. Raises MutantsError."""
    place = module.replace(".", "/")
    if (ROOT / "operator" / f"{place}.py").is_file():
        return f"src/{place}.py"
    if (ROOT / "operator" / place).is_dir():
        return f"src/{place}/*"
    raise MutantsError(f"there is no module {module} in operator/: name one as in `import tdcs.node.extents`")


def configuration(*, modules: Sequence[str], tests: str) -> str:
    """mutmut's table of pyproject.toml. Raises MutantsError."""
    fields = {
        "source_paths": ["src/tdcs"],
        "only_mutate": [source_of(module) for module in modules],
        "do_not_mutate_patterns": [r"_log\."],  # no test reads their words
        "also_copy": READ_BY_TESTS,
        "pytest_add_cli_args": ["-n0", "-pno:cacheprovider"],
        "pytest_add_cli_args_test_selection": tests.split(),
        # Tests start threads and gRPC, which do not live through a fork.
        "process_isolation": "forkserver",
        # Otherwise nothing says which test failed without a mutant.
        "debug": True,
    }
    return "\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())


def make_copy(table: str) -> None:
    """Copy what is tracked, and what could be, with the sources where mutmut looks for packages."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if os.path.lexists(ROOT / name):  # not removed since
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, COPY / name, follow_symlinks=False)
    (COPY / "operator").rename(COPY / "src")
    (COPY / "operator").symlink_to("src")
    with (COPY / "pyproject.toml").open("a") as project:
        project.write(table)


def run(*, workers: int, minutes: float) -> None:
    """Run mutmut until it or the time has ended. Raises MutantsError."""
    with (
        tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch,
        LOG.open("w") as log,
    ):
        # Processes that tests start import the mutants as well, and what mutants leave goes with the run. Python looks
        # once whether there are such folders.
        sources = [COPY / "mutants" / folder for folder in SOURCES]
        for folder in sources:
            folder.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(
            [*MUTMUT, "run", "--max-children", str(workers)],
            cwd=COPY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources)), "TMPDIR": scratch},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if process.wait(minutes * 60):
                raise MutantsError(f"mutmut failed, see {LOG}; it ended so:\n{last_lines()}")
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            process.send_signal(signal.SIGINT)  # it waits for the tests that run
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_lines() -> str:
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-LAST_LINES:])


def results() -> dict[str, str]:
    """What became of each mutant, by its name."""
    rows = asked("results", "--all", "true").splitlines()
    return dict(row.strip().rsplit(": ", 1) for row in rows if ": " in row)


def asked(*arguments: str) -> str:
    done = subprocess.run([*MUTMUT, *arguments], cwd=COPY, check=True, capture_output=True, text=True)
    return done.stdout


def report(states: dict[str, str]) -> None:
    for mutant in sorted(name for name, state in states.items() if state == SURVIVED):
        print(asked("show", mutant))
    untested = {name.rpartition("__mutmut_")[0] for name, state in states.items() if state == NO_TESTS}
    if untested:
        print("No test calls:", *sorted(untested), sep="\n  ")
    counts = Counter(states.values())
    print(f"{len(states)} mutants:", ", ".join(f"{count} {state}" for state, count in counts.most_common()))
    if counts[UNCHECKED]:
        print("The time was up before all were tried: name fewer modules, or give it more MINUTES.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", default=MODULES, help="modules or packages of tdcs")
    parser.add_argument("--tests", default=TESTS, help="files and folders of tests that may notice")
    parser.add_argument("--minutes", type=float, default=30, help="after which the run ends with what it has")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="mutants tried at a time"
    )
    wishes = parser.parse_args()
    os.nice(10)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have their background jobs ignore it
    try:
        make_copy(configuration(modules=wishes.modules, tests=wishes.tests))
        print(f"mutants of {', '.join(wishes.modules)}; progress: {LOG}", flush=True)
        run(workers=wishes.workers, minutes=wishes.minutes)
        report(results())
    except MutantsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
