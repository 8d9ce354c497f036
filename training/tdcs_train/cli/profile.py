"""`tdcs-train profile`: what each layer of a model costs on this machine."""

from pathlib import Path

import click

from tdcs_train.errors import InputError
from tdcs_train.plan.graph import check
from tdcs_train.plan.profile_text import render


@click.command("profile")
@click.argument("target", metavar="FILE.py:MODEL")
@click.option("--batch", type=click.IntRange(min=1), required=True, help="Samples of a mini-batch.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=50, show_default=True, help="Mini-batches to measure."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="What is measured: the processors, or the GPU of this process. It is refused where there is none.",
)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads of an operator; as in training.")
@click.option(
    "--batches", default="batch", show_default=True, help="The file's function (samples) -> (inputs, labels)."
)
@click.option(
    "--loss", default="loss", show_default=True, help="The file's function (output, labels) -> loss."
)
@click.option(
    "--optimizer",
    default="",
    metavar="NAME",
    help="The file's function (parameters) -> optimizer; its steps count as part of each layer's backward.",
)
@click.option(
    "--leaf", "leaves", multiple=True, metavar="NAME", help="A module to leave whole; may be repeated."
)
@click.option(
    "--layers", default="", metavar="A,B,...", help="Modules that run one after another: nothing is traced."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where to write; standard output otherwise."
)
def command(
    *,
    target: str,
    batch: int,
    steps: int,
    device: str,
    threads: int | None,
    batches: str,
    loss: str,
    optimizer: str,
    leaves: tuple[str, ...],
    layers: str,
    output: Path | None,
) -> None:
    """Measure a model layer by layer: forward and backward time, bytes of outputs and parameters, and the edges."""
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"--output: {output.parent} is no folder; make it, or write elsewhere")
    if output is not None and output.is_dir():
        raise InputError(f"--output: {output} is a folder; give a file")
    try:
        import torch
    except ImportError as error:
        raise InputError("tdcs-train profile needs PyTorch: pip install 'tdcs-train[torch]'") from error
    from tdcs_train.model.clocks import gpu
    from tdcs_train.model.measuring import profile
    from tdcs_train.model.script import imports_of, subject_of

    if threads is not None:
        torch.set_num_threads(threads)
    names = [name for name in layers.split(",") if name]
    with imports_of(target):
        subject = subject_of(
            target,
            batch=batch,
            batch_name=batches,
            loss_name=loss,
            optimizer_name=optimizer,
            device=gpu() if device == "cuda" else None,
        )
        graph = profile(
            subject,
            steps=steps,
            leaves=leaves,
            layers=names,
            note=lambda text: click.echo(f"note: {text}", err=True),
        )
    check(graph, source=target)
    if output is None:
        click.echo(render(graph), nl=False)
    else:
        output.write_text(render(graph), encoding="utf-8")
