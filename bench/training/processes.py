"""Programs of a benchmark inside the root with PyTorch, and the lines of JSON that they print."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tdcs_local.containers import torch_root
from tdcs_local.containers.torch_root import Run
from tdcs_local.progress import Reporter

RESULTS = Path(__file__).parent / "results"


def start(
    words: Sequence[str],
    *,
    scratch: Path,
    namespace: str = "",
    environment: Mapping[str, str] | None = None,
    data: Mapping[str, Path] | None = None,
    sleeps: bool = False,
    packages: Path | None = None,
) -> "subprocess.Popen[str]":
    """A program inside the root; with a namespace it has that network, else a loopback interface of its own.

    It runs before other work on the machine, because a worker that is woken late is measured as a slow link; one that
    mostly `sleeps` runs in real time.
    """
    run = Run(
        command=["python3", *words],
        results=scratch,
        data=data or {},
        environment={"OMP_NUM_THREADS": "1", **(environment or {})},
        network=bool(namespace),
        packages=packages,
    )
    command = torch_root.arguments(run, root=torch_root.ensure_folder(reporter=Reporter()))
    prefix = ["ip", "netns", "exec", namespace] if namespace else []
    first = ["chrt", "--fifo", "10"] if sleeps else ["nice", "-n", "-15"]
    return subprocess.Popen([*first, *prefix, *command], stdout=subprocess.PIPE, text=True)


def answers(programs: Sequence["subprocess.Popen[str]"], *, within: float) -> list[dict[str, Any]]:
    """The lines of JSON of all programs when they have ended; exits when one of them failed."""
    until = time.monotonic() + within
    documents: list[dict[str, Any]] = []
    try:
        for program in programs:
            output, _ = program.communicate(timeout=max(1.0, until - time.monotonic()))
            if program.returncode:
                sys.exit(f"a program of the benchmark ended with {program.returncode}: {output}")
            documents += [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    finally:
        for program in programs:
            if program.poll() is None:
                program.kill()
                program.wait()
    return documents


def keep(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the result file of a benchmark: a JSON document a line, the machine in the first."""
    RESULTS.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    lines = [json.dumps({"machine": machine}), *(json.dumps(row) for row in rows)]
    (RESULTS / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
