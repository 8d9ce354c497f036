"""What a view keeps of a TrainingJob: of one that has ended half a KB of the 20 that the API server sends.

A cluster keeps TrainingJobs that have ended, a hundred thousand of them if nobody sets a time to live. Of these is read
how they ended, when, and how long they stay.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from tdcs.api import names
from tdcs.control.job_index import has_ended, template_of
from tdcs.decide.cache.dataset_demand import datasets_of
from tdcs.model.kube_objects import Object

METADATA: Final = (
    *("name", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp"),
)
POLICY: Final = ("cleanPodPolicy", "ttlSecondsAfterFinished")
STATUS: Final = (
    *("state", "locality", "restarts", "queue", "dataStall", "queueName", "observedGeneration"),
    *("startTime", "completionTime", "suspendedSeconds"),
)
CONDITIONS: Final = frozenset({names.ADMITTED, names.SUCCEEDED, names.FAILED})

_PARTS: Final = ("template", "metadata", "spec", "status")


class EndedJob(Mapping[str, Any]):
    """What is kept of a TrainingJob that has ended, read as the object that it was: its parts are made when read.

    What many jobs have in common is one object for all of them; what each has of its own is one packed text.
    """

    __slots__ = ("_common", "_packed")

    def __init__(self, job: Object) -> None:
        metadata, status, spec = job["metadata"], job["status"], job.get("spec")
        policy = spec.get("runPolicy") if isinstance(spec, Mapping) else None
        policy = policy if isinstance(policy, Mapping) else {}
        self._common = _common(
            str(metadata.get("namespace") or ""),
            job.get("template") or template_of(spec),
            datasets_of(job),
            tuple(msgspec.json.encode(policy.get(field)) for field in POLICY),
            tuple(
                str(condition["type"])
                for condition in status["conditions"]
                if isinstance(condition, Mapping)
                and condition.get("type") in CONDITIONS
                and condition.get("status") == "True"
            ),
        )
        self._packed = msgspec.msgpack.encode(
            ([metadata.get(field) for field in METADATA], [status.get(field) for field in STATUS])
        )

    def __getitem__(self, part: str) -> Any:
        namespace, template, spec, conditions = self._common
        if part == "spec":
            return spec
        if part == "template":
            return template
        if part not in _PARTS:
            raise KeyError(part)
        of_metadata, of_status = msgspec.msgpack.decode(self._packed)
        if part == "status":
            return {**_filled(STATUS, of_status), "conditions": conditions}
        metadata = _filled(METADATA, of_metadata)
        return {**metadata, "namespace": namespace} if namespace else metadata

    def __iter__(self) -> Iterator[str]:
        return iter(_PARTS)

    def __len__(self) -> int:
        return len(_PARTS)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EndedJob):
            return (self._packed, self._common) == (other._packed, other._common)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as that of a dict

    def __repr__(self) -> str:
        return f"EndedJob({dict(self)!r})"


def kept_job(job: Object) -> Object:
    """What a view keeps of a job: of one that has not ended all but the record of who wrote which field."""
    if has_ended(job):
        # A mapping is all that readers of a view ask for: they change no object of it.
        return job if isinstance(job, EndedJob) else cast(Object, EndedJob(job))
    metadata = {field: value for field, value in job["metadata"].items() if field != "managedFields"}
    return {**job, "metadata": metadata}


def _filled(fields: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {field: value for field, value in zip(fields, values, strict=True) if value is not None}


@lru_cache(maxsize=1 << 14)
def _common(
    namespace: str,
    template: str,
    datasets: tuple[str, ...],
    policy: tuple[bytes, ...],
    true: tuple[str, ...],
) -> tuple[str, str, Mapping[str, Any], Sequence[Mapping[str, str]]]:
    """Namespace, template, spec and conditions of jobs that are alike. The policy's fields are JSON."""
    fields = zip(POLICY, map(msgspec.json.decode, policy), strict=True)
    kept_policy = {field: value for field, value in fields if value is not None}
    spec: dict[str, Any] = {"datasets": [{"name": sys.intern(name)} for name in datasets]}
    if kept_policy:
        spec["runPolicy"] = kept_policy
    return (
        namespace,
        template,
        spec,
        [{"type": sys.intern(condition), "status": "True"} for condition in true],
    )
