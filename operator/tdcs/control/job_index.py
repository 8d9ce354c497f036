"""The TrainingJobs that are known, and which of them have not ended: by namespace, and by the Dataset that they read.

A cluster keeps the TrainingJobs that have ended, for years if nobody sets a time to live. What is worked on are the few
others; so each change of the view is noted in indexes, and nobody has to look through all.
"""

import hashlib
import statistics
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from tdcs.api import names
from tdcs.api.durations import seconds_between
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.model.kube_objects import Key, Object

RUNS_KEPT = 5
"""Of so many jobs of a template it is known how long they ran: the last ones that ended."""

TEMPLATES_KEPT = 10_000
"""Of so many templates it is known, those whose jobs ended last."""


def has_ended(job: Object) -> bool:
    """Whether its status says that it has succeeded or failed."""
    status = job.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return any(
        isinstance(condition, Mapping)
        and condition.get("type") in {names.SUCCEEDED, names.FAILED}
        and condition.get("status") == "True"
        for condition in conditions or ()
    )


def template_of(spec: object) -> str:
    """What makes jobs alike: their spec but for their run policy, as a short text."""
    parts = (
        {field: value for field, value in spec.items() if field != "runPolicy"}
        if isinstance(spec, dict)
        else {}
    )
    text = msgspec.json.encode(parts, order="deterministic")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def ran_seconds(job: Object) -> float | None:
    """How long a job ran that has succeeded, but for the time that it was suspended; None where that is not known."""
    status = job.get("status") or {}
    start, end = status.get("startTime"), status.get("completionTime")
    has_succeeded = any(
        isinstance(condition, Mapping)
        and condition.get("type") == names.SUCCEEDED
        and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    if not (has_succeeded and isinstance(start, str) and isinstance(end, str)):
        return None
    try:
        took = seconds_between(start, end) - float(status.get("suspendedSeconds") or 0)
    except (TypeError, ValueError):
        return None
    return took if took > 0 else None


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
        # By namespace and template, what the last jobs ran. A value is replaced, never changed: threads read it.
        self._ran: dict[tuple[str, str], tuple[tuple[Key, float], ...]] = {}
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
        elif (took := ran_seconds(job)) is not None:
            self._note_run(key, job, took)

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
        index = JobIndex()
        dict.update(index, self.live)
        index.live = dict(self.live)
        index._reads = dict(self._reads)
        index._ran = self._ran
        index._readers = {dataset: dict(readers) for dataset, readers in self._readers.items()}
        return index

    def reading(self, dataset: Key) -> dict[Key, Object]:
        """The jobs that name a Dataset, and have not ended."""
        return {key: self.live[key] for key in self._readers.get(dataset, ())}

    def ran(self, namespace: str, template: str) -> float | None:
        """Seconds that jobs of a template ran which have succeeded: the middle of the last ones; None: of none is it
        known."""
        runs = self._ran.get((namespace, template))
        return None if not runs else statistics.median(took for _, took in runs)

    def _note_run(self, key: Key, job: Object, took: float) -> None:
        run_key = (key[0], job.get("template") or template_of(job.get("spec")))
        earlier = tuple(run for run in self._ran.pop(run_key, ()) if run[0] != key)
        self._ran[run_key] = (*earlier, (key, took))[-RUNS_KEPT:]
        if len(self._ran) > TEMPLATES_KEPT:
            del self._ran[next(iter(self._ran))]

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
