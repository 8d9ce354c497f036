"""What is restarted when a pod of a job fails, how often, and what its exit code means."""

from collections.abc import Mapping
from typing import Any

from tdcs.api.podtemplate import container_names
from tdcs.api.run_policy import ExitCodeRule, Restart
from tdcs.api.trainingjob import Role, RolePods, TrainingJobSpec
from tdcs.decide.job.observed_job import BACKOFF_LIMIT
from tdcs.model.job_pods import PodView

DISRUPTED: Mapping[str, str] = {"type": "DisruptionTarget", "status": "True"}
"""The condition of a pod that the cluster ended: evicted, preempted, or lost with its node."""


def restarts_never_in_place(template: Mapping[str, Any]) -> bool:
    """Whether the kubelet never restarts a container of these pods: only then does the API say why a pod failed."""
    return bool((template["spec"].get("restartPolicy") or "Never") == "Never")


def restart_policy(spec: TrainingJobSpec) -> Restart:
    """What is restarted when a pod fails: as the job asks, else all where the others cannot go on without it."""
    policy = spec.run_policy.failure_policy
    if policy is not None and policy.restart is not None:
        return policy.restart
    go_on = has_independent_workers(spec) or spec.elastic is not None
    return "Pod" if go_on or not all(map(_never, spec.by_role().values())) else "All"


def has_independent_workers(spec: TrainingJobSpec) -> bool:
    """Whether the workers go on with their work when one of them is lost, whatever becomes of it."""
    policy = spec.run_policy.failure_policy
    if policy is not None and policy.restart == "All":
        return False
    return spec.framework == "None" or (spec.framework == "TensorFlow" and "PS" in spec.by_role())


def restarts_all(spec: TrainingJobSpec, *, role: Role, index: int | None) -> bool:
    """Whether all pods are restarted when this one fails.

    Elastic workers of PyTorch agree on their number at worker 0: without it none of them goes on.
    """
    policy = spec.run_policy.failure_policy
    chosen = policy is not None and policy.restart is not None
    if restart_policy(spec) == "All":
        return True
    meets = not chosen and hosts_rendezvous(spec, role=role, index=index)
    return meets and all(map(_never, spec.by_role().values()))


def hosts_rendezvous(spec: TrainingJobSpec, *, role: Role, index: int | None) -> bool:
    """Whether the elastic workers of a job meet at this pod."""
    return spec.framework == "PyTorch" and spec.elastic is not None and role == "Worker" and index == 0


def max_restarts(spec: TrainingJobSpec) -> int:
    """How many restarts after failures a job may have: of all its pods together, or of the pods of each role."""
    run = spec.run_policy
    if restart_policy(spec) == "None":
        return 0
    asked = run.failure_policy.max_restarts if run.failure_policy is not None else None
    asked = run.backoff_limit if asked is None else asked
    return BACKOFF_LIMIT if asked is None else asked


def job_backoff_limit(spec: TrainingJobSpec) -> int | None:
    """The backoffLimit of each role's Job; None: the API's default.

    Where all pods are restarted together the Job replaces none by itself: it ends the others of its role at once.
    """
    if restart_policy(spec) != "Pod":
        return 0
    run = spec.run_policy
    asked = run.failure_policy.max_restarts if run.failure_policy is not None else None
    return run.backoff_limit if asked is None else asked


def pod_failure_policy(spec: TrainingJobSpec, template: Mapping[str, Any]) -> dict[str, Any] | None:
    """The podFailurePolicy of a role's Job; None where the API takes none.

    A pod that was evicted or preempted is replaced without counting as a failure of the training, or fails the job
    where nothing is to be restarted.
    """
    if not restarts_never_in_place(template):
        return None
    restart = restart_policy(spec)
    first = {"action": "FailJob" if restart == "None" else "Ignore", "onPodConditions": [dict(DISRUPTED)]}
    policy = spec.run_policy.failure_policy
    # The API server takes no rule about a container that only another role has.
    known = (None, *container_names(template))
    rules = [
        each for each in (policy.on_exit_codes if policy is not None else ()) if each.container_name in known
    ]
    # Of a job that is restarted as a whole the Job replaces no pod: what does not count is the operator's business.
    return {"rules": [first, *(_job_rule(each, counts=restart != "Pod") for each in rules)]}


def action_of(spec: TrainingJobSpec, pod: PodView) -> str:
    """What the exit codes of a failed pod mean: FailJob, Ignore or Count, which is the rule without rules."""
    policy = spec.run_policy.failure_policy
    for rule in policy.on_exit_codes if policy is not None else ():
        codes = [
            code
            for name, code in pod.exit_codes.items()
            if rule.container_name is None or rule.container_name == name
        ]
        if any((code in rule.values) is (rule.operator == "In") for code in codes):
            return rule.action
    return "Count"


def _job_rule(rule: ExitCodeRule, *, counts: bool) -> dict[str, Any]:
    codes: dict[str, Any] = {"operator": rule.operator, "values": sorted(rule.values)}
    if rule.container_name is not None:
        codes["containerName"] = rule.container_name
    action = "Count" if counts and rule.action == "Ignore" else rule.action
    return {"action": action, "onExitCodes": codes}


def _never(pods: RolePods) -> bool:
    return restarts_never_in_place(pods.template)
