"""`tdcs predict`: what a training job would take with and without the cache."""

import json
from pathlib import Path

import click
from rich.table import Table

from tdcs.cli.console import Console
from tdcs.cli.input import inputs_checked
from tdcs.model.humanize import human
from tdcs.simulate.job_scenario import KEYS, REQUIRED, read_scenario, shown_name
from tdcs.simulate.plots import INSTALL, check_plot, plot_bars
from tdcs.simulate.predict import predict
from tdcs.simulate.wording import duration


@click.command(name="predict")
@click.option(
    "--file",
    type=click.Path(path_type=Path, allow_dash=True),
    required=True,
    help=(
        f"The scenario, - for standard input: YAML with the keys {', '.join(KEYS)}. Required are {', '.join(REQUIRED)} "
        "and one of the last two; imagesPerSecondPerGpu needs datasetFiles. readCpuSecondsPerFile is the processor "
        "time that reading a file through the cache's client takes; it needs datasetFiles and cpusPerNode, the "
        "processors of a node, which jobsPerNode jobs share (1 if not given)."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Draw the times into this .svg or .png; needs the extra `plot` (in the checkout: {INSTALL}).",
)
@inputs_checked
def command(*, file: Path, as_json: bool, plot: Path | None) -> None:
    """Predict a job's time when it reads directly, cold, preloaded and fully cached."""
    if plot is not None:
        check_plot(plot)
    prediction = predict(read_scenario(path=file), where=shown_name(file))
    runs = {
        "direct": prediction.direct,
        "cold cache": prediction.cold,
        "preloaded": prediction.preloaded,
        "fully cached": prediction.warm,
    }
    if plot is not None:
        plot_bars(
            path=plot,
            groups=list(runs),
            bars={"seconds": [run.seconds for run in runs.values()]},
            ylabel="seconds",
            title=shown_name(file),
        )
    if as_json:
        click.echo(json.dumps(prediction.document(), allow_nan=False))
        return
    table = Table("", "time", "from the source", "limited by")
    longest = max(run.seconds for run in runs.values())
    for name, run in runs.items():
        table.add_row(
            name, duration(run.seconds, beside=longest), human(round(run.remote_bytes)), run.bottleneck.value
        )
    console = Console()
    console.print(table)
    # A line that is piped on stays one line.
    console.print(prediction.advice, soft_wrap=not console.is_terminal, highlight=False)
