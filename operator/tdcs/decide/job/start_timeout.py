"""How long a gang may hold its GPUs while it does not run: after its admission, and after it has lost pods."""

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
        left: seconds until it gives its room back; not above 0 when it does so now.
        reason: which time is over then.
        limit: the seconds that it had.
        why: what holds it up, with the pod.
    """

    left: float
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


def recovery_limit(seen: Observed) -> int | None:
    """Seconds that a gang may take to run again after it has lost pods; None: as long as it takes.

    Independent workers go on with their work whatever becomes of one of them.
    """
    asked = seen.spec.run_policy.recovery_timeout_seconds
    if asked is None and has_independent_workers(seen.spec):
        return None
    return RECOVERY_SECONDS if asked is None else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesMissing:
    """A gang whose pods were released to ask for nodes, and do not all have one.

    Attributes:
        missing: how many pods have none.
        wanted: how many it has.
        limit: the seconds that it waits for nodes.
        why: the words of the scheduler, or of whoever holds a pod up.
    """

    missing: int
    wanted: int
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
        who = "its pod" if self.wanted == 1 else f"{self.missing} of its {self.wanted} pods"
        return f"no nodes came for {who} within {self.limit} s (operator.nodeWaitSeconds): {self.why}"


def held_up(seen: Observed, *, running: Finding, now: str, placed: str = "") -> HeldUp | None:
    """How long a gang may still take until it runs; None when it runs, or may take as long as it takes.

    Args:
        seen: what was observed.
        running: whether all its pods are ready, and what holds them up (`job_headline.running`).
        now: the time.
        placed: when all its pods had nodes, of one that waited for these.
    """
    waits = running.status != "True" and seen.was_admitted and not seen.spec.run_policy.suspend
    if not waits or not seen.spec.scheduling.gang:
        return None
    conditions = {each.type: each for each in seen.known.conditions}
    if not seen.known.running_time:
        limit, reason = seen.spec.run_policy.start_timeout_seconds, Reason.START_TIMEOUT
        since = max(conditions[names.ADMITTED].last_transition_time, placed)
    else:
        asked, reason = recovery_limit(seen), Reason.RECOVERY_TIMEOUT
        ran = conditions.get(names.RUNNING)
        if asked is None or ran is None:
            return None
        # That it has lost pods only now the status says from the next pass on.
        limit, since = asked, now if ran.status == "True" else ran.last_transition_time
    left = limit - seconds_between(since, now)
    return HeldUp(left=left, reason=reason, limit=limit, why=running.message)
