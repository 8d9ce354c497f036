"""Which right is missing where the API server refuses a list, and which role of the chart gives it."""

from tdcs.model.kube_resources import CACHE_CLUSTERS, Resource

VIEW, EDIT, CLUSTER_VIEW = "tdcs-view", "tdcs-edit", "tdcs-cluster-view"
"""The chart's ClusterRoles for people: two for a namespace, one for caches and nodes. Releases of another name than the
usual one have their own instead of tdcs."""


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
