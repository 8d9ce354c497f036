"""The API server for commands that people call: of their kubeconfig, or of the pod that the command runs in."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from tdcs.kube.api import KubeApi
from tdcs.kube.client import KubernetesClient, connect
from tdcs.kube.configuration import ConfigurationError
from tdcs.kube.errors import NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import Resource


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


async def list_known(api: KubeApi, resource: Resource, *, namespace: str | None) -> list[Object]:
    """All objects of a kind of TDCS.

    Raises:
        click.ClickException: the cluster does not know the kind.
        KubeError: they could not be listed.
    """
    try:
        return (await api.list(resource, namespace=namespace)).items
    except NotFoundError as error:
        raise click.ClickException(
            f"the cluster does not know {resource.kind}s: install TDCS, or its definitions (tdcs crds --apply)"
        ) from error


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Default: $KUBECONFIG, ~/.kube/config, or the service account of the pod.",
        ),
        click.option("--context", help="The kubeconfig's context; default: the current one."),
    ):
        function = option(function)
    return function


def object_options(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The argument NAME of an object of a kind, its namespace, and how to connect."""

    def added(function: Callable[..., Any]) -> Callable[..., Any]:
        namespace = click.option(
            "-n", "--namespace", help=f"The {kind}'s namespace; default: that of the current context."
        )
        return click.argument("name")(namespace(connection_options(function)))

    return added
