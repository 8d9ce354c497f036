"""`tdcs-train plan`: which parallelism fits a model, workers and links."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from tdcs_train.cli.options import BANDWIDTHS, COUNTS, SECONDS, SIZE, print_json, read_profile, read_text
from tdcs_train.errors import InputError
from tdcs_train.job import job_of
from tdcs_train.plan.drawing import drawn
from tdcs_train.plan.options import Level, Options
from tdcs_train.plan.pipeline_plan import PipelinePlan, document, plan_pipeline
from tdcs_train.plan.quantities import spoken_bytes
from tdcs_train.plan.stage import MOST_AHEAD
from tdcs_train.runtimes.program import RUNTIMES, Runtime, program

STEPS = 100
"""Of a program that is written; it says so in its first lines."""
NOTABLE = 1.05
"""Times the bottleneck from which on the expected time is printed, too."""


@click.command("plan")
@click.option("--profile", type=click.Path(path_type=Path), required=True, help="The profile of the model.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="How many workers there are, if --levels does not say so."
)
@click.option(
    "--bandwidth",
    type=BANDWIDTHS,
    required=True,
    help="Of a worker's link, like 1Gbit or 125MB; a plain number is bytes a second. One for each of the levels.",
)
@click.option(
    "--latency",
    type=SECONDS,
    help="Of a worker's link, like 0.5ms (tdcs-train link prints it); one for each of the levels. By default none.",
)
@click.option(
    "--levels",
    type=COUNTS,
    help="Machines on each level of the network, the innermost first: 4,2 is two machines of four workers.",
)
@click.option(
    "--sync",
    type=click.Choice(["ring", "ps"]),
    default="ring",
    show_default=True,
    help="How replicas average gradients: ring all-reduce, or parameter servers.",
)
@click.option(
    "--memory", type=SIZE, help="Memory of a worker for weights and activations in flight, like 16Gi."
)
@click.option(
    "--recompute",
    is_flag=True,
    help="A stage that would not fit in --memory keeps only what arrives at it, and computes its forward again.",
)
@click.option("--straight", is_flag=True, help="One worker a stage.")
@click.option("--fewer", is_flag=True, help="Leave workers out where that is faster.")
@click.option(
    "--activation-ratio",
    type=float,
    default=1.0,
    show_default=True,
    help="By how much tensors between stages are compressed; inf ignores their transfer.",
)
@click.option(
    "--ahead",
    type=click.IntRange(min=0, max=MOST_AHEAD),
    help="Mini-batches in flight next to the published number, for each stage behind a worker: hides transfers, for as "
    "many more versions of its weights. By default none, or up to 4 where a pipeline is best only with them.",
)
@click.option(
    "--published",
    is_flag=True,
    help="Advise by the bottleneck, as the published optimizer does (with --sync ps): transfers count as hidden.",
)
@click.option(
    "--together",
    multiple=True,
    metavar="A,B,...",
    help="Layers of the profile, such as node2,node9, that stay in one stage; may be repeated.",
)
@click.option(
    "--dot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a picture of the plan for Graphviz: dot -Tsvg FILE draws it.",
)
@click.option(
    "--program",
    "programs",
    type=(click.Choice(RUNTIMES), click.Path(path_type=Path)),
    multiple=True,
    metavar="RUNTIME FILE",
    help="Write a program that trains by the plan: torch (torch.distributed.pipelining), deepspeed, or tdcs (the "
    "pipeline of mode stash); may be repeated.",
)
@click.option(
    "--model", metavar="FILE.py:MODEL", help="What --program trains, as tdcs-train profile takes it."
)
@click.option(
    "--micro-batches",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Of a step of --program, each with the samples of the profile.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--job",
    type=click.Path(path_type=Path),
    metavar="TEMPLATE.yaml",
    help="Write the TrainingJob of the plan from this template.",
)
@click.option(
    "--near",
    multiple=True,
    metavar="LABEL",
    help="A label of nodes of which the pods of --job share a value where they can, such as that of racks or "
    "topology.kubernetes.io/zone; may be repeated, the nearest first.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where --job writes; standard output otherwise."
)
def command(
    *,
    profile: Path,
    workers: int | None,
    bandwidth: list[float],
    levels: list[int] | None,
    job: Path | None,
    output: Path | None,
    near: tuple[str, ...],
    dot: Path | None,
    programs: tuple[tuple[Runtime, Path], ...],
    model: str | None,
    micro_batches: int,
    as_json: bool,
    **choices: Any,
) -> None:
    """Plan the parallelism of a profiled model.

    Prints stages with their workers, what they take, and the speed against one worker and data parallel. "data parallel
    is best here" and "one worker is best here" are answers, too.
    """
    if job and as_json and not output:
        raise InputError("--job with --json needs --output: standard output has room for one document")
    if output and not job:
        raise InputError("--output is where --job writes; without it the plan goes to standard output")
    if programs and model is None:
        raise InputError("--program needs --model FILE.py:MODEL, which it trains")
    options = Options(
        levels=_levels(workers, levels, bandwidth, choices["latency"]),
        sync=choices["sync"],
        memory_bytes=choices["memory"],
        recompute=choices["recompute"],
        straight=choices["straight"],
        fewer=choices["fewer"],
        activation_ratio=choices["activation_ratio"],
        ahead=choices["ahead"],
        published=choices["published"],
        together=tuple(tuple(group.split(",")) for group in choices["together"]),
    )
    graph = read_profile(profile)
    plan = plan_pipeline(graph, options, note=lambda text: click.echo(f"note: {text}", err=True))
    if dot:
        dot.write_text(drawn(graph, plan), encoding="utf-8")
    for runtime, file in programs:
        text = program(plan, runtime, model=model or "", micro_batches=micro_batches, steps=STEPS)
        file.write_text(text, encoding="utf-8")
    if job:
        _write_job(job, plan, output, near)
    if as_json:
        print_json(document(plan))
    else:
        click.echo(_text(plan), err=job is not None and output is None)


def _levels(
    workers: int | None,
    counts: Sequence[int] | None,
    bandwidths: Sequence[float],
    latencies: Sequence[float] | None,
) -> tuple[Level, ...]:
    if counts is None:
        if workers is None:
            raise InputError("--workers or --levels: one of them must say how many workers there are")
        counts = [workers]
    if len(counts) != len(bandwidths):
        raise InputError(
            f"--levels has {len(counts)} levels and --bandwidth {len(bandwidths)} values; give one for each level"
        )
    if workers is not None and math.prod(counts) != workers:
        raise InputError(
            f"--levels has {math.prod(counts)} workers and --workers {workers}; leave out one of them"
        )
    if latencies is None:
        latencies = [0.0] * len(counts)
    if len(counts) != len(latencies):
        raise InputError(
            f"--levels has {len(counts)} levels and --latency {len(latencies)} values; give one for each level"
        )
    return tuple(
        Level(machines=count, bandwidth=bandwidth, latency=latency)
        for count, bandwidth, latency in zip(counts, bandwidths, latencies, strict=True)
    )


def _write_job(template: Path, plan: PipelinePlan, output: Path | None, near: tuple[str, ...]) -> None:
    try:
        documents = list(yaml.safe_load_all(read_text(template)))
    except (yaml.YAMLError, ValueError) as error:  # a date that is none raises ValueError
        raise InputError(f"{template} is no YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InputError(f"{template} is nested too deeply to be read") from error
    jobs = [
        number
        for number, content in enumerate(documents)
        if isinstance(content, dict) and content.get("kind") == "TrainingJob"
    ]
    if len(jobs) != 1:
        raise InputError(f"{template} has {len(jobs)} documents of kind TrainingJob; it must have one")
    try:
        documents[jobs[0]] = job_of(documents[jobs[0]], plan, source=str(template), near=near)
        text = yaml.safe_dump_all(documents, sort_keys=False, width=10_000)
    except RecursionError as error:
        raise InputError(f"{template} is nested too deeply to be written again") from error
    if output:
        output.write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)


def _text(plan: PipelinePlan) -> str:
    plan = plan.advised
    head = (
        "stage",
        "workers",
        "layers",
        "compute s",
        "sync s",
        "transfer s",
        "warm-up",
        "versions",
        "memory",
    )
    rows = [
        (
            str(number),
            str(stage.replicas),
            str(len(stage.nodes)),
            f"{stage.compute_seconds:.6f}",
            f"{stage.sync_seconds:.6f}",
            f"{stage.transfer_seconds:.6f}",
            str(stage.warmup),
            str(stage.versions),
            spoken_bytes(stage.memory_bytes),
        )
        for number, stage in enumerate(plan.stages)
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]
    ]
    slowest = plan.bottleneck_seconds
    in_flight = plan.stages[0].versions
    depth = (
        f"with {in_flight} mini-batches in flight transfers are not all hidden: {plan.expected_seconds:.6f} seconds a "
        "mini-batch are expected"
    )
    if plan.deeper_seconds is not None:
        depth += f", with --ahead {plan.ahead + 1} {plan.deeper_seconds:.6f}"
    lines += [
        "",
        (
            f"seconds a mini-batch: {slowest:.6f} as planned, {plan.one_worker_seconds:.6f} on one worker, "
            f"{plan.data_parallel_seconds:.6f} data parallel"
        ),
        (
            f"speed: {plan.one_worker_seconds / plan.expected_seconds:.3f} times one worker, "
            f"{plan.data_parallel_seconds / plan.expected_seconds:.3f} times data parallel"
        ),
        *([depth] if plan.expected_seconds > NOTABLE * slowest else []),
        *(
            [f"{_named(again)} compute their forward again (it is in compute s), to fit in --memory"]
            if (again := [number for number, stage in enumerate(plan.stages) if stage.recomputes])
            else []
        ),
        *(
            [f"{plan.ahead} mini-batches ahead hide transfers, for older updates (--ahead 0)"]
            if plan.ahead
            else []
        ),
        plan.advice,
    ]
    return "\n".join(lines)


def _named(numbers: Sequence[int]) -> str:
    return f"stages {', '.join(map(str, numbers))}"
