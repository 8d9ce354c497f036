"""What an autoscaler is answered: the readers of a Dataset for its copies, or the bytes a cache shall hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tdcs.api.quantities import to_bytes

Objects = Mapping[tuple[str, str], Mapping[str, Any]]
"""By namespace and name."""

READERS: Final = "readers"
WANTED_BYTES: Final = "wantedBytes"

DATASET: Final = "dataset"
CACHE_CLUSTER: Final = "cacheCluster"
TARGET: Final = "target"
KEYS: Final = frozenset({DATASET, CACHE_CLUSTER, TARGET})
"""Keys of a trigger's metadata, next to those that are KEDA's own."""

KEDAS_KEYS: Final = frozenset(
    {"scalerAddress", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey", "unsafeSsl", "enableTLS"}
)

FULL: Final = 0.85
"""Of a worker's capacity, what it is to hold where no target is given."""

NO_LIMIT_READERS: Final = 1
"""Jobs a copy where neither a target nor spec.access.maxConcurrentJobs says it."""


class QuestionError(Exception):
    """What is asked for cannot be answered as it is written; the text says what to write."""


class UnknownObjectError(Exception):
    """There is no such object, or it has no status yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledMetric:
    """A metric of which an autoscaler keeps `value / replicas` near `target`.

    Attributes:
        name: `readers` or `wantedBytes`.
        value: jobs that read the Dataset or wait; or bytes.
        target: for each copy; or for each cache worker.
    """

    name: str
    value: float
    target: float

    @property
    def active(self) -> bool:
        """Whether there is anything to scale for."""
        return self.value > 0


def metric_of(
    metadata: Mapping[str, str], *, namespace: str, datasets: Objects, cache_clusters: Objects
) -> ScaledMetric:
    """The metric that a trigger's metadata asks for, of the ScaledObject's own namespace.

    Raises:
        QuestionError: the metadata is wrong.
        UnknownObjectError: there is no such object, or nothing is known of it yet.
    """
    dataset, cluster = metadata.get(DATASET, ""), metadata.get(CACHE_CLUSTER, "")
    if bool(dataset) == bool(cluster):
        raise QuestionError(
            f"metadata of the trigger names {'both' if dataset else 'neither'} {DATASET} and {CACHE_CLUSTER}: write "
            f"{DATASET}: NAME to scale a Dataset's copies, or {CACHE_CLUSTER}: NAME to scale a CacheCluster's workers"
        )
    unknown = metadata.keys() - KEYS - KEDAS_KEYS
    if unknown:
        raise QuestionError(
            f"metadata of the trigger has {', '.join(sorted(unknown))}: known are {', '.join(sorted(KEYS))}"
        )
    if dataset:
        obj = _found(datasets, "Dataset", namespace, dataset)
        return _readers(obj, _number(metadata.get(TARGET), bytes_=False))
    obj = _found(cache_clusters, "CacheCluster", namespace, cluster)
    return _wanted(obj, _number(metadata.get(TARGET), bytes_=True))


def _found(store: Objects, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
    obj = store.get((namespace, name))
    if obj is None:
        raise UnknownObjectError(
            f"there is no {kind} {namespace}/{name}: the ScaledObject has to be in its namespace"
        )
    if not obj.get("status"):
        raise UnknownObjectError(f"nothing is known of {kind} {namespace}/{name} yet")
    return obj


def _readers(dataset: Mapping[str, Any], target: float | None) -> ScaledMetric:
    status, access = dataset["status"], (dataset.get("spec") or {}).get("access") or {}
    readers = int(status.get("activeJobs") or 0) + int(status.get("waitingJobs") or 0)
    target_each = target or float(access.get("maxConcurrentJobs") or NO_LIMIT_READERS)
    return ScaledMetric(name=READERS, value=readers, target=target_each)


def _wanted(cluster: Mapping[str, Any], target: float | None) -> ScaledMetric:
    status = cluster["status"]
    # An unregistered worker reports no capacity; a draining one has the same capacity as the others.
    capacities = [
        size
        for worker in status.get("workers") or ()
        if (size := float(worker.get("capacityBytes") or 0)) > 0
    ]
    target_each = target or (FULL * sum(capacities) / len(capacities) if capacities else 0.0)
    if target_each <= 0:
        raise UnknownObjectError(
            f"it is not known how much a worker of CacheCluster {cluster['metadata']['name']} holds: write {TARGET}, "
            "in bytes, such as 100Gi"
        )
    return ScaledMetric(name=WANTED_BYTES, value=float(status.get("wantedBytes") or 0), target=target_each)


def _number(text: str | None, *, bytes_: bool) -> float | None:
    if not text:
        return None
    try:
        number = float(to_bytes(text)) if bytes_ else float(text)
    except ValueError as error:
        raise QuestionError(f"{TARGET} is {text!r}, which is no number above 0") from error
    if not 0 < number < float("inf"):
        raise QuestionError(f"{TARGET} is {text!r}, which is no number above 0")
    return number
