"""Writes the status of a TrainingJob: what was decided, at the pace that its progress may be written."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from tdcs.api.base import Model
from tdcs.api.conditions import Finding
from tdcs.control.context import Context
from tdcs.control.job import job_status
from tdcs.control.job.stalled_reads import DataStalls
from tdcs.control.job.status_pace import PROGRESS, StatusPace
from tdcs.control.status_publisher import publish_status
from tdcs.decide.job.job_phase import Decision, JobOutcome
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.queue.data_stall import Stall
from tdcs.model.kube_objects import Key, Object, object_key
from tdcs.model.kube_resources import TRAINING_JOBS


class JobReporter:
    """The statuses of all jobs, and when each was written last."""

    def __init__(
        self, *, context: Context, stalls: DataStalls, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context: Final = context
        self._stalls: Final = stalls
        self._pace: Final = StatusPace(seconds=context.settings.progress_seconds, clock=clock)

    async def report(
        self,
        obj: Object,
        observed: Observed,
        decision: Decision,
        outcome: JobOutcome | None,
        *,
        now: str,
        paced: bool = False,
        unchanged: bool = False,
    ) -> Object:
        """Write what was decided for a job, and what is known of its pods.

        Args:
            paced: not for progress alone, which was written a moment ago.
            unchanged: only if nobody has changed the job since it was read.
        """
        status = job_status.status_of(
            observed, decision=decision, outcome=outcome, now=now, stall=self.stall(obj)
        )
        findings = job_status.findings_of(observed, decision=decision, outcome=outcome)
        return await self.publish(obj, status, findings, paced=paced, unchanged=unchanged)

    async def publish(
        self,
        obj: Object,
        status: Model,
        findings: Sequence[Finding],
        *,
        paced: bool = False,
        unchanged: bool = False,
    ) -> Object:
        """Write a status with its conditions; gives the job as it is then, the same object if there was nothing to
        write. The arguments are those of `report`."""
        written = await publish_status(
            context=self._context,
            resource=TRAINING_JOBS,
            obj=obj,
            status=status,
            findings=findings,
            alongside=PROGRESS if paced else (),
            messages=not paced,
            unchanged=unchanged,
        )
        if written is not obj:
            self._pace.wrote(object_key(obj))
        return written

    def stall(self, obj: Object) -> Stall | None:
        """How long the pods of a job have waited for data."""
        return self._stalls.of(object_key(obj), obj["metadata"]["uid"])

    def pause_left(self, obj: Object) -> float:
        """Seconds until the progress of a job may be written again; 0 when it may."""
        return self._pace.left(object_key(obj))

    def drop(self, key: Key) -> None:
        """Keep nothing of a job that is gone."""
        self._pace.drop(key)
