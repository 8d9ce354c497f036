"""The informers of the operator: the objects of others that it keeps in view. kopf brings the custom resources."""

from collections.abc import Mapping

from tdcs.api import names
from tdcs.control.context import Settings
from tdcs.control.dataset.access.volume_objects import kept_claim
from tdcs.control.operator.event_handlers import EventHandlers
from tdcs.kube.api import KubeApi
from tdcs.kube.informer_set import InformerSet
from tdcs.model.kube_objects import Key, Object
from tdcs.model.kube_resources import (
    DAEMON_SETS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
    Resource,
)

Views = Mapping[Resource, dict[Key, Object]]
"""The objects of each resource by (namespace, name)."""

FOLLOWED = (
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


def informers_of(
    *, api: KubeApi, settings: Settings, views: Views, handlers: EventHandlers
) -> dict[Resource, InformerSet]:
    """One for each followed resource, in the namespaces that are served; none of them runs yet. They keep `views`."""
    scope = settings.served
    return {
        NODES: InformerSet(api=api, resource=NODES, store=views[NODES], on_change=handlers.on_node),
        PODS: InformerSet(
            api=api,
            resource=PODS,
            store=views[PODS],
            labels=names.LABEL_TRAINING_JOB,
            on_change=handlers.on_job_child,
        ),
        JOBS: InformerSet(
            api=api,
            resource=JOBS,
            store=views[JOBS],
            namespaces=scope.namespaces(JOBS),
            labels=names.LABEL_TRAINING_JOB,
            on_change=handlers.on_job_child,
        ),
        PRIORITY_CLASSES: InformerSet(
            api=api,
            resource=PRIORITY_CLASSES,
            store=views[PRIORITY_CLASSES],
            on_change=handlers.on_priority_class,
        ),
        RESOURCE_QUOTAS: InformerSet(
            api=api,
            resource=RESOURCE_QUOTAS,
            store=views[RESOURCE_QUOTAS],
            namespaces=scope.namespaces(RESOURCE_QUOTAS),
            on_change=handlers.on_resource_quota,
        ),
        NAMESPACES: InformerSet(
            api=api, resource=NAMESPACES, store=views[NAMESPACES], on_change=handlers.on_namespace
        ),
        RUNTIME_CLASSES: InformerSet(
            api=api,
            resource=RUNTIME_CLASSES,
            store=views[RUNTIME_CLASSES],
            on_change=handlers.on_runtime_class,
        ),
        PERSISTENT_VOLUME_CLAIMS: InformerSet(
            api=api,
            resource=PERSISTENT_VOLUME_CLAIMS,
            store=views[PERSISTENT_VOLUME_CLAIMS],
            namespaces=scope.namespaces(PERSISTENT_VOLUME_CLAIMS),
            labels=names.LABEL_DATASET_NAME,
            keep=kept_claim,
            on_change=handlers.on_dataset_claim,
        ),
        **{
            resource: InformerSet(
                api=api,
                resource=resource,
                store=views[resource],
                namespaces=[settings.namespace],
                labels=names.LABEL_CACHE_CLUSTER,
                on_change=handlers.on_cluster_child,
            )
            for resource in (STATEFUL_SETS, DAEMON_SETS)
        },
    }
