"""What is restarted when a pod of a job fails, how often, and what its exit code means."""

import re
from collections.abc import Mapping
from typing import Any

from tdcs.api.podtemplate import container_names
from tdcs.api.run_policy import ExitCodeRule, Restart
from tdcs.api.trainingjob import Role, RolePods, TrainingJobSpec
from tdcs.decide.job.observed_job import BACKOFF_LIMIT
from tdcs.model.job_pods import PodView

DISRUPTED: Mapping[str, str] = {"type": "DisruptionTarget", "status": "True"}
"""The condition of a pod that the cluster ended: evicted, preempted, or lost with its node."""


BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
"""Reason of a Job whose failed pod is not replaced."""

_RULE = re.compile(r"^PodFailurePolicy: .* matching FailJob rule at index (\d+)")
"""How a Job says which rule of its podFailurePolicy ended it."""


def restarts_never_in_place(template: Mapping[str, Any]) -> bool:
    """Whether the kubelet never restarts a container of these pods: only then does the API say why a pod failed."""
    return bool((template["spec"].get("restartPolicy") or "Never") == "Never")


def restart_policy(spec: TrainingJobSpec) -> Restart:
    """What is restarted when a pod fails: as the spec says, otherwise all pods if they cannot go on without it."""
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
    """How many restarts after failures are allowed: of all pods together, or of the pods of each role."""
    run = spec.run_policy
    if restart_policy(spec) == "None":
        return 0
    limit = run.failure_policy.max_restarts if run.failure_policy is not None else None
    limit = run.backoff_limit if limit is None else limit
    return BACKOFF_LIMIT if limit is None else limit


def job_backoff_limit(spec: TrainingJobSpec) -> int | None:
    """The backoffLimit of each role's Job; None: the API's default.

    Where all pods are restarted together, the Job must not replace any pod: it ends the other pods of its role at once.
    """
    if restart_policy(spec) != "Pod":
        return 0
    run = spec.run_policy
    limit = run.failure_policy.max_restarts if run.failure_policy is not None else None
    return run.backoff_limit if limit is None else limit


def pod_failure_policy(spec: TrainingJobSpec, template: Mapping[str, Any]) -> dict[str, Any] | None:
    """The podFailurePolicy of a role's Job; None where the API takes none.

    A pod that was evicted or preempted is replaced without counting as a failure of the training, or fails the job
    where nothing is to be restarted.
    """
    if not restarts_never_in_place(template):
        return None
    restart = restart_policy(spec)
    first = {"action": "FailJob" if restart == "None" else "Ignore", "onPodConditions": [dict(DISRUPTED)]}
    # When all pods are restarted together, the operator decides which failures count, not the Job.
    rules = [_job_rule(rule, counts=restart != "Pod") for rule in _rules_of(spec, template).values()]
    return {"rules": [first, *rules]}


def _rules_of(spec: TrainingJobSpec, template: Mapping[str, Any]) -> dict[int, ExitCodeRule]:
    """The rules that apply to a role's Job, by their index in the TrainingJob. The API server refuses a rule about a
    container that only another role has."""
    policy, containers = spec.run_policy.failure_policy, (None, *container_names(template))
    rules = enumerate(policy.on_exit_codes if policy is not None else ())
    return {index: rule for index, rule in rules if rule.container_name in containers}


def cause_of_end(spec: TrainingJobSpec, *, role: Role, verdict: str) -> str:
    """Why a role's Job failed: the field of the TrainingJob that decided it, or else the Job's own message.

    Args:
        verdict: reason and message of the Job's condition Failed.
    """
    none_restarts = "spec.runPolicy.failurePolicy.restart is None, so no pod is restarted"
    if verdict.startswith(BACKOFF_LIMIT_EXCEEDED):
        if restart_policy(spec) == "None":
            return none_restarts
        policy, limit = spec.run_policy.failure_policy, spec.run_policy.backoff_limit
        is_old_field = limit is not None and (policy is None or policy.max_restarts is None)
        field = "backoffLimit" if is_old_field else "failurePolicy.maxRestarts"
        return f"no restart is left: spec.runPolicy.{field} is {max_restarts(spec)}"
    match = _RULE.match(verdict)
    if match is None:
        return verdict
    if (position := int(match[1])) == 0:
        return f"the cluster ended a pod, and {none_restarts}"
    rules = [*_rules_of(spec, spec.by_role()[role].template)]
    if position > len(rules):
        return verdict
    return f"spec.runPolicy.failurePolicy.onExitCodes[{rules[position - 1]}] fails the job at this exit code"


def action_of(spec: TrainingJobSpec, pod: PodView) -> str:
    """The action for the exit codes of a failed pod: FailJob, Ignore or, when no rule matches, Count."""
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
