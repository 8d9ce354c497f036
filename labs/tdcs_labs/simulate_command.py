"""`tdcs simulate`: whole traces and the paper's figure, with the operator's own decisions."""

import json
import math
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tdcs.cli.console import Console
from tdcs.cli.input import inputs_checked
from tdcs.model.humanize import duration, human
from tdcs_labs import paper
from tdcs_labs.plots import check_plot, plot_bars, plot_completions
from tdcs_labs.run import SCHEMES, Result, simulate
from tdcs_labs.scenario import DEFAULT_STORE, GBIT, Scenario
from tdcs_labs.store import StoreLimits
from tdcs_labs.trace import read_trace
from tdcs_labs.workload import MIXES, Sharing, WorkItem, assign_work


class _Amount(click.FloatRange):
    """A number in a range; `nan` and `inf`, which Python reads as numbers too, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


#: Mbit/s up to a thousand times the fastest links and stores there are: in between no run overflows.
_GBPS = _Amount(min=0.001, max=1e6)
_REQUESTS = _Amount(min=1, max=1e9)
#: Up to a petabyte a node.
_CACHE_GB = _Amount(min=0, max=1e6)
_COUNT = click.IntRange(min=1)
#: Beyond that a run takes hours and many gigabytes: Kubernetes itself is made for 5,000 nodes.
_NODES = click.IntRange(min=1, max=100_000)
_GPUS = click.IntRange(min=1, max=1_000)


@click.group(name="simulate")
def command() -> None:
    """Simulate training clusters: the operator's decisions against other schemes."""


