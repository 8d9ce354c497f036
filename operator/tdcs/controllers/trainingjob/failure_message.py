"""How a role's Job failed for good, or why the API server refuses it, in words. Pure.

Of a failure: the pod, its exit code, the retries, and where to read more. Of a refusal: the role and the field.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.api.conditions import NO_RETRY_LEFT, Condition
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.controllers.trainingjob.pods import PodProblem, PodView
from tdcs.kube.errors import InvalidError
from tdcs.kube.resources import JOBS

DEADLINE = "DeadlineExceeded"
"""Why a Job failed that took longer than it may."""

NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that was made and could not be started: it has no log."""


def is_told(restarting: Condition) -> bool:
    """Whether a condition Restarting tells of a pod that failed and was not replaced since."""
    return restarting.status == "True" or restarting.reason == NO_RETRY_LEFT


def failed(
    *,
    role: Role,
    verdict: str,
    limit: int,
    pods: Sequence[PodView],
    namespace: str,
    known: Iterable[Condition],
) -> str:
    """Which pod a role's Job failed by, and how; the Job's own words where that is not known, or not the cause.

    Args:
        role: the role.
        verdict: what the Job controller says.
        limit: how many failed pods of the role are replaced.
        pods: those of the role that are still there.
        namespace: theirs.
        known: the conditions of the TrainingJob: a pod that is gone may be described there.
    """
    if verdict.startswith(DEADLINE):
        return (
            f"{role}: {verdict}; its pods were ended. Raise spec.runPolicy.activeDeadlineSeconds, or make the job "
            "shorter"
        )
    pod, problem = _last_failure(pods)
    if pod is None or problem is None:
        restarting = next((one.message for one in known if one.type == names.RESTARTING and is_told(one)), "")
        before = f"; before that, {restarting}" if restarting else ""
        return f"{role}: {verdict}{before}; the logs of its pods, which status.placement names, say why"
    retries = _retries(pod, pods, limit)
    after = f" after {retries} {'retry' if retries == 1 else 'retries'}" if retries > 0 else ""
    where = f" on node {pod.node}" if pod.node else ""
    container = f" -c {problem.container}" if problem.container else ""
    see = f"see kubectl logs -n {namespace} {pod.name}{container}"
    if problem.reason in NEVER_RAN:
        see = f"container {problem.container} has no log, as it never ran: check its command and image"
    who = f"{role.lower()} {pod.index} (pod {pod.name}{where})"
    return f"{who} failed with {_ending(problem)}{after} ({verdict}); {see}"


def _last_failure(pods: Iterable[PodView]) -> tuple[PodView | None, PodProblem | None]:
    """The pod that failed last, by itself if there is one: when a Job fails, its other pods are ended."""
    failed = [pod for pod in pods if pod.failure is not None]
    own = [pod for pod in failed if not pod.going]
    last = max(own or failed, key=lambda pod: (pod.finished, pod.created, pod.name), default=None)
    return last, None if last is None else last.failure


def _retries(pod: PodView, pods: Iterable[PodView], limit: int) -> int:
    """How often this pod's index is known to have been tried again: pods that are being deleted may have been ended by
    the Job controller, and prove no retry."""
    failures = sum(one.index == pod.index and one.failure is not None and not one.going for one in pods)
    return max(0, min(limit, failures - 1))


def _ending(problem: PodProblem) -> str:
    """Such as ``exit code 137 (OOMKilled)``."""
    if problem.code is None:
        return str(problem)
    text = problem.message.partition(f"exit code {problem.code}")[2].lstrip(": ")
    reason = f" ({problem.reason})" if problem.reason != "Error" else ""
    return f"exit code {problem.code}{reason}{f': {text}' if text else ''}"


_MISFIT: Final = re.compile(
    r"failed to (?:create typed patch object|convert new object) \([^)]*\)[^:]*: (?:errors:\s+)?"
)
_INVALID: Final = re.compile(r'Job\.batch "[^"]*" is invalid: ')
"""How the API server's own checks begin what they say of a Job: of fields that do not fit its type, and of wrong
values. What webhooks and policies say begins otherwise, whichever code (400, 403, 422) they choose."""

_TEMPLATE: Final = re.compile(r"(?<![\w.])\.?spec\.template\b")
"""A Job's template, as both spell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a child cannot be had, and whether that lasts as long as the TrainingJob's templates, which cannot change."""

    message: str
    lasts: bool


def refusal_of(error: Exception, *, job: str, spec: TrainingJobSpec, made: Collection[Role] = ()) -> Refusal:
    """What a refusal of a TrainingJob's child means.

    A refusal lasts when the API server's own checks refuse the template of a new Job. Policies and webhooks may change,
    and so may what does not come from a template. That a template is immutable is said only of a Job that is there.

    Args:
        error: the refusal.
        job: the TrainingJob's name.
        spec: the TrainingJob's.
        made: roles whose Job is there: it is its change that is refused.
    """
    role = _role_of(error, job=job, spec=spec) if isinstance(error, InvalidError) else None
    if role is None or not isinstance(error, InvalidError):
        return Refusal(message=str(error), lasts=False)
    own = _MISFIT.match(error.detail) or _INVALID.match(error.detail)
    said = error.detail[own.end() if own else 0 :].strip()
    if own and said.startswith("[") and said.endswith("]"):  # several fields
        said = said[1:-1]
    of_template = bool(_TEMPLATE.match(said)) or said.startswith("quantities must match")
    taken = [use.mount_path for use in spec.datasets if f'mountPath="{use.mount_path}"' in said]
    both = f"; a dataset of the job is mounted at {taken[0]} already" if taken else ""
    return Refusal(
        message=f"the API server refuses the Job of role {role}: {_plainer(said) if own else said}{both}",
        lasts=own is not None and of_template and role not in made and "field is immutable" not in said,
    )


def _role_of(error: InvalidError, *, job: str, spec: TrainingJobSpec) -> Role | None:
    """The role of the Job that was refused; None when it is another child."""
    if error.resource is not JOBS:
        return None
    return next(
        (role for role in spec.by_role() if names.role_job_name(job=job, role=role) == error.name), None
    )


def _plainer(said: str) -> str:
    """Fields as they stand in the template, one after the other, without the words of the API server's machinery."""
    lines = "; ".join(line.strip() for line in said.splitlines())
    fields = _TEMPLATE.sub("template", lines).replace("field not declared in schema", "no such field")
    return re.sub(r"got &\{(.*?)\}", r"got \1", fields)
