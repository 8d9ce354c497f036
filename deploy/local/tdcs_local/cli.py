"""``python -m tdcs_local``: the commands, and how a failure is shown."""

import sys
from pathlib import Path

import click

from tdcs_local import life, products
from tdcs_local.errors import LocalError
from tdcs_local.steps import Reporter


class _Commands(click.Group):
    """Shows a :class:`LocalError` as text, with exit code 1, instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LocalError as error:
            click.echo(f"\nerror: {error}", err=True)
            sys.exit(1)


@click.group(cls=_Commands)
def main() -> None:
    """The local cluster: its programs, its images, its life."""


@main.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice(sorted(products.PRODUCTS)))
def product(names: tuple[str, ...]) -> None:
    """Build programs that are not in the cache yet and print the folder of each."""
    reporter = Reporter()
    folders: list[Path] = [products.ensure(name, reporter=reporter) for name in names]
    for folder in folders:
        click.echo(folder)


@main.command()
def up() -> None:
    """Bring the cluster up: build, start and repair what is missing."""
    life.up(reporter=Reporter())


@main.command()
@click.option("--force", is_flag=True, help="Also when another checkout made the cluster.")
def down(force: bool) -> None:
    """Remove the cluster and what was started for it."""
    life.down(reporter=Reporter(), force=force)
