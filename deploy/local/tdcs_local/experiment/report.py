"""The table of the experiment's results, and its picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.table import Table

from tdcs.model.humanize import counted
from tdcs_labs.plots import plot_bars
from tdcs_local.experiment.analysis import Row
from tdcs_local.experiment.plan import Configuration
from tdcs_local.progress import print_whole

HEADINGS = (
    "link, Mbit/s",
    "jobs",
    "configuration",
    "images/s",
    "over direct",
    "a job, s",
    "`tdcs predict`, s",
    "its error",
    "simulator's error",
    "the store sent, MB",
    "loaded before, s",
)


def cells(row: Row) -> list[str]:
    """A row as text, by `HEADINGS`."""
    simulator = row.simulator_error
    return [
        str(row.mbit),
        str(row.jobs),
        str(row.configuration),
        f"{row.images_per_second:,.0f}",
        f"{row.over_direct:.2f}",
        f"{row.seconds:.1f}",
        f"{row.predicted:.1f}",
        f"{row.error:+.1%}",
        "" if simulator is None else f"{simulator:+.1%}",
        f"{row.source_bytes / 1e6:,.1f}",
        f"{row.load_seconds:.1f}" if row.load_seconds else "",
    ]


def markdown(table: Sequence[Row]) -> str:
    """The table of the page and of the terminal."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, table)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(table: Sequence[Row]) -> None:
    """Print the table."""
    printed = Table(title="The GPU is a sleep; times are medians", title_justify="left")
    for heading in HEADINGS:
        justify: Literal["left", "right"] = "left" if heading == "configuration" else "right"
        printed.add_column(heading.replace("`", ""), justify=justify, no_wrap=True)
    for row in table:
        printed.add_row(*cells(row))
    print_whole(printed)


def draw(table: Sequence[Row], *, mbit: int, path: Path) -> None:
    """Images per second by number of jobs, over the link that is the bound: measured, and predicted next to it."""
    rows = [row for row in table if row.mbit == mbit]
    jobs = sorted({row.jobs for row in rows})
    by_key = {(row.configuration, row.jobs): row for row in rows}
    plot_bars(
        path=path,
        groups=[counted(count, "job") for count in jobs],
        bars={
            str(configuration): [by_key[configuration, count].images_per_second for count in jobs]
            for configuration in Configuration
            if all((configuration, count) in by_key for count in jobs)
        },
        ylabel="images per second, all jobs",
        title=f"A bucket behind {mbit} Mbit/s; the GPU is a sleep",
    )
