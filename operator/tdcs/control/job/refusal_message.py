"""Why the API server refuses a child of a TrainingJob, by role and field, and whether that lasts."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tdcs.api import names
from tdcs.api.trainingjob import Role, TrainingJobSpec
from tdcs.kube.errors import InvalidError
from tdcs.model.kube_resources import JOBS

_MISFIT: Final = re.compile(
    r"failed to (?:create typed patch object|convert new object) \([^)]*\)[^:]*: (?:errors:\s+)?"
)
_INVALID: Final = re.compile(r'Job\.batch "[^"]*" is invalid: ')
"""How the API server's own checks begin what they say of a Job: of fields that do not fit its type, and of wrong
values. What webhooks and policies say begins otherwise, whichever code (400, 403, 422) they choose."""

_TEMPLATE: Final = re.compile(r"(?<![\w.])\.?spec\.template\b")
"""A Job's template, as both spell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRefusal:
    """Why a child cannot be had, and whether that lasts as long as the TrainingJob's templates, which cannot change."""

    message: str
    lasts: bool


def child_refusal_of(
    error: Exception, *, job: str, spec: TrainingJobSpec, created_roles: Collection[Role] = ()
) -> ChildRefusal:
    """What a refusal of a TrainingJob's child means.

    A refusal lasts when the API server's own checks refuse the template of a new Job. Policies and webhooks may change,
    and so may what does not come from a template. That a template is immutable is said only of a Job that is there.

    Args:
        spec: the TrainingJob's.
        created_roles: roles whose Job is there: it is its change that is refused.
    """
    role = _role_of(error, job=job, spec=spec) if isinstance(error, InvalidError) else None
    if role is None or not isinstance(error, InvalidError):
        return ChildRefusal(message=str(error), lasts=False)
    own_prefix = _MISFIT.match(error.detail) or _INVALID.match(error.detail)
    refusal = error.detail[own_prefix.end() if own_prefix else 0 :].strip()
    if own_prefix and refusal.startswith("[") and refusal.endswith("]"):  # several fields
        refusal = refusal[1:-1]
    of_template = bool(_TEMPLATE.match(refusal)) or refusal.startswith("quantities must match")
    mount_paths = [use.mount_path for use in spec.datasets if f'mountPath="{use.mount_path}"' in refusal]
    mount_text = f"; a dataset of the job is mounted at {mount_paths[0]} already" if mount_paths else ""
    plain_refusal = _plainer(refusal) if own_prefix else refusal
    return ChildRefusal(
        message=f"the API server refuses the Job of role {role}: {plain_refusal}{mount_text}",
        lasts=own_prefix is not None
        and of_template
        and role not in created_roles
        and "field is immutable" not in refusal,
    )


def _role_of(error: InvalidError, *, job: str, spec: TrainingJobSpec) -> Role | None:
    """The role of the Job that was refused; None when it is another child."""
    if error.resource is not JOBS:
        return None
    return next(
        (role for role in spec.by_role() if names.role_job_name(job=job, role=role) == error.name), None
    )


def _plainer(refusal: str) -> str:
    """Fields as they stand in the template, one after the other, without the words of the API server's machinery."""
    lines = "; ".join(line.strip() for line in refusal.splitlines())
    fields = _TEMPLATE.sub("template", lines).replace("field not declared in schema", "no such field")
    return re.sub(r"got &\{(.*?)\}", r"got \1", fields)
