"""Which pods of an admitted gang have no node."""

from dataclasses import dataclass, replace

from tdcs.decide.job.failure_policy import hosts_rendezvous
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.job_pods import GATED, UNSCHEDULABLE, VOLUME_NOT_BOUND, PodView, newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """Pods of a gang that have no node, while its other pods hold theirs or the queue keeps room for all.

    Attributes:
        total: how many pods the job has.
        holding: how many have a node.
        since: when a pod of the job was last created or bound; empty when unknown.
        why: the scheduler's message about one of the missing pods.
        unseen: how many of the missing pods no scheduler has handled yet.
        spare: whether they are the last workers of an elastic job, which can run without them.
    """

    missing: int
    total: int
    holding: int
    since: str
    why: str
    unseen: int = 0
    spare: bool = False

    @property
    def reason(self) -> Reason:
        return Reason.REQUEUED

    def sentence(self, *, patience: float) -> str:
        """What happened, for the job's owner."""
        lost = f"{self.shortage(patience=patience)}, so "
        if self.spare:
            return f"{lost}these workers were given back, and the job goes on with the others"
        returned = (
            f"the other {self.holding} gave theirs"
            if self.holding
            else "the room that was kept for it was given"
        )
        return f"{lost}{returned} back: a gang runs whole or not at all (scheduling.gang)"

    def shortage(self, *, patience: float) -> str:
        """How many pods found no place, and why."""
        pods = "its pod" if self.total == 1 else f"{self.missing} of its {self.total} pods"
        return f"{pods} found no place within {patience:g} s{f' ({self.why})' if self.why else ''}"


def short_of(observed: Observed, *, spare: bool = True) -> Short | None:
    """Which pods of a gang have no place; None when it may go on as it is.

    An elastic job needs its minimum of workers, and worker 0 if that hosts the rendezvous. A pod counts that the
    scheduler refused or has not handled, or that was never created. Failed pods do not count: they are replaced.

    Args:
        observed: what was observed.
        spare: whether an elastic job may lack the workers above its minimum.
    """
    without: list[PodView] = []
    absent = holding = total = free = 0
    times: list[str] = []
    for role in observed.spec.by_role():
        job, replicas = observed.job(role), observed.replicas(role)
        total += replicas
        if role == "Worker" and observed.spec.elastic is not None:
            free = max(replicas - observed.spec.elastic.min_replicas, 0)
        if job.finished or not job.exists or job.suspended:
            continue
        pods = newest(pod for pod in observed.pods if pod.role == role)
        absent += observed.absent(role)
        holding += sum(bool(pod.node) and pod.phase in {"Pending", "Running"} for pod in pods)
        unplaced = [pod for pod in pods if is_without_place(pod)]
        if any(hosts_rendezvous(observed.spec, role=role, index=pod.number) for pod in unplaced):
            free = 0  # the others are useless without it
        without += unplaced
        times += [job.start_time or "", *(time for pod in pods for time in (pod.created, _bound(pod)))]
    missing = len(without) + absent
    if missing <= (free if spare else 0):
        return None
    return Short(
        missing=missing,
        total=total,
        holding=holding,
        since=max(times, default=""),
        why=_why(observed, without, absent=absent),
        unseen=sum(pod.waiting is None for pod in without),
    )


def lacking(observed: Observed) -> Short | None:
    """Which pods of a gang have no place: those that it needs, otherwise the spare workers of an elastic one."""
    spare = _spare_of(observed)
    if spare is not None and lacks_rendezvous(observed):
        return spare
    return short_of(observed) or spare


def _spare_of(observed: Observed) -> Short | None:
    """The last workers of an elastic gang that have no place and that it can run without."""
    if not observed.spec.is_elastic_gang or placed_workers(observed) >= observed.replicas("Worker"):
        return None
    short = short_of(observed, spare=False)
    return None if short is None else replace(short, spare=True)


def placed_workers(observed: Observed) -> int:
    """How many workers an elastic gang keeps when its last ones have no place."""
    least = observed.spec.elastic.min_replicas if observed.spec.elastic is not None else 0
    return max(observed.replicas("Worker") - idle_workers(observed), least)


def ending_patience(observed: Observed, short: Short | None) -> Short | None:
    """The unplaced pods for which a gang's patience can end. A gang that has run gives up only spare workers: for the
    others it keeps its work and room until `recoveryTimeoutSeconds`."""
    return None if short is not None and observed.status.running_time and not short.spare else short


def awaited_schedulers(observed: Observed) -> set[str]:
    """The schedulers that have not handled a pod of the job yet."""
    return {pod.scheduler for pod in observed.pods if is_without_place(pod) and pod.waiting is None}


def without_unseen(short: Short) -> Short | None:
    """The shortage without pods that no scheduler has handled: the scheduler may be busy with earlier pods."""
    missing = short.missing - short.unseen
    return replace(short, missing=missing, unseen=0) if missing > 0 else None


def idle_workers(observed: Observed) -> int:
    """How many of the last workers of an elastic gang have no place, so that it can run without them. If worker 0 hosts
    the rendezvous and has no place, all unplaced workers count: the last workers make room for it."""
    pods = {pod.index: pod for pod in newest(pod for pod in observed.pods if pod.role == "Worker")}
    if lacks_rendezvous(observed):
        return sum(map(is_without_place, pods.values()))
    count = 0
    for index in reversed(range(observed.replicas("Worker"))):
        pod = pods.get(str(index))
        if pod is not None and not is_without_place(pod):
            break
        count += 1
    return count


def lacks_rendezvous(observed: Observed) -> bool:
    """Whether the pod that hosts the rendezvous of elastic workers has no place."""
    first = next((pod for pod in newest(observed.pods) if pod.role == "Worker" and pod.number == 0), None)
    meets = hosts_rendezvous(observed.spec, role="Worker", index=0)
    return meets and first is not None and is_without_place(first)


def placed(observed: Observed) -> int:
    """How many pods of the job have a place."""
    return sum(bool(pod.node) for pod in newest(observed.pods))


def all_placed(observed: Observed) -> bool:
    """Whether every pod of the job that is to run has a place."""
    roles = observed.spec.by_role()
    placed = {
        role: sum(bool(pod.node) for pod in newest(pod for pod in observed.pods if pod.role == role))
        for role in roles
    }
    return all(placed[role] >= observed.replicas(role) for role in roles)


def is_without_place(pod: PodView) -> bool:
    """Whether a pod waits for a node: refused by its scheduler, held by a gate, or not looked at."""
    if pod.node or pod.phase != "Pending" or pod.going:
        return False
    return pod.waiting is None or pod.waiting.reason in {UNSCHEDULABLE, VOLUME_NOT_BOUND, GATED}


def _bound(pod: PodView) -> str:
    return pod.scheduled if pod.node else ""


def _why(observed: Observed, without: list[PodView], *, absent: int) -> str:
    refused = next((pod.waiting.message for pod in without if pod.waiting is not None), "")
    if refused or (absent and not without):
        return refused or (
            "no pod could be made" if observed.unmade is None else str(observed.unmade.problem)
        )
    unseen = next((pod.scheduler for pod in without), "")
    return (
        f"no scheduler named {unseen} has looked at them: see schedulerName in the template" if unseen else ""
    )
