"""`tdcs-train link`: bandwidth and latency between the pods of a job."""

from collections.abc import Sequence

import click

from tdcs_train.cli.options import finite, print_json
from tdcs_train.errors import InputError
from tdcs_train.link.measuring import LinkRate
from tdcs_train.link.session import Job, measure_links


@click.command("link")
@click.option("--master", envvar="MASTER_ADDR", help="The host of worker 0; MASTER_ADDR by default.")
@click.option(
    "--port",
    type=click.IntRange(min=1, max=65535),
    envvar="MASTER_PORT",
    help="A port of worker 0; MASTER_PORT by default.",
)
@click.option("--rank", type=click.IntRange(min=0), envvar="RANK", help="Of this worker; RANK by default.")
@click.option(
    "--world-size",
    type=click.IntRange(min=2),
    envvar="WORLD_SIZE",
    help="How many workers there are; WORLD_SIZE by default.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=60),
    callback=finite,
    default=2.0,
    show_default=True,
    help="How long each direction of each pair is measured.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.5),
    callback=finite,
    default=60.0,
    show_default=True,
    help="Seconds to wait for the other workers, and for each answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    *,
    master: str | None,
    port: int | None,
    rank: int | None,
    world_size: int | None,
    seconds: float,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure the links between the pods of a job.

    Run it in every pod at the same time, for instance as the command of a TrainingJob with framework PyTorch. Worker 0
    prints every pair in both directions, and the slowest rate, which is what `tdcs-train plan --bandwidth` takes.
    """
    if master is None or port is None or rank is None or world_size is None:
        values = {"MASTER_ADDR": master, "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": world_size}
        missing = next(name for name, value in values.items() if value is None)
        raise InputError(
            f"{missing} is not set, and its option not given; a job with framework PyTorch sets it"
        )
    if rank >= world_size:
        raise InputError(f"--rank (RANK) is {rank}, not below --world-size (WORLD_SIZE) {world_size}")
    job = Job(master=master, port=port, rank=rank, world_size=world_size, timeout=timeout)
    rates = measure_links(job, seconds=seconds)
    if not rates:
        click.echo("measured; worker 0 prints the result", err=True)
    elif as_json:
        print_json(
            {
                "pairs": [
                    {
                        "from": rate.source,
                        "to": rate.target,
                        "bytesPerSecond": rate.bytes_per_second,
                        "latencySeconds": rate.latency_seconds,
                    }
                    for rate in rates
                ],
                "slowestBytesPerSecond": min(rate.bytes_per_second for rate in rates),
                "greatestLatencySeconds": max(rate.latency_seconds for rate in rates),
            }
        )
    else:
        click.echo(_text(rates))


def _text(rates: Sequence[LinkRate]) -> str:
    lines = [f"{'from':>4}  {'to':>4}  {'Mbit/s':>9}  {'latency ms':>10}"]
    lines += [
        f"{rate.source:>4}  {rate.target:>4}  {rate.bytes_per_second * 8e-6:>9.1f}  {rate.latency_seconds * 1e3:>10.3f}"
        for rate in rates
    ]
    slowest = min(rate.bytes_per_second for rate in rates)
    latency = max(rate.latency_seconds for rate in rates) * 1e3
    words = f"--bandwidth {slowest * 8e-6:.0f}Mbit --latency {latency:.3f}ms"
    return "\n".join([*lines, "", f"slowest: plan with {words}"])
