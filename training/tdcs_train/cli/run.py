"""`tdcs-train run`: a worker of a training, from its variables to its exit code."""

import os
import socket
import sys
from pathlib import Path

import click

from tdcs_train.cli.options import finite
from tdcs_train.errors import InputError


@click.command("run")
@click.argument("target", metavar="FILE.py:MODEL")
@click.option("--batch", type=click.IntRange(min=1), required=True, help="Samples of a mini-batch.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Over the dataset.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of weights, order and random numbers.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    help="The document of tdcs-train plan --json; by default the variable TDCS_TRAIN_PLAN, else one is made.",
)
@click.option(
    "--mode",
    type=click.Choice(["flush", "stash"]),
    default="flush",
    show_default=True,
    help="flush computes what one process computes; stash is the pipeline without pauses, with older weights.",
)
@click.option(
    "--micro-batches",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Parts of a mini-batch in mode flush.",
)
@click.option("--clip-norm", type=float, help="Largest norm of all gradients together, in mode flush.")
@click.option(
    "--checkpoints",
    type=click.Path(path_type=Path),
    help="A folder that all workers see; a run that is started again goes on from there, with any plan.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    help="Mini-batches between two checkpoints; an epoch by default.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where the state dict of the whole model goes at the end.",
)
@click.option(
    "--data-workers",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Processes that read data, next to each worker of the first stage.",
)
@click.option(
    "--profile-steps",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Mini-batches to measure where no plan is given.",
)
@click.option(
    "--link-seconds",
    type=click.FloatRange(min=0.1, max=60),
    callback=finite,
    default=1.0,
    show_default=True,
    help="How long each direction of each pair is measured where no plan is given.",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of an operator.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    callback=finite,
    default=300.0,
    show_default=True,
    help="Seconds to wait for another worker.",
)
def command(
    *,
    target: str,
    batch: int,
    epochs: int,
    seed: int,
    plan: Path | None,
    mode: str,
    micro_batches: int,
    clip_norm: float | None,
    checkpoints: Path | None,
    every: int | None,
    output: Path | None,
    data_workers: int,
    profile_steps: int,
    link_seconds: float,
    threads: int | None,
    timeout: float,
) -> None:
    """Train a model: run it in every pod of a job for PyTorch, by torchrun, or alone.

    The file has, beside the model, the functions loss(output, labels), optimizer(parameters) and dataset();
    evaluation(), metric(output, labels), schedule(mini-batches) and collate(items) are used where they are there.

    Exit codes: 0 when done; 2 where no restart helps; 75 when another worker was lost; 143 when asked to stop, after a
    checkpoint.
    """
    if output is not None and checkpoints is None:
        raise InputError("--output needs --checkpoints, from which the stages are put together")
    if mode == "flush" and batch % micro_batches:
        raise InputError(
            f"--batch {batch} cannot be divided by --micro-batches {micro_batches}; give a multiple, or mode stash"
        )
    try:
        import torch
    except ImportError as error:
        raise InputError("tdcs-train run needs PyTorch: pip install 'tdcs-train[torch]'") from error
    from tdcs_train.model.script import imports_of, read_script
    from tdcs_train.peers.rendezvous import membership_from
    from tdcs_train.pipeline.plan_file import read_plan
    from tdcs_train.pipeline.plan_variable import plan_from
    from tdcs_train.pipeline.worker import Settings
    from tdcs_train.running import session
    from tdcs_train.running.exit_codes import exit_code

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        facts = {"batch": str(batch), "seed": str(seed), "epochs": str(epochs)}
        membership = membership_from(_variables(), facts=facts, timeout=timeout)
        workers = membership.world_size
        stage_plan = read_plan(plan, workers=workers) if plan else plan_from(os.environ, workers=workers)
        settings = Settings(
            mode="flush" if mode == "flush" else "stash", micro_batches=micro_batches, clip_norm=clip_norm
        )
        with imports_of(target):
            script, model = read_script(target)
            options = session.RunOptions(
                model=model,
                batch=batch,
                epochs=epochs,
                seed=seed,
                settings=settings,
                checkpoints=checkpoints,
                every=every or 0,
                output=output,
                processes=data_workers,
                profile_steps=profile_steps,
                link_seconds=link_seconds,
            )
            code = session.run(script, options, stage_plan, membership, say=session.printed)
    except InputError as error:
        click.echo(f"Error: {error}", err=True)
        code = exit_code(error)
    sys.exit(code)


def _variables() -> dict[str, str]:
    """Those of a job, or of one worker alone where no job operator has set any."""
    if os.environ.get("MASTER_ADDR") or os.environ.get("WORLD_SIZE"):
        return dict(os.environ)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
