"""Places at the copies of datasets: how many jobs read a source now, and how many may. Pure.

A job takes a place at the source of each of its Datasets. Datasets of other namespaces with the same source share its
mount, and so their jobs count as well; how many there may be is up to the Dataset that the waiting job names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tdcs.api import names
from tdcs.kube.api import Object
from tdcs.kube.objects import Key

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


def claims_of(
    *, namespace: str, datasets: Iterable[str], known: Mapping[Key, Object]
) -> tuple[AccessClaim, ...]:
    """The places that a job takes.

    Args:
        namespace: the job's.
        datasets: the names of those that it reads.
        known: all Datasets. One that is not mounted yet has no places to be counted: nobody reads it.
    """
    found = []
    for name in datasets:
        dataset = known.get((namespace, name), {})
        path = (dataset.get("status") or {}).get("mountPath")
        if path:
            limit = ((dataset.get("spec") or {}).get("access") or {}).get("maxConcurrentJobs")
            found.append(
                AccessClaim(
                    mount=f"{names.cache_cluster_of(dataset)}{path}",
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
    """How many further copies are being made."""
    return sum(map(is_arriving, (dataset.get("status") or {}).get("copies") or ()))


def is_arriving(copy: Mapping[str, Any]) -> bool:
    """Whether it is a further copy that is not there yet as a whole: a job enters once it is."""
    clone = str(copy.get("id", "")).startswith(names.CLONE_COPY)
    return clone and any(node.get("arriving") or not node.get("bytes") for node in copy.get("nodes") or ())
