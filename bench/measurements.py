"""Writes docs/measurements/: figures of the committed results, each table with the command that measured it.

`python -m bench.measurements` renews the pages. The last line of a benchmark in `bench/results` that has the wanted
parameters counts, so a new run is committed by its line. Bars that a figure has to reach stand next to it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGES = ROOT / "docs" / "measurements"


@dataclass(frozen=True)
class Figure:
    """A row: what it is, where its value is in the result, its unit, and the bar if there is one."""

    label: str
    path: str
    unit: str = ""
    bar: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Figures of one run."""

    title: str
    command: str
    results: str
    figures: Sequence[Figure]
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Which of the lines is meant."""


def _listing_of_made_up_names(title: str, files: int, *, seconds_bar: str = "", memory_bar: str) -> Table:
    """A listing of a store that has no more than names."""
    return Table(
        title=f"From {title} names of a store that makes them up to the manifest",
        command=f"python bench/cache/listing.py --files {files}",
        results="listing.jsonl",
        parameters={"files": files},
        figures=(
            Figure("listing", "own.seconds", "s", seconds_bar),
            Figure("processor time", "own.cpu_seconds", "s"),
            Figure("peak memory of the listing process", "own.peak_mib", "MiB", memory_bar),
        ),
    )


def _read_costs(how: str, *, trusted: bool) -> Table:
    """Processor time of remote reads, by process."""
    kinds = (
        ("a GB of a large file", "large_s_per_gb", "s"),
        ("a file of 100 KB, by eight threads", "small_ms_per_file", "ms"),
        ("a piece of 4 KiB anywhere, by one thread", "piece_us_one_thread", "us"),
        ("a piece of 4 KiB anywhere, by eight threads", "piece_us_eight_threads", "us"),
    )
    processes = (("the client", "client"), ("the agent", "agent"), ("the program", "program"), ("all", "all"))
    bars = {"piece_us_one_thread.all": "250", "piece_us_eight_threads.all": "250"}
    return Table(
        title=f"Processor time of remote reads, {how}, on a machine that others used",
        command="python bench/remote_reads/costs.py --rounds 2 --files 500 --pieces 2000"
        + (" --trusted" if trusted else ""),
        results="read_costs.jsonl",
        parameters={"trusted": trusted},
        figures=tuple(
            Figure(f"{label}: {process}", f"{kind}.{name}", unit, bars.get(f"{kind}.{name}", ""))
            for label, kind, unit in kinds
            for process, name in processes
        ),
    )


DATA = (
    Table(
        title="From a bucket of 100,000 objects of a real store to its manifest, next to Alluxio's master as it listed "
        "until commit a0c097aa, which measures both with `--old`",
        command="python bench/cache/listing.py --files 100000",
        results="listing.jsonl",
        parameters={"files": 100_000},
        figures=(
            Figure("TDCS's own listing", "own.seconds", "s"),
            Figure("count, master's listing and its pages", "by_master.seconds", "s"),
            Figure("how many times as fast the own one is", "times_as_fast", "", "10"),
            Figure(
                "processor time of the own one, over that of the other with the master's",
                "cpu_share",
                "",
                "0.1",
            ),
            Figure("peak memory of the listing process", "own.peak_mib", "MiB"),
        ),
    ),
    _listing_of_made_up_names("1.28 million", 1_280_000, seconds_bar="180", memory_bar="150"),
    _listing_of_made_up_names("10 million", 10_000_000, memory_bar="300"),
    Table(
        title="The disk that a listing of 200,000 names takes, early manifests included, on a machine that others used",
        command="python bench/cache/listing.py --files 200000",
        results="listing.jsonl",
        parameters={"files": 200_000},
        figures=(
            Figure("the manifest, a file", "own.manifest_bytes_a_file", "bytes"),
            Figure("all of it at most, a file", "own.disk_bytes_a_file", "bytes", "600"),
        ),
    ),
    Table(
        title="20,000 files loaded while a store lists them with 5 s for each page, on a machine that others used",
        command="python bench/cache/many_files.py --files 20000 --page-seconds 5 --folder /var/tmp",
        results="many_files.jsonl",
        parameters={"files": 20_000, "page_seconds": 5.0},
        figures=(
            Figure("the first bytes are on the node after", "first_bytes_seconds", "s"),
            Figure("the listing has ended after", "listed_seconds", "s"),
            Figure("part of the bytes that is on the node then", "loaded_percent_when_listed", "%"),
            Figure("all is on the node after", "loaded_seconds", "s"),
        ),
    ),
    Table(
        title="A million blocks that change behind the agent's back",
        command="python bench/cache/ledger.py --folder /var/tmp",
        results="ledger.jsonl",
        figures=(
            Figure("blocks removed by hand are known after", "removed_seconds", "s", "5"),
            Figure("blocks removed again at once are known after", "removed_again_at_once_seconds", "s", "5"),
            Figure("a wiped disk is known after", "wiped_seconds", "s", "5"),
            Figure(
                "what is there is known to an agent that starts after",
                "known_after_start_seconds",
                "s",
                "5",
            ),
            Figure("processor at rest", "rest_cpu_percent", "%"),
            Figure("memory of the agent", "memory_mib", "MiB"),
        ),
    ),
    Table(
        title="A million files in a view",
        command="python bench/cache/node_views.py --files 1000000 --folder /var/tmp",
        results="node_views.jsonl",
        figures=(
            Figure("published cold", "cold.publish_s", "s", "120"),
            Figure("published by a plugin that was restarted", "after_restart.publish_s", "s"),
            Figure("published for a second pod", "cold.second_s", "s", "5"),
            Figure("longest pause of the plugin's event loop", "cold.longest_pause_ms", "ms"),
            Figure("processor of the plugin at rest", "cold.rest_cpu_percent", "%"),
            Figure("memory of the plugin", "cold.memory_mib", "MiB"),
        ),
    ),
    Table(
        title="ImageNet's 1,281,167 files, each of a hundredth of its size, from the bucket to a pod's walk, on a "
        "machine that others used",
        command="python bench/cache/many_files.py --files 1281167 --folder /var/tmp",
        results="many_files.jsonl",
        parameters={"files": 1_281_167},
        figures=(
            Figure("listing", "parts.list.seconds", "s"),
            Figure("loading onto one node", "parts.load.seconds", "s"),
            Figure("processor time of the load, agent and others", "parts.load.cpu_seconds", "s"),
            Figure("publishing the view to the first pod", "parts.publish.seconds", "s"),
            Figure("walking and comparing all files", "parts.walk.seconds", "s"),
            Figure("memory of the agent, mapped pages of the manifest included", "agent_mib", "MiB"),
        ),
    ),
    Table(
        title="400 files of 100 KB behind 50 Mbit/s, through the remote-read client",
        command="python bench/remote_reads/partial_cache.py --files 400 --mbit 50",
        results="partial_cache.jsonl",
        figures=(
            Figure("with 40 % of them on the node", "cache_40.seconds", "s"),
            Figure("with 60 % of them on the node", "cache_60.seconds", "s"),
            Figure("the second over the first", "larger_over_smaller", "", "1.05"),
        ),
    ),
    _read_costs("without certificates", trusted=False),
    _read_costs("with certificates", trusted=True),
)
CONTROL = (
    Table(
        title="A pass of the cache manager over 500 jobs, 100 Datasets and 200 nodes",
        command="python bench/control_plane/cache_manager.py --limit 0.5",
        results="cache_manager.jsonl",
        figures=(
            Figure("the first pass", "seconds.first", "s", "0.5"),
            Figure("a pass after one job began", "seconds.a job began", "s", "0.5"),
            Figure("a pass when nothing is new", "seconds.nothing new", "s", "0.5"),
        ),
    ),
    Table(
        title="Ten minutes in which nothing happens: 500 jobs (400 run), 100 Datasets, 200 nodes",
        command="python bench/control_plane/idle_writes.py",
        results="idle_writes.jsonl",
        figures=(
            Figure("writes of the operator, without its Lease", "writes", "", "0"),
            Figure("renewals of the Lease", "lease_renewals"),
            Figure("processor time of the operator", "operator_cpu_s", "s"),
        ),
    ),
    Table(
        title="An operator of 500 agents, 1,000 mounts and 100 million files",
        command="python bench/control_plane/operator_scale.py",
        results="operator_scale.jsonl",
        parameters={"nodes": 500},
        figures=(
            Figure("memory at work", "memory_mib", "MiB", "400"),
            Figure("memory after a restart", "restart_memory_mib", "MiB", "400"),
            Figure(
                "from a changed spec to the last agent's assignment, median",
                "decided_seconds.median",
                "s",
                "1",
            ),
            Figure("the same, longest", "decided_seconds.longest", "s", "1"),
            Figure(
                "from a start until it knows what is where, without a listing", "restart_seconds", "s", "20"
            ),
            Figure("processor at rest, of one core", "rest_cpu_percent", "%", "2"),
        ),
    ),
    Table(
        title="A mount of a million files becomes Ready",
        command="python bench/control_plane/operator_scale.py --mounts 2 --nodes 8 --files 1000010 --large 1000000",
        results="operator_scale.jsonl",
        parameters={"nodes": 8},
        figures=(
            Figure("longest pause of the operator's event loop", "ready_longest_pause_ms", "ms", "100"),
            Figure("memory at work", "memory_mib", "MiB", "300"),
        ),
    ),
)
HEAD = """# {title}

