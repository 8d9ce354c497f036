"""Rights that are granted without use, and refusals that tests want, each with its reason."""

from collections.abc import Mapping

from tests.support.rights.comparison import Right

_ASKED_BY_ADMISSION = (
    "asked for where owners block deletion, and not in the audit log: see test_owner_rights.py"
)

_ENDING = "helm uninstall takes the rights of an operator that ends"

UNUSED: Mapping[Right, str] = {
    Right("operator", "tdcs.io", f"{plural}/finalizers", "update"): _ASKED_BY_ADMISSION
    for plural in ("cacheclusters", "datasets", "trainingjobs")
}

RARE: Mapping[Right, str] = {
    Right(
        "operator", "", "persistentvolumes", "list"
    ): "asked when a mount lost its Dataset while no operator ran",
    Right("operator", "", "secrets", "delete"): "asked when a node has left a cache that has certificates",
    Right(
        "operator", "kueue.x-k8s.io", "workloads", "delete"
    ): "asked when a TrainingJob loses its queue's label",
}
"""Rights that only some runs use."""

WIDE: Mapping[Right, str] = {
    **{
        Right(
            "operator", "tdcs.io", resource, verb
        ): "CacheClusters of other namespaces, which no policy refused when they were made, get a condition"
        for resource, verb in (("cacheclusters", "get"), ("cacheclusters/status", "patch"))
    },
    **{
        Right(
            "scheduler", "", "events", verb
        ): "an event that an earlier process of the extender wrote, too, is counted"
        for verb in ("get", "patch")
    },
    Right(
        "operator", "apps", "daemonsets", "delete"
    ): "CacheClusters, and so their FUSE clients, have any name",
}
"""Rights that only some runs use in as many places, and for as many objects, as they are granted."""

UNGRANTED: Mapping[Right, str] = {}
"""What programs in an administrator's place ask for beyond the chart's rights."""

REFUSALS: Mapping[Right, str] = {
    Right("operator", "", "secrets", "get"): "namespaces that do not let the operator read their Secrets",
    Right("operator", "", "secrets", "list"): _ENDING,
    Right("operator", "coordination.k8s.io", "leases", "get"): _ENDING,
    Right("operator", "apps", "daemonsets", "patch"): "CacheClusters with a FUSE image that no policy admits",
    Right("operator", "kueue.x-k8s.io", "workloads/status", "patch"): "a policy that lets no one hold quota",
}
