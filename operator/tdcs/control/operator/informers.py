"""What the operator keeps in view, and the informers of it: of TDCS's own kinds, and of the objects of others."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from tdcs.api import names
from tdcs.control.context import Settings, Stores
from tdcs.control.dataset.access.volume_objects import kept_claim
from tdcs.control.dataset_index import DatasetIndex
from tdcs.control.job_index import JobIndex
from tdcs.control.kept_job import kept_job
from tdcs.control.node_usage import PodAddresses, Usage
from tdcs.control.operator.event_handlers import EventHandlers
from tdcs.control.operator.kept_node import kept_node
from tdcs.control.operator.kept_pod import kept_pod
from tdcs.kube.api import KubeApi
from tdcs.kube.informer import OnChange
from tdcs.kube.informer_set import InformerSet
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DAEMON_SETS,
    DATASETS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRELOADS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Resource,
)

Views = Mapping[Resource, dict[Key, Object]]
"""The objects of each resource by (namespace, name)."""

OWN_KINDS: Final = (CACHE_CLUSTERS, DATASETS, PRELOADS, TRAINING_JOBS)
"""What users create, and what passes are made over."""

_KEPT: Final = MappingProxyType({TRAINING_JOBS: kept_job})

_OF_OTHERS: Final = (
    NODES,
    PODS,
    JOBS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    NAMESPACES,
    RUNTIME_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    STATEFUL_SETS,
    DAEMON_SETS,
)


def empty_views() -> Views:
    """A view of each resource, which its informer fills."""
    views: dict[Resource, dict[Key, Object]] = {resource: {} for resource in (*OWN_KINDS, *_OF_OTHERS)}
    return {**views, DATASETS: DatasetIndex(), TRAINING_JOBS: JobIndex()}


def stores_of(*, views: Views, namespace: str, usage: Usage, pod_addresses: PodAddresses) -> Stores:
    """The live views by their names; `namespace` is the operator's."""
    return Stores(
        namespace=namespace,
        cache_clusters=views[CACHE_CLUSTERS],
        datasets=views[DATASETS],
        preloads=views[PRELOADS],
        training_jobs=views[TRAINING_JOBS],
        nodes=views[NODES],
        pods=views[PODS],
        jobs=views[JOBS],
        stateful_sets=views[STATEFUL_SETS],
        daemon_sets=views[DAEMON_SETS],
        priority_classes=views[PRIORITY_CLASSES],
        resource_quotas=views[RESOURCE_QUOTAS],
        namespaces=views[NAMESPACES],
        runtime_classes=views[RUNTIME_CLASSES],
        usage=usage,
        pod_addresses=pod_addresses,
    )


def without_managed_fields(obj: Object) -> Object:
    """An object without the record of who wrote which field, which may be half of it."""
    metadata = {field: value for field, value in obj["metadata"].items() if field != "managedFields"}
    return {**obj, "metadata": metadata}


def informers_of(
    *, api: KubeApi, settings: Settings, views: Views, handlers: EventHandlers
) -> dict[Resource, InformerSet]:
    """One for each resource, in the namespaces that are served; none of them runs yet. They keep `views`."""

    def follow(resource: Resource, on_change: OnChange, **options: Any) -> None:
        informers[resource] = InformerSet(
            api=api, resource=resource, store=views[resource], on_change=on_change, **options
        )

    informers: dict[Resource, InformerSet] = {}
    namespaces, of_job = settings.served.namespaces, names.LABEL_TRAINING_JOB
    follow(NODES, handlers.on_node, keep=kept_node)
    follow(PODS, handlers.on_job_pod, labels=of_job, keep=kept_pod)
    follow(
        JOBS, handlers.on_job_child, labels=of_job, namespaces=namespaces(JOBS), keep=without_managed_fields
    )
    follow(PRIORITY_CLASSES, handlers.on_priority_class)
    follow(RESOURCE_QUOTAS, handlers.on_resource_quota, namespaces=namespaces(RESOURCE_QUOTAS))
    follow(NAMESPACES, handlers.on_namespace)
    follow(RUNTIME_CLASSES, handlers.on_runtime_class)
    follow(
        PERSISTENT_VOLUME_CLAIMS,
        handlers.on_dataset_claim,
        namespaces=namespaces(PERSISTENT_VOLUME_CLAIMS),
        labels=names.LABEL_DATASET_NAME,
        keep=kept_claim,
    )
    for children in (STATEFUL_SETS, DAEMON_SETS):
        follow(
            children,
            handlers.on_cluster_child,
            namespaces=[settings.namespace],
            labels=names.LABEL_CACHE_CLUSTER,
        )
    for kind in OWN_KINDS:
        follow(
            kind,
            partial(handlers.on_custom_resource, kind),
            namespaces=namespaces(kind),
            keep=_KEPT.get(kind),
        )
    return informers
