"""Places at the copies of datasets: how many jobs read a source now, and how many may.

A job takes a place at the source of each of its Datasets. Datasets of other namespaces with the same source share its
mount, and so their jobs count as well; how many there may be is up to the Dataset that the waiting job names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Key = tuple[str, str]
"""Namespace and name of a job."""

NAMED = 3
"""So many of the jobs that read a dataset are named to one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessClaim:
    """A place that a job takes at the source of a dataset.

    Attributes:
        mount: cache cluster and engine path of the source.
        dataset: the Dataset that the job names, as namespace/name.
        limit: how many jobs may read each copy at once; 0 when there is no limit.
        copies: how many copies can be read.
        coming: further ones that are being made for jobs that wait.
    """

    mount: str
    dataset: str
    limit: int = 0
    copies: int = 1
    coming: int = 0

    @property
    def places(self) -> int | None:
        """How many jobs may read it at once; None when there is no limit."""
        return self.limit * self.copies if self.limit else None


class Places:
    """Who has a place at which source."""

    def __init__(self, taken: Mapping[str, Iterable[Key]] | None = None) -> None:
        self._taken = {mount: list(jobs) for mount, jobs in (taken or {}).items()}
        self._datasets: dict[tuple[str, Key], set[str]] = {}

    def take(self, job: Key, claims: Iterable[AccessClaim]) -> None:
        """A job was admitted. It takes one place at a source, however many of its Datasets have that."""
        found: dict[str, set[str]] = {}
        for claim in claims:
            found.setdefault(claim.mount, set()).add(claim.dataset)
        for mount, datasets in found.items():
            self._taken.setdefault(mount, []).append(job)
            self._datasets[mount, job] = datasets

    def full(self, claims: Sequence[AccessClaim]) -> AccessClaim | None:
        """The first of these sources that has no place left; None when each has one."""
        return next((claim for claim in claims if self.left(claim) == 0), None)

    def left(self, claim: AccessClaim) -> int | None:
        """How many more jobs may read a source at once; None when there is no limit."""
        if claim.places is None:
            return None
        return max(claim.places - len(self._taken.get(claim.mount, ())), 0)

    def sentence(self, claim: AccessClaim) -> str:
        """Why a source has no place left, for the job that waits for one."""
        readers = sorted(self._taken.get(claim.mount, ()))
        named = ", ".join(self._named(job, claim) for job in readers[:NAMED])
        more = f" and {len(readers) - NAMED} more" if len(readers) > NAMED else ""
        coming = f"; {claim.coming} further to come (spec.access.onLimit)" if claim.coming else ""
        many = "1 job" if claim.limit == 1 else f"{claim.limit} jobs"
        each = f"each of its {claim.copies} copies" if claim.copies > 1 else "it"
        return (
            f"Dataset {claim.dataset} lets {many} read {each} at once (spec.access.maxConcurrentJobs), and "
            f"{named}{more} read{'s' if len(readers) == 1 else ''} it{coming}"
        )

    def _named(self, job: Key, claim: AccessClaim) -> str:
        """A job that reads a source, with its Dataset where that is another one than the claim's."""
        datasets = self._datasets.get((claim.mount, job), {claim.dataset})
        if claim.dataset in datasets:
            return "/".join(job)
        return f"{'/'.join(job)} (of Dataset {min(datasets)}, which has the same source)"


@dataclass(slots=True, kw_only=True)
class KeptPlaces:
    """The places that are kept for jobs that were passed too often: one at each of their sources.

    While the queue is gone through from its head, such a job takes its places from those behind it.
    """

    jobs: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, job: Key, claims: Iterable[AccessClaim]) -> None:
        """Those behind a job leave it a place at each of its sources."""
        for mount in {claim.mount for claim in claims}:
            self.jobs.setdefault(mount, []).append("/".join(job))

    def closed(self, claims: Iterable[AccessClaim], *, places: Places) -> AccessClaim | None:
        """The first source that keeps all of its places that are left for jobs before this one."""
        for claim in claims:
            left = places.left(claim)
            if left is not None and left <= len(self.jobs.get(claim.mount, ())):
                return claim
        return None


def missing_place(
    claims: Sequence[AccessClaim], *, places: Places, kept: KeptPlaces
) -> tuple[AccessClaim, str] | None:
    """The place that a job lacks, and why; None when it may have all that it asks for."""
    full = places.full(claims)
    if full is not None:
        return full, places.sentence(full)
    closed = kept.closed(claims, places=places)
    if closed is None:
        return None
    first = kept.jobs[closed.mount][0]
    return closed, f"the next place at Dataset {closed.dataset} is kept for {first}, passed too often"


def takes_place_at(mount: str, claims: Iterable[AccessClaim]) -> bool:
    """Whether a job with these claims takes a place at a mount: then it passes those that wait for one there."""
    return any(claim.mount == mount for claim in claims)
