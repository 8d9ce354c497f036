"""Whether the pods of a TrainingJob in a queue of Kueue may exist."""

from dataclasses import replace

from tdcs.api import names
from tdcs.decide.job import job_phase as decisions
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.kueue_nodes import pod_set_name
from tdcs.decide.job.workload_standing import QueueStanding, admission_of
from tdcs.decide.queue.pod_admission import Admission, Reason
from tdcs.model.observed_job import Observed


def decided_by_kueue(
    seen: Observed, standing: QueueStanding, *, queue: str, data: Admission, over: bool
) -> Decision:
    """Kueue decides, once the data is there. A job that ran before it was put into the queue runs on until Kueue has
    admitted it and evicts it; so does one that runs where Kueue is gone.
    """
    admission = admission_of(standing, queue=queue)
    known = (one for one in seen.known.conditions if one.type == names.ADMITTED)
    decides = any(one.reason == Reason.KUEUE_ADMITTED for one in known)
    holds = not standing.evicted and (standing.admitted or not standing.exists or not decides)
    if seen.was_admitted and not holds and not over and not seen.spec.run_policy.suspend:
        return decisions.taken_back(admission=admission, data=data)
    return decisions.decision_of(seen=seen, data=data, admission=admission)


def sized_by_kueue(seen: Observed, standing: QueueStanding) -> Observed:
    """With the number of workers that Kueue has admitted of an elastic gang."""
    count = standing.counts.get(pod_set_name("Worker"))
    if count is None or not seen.spec.is_elastic_gang or not standing.admitted:
        return seen
    return replace(seen, workers=count)
