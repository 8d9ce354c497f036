"""What keeps a job out although its data is ready: a quota, or a place at it; and what is kept for one that starves."""

from dataclasses import dataclass, field

from tdcs.decide.queue.copy_places import CopyPlaces, KeptPlaces, missing_place
from tdcs.decide.queue.namespace_quota import Allowances
from tdcs.decide.queue.pod_admission import Reason
from tdcs.decide.queue.queued_job import QueuedJob, Shortage


@dataclass(slots=True)
class KeptShares:
    """What those behind in the queue leave to jobs that were passed too often: the quotas of their namespaces, until
    they are large enough (unless they never will be), and a place at each of their Datasets."""

    quotas: dict[str, QueuedJob] = field(default_factory=dict)
    places: KeptPlaces = field(default_factory=KeptPlaces)

    def keep(self, job: QueuedJob, allowances: Allowances) -> None:
        """Those behind a job leave it what it asks for."""
        namespace = job.key[0]
        lacks = bool(job.charges) and bool(allowances.short(namespace, job.charges))
        if lacks and allowances.ever(namespace, job.charges):
            known = self.quotas.get(namespace)
            if known is None or job.order < known.order:
                self.quotas[namespace] = job
        if job.access:
            self.places.keep(job.key, job.access, order=job.order)


def shortage(
    job: QueuedJob, *, allowances: Allowances, places: CopyPlaces, kept: KeptShares
) -> Shortage | None:
    """What keeps a job out now: a quota that is too small, or a dataset without a place for it; None when nothing."""
    namespace, found = job.key[0], None
    if job.charges:
        text = allowances.short(namespace, job.charges)
        first = kept.quotas.get(namespace)
        if not text and first is not None and first.order < job.order:
            text = f"the quotas of namespace {namespace} are kept for {'/'.join(first.key)}, passed too often"
        if text:
            text = f"{text}: it waits for others to end, or for a larger quota"
            found = Shortage(reason=Reason.QUOTA, message=text)
    if job.access:
        missing = missing_place(job.access, places=places, kept=kept.places, order=job.order)
        if missing is not None:
            request, text = missing
            found = found or Shortage(reason=Reason.AT_LIMIT, message=text, dataset=request.dataset)
    return found
