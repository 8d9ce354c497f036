"""Places at the copies of datasets: how many jobs read a source now, and how many may. Pure.

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
    """Who has a place at which source.

    Args:
        taken: the jobs that read each mount.
    """

    def __init__(self, taken: Mapping[str, Iterable[Key]] | None = None) -> None:
        self._taken = {mount: list(jobs) for mount, jobs in (taken or {}).items()}

    def take(self, job: Key, claims: Iterable[AccessClaim]) -> None:
        """A job was admitted. It takes one place at a source, however many of its Datasets have that."""
        for mount in {claim.mount for claim in claims}:
            self._taken.setdefault(mount, []).append(job)

    def full(self, claims: Sequence[AccessClaim]) -> AccessClaim | None:
        """The first of these sources that has no place left; None when each has one."""
        for claim in claims:
            if claim.places is not None and len(self._taken.get(claim.mount, ())) >= claim.places:
                return claim
        return None

    def sentence(self, claim: AccessClaim) -> str:
        """Why a source has no place left, for the job that waits for one."""
        readers = sorted("/".join(job) for job in self._taken.get(claim.mount, ()))
        named = ", ".join(readers[:NAMED])
        more = f" and {len(readers) - NAMED} more" if len(readers) > NAMED else ""
        coming = f"; {claim.coming} further to come (spec.access.onLimit)" if claim.coming else ""
        many = "1 job" if claim.limit == 1 else f"{claim.limit} jobs"
        each = f"each of its {claim.copies} copies" if claim.copies > 1 else "it"
        return (
            f"Dataset {claim.dataset} lets {many} read {each} at once (spec.access.maxConcurrentJobs), and "
            f"{named}{more} read{'s' if len(readers) == 1 else ''} it{coming}"
        )


@dataclass(slots=True, kw_only=True)
class KeptPlaces:
    """The sources with places that are kept for a job that was passed too often, and for which one.

    While the queue is gone through from its head, such a job closes its sources to those behind it.
    """

    jobs: dict[str, str] = field(default_factory=dict)

    def keep(self, job: Key, claims: Iterable[AccessClaim]) -> None:
        """Those behind a job get no place at its sources before it does."""
        for claim in claims:
            self.jobs.setdefault(claim.mount, "/".join(job))

    def closed(self, claims: Iterable[AccessClaim]) -> AccessClaim | None:
        """The first limited source that keeps its places for a job before this one."""
        return next((claim for claim in claims if claim.limit and claim.mount in self.jobs), None)


def missing_place(
    claims: Sequence[AccessClaim], *, places: Places, kept: KeptPlaces
) -> tuple[AccessClaim, str] | None:
    """The place that a job lacks, and why; None when it may have all that it asks for."""
    full = places.full(claims)
    if full is not None:
        return full, places.sentence(full)
    closed = kept.closed(claims)
    if closed is None:
        return None
    first = kept.jobs[closed.mount]
    return closed, f"the next place at Dataset {closed.dataset} is kept for {first}, passed too often"


def takes_place_at(mount: str, claims: Iterable[AccessClaim]) -> bool:
    """Whether a job with these claims takes a place at a mount: then it passes those that wait for one there."""
    return any(claim.mount == mount for claim in claims)