This page is generated by `python -m bench.measurements` from the lines in `bench/results`. All was measured on one
machine with two processors, which plays all nodes of a cluster. Commands need root, and run from the root of the
checkout with `PYTHONPATH=.:deploy/local:operator`.

{more}
"""
MORE = "Other figures, and what is missed and why, are in [how loading was measured](../explanation/measurements.md)."
CONTENTS: Mapping[str, tuple[str, Sequence[Table]]] = {
    "data-plane.md": ("Figures of the data plane", DATA),
    "control-plane.md": ("Figures of the control plane", CONTROL),
}


def result(table: Table) -> Mapping[str, Any]:
    """The newest line with the table's parameters."""
    lines = [json.loads(line) for line in (RESULTS / table.results).read_text().splitlines() if line.strip()]
    fitting = [line for line in lines if table.parameters.items() <= line.items()]
    if not fitting:
        raise LookupError(f"{table.results} has no line with {dict(table.parameters)}: run `{table.command}`")
    newest: Mapping[str, Any] = fitting[-1]
    return newest


def value(line: Mapping[str, Any], path: str) -> float:
    """The number at a path such as `own.seconds`."""
    at: Any = line
    for name in path.split("."):
        at = at[name]
    return float(at)


def page(title: str, tables: Sequence[Table]) -> str:
    """A page with a table for each run."""
    parts = [HEAD.format(title=title, more=MORE)]
    for table in tables:
        line = result(table)
        rows = [
            f"| {figure.label} | {f'{value(line, figure.path):,g} {figure.unit}'.strip()} | {figure.bar or '-'} |"
            for figure in table.figures
        ]
        load = f" Load average of the machine: {line['load_1m']:.0f}." if "load_1m" in line else ""
        parts.append(
            f"## {table.title}\n\n`{table.command}`, in `bench/results/{table.results}`.{load}\n\n"
            "| What | Figure | Bar |\n|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for name, (title, tables) in CONTENTS.items():
        (PAGES / name).write_text(page(title, tables))
