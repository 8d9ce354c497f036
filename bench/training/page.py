"""Writes docs/training-results.md from the results of the benchmarks of tdcs-train.

python -m bench.training.page
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.training.records import exists, read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training-results.md"
HEAD = """\
# Results of tdcs-train

This page is made by `make training-docs` from the files in `bench/training/results`; each table names the program that
wrote its file. How to use the package is in
[When the network is the bound](how-to/slow-links.md).
"""
SECTIONS: dict[str, tuple[str, str]] = {
    "plans": (
        "Plans of the published profiles",
        """\
The profiles that PipeDream published, with parameter-server synchronisation. In rows marked straight each stage has one
worker, and transfers are ignored. What does not gain: rows with 1 or little more in the last but one column, where few
parameters are averaged against much computation.""",
    ),
    "orders": (
        "Orders of transfers, simulated",
        """\
Iteration time over the best of all orders on random graphs, and over the mean of 50 random ones on published profiles.
What does not gain: links on which transfers take a small part of the computation's time, or many times as long.""",
    ),
    "transfers": (
        "Orders of transfers, measured",
        """\
A worker and a parameter server in network namespaces of their own, on a link of the rate given; iterations in the
planned order beside ten random ones, in turn. The published figures are of another framework and machine. What does not
gain: ratios of 0.05 and 20.""",
    ),
    "links": (
        "Parallelism at three speeds of the link",
        """\
Two workers with a thread each, a model of 8.5 million parameters, and links at which averaging its gradients takes
0.2, 1 and 4 times the computation. Each plan is that of the measured link and a profile taken before. Beside it all
ways were measured: one worker, DDP over gloo, and the pipeline (mode `stash`) with every straight cut. The speeds, in
samples a second, show what does not gain. A pipeline is measured from empty to empty, over 7 mini-batches here: to fill
and empty it is about one mini-batch's time more than the bottleneck that was predicted.""",
    ),
    "bubbles": (
        "What the order of a pipeline costs",
        """\
Four stages that sleep 20 ms forward and backward and compute nothing; of the bound of one mini-batch in 40 ms.
Flushing 8 micro-batches can reach 8/11 = 0.727 at most, PyTorch's Schedule1F1B too.""",
    ),
    "digits": (
        "Digits to 97 %",
        """\
Two workers each; epochs and seconds until 97 of 100 digits that were not trained with are told right. The link is
loopback, so the seconds say what a pipeline costs where nothing is to be gained.""",
    ),
    "actors": (
        "Cost of the actor runtime",
        "Actors that do nothing, and registers between two processes on loopback.",
    ),
    "loader": (
        "The loader beside PyTorch's DataLoader",
        """\
The same JPEG files and decoder, from a local folder, with as many decoders, nothing else computed; median of five runs
in turn. A row that does not say where the loader decodes was measured with decoders in threads; now they are
processes.""",
    ),
}
"""Titles and words of the tables, in order."""


def main() -> None:
    """Write the page."""
    parts = [HEAD]
    for name, (title, words) in SECTIONS.items():
        if not exists(name):
            parts.append(f"## {title}\n\nNot measured yet: `python -m bench.training.{name}`.\n")
            continue
        machine, rows = read(name)
        where = ", ".join(f"{key} {value}" for key, value in machine.items())
        parts.append(f"## {title}\n\n{words}\n")
        parts.append(f"`python -m bench.training.{name}` ({where}).\n")
        parts += [table(group) + "\n" for group in _alike(rows)]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table; a column for every field."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _alike(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Neighbouring rows in groups that share most of their fields."""
    groups: list[list[Mapping[str, Any]]] = []
    for row in rows:
        if groups and len(set(row) & set(groups[-1][0])) >= len(set(row) | set(groups[-1][0])) / 2:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {part}" for key, part in value.items())
    return str(value).replace("|", "/")


if __name__ == "__main__":
    main()
