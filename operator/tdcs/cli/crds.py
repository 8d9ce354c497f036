"""`tdcs crds`: the CustomResourceDefinitions that this version of the operator needs."""

from pathlib import Path

import click

from tdcs.api import crd


@click.command(name="crds")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write one file a kind into; without it everything goes to standard output.",
)
def command(output: Path | None) -> None:
    """Write the CustomResourceDefinitions, ready for kubectl apply."""
    if output is None:
        click.echo("---\n".join(crd.manifests().values()), nl=False)
        return
    changed = list(crd.write(folder=output))
    for path in changed:
        click.echo(f"wrote {path}")
    if not changed:
        click.echo(f"{output} is up to date")
