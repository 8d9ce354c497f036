"""`tdcs crds`: the CustomResourceDefinitions that this version of the operator needs."""

import asyncio
from pathlib import Path

import click
import yaml

from tdcs.cli import crd_documents


@click.command(name="crds")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write one file a kind into; without it everything goes to standard output.",
)
@click.option("--apply", is_flag=True, help="Apply them to the cluster of the usual configuration instead.")
def command(output: Path | None, apply: bool) -> None:
    """Write the CustomResourceDefinitions, ready for kubectl apply, or apply them."""
    if apply and output is not None:
        raise click.UsageError("--apply writes no files: give it alone")
    if apply:
        asyncio.run(_apply())
        return
    if output is None:
        click.echo("---\n".join(crd_documents.manifests().values()), nl=False)
        return
    changed = list(crd_documents.write(folder=output))
    for path in changed:
        click.echo(f"wrote {path}")
    if not changed:
        click.echo(f"{output} is up to date")


async def _apply() -> None:
    # The client takes long to import, and the rest of this command needs no cluster.
    from tdcs.cli.api_client import api_client
    from tdcs.kube.errors import KubeError
    from tdcs.model.kube_resources import CUSTOM_RESOURCE_DEFINITIONS

    async with api_client() as api:
        definitions = [yaml.safe_load(manifest) for manifest in crd_documents.manifests().values()]
        try:
            for definition in definitions:
                await api.apply(CUSTOM_RESOURCE_DEFINITIONS, obj=definition)
                click.echo(f"applied {definition['metadata']['name']}")
        except KubeError as error:
            raise click.ClickException(str(error)) from error
