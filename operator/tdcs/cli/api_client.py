"""The API server for commands that people call: of their kubeconfig, or of the pod that the command runs in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from tdcs.kube.client import KubernetesClient, connect
from tdcs.kube.configuration import ConfigurationError


@asynccontextmanager
async def api_client(
    *, kubeconfig: Path | None = None, context: str | None = None
) -> AsyncIterator[KubernetesClient]:
    """A client, closed at the end of the block.

    Raises:
        click.ClickException: there is no usable configuration.
    """
    try:
        client = await connect(kubeconfig=kubeconfig, context=context)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    try:
        yield client
    finally:
        await client.close()
