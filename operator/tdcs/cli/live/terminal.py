"""The document as it looks in a terminal of some size. Functions of values, no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import rich.console
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tdcs.cli.live.document import (
    RANKS,
    ClusterRow,
    DatasetRow,
    Document,
    JobRow,
    LimitRow,
    NodeRow,
    ProblemRow,
)
from tdcs.cli.live.watches import Contact
from tdcs.model.humanize import human, percent

_BAR: Final = 14
_BARS_FROM: Final = 120
"""Columns of a terminal: in a narrower one figures take the place of bars."""
_COLOURS: Final = {0: "green", 1: "cyan", 2: "yellow", 3: "yellow", 4: "red", 5: "bright_black"}

_LINES_ALONGSIDE: Final = 11
"""Lines of the head, of titles and of the space between the tables."""


class LiveScreen:
    """Everything that fits: what does not is counted.

    `lines`: of the terminal; None: it has no end.
    """

    def __init__(self, document: Document, *, contact: Contact, lines: int | None) -> None:
        self._document: Final = document
        self._contact: Final = contact
        self._lines: Final = lines

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:  # noqa: TID251  rich calls it
        layout = _Layout(width=options.max_width)
        document = self._document
        jobs = cast("Mapping[str, JobRow]", document.get("jobs", {}))
        nodes = cast("Mapping[str, NodeRow]", document.get("nodes", {}))
        datasets = cast("Mapping[str, DatasetRow]", document.get("datasets", {}))
        remarks = list(self._remarks())
        room = None if self._lines is None else max(self._lines - _LINES_ALONGSIDE - len(remarks), 6)
        for_jobs, for_data, for_nodes = shared_out(room, len(jobs), len(datasets), len(nodes))
        yield self._head()
        yield from remarks
        yield from _section("Jobs", _jobs(jobs, for_jobs, layout), len(jobs), for_jobs)
        yield from _section("Data", _datasets(datasets, for_data, layout), len(datasets), for_data)
        yield from _section("Nodes", _nodes(nodes, for_nodes, layout), len(nodes), for_nodes)

    def _head(self) -> Text:
        nodes = cast("Mapping[str, NodeRow]", self._document.get("nodes", {})).values()
        clusters = cast("Mapping[str, ClusterRow]", self._document.get("clusters", {})).values()
        jobs = cast("Mapping[str, JobRow]", self._document.get("jobs", {})).values()
        gpus = sum(node.gpus or 0 for node in nodes)
        used, capacity = (
            sum(cluster.used for cluster in clusters),
            sum(cluster.capacity for cluster in clusters),
        )
        running, starting, waiting = (
            sum(RANKS.get(job.state, RANKS["Waiting"]) == RANKS[state] for job in jobs)
            for state in ("Running", "Starting", "Waiting")
        )
        parts = [
            f"GPUs {min(sum(node.gpus_used for node in nodes), gpus)} of {gpus}" if gpus else "",
            f"cache {human(used)} of {human(capacity)}" if capacity else "",
            f"{running} running, {f'{starting} starting, ' if starting else ''}{waiting} waiting",
        ]
        return Text(" · ".join(part for part in parts if part), style="bold")

    def _remarks(self) -> Sequence[Text]:
        remarks = []
        if self._contact.problem:
            remarks.append(
                Text(f"The API server does not answer, this is old: {self._contact.problem}", style="red")
            )
        limits = cast("Mapping[str, LimitRow]", self._document.get("limits", {})).values()
        if limits:
            remarks.append(
                Text(f"Not everything is shown: {'; '.join(limit.why for limit in limits)}", style="yellow")
            )
        problems = list(cast("Mapping[str, ProblemRow]", self._document.get("problems", {})).values())
        shown_problems = problems if self._lines is None else problems[:3]
        for problem in shown_problems:
            title = f"{problem.namespace}/{problem.name}" if problem.namespace else problem.name
            remarks.append(
                Text(
                    f"! {problem.kind} {title}: {problem.message}",
                    style="red",
                    no_wrap=True,
                    overflow="ellipsis",
                )
            )
        if len(shown_problems) < len(problems):
            remarks.append(
                Text(f"! and {len(problems) - len(shown_problems)} more: tdcs status -A", style="red")
            )
        return remarks


def shared_out(room: int | None, *line_counts: int) -> list[int]:
    """How many lines each table gets: what it wants if all fit, else a fair part of the room."""
    if room is None or sum(line_counts) <= room:
        return list(line_counts)
    lines = [0] * len(line_counts)
    remaining, open_ = room, [place for place, want in enumerate(line_counts) if want]
    while open_:
        part = max(remaining // len(open_), 1)
        small = [place for place in open_ if line_counts[place] <= part]
        for place in small or open_:
            lines[place] = min(line_counts[place], part)
            remaining -= lines[place]
        open_ = [place for place in open_ if place not in small] if small else []
    return lines


def _section(title: str, table: Table, count: int, shown_count: int) -> Sequence[RenderableType]:
    more = f" [dim]({shown_count} of {count})[/dim]" if shown_count < count else ""
    if not count:
        return [Group(Text(), Text.from_markup(f"[bold]{title}[/bold]  [dim]none[/dim]"))]
    return [Group(Text(), Text.from_markup(f"[bold]{title}[/bold]{more}"), table)]


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """What the width of the terminal allows."""

    width: int

    @property
    def bars(self) -> bool:
        return self.width >= _BARS_FROM

    def table(self, name: str, *columns: str, flexible: Sequence[str]) -> Table:
        """A table as wide as the terminal: figures and states are whole, and the `flexible` columns share the rest."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=self.width // 3)
        for column in columns:
            table.add_column(
                column,
                no_wrap=True,
                overflow="ellipsis",
                ratio=1 if column in flexible else None,
                min_width=4,
            )
        return table

    def bar(self, done: int, whole: int) -> list[ProgressBar]:
        return [ProgressBar(total=max(whole, 1), completed=done, width=_BAR)] if self.bars else []


