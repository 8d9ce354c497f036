"""How long a gang may hold its GPUs without running, after its admission and after the loss of pods."""

from dataclasses import dataclass

from tdcs.api import names
from tdcs.api.conditions import Finding
from tdcs.api.durations import seconds_between
from tdcs.decide.job.failure_policy import has_independent_workers
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.pod_admission import Reason

RECOVERY_SECONDS = 1800
"""Seconds that a gang may take to run again, where its spec does not say: a node that is restarted is back sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """A gang that holds room and does not run.

    Attributes:
        seconds_left: seconds until it gives its room back; zero or less: now.
        reason: which timeout applies.
        limit: the timeout in seconds.
        why: what holds it up, with the pod.
    """

    seconds_left: float
    reason: Reason
    limit: int
    why: str
    spare: bool = False

    def sentence(self, *, patience: float) -> str:
        """What happened, for the job's owner."""
        return f"{self.shortage(patience=patience)}; so it gave all its room back"

    def shortage(self, *, patience: float) -> str:
        """What it lacked."""
        again, field = " again", "recoveryTimeoutSeconds"
        if self.reason is Reason.START_TIMEOUT:
            again, field = "", "startTimeoutSeconds"
        return f"it did not run{again} within {self.limit} s (runPolicy.{field}): {self.why}"


def recovery_limit(observed: Observed) -> int | None:
    """Seconds that a gang has to run again after the loss of pods; None: no limit.

    Independent workers continue without the lost one.
    """
    limit = observed.spec.run_policy.recovery_timeout_seconds
    if limit is None and has_independent_workers(observed.spec):
        return None
    return RECOVERY_SECONDS if limit is None else limit


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesMissing:
    """A gang whose pods were released so that the autoscaler adds nodes, and some pods still have none.

    Attributes:
        missing: how many pods have no node.
        total: how many pods the gang has.
        limit: the seconds that it waits for nodes.
        why: the words of the scheduler, or of whoever holds a pod up.
    """

    missing: int
    total: int
    limit: int
    why: str
    spare: bool = False

    @property
    def reason(self) -> Reason:
        return Reason.NO_NODES

    def sentence(self, *, patience: float) -> str:
        """What happened, for the job's owner."""
        return f"{self.shortage(patience=patience)}, so all were given back: a gang runs whole or not at all"

    def shortage(self, *, patience: float) -> str:
        """What it lacked."""
        pods = "its pod" if self.total == 1 else f"{self.missing} of its {self.total} pods"
        return f"no nodes came for {pods} within {self.limit} s (operator.nodeWaitSeconds): {self.why}"


def held_up(observed: Observed, *, running: Finding, now: str, placed: str = "") -> HeldUp | None:
    """How long a gang may still take until it runs; None when it runs, or has no limit.

    Args:
        observed: what was observed.
        running: whether all its pods are ready, and what holds them up (`job_headline.running`).
        now: the time.
        placed: when all its pods had nodes, of one that waited for these.
    """
    waits = running.status != "True" and observed.was_admitted and not observed.spec.run_policy.suspend
    if not waits or not observed.spec.scheduling.gang:
        return None
    conditions = {condition.type: condition for condition in observed.status.conditions}
    if not observed.status.running_time:
        limit, reason = observed.spec.run_policy.start_timeout_seconds, Reason.START_TIMEOUT
        since = max(conditions[names.ADMITTED].last_transition_time, placed)
    else:
        recovery_seconds, reason = recovery_limit(observed), Reason.RECOVERY_TIMEOUT
        ran = conditions.get(names.RUNNING)
        if recovery_seconds is None or ran is None:
            return None
        # If it lost pods just now, the status says so from the next pass on.
        limit, since = recovery_seconds, now if ran.status == "True" else ran.last_transition_time
    seconds_left = limit - seconds_between(since, now)
    return HeldUp(seconds_left=seconds_left, reason=reason, limit=limit, why=running.message)
