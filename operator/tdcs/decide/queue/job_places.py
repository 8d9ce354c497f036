"""Which places TrainingJobs take at the copies of their datasets, by the Datasets' specs and statuses.

The rules are those of `tdcs.decide.queue.copy_places`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tdcs.api import names
from tdcs.decide.queue.copy_places import PlaceRequest
from tdcs.model.kube_objects import Key, Object


def requests_of(
    *, namespace: str, datasets: Iterable[str], known: Mapping[Key, Object]
) -> tuple[PlaceRequest, ...]:
    """The places that a job takes.

    Args:
        namespace: the job's.
        datasets: the names of those that it reads.
        known: all Datasets. One that is not mounted yet has no places to be counted: nobody reads it.
    """
    found = []
    for name in datasets:
        dataset = known.get((namespace, name), {})
        if (dataset.get("status") or {}).get("mountPath"):
            limit = ((dataset.get("spec") or {}).get("access") or {}).get("maxConcurrentJobs")
            found.append(
                PlaceRequest(
                    dataset=f"{namespace}/{name}",
                    limit=limit if isinstance(limit, int) else 0,
                    copies=readable_copies(dataset),
                    coming=coming_copies(dataset),
                )
            )
    return tuple(found)


def readable_copies(dataset: Object) -> int:
    """How many copies jobs may choose from: those that lie on some node, and at least the one at the source."""
    copies = (dataset.get("status") or {}).get("copies") or ()
    there = [copy for copy in copies if copy.get("id") != names.PRELOADED_COPY and copy.get("nodes")]
    return max(sum(not is_arriving(copy) for copy in there), 1)


def coming_copies(dataset: Object) -> int:
    return sum(map(is_arriving, (dataset.get("status") or {}).get("copies") or ()))


def is_arriving(copy: Mapping[str, Any]) -> bool:
    """Whether it is a further copy that is not there yet as a whole: a job enters once it is."""
    clone = str(copy.get("id", "")).startswith(names.CLONE_COPY)
    return clone and any(node.get("arriving") or not node.get("bytes") for node in copy.get("nodes") or ())
