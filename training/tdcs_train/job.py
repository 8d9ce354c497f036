"""The TrainingJob of a plan, from a template."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from tdcs_train.errors import InputError
from tdcs_train.plan.pipeline_plan import Parallelism, PipelinePlan, document

PLAN_VARIABLE = "TDCS_TRAIN_PLAN"
"""The variable in which a container gets its plan: the document of `tdcs-train plan --json` on one line."""


GPU = "nvidia.com/gpu"
JOB_LABEL = "tdcs.io/training-job"
"""The label that TDCS gives to the pods of a job; its value is the job's name."""
MOST_WEIGHT = 100
"""Of a preference of Kubernetes."""


def job_of(template: Any, plan: PipelinePlan, *, source: str, near: Sequence[str] = ()) -> dict[str, Any]:
    """The template with the workers of the plan, their plan, and the readers of the first stage.

    With GPUs in the template and several levels, a pod gets the GPUs of the innermost level and runs a worker for each
    (torchrun in the template's command), so that they are on one node. `near` are labels of nodes, the nearest first,
    of which the pods of the job share a value where they can.

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
    roles = [_mapping(role, where=f"{source}: spec.replicaSpecs[{n}]") for n, role in enumerate(roles)]
    if [role.get("name") for role in roles] != ["Worker"]:
        raise InputError(
            f"{source}: spec.replicaSpecs has the roles {', '.join(str(role.get('name')) for role in roles)}; "
            "a plan needs the role Worker alone"
        )
    if spec.get("elastic"):
        raise InputError(f"{source}: spec.elastic: the workers of a plan are fixed; leave it out")
    (worker,) = roles
    plan = plan.advised
    one_worker = plan.best is Parallelism.ONE_WORKER
    per_pod = _workers_of_a_pod(worker, plan, source=source)
    spec["workers"] = 1 if one_worker else plan.workers // per_pod
    readers = -(-plan.replicas[0] // per_pod)
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
        variables = [variable for variable in variables if variable.get("name") != PLAN_VARIABLE]
        if not one_worker:
            value = json.dumps(document(plan), separators=(",", ":"))
            variables.append({"name": PLAN_VARIABLE, "value": value})
        container.pop("env", None)
        if variables:
            container["env"] = variables
    if near and not one_worker:
        _keep_near(
            worker, near, job=_mapping(job.get("metadata"), where=f"{source}: metadata"), source=source
        )
    return job


def _workers_of_a_pod(worker: dict[str, Any], plan: PipelinePlan, *, source: str) -> int:
    """The workers that share a pod: one for each of its GPUs, those of the innermost of several levels."""
    inner = plan.levels[0].machines if len(plan.levels) > 1 else 1
    per_pod = 1
    for where, container in _containers(worker, source=source):
        limits = _mapping(container.get("resources") or {}, where=f"{where}.resources").get("limits") or {}
        if GPU not in _mapping(limits, where=f"{where}.resources.limits"):
            continue
        if len(plan.levels) == 1 and str(limits[GPU]) != "1":
            raise InputError(
                f"{where}.resources.limits has {limits[GPU]} GPUs for a pod, and the plan has one level, in which "
                f"every worker has links of its own: plan with --levels {limits[GPU]},N, or give a pod 1 GPU"
            )
        if plan.workers % inner:
            raise InputError(
                f"the plan has {plan.workers} workers, which pods of {inner} GPUs cannot have: plan without --fewer"
            )
        limits[GPU] = inner
        per_pod = inner
    return per_pod


def _keep_near(worker: dict[str, Any], near: Sequence[str], *, job: dict[str, Any], source: str) -> None:
    """Writes preferences of the pods for nodes beside each other, the nearest label with the largest weight."""
    name = job.get("name")
    if not isinstance(name, str):
        raise InputError(f"{source}: metadata.name is missing; --near finds the pods of the job by it")
    pod = worker["template"]["spec"]
    affinity = _mapping(pod.setdefault("affinity", {}), where=f"{source}: affinity of the template")
    pod_affinity = _mapping(
        affinity.setdefault("podAffinity", {}), where=f"{source}: podAffinity of the template"
    )
    wishes = pod_affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    selector = {"matchLabels": {JOB_LABEL: name}}
    user_terms = [
        term for term in wishes if (term.get("podAffinityTerm") or {}).get("labelSelector") != selector
    ]
    near_terms = [
        {
            "weight": max(1, MOST_WEIGHT // 2**number),
            "podAffinityTerm": {"topologyKey": label, "labelSelector": selector},
        }
        for number, label in enumerate(near)
    ]
    pod_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [*user_terms, *near_terms]


def _containers(worker: dict[str, Any], *, source: str) -> list[tuple[str, dict[str, Any]]]:
    """The containers of a role, each with the place where it stands."""
    where = f"{source}: spec.replicaSpecs[0].template"
    template = _mapping(worker.get("template"), where=where)
    pod = _mapping(template.get("spec"), where=f"{where}.spec")
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        raise InputError(f"{where}.spec.containers: there is none")
    places = [f"{where}.spec.containers[{n}]" for n in range(len(containers))]
    return [
        (place, _mapping(container, where=place)) for place, container in zip(places, containers, strict=True)
    ]


def _mappings(value: Any, *, where: str) -> list[dict[str, Any]]:
    """A list that may be left out."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{where} is no list")
    return [_mapping(entry, where=f"{where}[{n}]") for n, entry in enumerate(value)]


def _mapping(value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} is missing, or no mapping")
    return value
