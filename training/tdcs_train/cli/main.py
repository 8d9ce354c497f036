"""The command `tdcs-train`. Each subcommand is imported when it is used: a plan must not load torch."""

import importlib
import select
import sys
from typing import Any

import click

from tdcs_train import __version__
from tdcs_train.errors import InputError

COMMANDS = {
    "compile": ("tdcs_train.cli.compile", "Compile a model into an artifact for one target."),
    "link": ("tdcs_train.cli.link", "Measure the links between the pods of a job."),
    "order": ("tdcs_train.cli.order", "Order the transfers of a profiled model."),
    "plan": ("tdcs_train.cli.plan", "Plan the parallelism of a profiled model."),
    "profile": ("tdcs_train.cli.profile", "Measure a model layer by layer."),
    "run": ("tdcs_train.cli.run", "Train a model as its plan says, from the variables to the exit code."),
    "source": ("tdcs_train.cli.source", "Print the generated code of an artifact."),
    "targets": ("tdcs_train.cli.targets", "Show what models can be compiled for, and what this node is."),
    "triton": ("tdcs_train.cli.triton", "Keep the kernels that Triton has compiled for a GPU."),
}
"""Subcommand to the module that has it as attribute `command`, and its line in the help."""

EXTRAS = {
    "compile": ("msgspec", "obstore", "onnx", "safetensors", "tvm", "tvm_ffi"),
    "images": ("PIL",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
"""The extras that subcommands need, with the modules that each brings."""


class Refusal(click.ClickException):
    """What a user gave cannot be used."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group that imports a subcommand only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        attribute = getattr(importlib.import_module(COMMANDS[cmd_name][0]), "command", None)
        return attribute if isinstance(attribute, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands, without importing any of them."""
        rows = {name: command.get_short_help_str() for name, command in self.commands.items()}
        rows.update({name: text for name, (_, text) in COMMANDS.items()})
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; bad input and files that cannot be used end it with one sentence and exit code 2."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if _output_is_closed():
                raise  # as behind `| head`: click ends without a word
            raise Refusal(str(error)) from error
        except (InputError, OSError) as error:
            raise Refusal(str(error)) from error
        except ModuleNotFoundError as error:
            root = (error.name or "").partition(".")[0]
            for extra, modules in EXTRAS.items():
                if root in modules:
                    raise Refusal(f"this needs {root}: pip install 'tdcs-train[{extra}]'") from error
            raise


def _output_is_closed() -> bool:
    """Whether the standard output is a pipe, or a socket, that has no reader any more."""
    poller = select.poll()
    try:
        poller.register(sys.stdout.fileno(), select.POLLOUT)
    except OSError:  # a stream in memory has no descriptor
        return False
    return any(events & select.POLLERR for _, events in poller.poll(0))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main(**_: Any) -> None:
    """Training over slow links: measure a model, plan its parallelism, order its transfers, run it."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


if __name__ == "__main__":
    main(prog_name="tdcs-train")
