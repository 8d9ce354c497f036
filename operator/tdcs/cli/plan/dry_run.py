"""What the API server says of a TrainingJob and of the Jobs that the operator would make of it, by dry runs."""

import re
from dataclasses import dataclass
from typing import Final

from tdcs.api.failures import InputError
from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.cli.explain.planned_world import PLANNED_UID
from tdcs.control.job import job_children
from tdcs.control.job.refusal_message import child_refusal_of
from tdcs.decide.job.template_mounts import mount_problem
from tdcs.kube.api import KubeApi
from tdcs.kube.apply import PredecessorError, foreign
from tdcs.kube.errors import ForbiddenError, InvalidError, KubeError, NotFoundError
from tdcs.model.kube_objects import Object
from tdcs.model.kube_resources import JOBS, TRAINING_JOBS

_NO_RIGHT: Final = re.compile(r"\bcannot (?:get|create|patch) resource\b")
"""What the API server says to those without a right; quotas and policies say something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What is not known after a dry run, and why; empty: it was taken.

    Attributes:
        unknown: a line.
        refused: whether it was refused, for a reason that may pass, or that may be this user's alone.
    """

    unknown: str = ""
    refused: bool = False


async def check_job(api: KubeApi, job: Object) -> DryRun:
    """Have the API server check the job as if it were created: schema, rules, admission.

    Raises:
        InputError: it would refuse the job.
    """
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    try:
        await api.create(TRAINING_JOBS, obj=job, dry_run=True)
    except (InvalidError, ForbiddenError, NotFoundError) as error:
        cannot = "whether the API server takes this job"
        if "cannot create resource" in error.detail:
            return DryRun(unknown=f"{cannot}: you may not create TrainingJobs in namespace {namespace}")
        if _without_dry_run(error):
            return DryRun(unknown=f"{cannot}: {error.detail}")
        raise InputError(f"the API server refuses TrainingJob {namespace}/{name}: {error.detail}") from error
    return DryRun()


async def check_children(api: KubeApi, job: Object) -> DryRun:
    """Have the API server check the Jobs of the job's roles as the operator would apply them: pod templates are checked
    nowhere else.

    Raises:
        InputError: it would refuse one for good, or another object has its name.
    """
    spec = TrainingJobSpec.model_validate(job["spec"])
    if problem := mount_problem(spec):
        raise InputError(f"{problem}; the TrainingJob would wait for that (InvalidSpec)")
    owner = {**job, "metadata": {**job["metadata"], "uid": PLANNED_UID}}
    for role in spec.by_role():
        try:
            await _check_child(
                api, job_children.job(owner=owner, spec=spec, role=role, suspended=True), owner=owner
            )
        except KubeError as error:
            return _unknown(error, job=job, spec=spec)
    return DryRun()


async def _check_child(api: KubeApi, child: Object, *, owner: Object) -> None:
    # The owner is not there yet, and naming it may take a right on its finalizers.
    metadata = {name: value for name, value in child["metadata"].items() if name != "ownerReferences"}
    live = await api.get(JOBS, name=metadata["name"], namespace=metadata["namespace"])
    if live is None:
        await api.apply(JOBS, obj={**child, "metadata": metadata}, dry_run=True)
        return
    name_conflict = foreign(resource=JOBS, live=live, owner=owner)
    if not isinstance(name_conflict, PredecessorError):  # that will be gone
        raise InputError(str(name_conflict))


def _unknown(error: KubeError, *, job: Object, spec: TrainingJobSpec) -> DryRun:
    """What a refusal leaves unknown.

    Raises:
        InputError: it would be the operator's, too, and for good.
    """
    metadata, cannot = job["metadata"], "whether the API server takes its Jobs"
    refusal = child_refusal_of(error, job=metadata["name"], spec=spec)
    if refusal.lasts:
        raise InputError(
            f"{refusal.message}; correct spec.replicaSpecs: the TrainingJob would fail for good (ChildRefused)"
        ) from error
    if isinstance(error, ForbiddenError) and _NO_RIGHT.search(error.detail):
        where = f"in namespace {metadata['namespace']}"
        return DryRun(unknown=f"{cannot}: you may not get, create and patch Jobs {where}")
    if _without_dry_run(error):
        return DryRun(unknown=f"{cannot}: {error.detail}")
    return DryRun(unknown=f"{cannot} from the operator: it answers you that {refusal.message}", refused=True)


def _without_dry_run(error: KubeError) -> bool:
    return "does not support dry run" in error.detail
