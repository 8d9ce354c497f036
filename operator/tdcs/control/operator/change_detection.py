"""What of a custom resource has others look again: two states that are equal in it call for no pass."""

from typing import Any

from tdcs.decide.queue.job_places import readable_copies
from tdcs.model.kube_objects import Object


def asked(obj: Object) -> tuple[Any, ...]:
    """What of an object others decide: everything but its status and the server's book-keeping."""
    metadata = obj["metadata"]
    kept = (
        "uid",
        "generation",
        "deletionTimestamp",
        "finalizers",
        "labels",
        "annotations",
        "ownerReferences",
    )
    return tuple(metadata.get(field) for field in kept)


def places(dataset: Object | None) -> object:
    """What of a Dataset says how many jobs may read it."""
    if dataset is None:
        return None
    path, access = (dataset.get("status") or {}).get("mountPath"), (dataset.get("spec") or {}).get("access")
    return path, access, readable_copies(dataset)


def worker_view(cluster: Object | None) -> Any:
    """What of a CacheCluster its Datasets follow: all of its spec (rules, quotas, scaling), and its workers."""
    if cluster is None:
        return None
    workers = (cluster.get("status") or {}).get("workers") or ()
    return cluster.get("spec"), [(worker.get("node"), worker.get("state")) for worker in workers]
