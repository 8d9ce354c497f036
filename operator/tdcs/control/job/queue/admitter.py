"""Who decides whether the pods of a TrainingJob may exist: one protocol, with the own queue and Kueue behind it.

An admitter has the say about everything that admission is: the room, the places at copies
(`access.maxConcurrentJobs`), the number of workers of an elastic gang, what is given back, and when a job queues again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tdcs.api.trainingjob import Role
from tdcs.decide.job.job_phase import Decision
from tdcs.decide.job.observed_job import Observed
from tdcs.decide.kueue.kueue_nodes import PodSetPlacement
from tdcs.model.kube_objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNodes:
    """On which nodes an admission has the pods of a role run.

    Attributes:
        placement: what their template has to say; None: as the user has it.
        leave: nodes that they leave to larger pods.
        marks: annotations by which they use nodes that were asked for.
    """

    placement: PodSetPlacement | None = None
    leave: frozenset[str] = frozenset()
    marks: Mapping[str, str] = field(default_factory=dict)


class Turn(Protocol):
    """One pass over one job, as its admitter sees it."""

    @property
    def observed(self) -> Observed:
        """The job, with the number of workers that the admitter gives it."""

    def decide(self, *, now: str, over: bool) -> Decision | None:
        """Whether its pods may exist; None: that is not known yet, and a further pass comes when it is.

        Args:
            now: the time.
            over: whether the job has just ended.
        """

    async def pod_nodes(self, own_jobs: Mapping[Role, Object]) -> Mapping[Role, PodNodes]:
        """Where pods may run that do not exist yet; `own_jobs`: the Jobs of the roles."""

    async def applied(self, *, runs: bool) -> None:
        """What was decided is done; `runs`: all pods are ready."""

    def due(self, *, now: str) -> float | None:
        """Seconds until time alone changes what is decided; None when it does not."""


class Admitter(Protocol):
    """The own queue, or Kueue."""

    async def turn(
        self, obj: Object, observed: Observed, *, now: str, preferred: list[Object] | None
    ) -> Turn:
        """Begin a pass over a job: what stands for it in the queue is brought up to date.

        Args:
            obj: the job.
            observed: the same, with what belongs to it.
            now: the time.
            preferred: terms of preferred node affinity of its pods; None: not in mode Affinity.

        Raises:
            ForeignObjectError: an object of another owner has the name of what would stand for it.
        """

    def withdraw(self, uid: str) -> None:
        """The job does not start now: it cannot be understood, or its children are refused."""

    async def end(self, obj: Object, observed: Observed) -> None:
        """The job has ended: all that it held is free."""
