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

    async def complete(self, seen: Observed, *, namespace: str) -> tuple[Observed, float | None]:
        """The observation with what the events tell, and the seconds until it is worth to look again.

        Nothing is read for a job all of whose pods run, or whose trouble is known already.
        """
        if not seen.was_admitted:
            return seen, None
        pods = newest(seen.pods)
        if problem_of(pods) is not None:
            return seen, None
        now, again = self._context.now(), None
        if (role := next((role for role in seen.jobs if seen.absent(role)), None)) is not None:
            found, again = await self._unmade(seen, role, namespace=namespace, now=now)
            if found.unmade is not None:
                return found, again
        starting = [pod for pod in pods if pod.starting]
        if not starting:
            return seen, again
        pod = min(starting, key=lambda pod: (pod.created, pod.name))
        age = seconds_since(pod.created, now=now) if pod.created else PATIENCE
        if age < PATIENCE:
            return seen, PATIENCE - age
        problem = await self._warning(uid=pod.uid, namespace=namespace, reasons=("Failed",))
        if problem is None:
            return seen, PATIENCE
        return replace(seen, pods=held_up(seen.pods, uid=pod.uid, problem=problem)), PATIENCE

    async def _unmade(
        self, seen: Observed, role: Role, *, namespace: str, now: str
    ) -> tuple[Observed, float | None]:
        """Why pods of a role are missing, when that has lasted a little: most are about to be made."""
        job = seen.job(role)
        made = max((pod.created for pod in seen.pods if pod.role == role), default="")
        since = max(made, job.start_time or "")
        age = seconds_since(since, now=now) if since else 0.0
        if age < PATIENCE:
            return seen, PATIENCE - age
        # What was said before the newest pod was made is over.
        problem = await self._warning(uid=job.uid, namespace=namespace, reasons=("FailedCreate",), since=made)
        if problem is None:
            return seen, PATIENCE
        unmade = Unmade(role=role, count=seen.absent(role), problem=problem)
        return replace(seen, unmade=unmade), PATIENCE

    async def _warning(
        self, *, uid: str, namespace: str, reasons: tuple[str, ...], since: str = ""
    ) -> PodProblem | None:
        """The newest warning about an object whose reason begins with one of these, if it is not older."""
        found = await self._context.api.list(
            EVENTS, namespace=namespace, fields=f"involvedObject.uid={uid},type=Warning"
        )
        events = [
            event
            for event in found.items
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
