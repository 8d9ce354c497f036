"""Which pods of an admitted gang have no node."""

from dataclasses import dataclass, replace

from tdcs.decide.job.failure_policy import hosts_rendezvous
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.pod_admission import Reason
from tdcs.model.job_pods import GATED, UNSCHEDULABLE, VOLUME_NOT_BOUND, PodView, newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """Pods of a gang that have no place, while others of it hold theirs or the queue keeps room for all.

    Attributes:
        wanted: how many pods the job has.
        holding: how many have one.
        since: when a pod of the job was last made or got a node; empty when that is not known.
        why: the scheduler's words about one of them.
        unseen: how many of the missing no scheduler has looked at yet.
        spare: whether the job can go on without them: they are the last workers of an elastic one.
    """

    missing: int
    wanted: int
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
        given = (
            f"the other {self.holding} gave theirs"
            if self.holding
            else "the room that was kept for it was given"
        )
        return f"{lost}{given} back: a gang runs whole or not at all (scheduling.gang)"

    def shortage(self, *, patience: float) -> str:
        """How many pods found no place, and why."""
        who = "its pod" if self.wanted == 1 else f"{self.missing} of its {self.wanted} pods"
        return f"{who} found no place within {patience:g} s{f' ({self.why})' if self.why else ''}"


def short_of(seen: Observed, *, spare: bool = True) -> Short | None:
    """Which pods of a gang have no place; None when it may go on as it is.

    An elastic job needs its smallest number of workers, and worker 0 where the others meet there. A pod counts that the
    scheduler refused or has not looked at, or that was never made. One that failed does not: it is made anew.

    Args:
        seen: what was observed.
        spare: whether an elastic job may lack the workers above its smallest number.
    """
    without: list[PodView] = []
    absent = holding = wanted = free = 0
    times: list[str] = []
    for role in seen.spec.by_role():
        job, replicas = seen.job(role), seen.replicas(role)
        wanted += replicas
        if role == "Worker" and seen.spec.elastic is not None:
            free = max(replicas - seen.spec.elastic.min_replicas, 0)
        if job.finished or not job.exists or job.suspended:
            continue
        pods = newest(pod for pod in seen.pods if pod.role == role)
        absent += seen.absent(role)
        holding += sum(bool(pod.node) and pod.phase in {"Pending", "Running"} for pod in pods)
        lacking = [pod for pod in pods if is_without_place(pod)]
        if any(hosts_rendezvous(seen.spec, role=role, index=pod.number) for pod in lacking):
            free = 0  # the others are useless without it
        without += lacking
        times += [job.start_time or "", *(time for pod in pods for time in (pod.created, _bound(pod)))]
    missing = len(without) + absent
    if missing <= (free if spare else 0):
        return None
    return Short(
        missing=missing,
        wanted=wanted,
        holding=holding,
        since=max(times, default=""),
        why=_why(seen, without, absent=absent),
        unseen=sum(pod.waiting is None for pod in without),
    )


def lacking(seen: Observed) -> Short | None:
    """Which pods of a gang have no place: those without which it cannot go on, else the last workers of an elastic one
    that it can do without."""
    spare = _spare_of(seen)
    if spare is not None and lacks_rendezvous(seen):
        return spare
    return short_of(seen) or spare


def _spare_of(seen: Observed) -> Short | None:
    """The last workers of an elastic gang that have no place, and without which it can go on."""
    if not seen.spec.is_elastic_gang or placed_workers(seen) >= seen.replicas("Worker"):
        return None
    short = short_of(seen, spare=False)
    return None if short is None else replace(short, spare=True)


def placed_workers(seen: Observed) -> int:
    """How many workers an elastic gang goes on with, when the last ones have no place."""
    least = seen.spec.elastic.min_replicas if seen.spec.elastic is not None else 0
    return max(seen.replicas("Worker") - idle_workers(seen), least)


def ending_patience(seen: Observed, short: Short | None) -> Short | None:
    """The pods without a place with which the patience ends: of a gang that has run only those that it can do without,
    as the others keep their work or their room until `recoveryTimeoutSeconds`."""
    return None if short is not None and seen.known.running_time and not short.spare else short


def awaited_schedulers(seen: Observed) -> set[str]:
    """The schedulers that have still to look at a pod of the job."""
    return {pod.scheduler for pod in seen.pods if is_without_place(pod) and pod.waiting is None}


def without_unseen(short: Short) -> Short | None:
    """The same apart from pods that no scheduler has looked at: for one that is busy with others before them."""
    left = short.missing - short.unseen
    return replace(short, missing=left, unseen=0) if left > 0 else None


def idle_workers(seen: Observed) -> int:
    """How many of the last workers of an elastic gang have no place: it can go on without them. Where worker 0 has none
    and the others meet there, it does with so many fewer: the last ones leave it theirs."""
    pods = {pod.index: pod for pod in newest(pod for pod in seen.pods if pod.role == "Worker")}
    if lacks_rendezvous(seen):
        return sum(map(is_without_place, pods.values()))
    count = 0
    for index in reversed(range(seen.replicas("Worker"))):
        pod = pods.get(str(index))
        if pod is not None and not is_without_place(pod):
            break
        count += 1
    return count


def lacks_rendezvous(seen: Observed) -> bool:
    """Whether the pod has no place at which elastic workers meet."""
    first = next((pod for pod in newest(seen.pods) if pod.role == "Worker" and pod.number == 0), None)
    meets = hosts_rendezvous(seen.spec, role="Worker", index=0)
    return meets and first is not None and is_without_place(first)


def placed(seen: Observed) -> int:
    """How many pods of the job have a place."""
    return sum(bool(pod.node) for pod in newest(seen.pods))


def all_placed(seen: Observed) -> bool:
    """Whether every pod of the job that is to run has a place."""
    roles = seen.spec.by_role()
    placed = {
        role: sum(bool(pod.node) for pod in newest(pod for pod in seen.pods if pod.role == role))
        for role in roles
    }
    return all(placed[role] >= seen.replicas(role) for role in roles)


def is_without_place(pod: PodView) -> bool:
    """Whether a pod waits for a node: refused by its scheduler, held by a gate, or not looked at."""
    if pod.node or pod.phase != "Pending" or pod.going:
        return False
    return pod.waiting is None or pod.waiting.reason in {UNSCHEDULABLE, VOLUME_NOT_BOUND, GATED}


def _bound(pod: PodView) -> str:
    return pod.scheduled if pod.node else ""


def _why(seen: Observed, without: list[PodView], *, absent: int) -> str:
    refused = next((pod.waiting.message for pod in without if pod.waiting is not None), "")
    if refused or (absent and not without):
        return refused or ("no pod could be made" if seen.unmade is None else str(seen.unmade.problem))
    unseen = next((pod.scheduler for pod in without), "")
    return (
        f"no scheduler named {unseen} has looked at them: see schedulerName in the template" if unseen else ""
    )
