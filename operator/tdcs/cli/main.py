"""The command `tdcs`. Each subcommand is imported when it is used: the CSI plugin must not load the operator."""

import importlib
from typing import Any

import click

from tdcs import __version__

COMMANDS = {
    "agent": ("tdcs.node.agent.agent_command", "Carry the blocks of one cache node."),
    "await-extender": (
        "tdcs_scheduler.await_extender",
        "Wait until the extender knows the datasets, for a bounded time.",
    ),
    "claim-server": ("tdcs.node.claim.claim_command", "Serve the files of a claim that is a source."),
    "crds": ("tdcs.cli.crds_command", "Write the CustomResourceDefinitions."),
    "csi": ("tdcs.node.csi.csi_command", "Run the CSI node plugin."),
    "doctor": (
        "tdcs.cli.doctor_command",
        "Say what you, a namespace and the cluster lack for training jobs.",
    ),
    "explain": (
        "tdcs.cli.explain.explain_command",
        "Explain why a job waits, or why pods are where they are.",
    ),
    "delete-caches": (
        "tdcs.cli.delete_caches",
        "Delete CacheClusters and wait until their disks are free.",
    ),
    "extender": ("tdcs_scheduler.main", "Run the scheduler extender."),
    "network-probe": ("tdcs.cli.network_probe", "Try to connect to ports that should be closed."),
    "operator": ("tdcs.control.operator.operator_command", "Run the operator."),
    "plan": ("tdcs.cli.plan.plan_command", "Say what would become of a training job, before it is applied."),
    "queue": ("tdcs.cli.queue_command", "Pause and resume the queue of jobs, or change its order."),
    "reader": ("tdcs.node.reader.reader_command", "Show pods what of their datasets is not on the node."),
    "smoke-test": ("tdcs.cli.smoke_test", "Run one tiny TrainingJob and wait for its success."),
    "status": (
        "tdcs.cli.explain.status_command",
        "Show caches, datasets, preloads and jobs, and what is wrong with them.",
    ),
    "top": ("tdcs.cli.live.top", "Show nodes, data and jobs, live in the terminal."),
    "ui": ("tdcs.cli.live.ui", "Serve a live page about nodes, data and jobs, for this machine alone."),
}
"""Subcommand to the module that has it as its attribute `command`, and its line in the help."""

LABS_COMMANDS = {
    "metrics": "Write the reference of all metrics.",
    "predict": "Predict what a training job takes with and without the cache.",
    "resources": "Write the reference of the custom resources.",
    "roles": "Write the reference of roles and rights.",
    "simulate": "Simulate a trace of jobs, or the paper's figure.",
}
"""Subcommands of the distribution tdcs-labs, found by their entry points, and their lines in the help."""
ENTRY_POINTS = "tdcs.commands"
"""The group of these entry points."""

OF_PODS = frozenset(
    {
        *(
            "agent",
            "await-extender",
            "claim-server",
            "csi",
            "delete-caches",
            "extender",
            "network-probe",
            "operator",
        ),
        *("reader", "smoke-test"),
    }
)
"""Those of the chart's pods, which people seldom call."""


class LazyGroup(click.Group):
    """A group that imports a subcommand only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *COMMANDS, *LABS_COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LABS_COMMANDS:
            return _labs_command(cmd_name)
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), "command", None)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; the sentence with which it ends may have words of others, which give no orders either."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            from tdcs.cli.console import (
                printable_lines,  # of rich and pydantic, which most processes of pods lack
            )

            vars(error).update(message=printable_lines(error.message))  # click calls it final
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own_commands = {name: command.get_short_help_str() for name, command in self.commands.items()}
        lazy = {name: text for name, (_, text) in COMMANDS.items()}
        lines = sorted({**own_commands, **lazy, **LABS_COMMANDS}.items())
        for title, of_pods in (("Commands", False), ("Run by the chart's pods", True)):
            with formatter.section(title):
                formatter.write_dl([line for line in lines if (line[0] in OF_PODS) == of_pods])


def _labs_command(name: str) -> click.Command:
    """A command of tdcs-labs.

    Raises:
        ClickException: it is not installed.
    """
    from importlib.metadata import entry_points  # takes 0.7 MiB, which processes of pods keep

    for point in entry_points(group=ENTRY_POINTS, name=name):
        command: click.Command = point.load()
        return command
    raise click.ClickException(
        f"tdcs {name} is in the distribution tdcs-labs, which is not installed: "
        "run pip install ./labs in a checkout of TDCS"
    )


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main(**_: Any) -> None:
    """TDCS: task and data co-located scheduling of deep-learning jobs on Kubernetes."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


if __name__ == "__main__":
    main(prog_name="tdcs")
