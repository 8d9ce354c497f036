"""What `tdcs status` shows: the objects that the user may list, and what is missing for the others."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from tdcs.api import names
from tdcs.cli.api_client import list_known
from tdcs.cli.explain.operator_lease import read_lease
from tdcs.kube.api import KubeApi
from tdcs.kube.errors import ForbiddenError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import CACHE_CLUSTERS, DATASETS, NAMESPACES, PRELOADS, TRAINING_JOBS, Resource

VIEW, EDIT, CLUSTER_VIEW = "tdcs-view", "tdcs-edit", "tdcs-cluster-view"
"""The chart's ClusterRoles for people: two for a namespace, one for caches and nodes. Releases of another name than the
usual one have their own instead of tdcs."""


@dataclass(frozen=True, kw_only=True)
class ListedObjects:
    """What there is; `limits`: by plural, why the objects of a kind are not known; `lease`: the operator's, or None."""

    clusters: Sequence[Object] = field(default_factory=list)
    datasets: Sequence[Object] = field(default_factory=list)
    preloads: Sequence[Object] = field(default_factory=list)
    jobs: Sequence[Object] = field(default_factory=list)
    limits: Mapping[str, str] = field(default_factory=dict)
    lease: Object | None = None


async def read_world(api: KubeApi, *, namespace: str | None) -> ListedObjects:
    """What the user may list.

    Args:
        api: as whoever looks.
        namespace: of Datasets, Preloads and TrainingJobs; None: all.

    Raises:
        click.ClickException: the cluster does not know a kind.
        KubeError: a kind could not be listed for another reason than a missing right.
    """
    # CacheClusters live in the release's namespace, whichever is looked at: who may not list all may see those.
    scopes: dict[Resource, Sequence[str | None]] = {
        CACHE_CLUSTERS: [None, names.SYSTEM_NAMESPACE],
        DATASETS: [namespace],
        PRELOADS: [namespace],
        TRAINING_JOBS: [namespace],
    }
    listed = await asyncio.gather(
        *(_list_permitted(api, resource, namespaces=scope) for resource, scope in scopes.items())
    )
    listing_of = dict(zip(scopes, listed, strict=True))
    limits = {
        resource.plural: may_not_list(resource, namespace=scopes[resource][0])
        for resource, objects in listing_of.items()
        if objects is None
    }
    return ListedObjects(
        clusters=listing_of[CACHE_CLUSTERS] or (),
        datasets=listing_of[DATASETS] or (),
        preloads=listing_of[PRELOADS] or (),
        jobs=listing_of[TRAINING_JOBS] or (),
        limits=limits,
        lease=await read_lease(api),
    )


async def _list_permitted(
    api: KubeApi, resource: Resource, *, namespaces: Sequence[str | None]
) -> list[Object] | None:
    """The objects in the first of these namespaces (None: in all) that may be asked; None: in none of them."""
    for namespace in namespaces:
        with contextlib.suppress(ForbiddenError):
            return await list_known(api, resource, namespace=namespace)
    return None


async def used_namespaces(api: KubeApi) -> list[str]:
    """The namespaces that have a Dataset or a TrainingJob, as far as the user may list these everywhere."""
    listed = await asyncio.gather(
        *(_list_permitted(api, resource, namespaces=[None]) for resource in (DATASETS, TRAINING_JOBS))
    )
    return sorted({str(obj["metadata"]["namespace"]) for objects in listed for obj in objects or ()})


async def check_namespace(api: KubeApi, namespace: str) -> None:
    """Whether there is such a namespace; without the right to ask, it is taken to exist.

    Raises:
        click.ClickException: there is none.
    """
    try:
        namespace_object = await api.get(NAMESPACES, name=namespace)
    except ForbiddenError:
        return
    if namespace_object is None:
        raise click.ClickException(
            f"there is no namespace {namespace}; kubectl get namespaces lists all, -A shows the objects of all"
        )


def may_not_list(resource: Resource, *, namespace: str | None) -> str:
    """What may not be listed, and who can change that.

    Args:
        resource: the kind, one of those that the chart's roles for people cover.
        namespace: the one that was asked for; None: all.
    """
    where = f"in namespace {namespace}" if namespace else "of all namespaces"
    refused = f"you may not list {resource.plural}.{resource.group} {where}"
    if resource is CACHE_CLUSTERS:
        return f"{refused}: ask an administrator to bind the ClusterRole {CLUSTER_VIEW} to you"
    if namespace:
        return f"{refused}: ask an administrator to bind the ClusterRole {VIEW} or {EDIT} to you there"
    return (
        f"{refused}: -n NAMESPACE asks for one, or ask an administrator to bind the ClusterRole {VIEW} to you "
        "cluster-wide"
    )
