"""`tdcs-train source`: the generated code of an artifact."""

import click

from tdcs_train.artifacts.source import generated_source


@click.command()
@click.argument("artifact")
def command(artifact: str) -> None:
    """Print the code of ARTIFACT (its folder) as TVM and the back ends wrote it."""
    click.echo(generated_source(artifact), nl=False)
