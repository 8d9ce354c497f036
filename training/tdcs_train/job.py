"""The TrainingJob of a plan, from a template."""

import copy
import json
from typing import Any

from tdcs_train.errors import InputError
from tdcs_train.plan.pipeline_plan import Parallelism, PipelinePlan, document

PLAN_VARIABLE = "TDCS_TRAIN_PLAN"
"""The variable in which a container gets its plan: the document of `tdcs-train plan --json` on one line."""


def job_of(template: Any, plan: PipelinePlan, *, source: str) -> dict[str, Any]:
    """The template with the workers of the plan, their plan, and the readers of the first stage.

    Follows the plan's advice: one worker if that is best, and a plan of one stage for data parallel. The workers of the
    first stage are the lowest indices, since ranks go stage by stage, and they alone read the datasets.

    Raises:
        InputError: The template is no TrainingJob for PyTorch with one role Worker; it names `source` and the field.
    """
    job = copy.deepcopy(template)
    if not isinstance(job, dict) or job.get("kind") != "TrainingJob":
        raise InputError(f"{source}: kind is not TrainingJob")
    spec = _mapping(job.get("spec"), where=f"{source}: spec")
    if spec.get("framework") != "PyTorch":
        raise InputError(
            f"{source}: spec.framework is {spec.get('framework')}; a plan runs with PyTorch: set framework: PyTorch"
        )
    roles = spec.get("replicaSpecs")
    if not isinstance(roles, list):
        raise InputError(f"{source}: spec.replicaSpecs is missing, or no list; name the role Worker in one")
    roles = [_mapping(each, where=f"{source}: spec.replicaSpecs[{n}]") for n, each in enumerate(roles)]
    if [each.get("name") for each in roles] != ["Worker"]:
        raise InputError(
            f"{source}: spec.replicaSpecs has the roles {', '.join(str(each.get('name')) for each in roles)}; "
            "a plan needs the role Worker alone"
        )
    if spec.get("elastic"):
        raise InputError(f"{source}: spec.elastic: the workers of a plan are fixed; leave it out")
    (worker,) = roles
    plan = plan.advised
    one = plan.best is Parallelism.ONE_WORKER
    spec["workers"] = 1 if one else plan.workers
    readers = plan.replicas[0]
    some_read = plan.best is Parallelism.PIPELINE
    datasets = _mappings(spec.get("datasets"), where=f"{source}: spec.datasets")
    scheduling = spec.get("scheduling") or {}
    mode = _mapping(scheduling, where=f"{source}: spec.scheduling").get("mode", "Extender")
    if some_read and datasets and mode != "Extender":
        raise InputError(
            f"{source}: spec.scheduling.mode is {mode}; datasets[].readers, by which the first stage alone reads, "
            "needs mode Extender"
        )
    for dataset in datasets:
        dataset.pop("readers", None)
        if some_read:
            dataset["readers"] = "0" if readers == 1 else f"0-{readers - 1}"
    for where, container in _containers(worker, source=source):
        variables = _mappings(container.get("env"), where=f"{where}.env")
        variables = [each for each in variables if each.get("name") != PLAN_VARIABLE]
        if not one:
            value = json.dumps(document(plan), separators=(",", ":"))
            variables.append({"name": PLAN_VARIABLE, "value": value})
        container.pop("env", None)
        if variables:
            container["env"] = variables
    return job


def _containers(worker: dict[str, Any], *, source: str) -> list[tuple[str, dict[str, Any]]]:
    """The containers of a role, each with the place where it stands."""
    where = f"{source}: spec.replicaSpecs[0].template"
    template = _mapping(worker.get("template"), where=where)
    pod = _mapping(template.get("spec"), where=f"{where}.spec")
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        raise InputError(f"{where}.spec.containers: there is none")
    places = [f"{where}.spec.containers[{n}]" for n in range(len(containers))]
    return [(place, _mapping(each, where=place)) for place, each in zip(places, containers, strict=True)]


def _mappings(value: Any, *, where: str) -> list[dict[str, Any]]:
    """A list that may be left out."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{where} is no list")
    return [_mapping(each, where=f"{where}[{n}]") for n, each in enumerate(value)]


def _mapping(value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} is missing, or no mapping")
    return value
