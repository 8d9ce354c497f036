"""Why pods do not run, where only events tell: a volume that is not mounted, a pod that was not even made."""

from collections.abc import Sequence
from dataclasses import replace

from tdcs.api.durations import seconds_since
from tdcs.api.trainingjob import Role
from tdcs.control.context import Context
from tdcs.decide.job.observed_job import Observed
from tdcs.model.job_pods import PodProblem, PodView, Unmade, newest, problem_of, quoted_from_kubelet
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import EVENTS

PATIENCE = 10.0
"""Seconds that a pod may take to start before its events are read: most are running by then."""


class PodEvents:
    """Reads events of pods that start slowly, and of Jobs that do not make all pods; of one object per pass."""

    def __init__(self, *, context: Context) -> None:
        self._context = context

    async def complete(self, observed: Observed, *, namespace: str) -> tuple[Observed, float | None]:
        """The observation with what the events tell, and the seconds until it is worth to look again.

        Nothing is read for a job all of whose pods run, or whose trouble is known already.
        """
        if not observed.was_admitted:
            return observed, None
        pods = newest(observed.pods)
        if problem_of(pods) is not None:
            return observed, None
        now, again = self._context.now(), None
        if (role := next((role for role in observed.jobs if observed.absent(role)), None)) is not None:
            completed, again = await self._unmade(observed, role, namespace=namespace, now=now)
            if completed.unmade is not None:
                return completed, again
        starting = [pod for pod in pods if pod.starting]
        if not starting:
            return observed, again
        pod = min(starting, key=lambda pod: (pod.created, pod.name))
        age = seconds_since(pod.created, now=now) if pod.created else PATIENCE
        if age < PATIENCE:
            return observed, PATIENCE - age
        problem = await self._warning(uid=pod.uid, namespace=namespace, reasons=("Failed",))
        if problem is None:
            return observed, PATIENCE
        return replace(observed, pods=held_up(observed.pods, uid=pod.uid, problem=problem)), PATIENCE

    async def _unmade(
        self, observed: Observed, role: Role, *, namespace: str, now: str
    ) -> tuple[Observed, float | None]:
        """Why pods of a role are missing, when that has lasted a little: most are about to be made."""
        job = observed.job(role)
        last_created = max((pod.created for pod in observed.pods if pod.role == role), default="")
        since = max(last_created, job.start_time or "")
        age = seconds_since(since, now=now) if since else 0.0
        if age < PATIENCE:
            return observed, PATIENCE - age
        # What was said before the newest pod was made is over.
        problem = await self._warning(
            uid=job.uid, namespace=namespace, reasons=("FailedCreate",), since=last_created
        )
        if problem is None:
            return observed, PATIENCE
        unmade = Unmade(role=role, count=observed.absent(role), problem=problem)
        return replace(observed, unmade=unmade), PATIENCE

    async def _warning(
        self, *, uid: str, namespace: str, reasons: tuple[str, ...], since: str = ""
    ) -> PodProblem | None:
        """The newest warning about an object whose reason begins with one of these, if it is not older."""
        listing = await self._context.api.list(
            EVENTS, namespace=namespace, fields=f"involvedObject.uid={uid},type=Warning"
        )
        events = [
            event
            for event in listing.items
            if str(event.get("reason", "")).startswith(reasons)
            and event.get("reason") != "FailedScheduling"  # over, for a pod that has a node
            and _time(event) >= since
        ]
        if not events:
            return None
        event = max(events, key=_time)
        return PodProblem(reason=str(event["reason"]), message=quoted_from_kubelet(event.get("message")))


def held_up(pods: Sequence[PodView], *, uid: str, problem: PodProblem) -> list[PodView]:
    """The pods, one of which waits for this."""
    return [replace(pod, waiting=problem) if pod.uid == uid else pod for pod in pods]


def _time(event: Object) -> str:
    return str(
        event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp", "")
    )
