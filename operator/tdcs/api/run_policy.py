"""How a TrainingJob runs, restarts, ends and is cleaned up."""

from typing import Annotated, Literal

from pydantic import Field

from tdcs.api.base import Model, rule, rules

Restart = Literal["All", "Pod", "None"]

ONE_BOUND = "failurePolicy.maxRestarts and backoffLimit are the same bound: set one of them"
NOTHING_RESTARTS = "with failurePolicy.restart None nothing is restarted: remove maxRestarts"


class ExitCodeRule(Model):
    """What some exit codes mean. As in the podFailurePolicy of a Job, the first rule that matches counts."""

    action: Literal["FailJob", "Ignore", "Count"]
    """FailJob: the job fails at once, because no restart helps. Ignore: it restarts, and that does not count towards
    maxRestarts. Count: it counts, as without a rule."""
    container_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The container that ends so; left out, any."""
    operator: Literal["In", "NotIn"] = "In"
    """In: one of the values. NotIn: another than these, and not 0."""
    values: Annotated[
        list[Annotated[int, Field(ge=1, le=255)]],
        Field(min_length=1, max_length=255, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """The exit codes; 137 is a container that was killed, by the kernel for its memory, say."""


class FailurePolicy(Model):
    """What is restarted when a pod fails, is evicted or vanishes."""

    restart: Restart | None = None
    """All: all pods of the job at once, on the nodes that hold its data, with the same copy. Pod: that pod. None:
    nothing, the job fails. Left out: Pod where the others can go on without it (framework None, elastic jobs,
    TensorFlow with parameter servers) and where a template has restartPolicy OnFailure, else All. An elastic job of
    PyTorch restarts all when it loses worker 0, where the others meet. Later restarts of
    a job that fails again soon are 10 to 360 seconds apart. Pods that were evicted or preempted are restarted, too, and
    do not count."""
    max_restarts: Annotated[int, Field(ge=0, le=1000)] | None = None
    """How many restarts after failures the job may have before it fails: of all pods together with All, of the pods of
    each role with Pod. Left out: runPolicy.backoffLimit, or 6."""
    on_exit_codes: Annotated[list[ExitCodeRule], Field(max_length=16)] = Field(default=[])
    """What exit codes mean. Only for pods with restartPolicy Never, the default. Of a pod that was evicted they are not
    asked."""


RUN_POLICY_RULES = rules(
    rule(
        "!has(self.failurePolicy) || !has(self.failurePolicy.maxRestarts) || !has(self.backoffLimit)",
        ONE_BOUND,
        field=".failurePolicy",
    ),
    rule(
        "!has(self.failurePolicy) || !has(self.failurePolicy.maxRestarts) || "
        "!has(self.failurePolicy.restart) || self.failurePolicy.restart != 'None'",
        NOTHING_RESTARTS,
        field=".failurePolicy",
    ),
)
"""Between the fields of a RunPolicy, for the field that holds it."""


class RunPolicy(Model):
    """How the job runs, ends and is cleaned up."""

    suspend: bool = False
    """True: no pod exists, running ones are removed; set to false to start or go on."""
    failure_policy: FailurePolicy | None = None
    """What is restarted when a pod fails, is evicted or vanishes."""
    backoff_limit: Annotated[int, Field(ge=0, le=1000)] | None = None
    """As failurePolicy.maxRestarts, by its name in a Job; 6 when both are left out. With restartPolicy OnFailure
    restarts of a container in its pod count as well, and so do evictions: only of pods with Never does the API say why
    they failed."""
    start_timeout_seconds: Annotated[int, Field(ge=1)] = 600
    """Seconds that all pods of a gang may take to be ready, from its admission on. Then it gives its room back, says
    which pod held it up and why (its image, a volume, a container that ends or is never ready), and queues again,
    after a pause that grows. In a queue of Kueue its Workload is evicted then, if
    waitForPodsReady has not done that before."""
    recovery_timeout_seconds: Annotated[int, Field(ge=1)] | None = None
    """The same for a gang that has run and lost pods, from that moment on. Left out: 1800; where workers are
    independent (framework None, TensorFlow with parameter servers) as long as it takes, and the others keep what they
    have."""
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds after its start at which a job that still runs fails; a job that was resumed or restarted as a whole
    starts again."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)] | None = None
    """Seconds after its end at which the TrainingJob and its pods are deleted; left out, they are kept."""
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    """What becomes of the pods when the job has ended. Running: those that still run are ended, finished ones
    stay for their logs. All: all pods are deleted. None: nothing is ended; without a Chief or Launcher the job then
    ends when all its workers have."""
