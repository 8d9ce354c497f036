"""`tdcs delete-caches`: what `helm uninstall` runs first, while the operator can still free the nodes' disks."""

import asyncio
import time
from collections.abc import Sequence

import click

from tdcs.api import names
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import KubeError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS

POLL = 1.0


class StillThereError(Exception):
    """Something stands in the way of deleting the caches; the text says what, and what to do."""


@click.command(name="delete-caches")
@click.argument("clusters", metavar="[NAME]...", nargs=-1)
@click.option(
    "--namespace", default=names.SYSTEM_NAMESPACE, show_default=True, help="The operator's, where they live."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=240.0,
    show_default=True,
    help="Seconds to wait until they are gone.",
)
def command(clusters: tuple[str, ...], namespace: str, timeout: float) -> None:
    """Delete the CacheClusters NAME, and wait until the disks of their nodes are free.

    Deletes nothing while there are Datasets or other CacheClusters: it runs before the operator is uninstalled, and
    nothing could delete those cleanly afterwards.
    """
    try:
        asyncio.run(_run(clusters, namespace=namespace, patience=timeout))
    except (KubeError, StillThereError) as error:
        raise click.ClickException(str(error)) from error


async def _run(clusters: Sequence[str], *, namespace: str, patience: float) -> None:
    # The client takes long to import: not for --help.
    from tdcs.cli.api_client import api_client

    async with api_client() as api:
        await delete_caches(api=api, namespace=namespace, clusters=clusters, patience=patience)


async def delete_caches(
    *, api: KubeApi, namespace: str, clusters: Sequence[str], patience: float, poll: float = POLL
) -> None:
    """Delete the cache clusters, and wait until they are gone.

    Raises:
        StillThereError: Datasets or other caches are there, and nothing was deleted; or time is up.
        KubeError: the server refused, or does not answer.
    """
    datasets = (await api.list(DATASETS)).items
    caches = (await api.list(CACHE_CLUSTERS, namespace=namespace)).items
    if reason := in_the_way(clusters=clusters, datasets=datasets, caches=caches):
        raise StillThereError(reason)
    deadline = time.monotonic() + patience
    for name in clusters:
        await api.delete(CACHE_CLUSTERS, name=name, namespace=namespace)
    for name in clusters:
        while (cluster := await api.get(CACHE_CLUSTERS, name=name, namespace=namespace)) is not None:
            if time.monotonic() > deadline:
                raise StillThereError(_why(cluster, patience=patience))
            await asyncio.sleep(poll)
        click.echo(f"CacheCluster {name} is gone, and the disks of its nodes are free")


def in_the_way(*, clusters: Sequence[str], datasets: Sequence[Object], caches: Sequence[Object]) -> str:
    """What must be deleted before, in words; empty when nothing. What is being deleted is waited for instead."""
    dataset_titles = [
        _title(dataset) for dataset in datasets if not dataset["metadata"].get("deletionTimestamp")
    ]
    other_caches = [cache["metadata"] for cache in caches if cache["metadata"]["name"] not in clusters]
    titles = [_title(cache) for cache in caches if cache["metadata"]["name"] not in clusters]
    parts = [
        f"{len(blockers)} {kind}{'' if len(blockers) == 1 else 's'} "
        f"({', '.join(sorted(blockers)[:5])}{', …' if len(blockers) > 5 else ''})"
        for kind, blockers in ((names.KIND_DATASET, dataset_titles), (names.KIND_CACHE_CLUSTER, titles))
        if blockers
    ]
    if not parts:
        return ""
    remedies = (
        ["kubectl delete trainingjobs,preloads,datasets --all --all-namespaces"] if dataset_titles else []
    )
    if other_caches:
        left_names = " ".join(sorted(str(metadata["name"]) for metadata in other_caches))
        remedies.append(f"kubectl delete cacheclusters -n {other_caches[0]['namespace']} {left_names}")
    return (
        f"nothing was deleted: there are {' and '.join(parts)}, which only the running operator can delete cleanly. "
        f"Delete them first: {'; '.join(remedies)}. To keep TDCS instead, which Helm counts as uninstalling now: helm "
        "rollback to the last revision of helm history that was deployed. To uninstall all the same, and leave cached "
        "data on the nodes' disks: helm uninstall --no-hooks"
    )


def _title(obj: Object) -> str:
    metadata = obj["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def _why(cluster: Object, *, patience: float) -> str:
    """What the deletion waits for, in the words of the cluster's own condition."""
    conditions = (cluster.get("status") or {}).get("conditions") or ()
    message = next(
        (condition["message"] for condition in conditions if condition.get("type") == names.READY),
        "see the operator's log",
    )
    return (
        f"CacheCluster {_title(cluster)} is still being deleted after {patience:.0f} s: {message}. To uninstall "
        "without freeing the disks, use helm uninstall --no-hooks, and then remove the object's finalizer"
    )