@command.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    help="CSV with a header: timestamp (2017-10-01 13:45:00, in order), duration (seconds), num_gpus, cluster.",
)
@click.option("--nodes", type=_NODES, default=64, show_default=True, help="Nodes of the cluster.")
@click.option("--gpus-per-node", type=_GPUS, default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--scheme",
    type=click.Choice(list(SCHEMES)),
    default="tdcs",
    show_default=True,
    help="How data reaches the jobs. In oracle no job waits for data: a bound on stalls, not on completion times.",
)
@click.option(
    "--mix",
    type=click.Choice(list(MIXES)),
    default="image",
    show_default=True,
    help="Image, language and speech jobs.",
)
@click.option(
    "--sharing",
    type=click.Choice([sharing.value for sharing in Sharing]),
    default=Sharing.TENANT.value,
    show_default=True,
    help="Who reads the same datasets.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help=(
        "Seed of the draw of the jobs' models and datasets, and of nothing else: the rows of seeds 2 and 3 and of two "
        "weeks in docs/simulation.md also change the trace; `make simulation-docs` makes them."
    ),
)
@click.option(
    "--remote-gbps", type=_GBPS, default=10.0, show_default=True, help="Gbit/s of the object store."
)
@click.option(
    "--remote-requests",
    type=_REQUESTS,
    default=DEFAULT_STORE.requests_per_second,
    show_default=True,
    help="Requests per second of the object store.",
)
@click.option(
    "--cache-gb-per-node",
    type=_CACHE_GB,
    default=300.0,
    show_default=True,
    help="GB of cache on each node.",
)
@click.option("--nic-gbps", type=_GBPS, default=25.0, show_default=True, help="Gbit/s of each node's link.")
@click.option(
    "--jobs-per-copy",
    type=click.IntRange(min=0, max=10_000),
    default=0,
    show_default=True,
    help="Jobs that may read a copy of a dataset at once (spec.access.maxConcurrentJobs); 0: no limit. Scheme tdcs.",
)
@click.option(
    "--on-limit",
    type=click.Choice(["Suspend", "Clone"]),
    default="Suspend",
    show_default=True,
    help="What becomes of further jobs (spec.access.onLimit): they wait, or get a further copy.",
)
@click.option(
    "--queue-order",
    type=click.Choice(["priority", "fair-share"]),
    help="Jobs come by priority and age (so they do, if it is left out), or tenants take turns by their shares of the "
    "GPUs (operator.queueOrder). Given, it has the result say how evenly tenants waited.",
)
@click.option(
    "--preemption",
    is_flag=True,
    help="Jobs take the place of running ones of lower priority (operator.preemption; the trace's column priority). "
    "These go on later with what they have trained.",
)
@click.option("--limit", type=_COUNT, default=None, help="Take only the first so many jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the jobs' times into this .svg or .png.",
)
@inputs_checked
def trace(
    *,
    trace: Path,
    nodes: int,
    gpus_per_node: int,
    scheme: str,
    mix: str,
    sharing: str,
    seed: int,
    remote_gbps: float,
    remote_requests: float,
    cache_gb_per_node: float,
    nic_gbps: float,
    jobs_per_copy: int,
    on_limit: str,
    queue_order: str | None,
    preemption: bool,
    limit: int | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Run a trace of job submissions under one scheme."""
    if plot is not None:
        check_plot(plot)
    if (jobs_per_copy or on_limit == "Clone") and scheme != "tdcs":
        raise click.UsageError(
            "--jobs-per-copy and --on-limit are of the scheme tdcs: leave them out, or choose it."
        )
    if on_limit == "Clone" and not jobs_per_copy:
        raise click.UsageError(
            "--on-limit Clone needs --jobs-per-copy: without a limit no further copy is needed."
        )
    scenario = Scenario(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nic_rate=nic_gbps * GBIT,
        cache_bytes=cache_gb_per_node * 1e9,
        store=StoreLimits(bytes_per_second=remote_gbps * GBIT, requests_per_second=remote_requests),
        jobs_per_copy=jobs_per_copy,
        clones=on_limit == "Clone",
        fair_share=queue_order == "fair-share",
        preemption=preemption,
    )
    jobs = read_trace(path=trace, limit=limit, most_gpus=scenario.gpus)
    work = assign_work(jobs=jobs, mix=mix, seed=seed, sharing=Sharing(sharing))
    result = _run(work=work, scenario=scenario, scheme=scheme, quiet=as_json)
    if plot is not None:
        plot_completions(
            path=plot, completions={scheme: result.completions}, title=f"{trace.name}, mix {mix}"
        )
    if as_json:
        inputs = {
            "trace": str(trace),
            "limit": limit,
            "mix": mix,
            "sharing": sharing,
            "seed": seed,
            "nodes": nodes,
            "gpusPerNode": gpus_per_node,
            "remoteGbps": remote_gbps,
            "remoteRequests": remote_requests,
            "cacheGbPerNode": cache_gb_per_node,
            "nicGbps": nic_gbps,
            "jobsPerCopy": jobs_per_copy,
            "onLimit": on_limit,
        }
        fairness = {**result.fairness(), "queueOrder": queue_order} if queue_order else {}
        preempted = {"preemptions": result.preemptions} if preemption else {}
        click.echo(json.dumps({**result.document(), **inputs, **fairness, **preempted}, allow_nan=False))
    else:
        table = _result_table(result)
        if queue_order:
            table.add_row("Jain's index of the tenants' slowdowns", f"{result.fairness()['jainIndex']:.3f}")
            table.add_row("worst slowdown of a tenant", f"{result.fairness()['worstSlowdown']:.1f}")
        if preemption:
            table.add_row("jobs that gave way to more important ones", str(result.preemptions))
        Console().print(table)


@command.command(name="paper")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the figure into this .svg or .png.",
)
@inputs_checked
def paper_figure(*, as_json: bool, plot: Path | None) -> None:
    """Compute the paper's figure 5: 8 to 128 GPUs, from direct reads to a shared preloaded cache.

    The paper: Zhang Kai, Che Yang, "Accelerating containerised deep learning with a distributed cache", Big Data
    Research 2021(5), which trains ResNet50 on ImageNet. Of its numbers only ranges were published.
    """
    if plot is not None:
        check_plot(plot)
        rows = list(paper.rows())
        plot_bars(
            path=plot,
            groups=[f"{gpus} GPUs" for gpus in paper.SIZES],
            bars={
                name: [row.images_per_second for row in rows if row.configuration == name]
                for name in paper.CONFIGURATIONS
            },
            ylabel="images per second",
            title="ResNet50 on ImageNet, modelled",
        )
    if as_json:
        click.echo(json.dumps(paper.document(), allow_nan=False))
        return
    console = Console()
    console.print(_paper_table())
    constants = paper.Constants()
    console.print(
        f"Fitted, one set for all rows: {constants.store_images_per_node:,.0f} images/s from the store per node, "
        f"{constants.epochs} epochs, {constants.first_opens_per_node:,.0f} first opens/s per node."
    )


def _paper_table() -> Table:
    """The figure's rows; narrow enough for a terminal of 80 columns."""
    names = ("GPUs", "reads", "images/s", "x direct", "gain over", "is", "published", "in it")
    table = Table(*names, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for row in paper.rows():
        own_columns = (
            str(row.gpus),
            row.configuration,
            f"{row.images_per_second:,.0f}",
            f"{row.ratio_to_direct:.2f}",
        )
        for index, check in enumerate(row.checks or (None,)):
            published_columns: tuple[str, ...] = ()
            if check is not None:
                published = check.published
                published_columns = (
                    published.slower,
                    f"{check.ratio:.3f}",
                    f"{published.low:g}-{published.high:g}",
                    "yes" if check.holds else "no",
                )
            table.add_row(*(own_columns if index == 0 else ("",) * len(own_columns)), *published_columns)
    return table


def _run(*, work: list[WorkItem], scenario: Scenario, scheme: str, quiet: bool) -> Result:
    """Simulate, with a progress bar on standard error when a person looks at it."""
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("simulating", total=len(work))
        return simulate(
            work=work,
            scenario=scenario,
            scheme=scheme,
            progress=lambda done: progress.update(task, completed=done),
        )


def _result_table(result: Result) -> Table:
    table = Table("", "", show_header=False, title=f"{result.jobs:,} jobs, scheme {result.scheme}")
    table.add_row("mean completion time", duration(result.mean_jct, digits=3))
    table.add_row("median completion time", duration(result.p50_jct, digits=3))
    table.add_row("99th percentile", duration(result.p99_jct, digits=3))
    table.add_row("makespan", duration(result.makespan, digits=3))
    table.add_row("GPU time lost waiting for data", f"{result.gpu_idle_fraction:.2%}")
    table.add_row("read from the store", human(round(result.remote_bytes)))
    table.add_row("read from the job's own nodes", f"{result.local_fraction:.1%}")
    table.add_row("evictions", f"{result.evictions:,}")
    table.add_row("simulated in", f"{result.wall:.1f} s")
    return table
