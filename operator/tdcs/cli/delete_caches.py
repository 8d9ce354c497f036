"""`tdcs delete-caches`: what `helm uninstall` runs first, while the operator can still free the nodes' disks."""

import asyncio
import time

import click

from tdcs.api import names


@click.command(name="delete-caches")
@click.argument("clusters", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=240.0,
    show_default=True,
    help="Seconds to wait until they are gone.",
)
def command(clusters: tuple[str, ...], timeout: float) -> None:
    """Delete the CacheClusters NAME... and wait until the disks of their nodes are free."""
    asyncio.run(_delete(clusters, patience=timeout))


async def _delete(clusters: tuple[str, ...], *, patience: float) -> None:
    # The client takes long to import: not for --help.
    from tdcs.kube.api import LightkubeApi
    from tdcs.kube.errors import KubeError
    from tdcs.kube.resources import CACHE_CLUSTERS

    api = LightkubeApi()
    deadline = time.monotonic() + patience
    try:
        for name in clusters:
            await api.delete(CACHE_CLUSTERS, name=name)
        for name in clusters:
            while (found := await api.get(CACHE_CLUSTERS, name=name)) is not None:
                if time.monotonic() > deadline:
                    raise click.ClickException(_why(found, patience=patience))
                await asyncio.sleep(1.0)
            click.echo(f"CacheCluster {name} is gone, and the disks of its nodes are free")
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    finally:
        await api.close()


def _why(cluster: dict[str, object], *, patience: float) -> str:
    """What the deletion waits for, in the words of the cluster's own condition."""
    status = cluster.get("status")
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    told = next(
        (one["message"] for one in conditions if one.get("type") == names.READY), "see the operator's log"
    )
    metadata = cluster["metadata"]
    name = metadata["name"] if isinstance(metadata, dict) else ""
    return (
        f"CacheCluster {name} is still being deleted after {patience:.0f} s: {told}. To uninstall without freeing the "
        "disks, use helm uninstall --no-hooks, and then remove the object's finalizer"
    )
