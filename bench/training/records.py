"""Results of the benchmarks of tdcs-train: a file of JSON lines each, the machine in the first."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def keep(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write and print the rows of a benchmark."""
    FOLDER.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    lines = [json.dumps({"machine": machine}), *(json.dumps(row) for row in rows)]
    (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def exists(name: str) -> bool:
    """Whether a benchmark has left rows."""
    return (FOLDER / f"{name}.jsonl").exists()


def read(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The machine and the rows of a benchmark."""
    first, *rows = (json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines())
    machine: dict[str, Any] = first["machine"]
    return machine, rows