def _jobs(jobs: Mapping[str, JobRow], count: int, layout: _Layout) -> Table:
    why = "Where, or why not"
    table = layout.table("Job", "State", "Pods", "Locality", why, flexible=[why])
    ranked = sorted(
        jobs.values(), key=lambda job: (RANKS.get(job.state, 2), job.position, job.namespace, job.name)
    )
    for job in ranked[:count]:
        colour = _COLOURS[RANKS.get(job.state, 2)]
        place = f"{job.position}. " if job.position else ""
        kind = "" if job.kind == "TrainingJob" else f" [dim]{escape(job.kind)}[/dim]"
        where = ", ".join(f"{node} ({pods})" if pods > 1 else node for node, pods in job.nodes)
        table.add_row(
            f"{escape(f'{job.namespace}/{job.name}')}{kind}",
            f"[{colour}]{place}{escape(job.state)}[/]",
            job.outcome or f"{job.ready} of {job.wanted}",
            job.locality,
            escape(where or job.message or job.reason),
        )
    return table


def _datasets(datasets: Mapping[str, DatasetRow], count: int, layout: _Layout) -> Table:
    bar = [" "] if layout.bars else []
    table = layout.table(
        "Dataset", "State", "There", *bar, "Size", "Rate", "Nodes", "Jobs", flexible=["Rate"]
    )
    # What fills comes first: that is what one looks at.
    ranked = sorted(
        datasets.values(), key=lambda row: (not (row.rate or row.copied), row.namespace, row.name)
    )
    for row in ranked[:count]:
        done, whole = (row.loaded, row.wanted) if row.wanted else (row.cached, row.total)
        rate = " + ".join(
            text
            for text in (
                f"{human(row.rate)}/s" if row.rate else "",
                f"{human(row.copied)}/s copied" if row.copied else "",
            )
            if text
        )
        table.add_row(
            escape(f"{row.namespace}/{row.name}"),
            f"[{'green' if row.state == 'Ready' else 'yellow'}]{escape(row.state)}[/]",
            percent(done, whole) if whole else "",
            *layout.bar(done, whole),
            human(row.total) if row.total else "",
            rate,
            str(row.nodes),
            " + ".join([str(row.active), *([f"{row.waiting} waiting"] if row.waiting else [])]),
        )
    return table


def _nodes(nodes: Mapping[str, NodeRow], count: int, layout: _Layout) -> Table:
    bar = [" "] if layout.bars else []
    table = layout.table("Node", "State", "GPUs", "Cache", *bar, "Holds", "Runs", flexible=["Holds", "Runs"])
    # Nodes that need a look first, then those with something on them; then by name.
    ranked = sorted(
        nodes.values(), key=lambda node: (not _troubles(node), not (node.pods or node.held), node.name)
    )
    for node in ranked[:count]:
        held = sum(size for _, size in node.held)
        jobs = dict.fromkeys(job.partition("/")[2] for _, job in node.pods)
        table.add_row(
            escape(node.name),
            ", ".join(_troubles(node)) or "[green]ready[/green]",
            "" if node.gpus is None else f"{min(node.gpus_used, node.gpus)} of {node.gpus}",
            human(held) if held else "",
            *layout.bar(held, max(node.capacity, held)),
            escape(", ".join(name for name, _ in node.held)),
            escape(", ".join(jobs)),
        )
    return table


def _troubles(node: NodeRow) -> list[str]:
    """What is the matter with a node or its cache worker."""
    return [
        *([] if node.ready else ["[red]not ready[/red]"]),
        *(["[yellow]cordoned[/yellow]"] if node.cordoned else []),
        *(
            [f"[yellow]cache {escape(node.worker.lower())}[/yellow]"]
            if node.worker and node.worker != "Ready"
            else []
        ),
    ]
