"""The TrainingJobs that are known, and which of them have not ended: by namespace, and by the Dataset that they read.

A cluster keeps the TrainingJobs that have ended, for years if nobody sets a time to live. What is worked on are the few
others; so each change of the view is noted in indexes, and nobody has to look through all.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tdcs.api import names
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.model.kube_objects import Key, Object

_KEPT_SPEC = ("datasets", "runPolicy")


def has_ended(job: Object) -> bool:
    """Whether its status says that it has succeeded or failed."""
    status = job.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return any(
        isinstance(one, Mapping)
        and one.get("type") in {names.SUCCEEDED, names.FAILED}
        and one.get("status") == "True"
        for one in conditions or ()
    )


def kept_job(job: Object) -> Object:
    """What a view keeps of a job: of one that has ended not its templates, nor where its pods were."""
    if not has_ended(job):
        return job
    metadata, spec = job["metadata"], job.get("spec")
    return {
        "metadata": {field: value for field, value in metadata.items() if field != "managedFields"},
        "spec": {field: spec[field] for field in _KEPT_SPEC if field in spec}
        if isinstance(spec, dict)
        else {},
        "status": {field: value for field, value in job["status"].items() if field != "placement"},
    }


class JobIndex(dict[Key, Object]):
    """TrainingJobs by namespace and name, with indexes of those that have not ended.

    Attributes:
        live: those that have not ended.
    """

    def __init__(self, jobs: Mapping[Key, Object] = MappingProxyType({})) -> None:
        super().__init__()
        self.live: dict[Key, Object] = {}
        self._readers: dict[Key, dict[Key, None]] = {}
        self._reads: dict[Key, tuple[Key, ...]] = {}
        for key, job in jobs.items():
            self[key] = job

    def __setitem__(self, key: Key, job: Object) -> None:
        super().__setitem__(key, job)
        self._drop_from_index(key)
        if not has_ended(job):
            self.live[key] = job
            self._reads[key] = reads = tuple((key[0], name) for name in dict.fromkeys(datasets_of(job)))
            for dataset in reads:
                self._readers.setdefault(dataset, {})[key] = None

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self._drop_from_index(key)

    def pop(self, key: Key, *default: Any) -> Any:
        """As of a dict."""
        if key not in self:
            return super().pop(key, *default)
        self._drop_from_index(key)
        return super().pop(key)

    def copy(self) -> "JobIndex":
        """Those that have not ended, as they are now."""
        found = JobIndex()
        dict.update(found, self.live)
        found.live = dict(self.live)
        found._reads = dict(self._reads)
        found._readers = {dataset: dict(readers) for dataset, readers in self._readers.items()}
        return found

    def reading(self, dataset: Key) -> dict[Key, Object]:
        """The jobs that name a Dataset, and have not ended."""
        return {key: self.live[key] for key in self._readers.get(dataset, ())}

    def _drop_from_index(self, key: Key) -> None:
        self.live.pop(key, None)
        for dataset in self._reads.pop(key, ()):
            readers = self._readers[dataset]
            del readers[key]
            if not readers:
                del self._readers[dataset]


def indexed(jobs: Mapping[Key, Object]) -> JobIndex:
    """The same jobs with their indexes; those of a view that has none are made for this once."""
    return jobs if isinstance(jobs, JobIndex) else JobIndex(jobs)
