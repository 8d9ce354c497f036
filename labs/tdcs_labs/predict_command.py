"""`tdcs predict`: what a training job would take with and without the cache."""

import json
from pathlib import Path

import click
from rich.table import Table

from tdcs.cli.console import Console
from tdcs.cli.input import inputs_checked, shown_name
from tdcs.decide.job.job_scenario import KEYS, REQUIRED
from tdcs.decide.job.job_time import Prediction, predict
from tdcs.model.humanize import duration, human
from tdcs_labs.advice import advise
from tdcs_labs.plots import check_plot, plot_bars
from tdcs_labs.scenario_file import read_scenario


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
    help="Draw the times into this .svg or .png.",
)
@inputs_checked
def command(*, file: Path, as_json: bool, plot: Path | None) -> None:
    """Predict a job's time when it reads directly, cold, preloaded and fully cached."""
    if plot is not None:
        check_plot(plot)
    prediction = predict(read_scenario(path=file), where=shown_name(file))
    advice = advise(prediction)
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
        click.echo(json.dumps(document(prediction, advice=advice), allow_nan=False))
        return
    table = Table("", "time", "from the source", "limited by")
    longest = max(run.seconds for run in runs.values())
    for name, run in runs.items():
        table.add_row(
            name,
            duration(run.seconds, alongside=longest),
            human(round(run.remote_bytes)),
            run.bottleneck.value,
        )
    console = Console()
    console.print(table)
    # A line that is piped on stays one line.
    console.print(advice, soft_wrap=not console.is_terminal, highlight=False)


def document(prediction: Prediction, *, advice: str) -> dict[str, object]:
    """The prediction as `--json` prints it."""
    runs = {
        "direct": prediction.direct,
        "cold": prediction.cold,
        "preloaded": prediction.preloaded,
        "warm": prediction.warm,
    }
    return {
        **{f"{name}Seconds": round(run.seconds, 3) for name, run in runs.items()},
        "bottleneck": prediction.direct.bottleneck.value,
        "bottlenecks": {name: run.bottleneck.value for name, run in runs.items()},
        "loadSeconds": round(prediction.load_seconds, 3),
        "remoteBytes": {name: round(run.remote_bytes) for name, run in runs.items()},
        "advice": advice,
    }
