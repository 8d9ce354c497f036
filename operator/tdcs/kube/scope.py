"""The namespaces in which an operator works: all of them, or those that an administrator names."""

from dataclasses import dataclass

from tdcs.model.kube_resources import (
    CACHE_CLUSTERS,
    DATASETS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PRELOADS,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Resource,
)

_OF_DATA = frozenset({DATASETS, PRELOADS, PERSISTENT_VOLUME_CLAIMS})
_OF_JOBS = frozenset({TRAINING_JOBS, JOBS, RESOURCE_QUOTAS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where an operator works. In its own namespace it always does.

    Attributes:
        own: its own namespace, with the CacheClusters.
        datasets: namespaces with Datasets and Preloads; None: all.
        jobs: namespaces with TrainingJobs; None: all.
    """

    own: str
    datasets: frozenset[str] | None = None
    jobs: frozenset[str] | None = None

    def namespaces(self, resource: Resource) -> tuple[str | None, ...]:
        """Where objects of this resource are looked for, one after the other; (None,): everywhere at once."""
        if resource is CACHE_CLUSTERS:
            return (None,) if self.datasets is None or self.jobs is None else (self.own,)
        named = self.datasets if resource in _OF_DATA else self.jobs if resource in _OF_JOBS else None
        return (None,) if named is None else tuple(sorted({*named, self.own}))
