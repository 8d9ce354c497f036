"""Places at the copies of Datasets: how many jobs read one now, and how many may.

A job takes a place at each of its Datasets. Jobs that read the same source by another Dataset do not count, for that
one may be another namespace's: no tenant takes a place of another one, nor hears of its jobs.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tdcs.api import names
from tdcs.model.kube_objects import Object

Key = tuple[str, str]
"""Namespace and name of a job."""

NAMED = 3
"""So many of the jobs that read a dataset are named to one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """A place that a job takes at a Dataset.

    Attributes:
        dataset: the Dataset, as namespace/name.
        limit: how many jobs may read each copy at once; 0 when there is no limit.
        copies: how many copies can be read.
        coming: further ones that are being made for jobs that wait.
    """

    dataset: str
    limit: int = 0
    copies: int = 1
    coming: int = 0

    @property
    def places(self) -> int | None:
        """How many jobs may read it at once; None when there is no limit."""
        return self.limit * self.copies if self.limit else None


class CopyPlaces:
    """Who has a place at which Dataset."""

    def __init__(self, readers: Mapping[str, Iterable[Key]] | None = None) -> None:
        self._readers = {dataset: list(jobs) for dataset, jobs in (readers or {}).items()}

    def take(self, job: Key, requests: Iterable[PlaceRequest]) -> None:
        """A job was admitted. It takes one place at a Dataset, however often it mounts that."""
        for dataset in {request.dataset for request in requests}:
            self._readers.setdefault(dataset, []).append(job)

    def full(self, requests: Sequence[PlaceRequest]) -> PlaceRequest | None:
        """The first of these Datasets that has no place left; None when each has one."""
        return next((request for request in requests if self.left(request) == 0), None)

    def left(self, request: PlaceRequest) -> int | None:
        """How many more jobs may read a Dataset at once; None when there is no limit."""
        if request.places is None:
            return None
        return max(request.places - len(self._readers.get(request.dataset, ())), 0)

    def sentence(self, request: PlaceRequest) -> str:
        """Why a Dataset has no place left, for the job that waits for one."""
        readers = sorted(self._readers.get(request.dataset, ()))
        named = ", ".join("/".join(job) for job in readers[:NAMED])
        more = f" and {len(readers) - NAMED} more" if len(readers) > NAMED else ""
        coming = f"; {request.coming} further to come (spec.access.onLimit)" if request.coming else ""
        many = "1 job" if request.limit == 1 else f"{request.limit} jobs"
        copies_text = f"each of its {request.copies} copies" if request.copies > 1 else "it"
        return (
            f"Dataset {request.dataset} lets {many} read {copies_text} at once (spec.access.maxConcurrentJobs), and "
            f"{named}{more} read{'s' if len(readers) == 1 else ''} it{coming}"
        )


@dataclass(slots=True, kw_only=True)
class KeptPlaces:
    """The places that are kept for jobs that were passed too often: one at each of their Datasets.

    Attributes:
        jobs: by Dataset, the places in the queue and the names of the jobs, the first of the queue first.
    """

    jobs: dict[str, list[tuple[Any, str]]] = field(default_factory=dict)

    def keep(self, job: Key, requests: Iterable[PlaceRequest], *, order: Any = ()) -> None:
        """Those behind a job leave it a place at each of its Datasets; `order`: its place in the queue."""
        for dataset in {request.dataset for request in requests}:
            insort(self.jobs.setdefault(dataset, []), (order, "/".join(job)))

    def count(self, request: PlaceRequest, *, order: Any = None) -> int:
        """How many places at a Dataset are kept for jobs before this place in the queue; None: for all of them."""
        jobs = self.jobs.get(request.dataset, [])
        return len(jobs) if order is None else bisect_left(jobs, (order, ""))

    def closed(
        self, requests: Iterable[PlaceRequest], *, places: CopyPlaces, order: Any = None
    ) -> PlaceRequest | None:
        """The first Dataset that keeps all of its places that are left for jobs before this one."""
        for request in requests:
            free_places = places.left(request)
            if free_places is not None and free_places <= self.count(request, order=order):
                return request
        return None


def missing_place(
    requests: Sequence[PlaceRequest], *, places: CopyPlaces, kept_places: KeptPlaces, order: Any = None
) -> tuple[PlaceRequest, str] | None:
    """The place that a job lacks, and why; None when it may have all that it asks for. `order`: its place in the queue,
    where `kept_places` knows of jobs behind it, too."""
    full = places.full(requests)
    if full is not None:
        return full, places.sentence(full)
    closed = kept_places.closed(requests, places=places, order=order)
    if closed is None:
        return None
    first = kept_places.jobs[closed.dataset][0][1] if kept_places.count(closed) else "others"
    return closed, f"the next place at Dataset {closed.dataset} is kept for {first}, passed too often"


def requests_of(
    *, namespace: str, datasets: Iterable[str], dataset_objects: Mapping[tuple[str, str], Object]
) -> tuple[PlaceRequest, ...]:
    """The places that a job takes.

    Args:
        namespace: the job's.
        datasets: the names of those that it reads.
        dataset_objects: all Datasets. One that is not mounted yet has no places to be counted: nobody reads it.
    """
    requests = []
    for name in datasets:
        dataset = dataset_objects.get((namespace, name), {})
        if (dataset.get("status") or {}).get("mountPath"):
            limit = ((dataset.get("spec") or {}).get("access") or {}).get("maxConcurrentJobs")
            requests.append(
                PlaceRequest(
                    dataset=f"{namespace}/{name}",
                    limit=limit if isinstance(limit, int) else 0,
                    copies=readable_copies(dataset),
                    coming=coming_copies(dataset),
                )
            )
    return tuple(requests)


def readable_copies(dataset: Object) -> int:
    """How many copies jobs may choose from: those that are on some node, and at least the one at the source."""
    copies = (dataset.get("status") or {}).get("copies") or ()
    placed_copies = [copy for copy in copies if copy.get("id") != names.PRELOADED_COPY and copy.get("nodes")]
    return max(sum(not is_arriving(copy) for copy in placed_copies), 1)


def coming_copies(dataset: Object) -> int:
    return sum(map(is_arriving, (dataset.get("status") or {}).get("copies") or ()))


def is_arriving(copy: Mapping[str, Any]) -> bool:
    """Whether it is a further copy that is not there yet as a whole: a job enters once it is."""
    clone = str(copy.get("id", "")).startswith(names.CLONE_COPY)
    return clone and any(node.get("arriving") or not node.get("bytes") for node in copy.get("nodes") or ())
