"""`tdcs predict`: what a training job would take with and without the cache."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tdcs.cli.input import inputs_checked
from tdcs.controllers.sizes import human
from tdcs.simulate.job_scenario import KEYS, read_scenario
from tdcs.simulate.plots import check_plot, plot_bars
from tdcs.simulate.predict import predict


@click.command(name="predict")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    required=True,
    help=f"The scenario: YAML with the keys {', '.join(KEYS)} (one of the last two).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the times into this .svg or .png; needs the extra `plot` (pip install 'tdcs[plot]').",
)
@inputs_checked
def command(*, file: Path, as_json: bool, plot: Path | None) -> None:
    """Predict a job's time when it reads directly, cold, preloaded and fully cached."""
    if plot is not None:
        check_plot(plot)
    prediction = predict(read_scenario(path=file), where=str(file))
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
            title=file.name,
        )
    if as_json:
        click.echo(json.dumps(prediction.document(), allow_nan=False))
        return
    table = Table("", "seconds", "from the source", "limited by")
    for name, run in runs.items():
        table.add_row(name, f"{run.seconds:,.0f}", human(round(run.remote_bytes)), run.bottleneck.value)
    console = Console()
    console.print(table)
    console.print(prediction.advice)
