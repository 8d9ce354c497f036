"""Which right is missing where the API server refuses a list, and which role of the chart gives it. Pure."""

from tdcs.kube.resources import CACHE_CLUSTERS, Resource

CLUSTER_VIEW = "tdcs-cluster-view"
"""The chart's ClusterRole for those who may look at caches and nodes, of a release with the usual name."""


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
        return f"{refused}: ask an administrator to bind the ClusterRole view, edit or admin to you there"
    return (
        f"{refused}: -n NAMESPACE asks for one, or ask an administrator to bind the ClusterRole view to you "
        "cluster-wide"
    )
