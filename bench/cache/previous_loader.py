"""The agents next to the loader that the operator had before them: the same files, the same machine, in turn.

    PYTHONPATH=.:deploy/local:operator python bench/cache/previous_loader.py \\
        [--files 10000] [--rounds 1] [--commit 62efc19]

Before the agents, the operator's process dealt out every block and carried small ones between nodes through its own
memory; commit 62efc19 is the last that did. It is checked out into a temporary folder and runs there with the Python
environment of this checkout. Each of the two loads the files from an unshaped S3 store onto one node, and onto three;
`files_per_s` counts a file once for three copies. A file counts as loaded when all of its copies can be read; for the
previous loader the cache's master knows them by then. Processor time is that of all processes, the operator's too.
Prints one line of JSON. Needs root, and the history of the repository.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

KEYS = ("files_per_s", "cpu_ms_per_copy")
ROOT = Path(__file__).resolve().parents[2]
PREVIOUS = """
import asyncio, json, sys
from dataclasses import replace
from bench import preload_speed
shape = replace(preload_speed.SCENARIOS["replicate"][0], files=int(sys.argv[1]), rate=None)
print(json.dumps(asyncio.run(preload_speed.run("replicate", shape))))
"""


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="tdcs-previous-") as name:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", name], input=archive.stdout, check=True)
        yield Path(name)


def measured(folder: Path, *command: str) -> dict[str, Any]:
    """What a benchmark of a checkout prints last, as JSON."""
    paths = os.pathsep.join(str(folder / part) for part in (".", "deploy/local", "operator", "training"))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def figures(result: Mapping[str, Any], *, files: int, nodes: int) -> dict[str, float]:
    """Files a second and milliseconds of processors for each copied file."""
    figures_of_nodes = result[f"nodes_{nodes}"]
    used = sum(value for kind, value in figures_of_nodes["cpu_seconds"].items() if kind != "of_processors")
    return {
        "files_per_s": round(
            files / figures_of_nodes.get("readable_seconds", figures_of_nodes.get("seconds"))
        ),
        "cpu_ms_per_copy": round(1000 * used / (files * nodes), 2),
    }


@click.command()
@click.option("--files", default=10_000, show_default=True, help="Of 100 KB each.")
@click.option("--rounds", default=1, show_default=True, help="Of both in turn; the median counts.")
@click.option(
    "--commit", default="62efc19", show_default=True, help="The one with the loader to compare with."
)
def main(files: int, rounds: int, commit: str) -> None:
    """Measure the agents next to the loader of an earlier commit."""
    part = str(files / 10_000)
    rows_by_name: dict[str, dict[int, list[dict[str, float]]]] = {}
    with checkout(commit) as folder:
        for _ in range(rounds):
            before = measured(folder, "-c", PREVIOUS, str(files))
            now = measured(ROOT, "bench/cache/agent_loading.py", "replicate", "--part", part)
            for name, result in (("previous", before), ("agents", now)):
                for nodes in (1, 3):
                    rows = rows_by_name.setdefault(name, {}).setdefault(nodes, [])
                    rows.append(figures(result, files=files, nodes=nodes))
    middle = {
        name: {
            f"nodes_{nodes}": {key: statistics.median(row[key] for row in rows) for key in KEYS}
            for nodes, rows in by_nodes.items()
        }
        for name, by_nodes in rows_by_name.items()
    }
    ratios = {
        f"{key}_ratio_{nodes}": round(
            middle["agents"][f"nodes_{nodes}"][key] / middle["previous"][f"nodes_{nodes}"][key], 2
        )
        for nodes in (1, 3)
        for key in KEYS
    }
    machine = {"cpus": os.cpu_count(), "load_1m": round(os.getloadavg()[0], 1)}
    click.echo(json.dumps({"benchmark": "previous_loader", "files": files, **middle, **ratios, **machine}))


if __name__ == "__main__":
    main()
