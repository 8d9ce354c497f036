"""Why pods do not run, where only events tell: a volume that is not mounted, a pod that was not even made."""

from collections.abc import Sequence
from dataclasses import replace

from tdcs.controllers.clock import seconds_between
from tdcs.controllers.context import Context
from tdcs.controllers.trainingjob.plan import JobView, Observed
from tdcs.controllers.trainingjob.pods import PodView, Problem, newest, problem_of, quoted
from tdcs.kube.api import Object
from tdcs.kube.resources import EVENTS

PATIENCE = 10.0
"""Seconds that a pod may take to start before its events are read: most are running by then."""


class Quotes:
    """Reads events of pods that start slowly, and of Jobs that make no pods; of one object per pass."""

    def __init__(self, *, context: Context) -> None:
        self._context = context

    async def complete(self, seen: Observed, *, namespace: str) -> tuple[Observed, float | None]:
        """The observation with what the events tell, and the seconds until it is worth to look again.

        Nothing is read for a job all of whose pods run, or whose trouble is known already.
        """
        if not seen.was_admitted:
            return seen, None
        pods = newest(seen.pods)
        if problem_of(pods) is not None:
            return seen, None
        now = self._context.now()
        empty = next((job for job in seen.jobs.values() if _makes_no_pods(job)), None)
        if empty is not None and not pods:
            return await self._job(seen, empty, namespace=namespace, now=now)
        starting = [pod for pod in pods if pod.starting]
        if not starting:
            return seen, None
        pod = min(starting, key=lambda pod: (pod.created, pod.name))
        age = seconds_between(pod.created, now) if pod.created else PATIENCE
        if age < PATIENCE:
            return seen, PATIENCE - age
        problem = await self._warning(uid=pod.uid, namespace=namespace, reasons=("Failed",))
        if problem is None:
            return seen, PATIENCE
        return replace(seen, pods=held_up(seen.pods, uid=pod.uid, problem=problem)), PATIENCE

    async def _job(
        self, seen: Observed, job: JobView, *, namespace: str, now: str
    ) -> tuple[Observed, float | None]:
        age = seconds_between(job.start_time, now) if job.start_time else 0.0
        if age < PATIENCE:
            return seen, PATIENCE - age
        problem = await self._warning(uid=job.uid, namespace=namespace, reasons=("FailedCreate",))
        if problem is None:
            return seen, PATIENCE
        return replace(seen, pods=[PodView(name="no pod could be made", waiting=problem)]), PATIENCE

    async def _warning(self, *, uid: str, namespace: str, reasons: tuple[str, ...]) -> Problem | None:
        """The newest warning about an object whose reason begins with one of these."""
        found = await self._context.api.list(
            EVENTS, namespace=namespace, fields=f"involvedObject.uid={uid},type=Warning"
        )
        events = [event for event in found.items if str(event.get("reason", "")).startswith(reasons)]
        if not events:
            return None
        event = max(events, key=_time)
        return Problem(reason=str(event["reason"]), message=quoted(event.get("message")))


def held_up(pods: Sequence[PodView], *, uid: str, problem: Problem) -> list[PodView]:
    """The pods, one of which waits for this."""
    return [replace(pod, waiting=problem) if pod.uid == uid else pod for pod in pods]


def _makes_no_pods(job: JobView) -> bool:
    return job.exists and not job.suspended and not job.finished and not job.active and not job.succeeded


def _time(event: Object) -> str:
    return str(
        event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp", "")
    )
