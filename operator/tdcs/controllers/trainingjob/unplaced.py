"""Which pods of an admitted gang have no node. Pure."""

from tdcs.controllers.queueing.requeue import Short
from tdcs.controllers.trainingjob.decision import Observed
from tdcs.controllers.trainingjob.pods import UNSCHEDULABLE, VOLUME_NOT_BOUND, PodView, newest


def short_of(seen: Observed) -> Short | None:
    """Which pods of a gang have no place; None when it may go on as it is, as one does whose pods are all refused.

    A pod counts that the scheduler refused, or that was never made. One that it has not looked at yet does not,
    nor does one that failed: the Job controller makes it anew. An elastic job needs its smallest number of workers.
    """
    refused: list[PodView] = []
    absent = holding = wanted = spare = 0
    for role, spec in seen.spec.replica_specs.by_role().items():
        job = seen.job(role)
        wanted += spec.replicas
        if role == "Worker" and seen.spec.elastic is not None:
            spare = max(spec.replicas - seen.spec.elastic.min_replicas, 0)
        if job.finished or not job.exists or job.suspended:
            continue
        pods = newest(pod for pod in seen.pods if pod.role == role)
        absent += seen.absent(role)
        holding += sum(bool(pod.node) and pod.phase in {"Pending", "Running"} for pod in pods)
        refused += [pod for pod in pods if not pod.node and pod.waiting is not None and _refused(pod)]
    missing = len(refused) + absent
    if missing <= spare or not (holding or seen.unmade is not None):
        return None
    return Short(
        missing=missing,
        wanted=wanted,
        holding=holding,
        since=min((pod.created for pod in refused if pod.created), default=""),
        why=next((pod.waiting.message for pod in refused if pod.waiting is not None), _why_unmade(seen)),
    )


def _why_unmade(seen: Observed) -> str:
    return "no pod could be made" if seen.unmade is None else str(seen.unmade.problem)


def all_placed(seen: Observed) -> bool:
    """Whether every pod of the job that is to run has a place."""
    roles = seen.spec.replica_specs.by_role()
    placed = {
        role: sum(bool(pod.node) for pod in newest(pod for pod in seen.pods if pod.role == role))
        for role in roles
    }
    return all(placed[role] >= spec.replicas for role, spec in roles.items())


def _refused(pod: PodView) -> bool:
    return pod.waiting is not None and pod.waiting.reason in {UNSCHEDULABLE, VOLUME_NOT_BOUND}
