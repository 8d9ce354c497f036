"""Failure policy of the Jobs of a TrainingJob, and which of its fields ended one."""

from typing import Any

import pytest
from tests.unit.control.builders import job_spec

from tdcs.decide.job.failure_policy import cause_of_end, pod_failure_policy

LIMIT = "BackoffLimitExceeded: Job has reached the specified backoff limit"
DISRUPTED = (
    "PodFailurePolicy: Pod team/train-0-x has condition DisruptionTarget matching FailJob rule at index 0"
)
OTHER = "DeadlineExceeded: Job was active longer than specified deadline"


def by_rule(index: int) -> str:
    return (
        "PodFailurePolicy: Container main for pod team/train-worker-0-x failed with exit code 3 matching FailJob "
        f"rule at index {index}"
    )


def cause(verdict: str, **policy: Any) -> str:
    return cause_of_end(job_spec(runPolicy=policy), role="Worker", verdict=verdict)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"failurePolicy": {"restart": "None"}},
            "spec.runPolicy.failurePolicy.restart is None, so no pod is restarted",
        ),
        (
            {"failurePolicy": {"maxRestarts": 2}},
            "no restart is left: spec.runPolicy.failurePolicy.maxRestarts is 2",
        ),
        ({"backoffLimit": 1}, "no restart is left: spec.runPolicy.backoffLimit is 1"),
        ({}, "no restart is left: spec.runPolicy.failurePolicy.maxRestarts is 6"),
    ],
    ids=["none", "bound", "old bound", "default"],
)
def test_a_limit_names_the_field_that_sets_it(policy: dict[str, Any], message: str) -> None:
    assert cause(LIMIT, **policy) == message


def test_a_rule_is_named_by_its_index_in_the_training_job() -> None:
    rules = [
        {"action": "FailJob", "values": [2], "containerName": "of-another-role"},
        {"action": "Count", "values": [5]},
        {"action": "FailJob", "values": [3]},
    ]
    roles = {
        role: {"replicas": 1, "template": {"spec": {"containers": [{"name": container, "image": "train"}]}}}
        for role, container in (("Worker", "main"), ("PS", "of-another-role"))
    }
    spec = job_spec(roles=roles, runPolicy={"failurePolicy": {"onExitCodes": rules}})
    template = spec.by_role()["Worker"].template
    policy = pod_failure_policy(spec, template)
    assert policy is not None
    assert [rule.get("onExitCodes", {}).get("values") for rule in policy["rules"]] == [None, [5], [3]]
    message = cause_of_end(spec, role="Worker", verdict=by_rule(2))
    assert message == "spec.runPolicy.failurePolicy.onExitCodes[2] fails the job at this exit code"


def test_a_disruption_that_ends_the_job_is_no_exit_code() -> None:
    message = cause(DISRUPTED, failurePolicy={"restart": "None"})
    assert message == (
        "the cluster ended a pod, and spec.runPolicy.failurePolicy.restart is None, so no pod is restarted"
    )


@pytest.mark.parametrize("verdict", [OTHER, by_rule(9), "PodFailurePolicy: in words of a later release"])
def test_an_end_that_no_field_explains_quotes_the_job(verdict: str) -> None:
    assert cause(verdict) == verdict


def test_a_rule_about_a_container_is_given_to_the_jobs_of_roles_that_have_it() -> None:
    rules = [{"action": "FailJob", "containerName": "main", "values": [2]}]
    spec = job_spec(framework="PyTorch", workers=2, runPolicy={"failurePolicy": {"onExitCodes": rules}})
    for name, expected in (("main", 2), ("ui", 1)):
        policy = pod_failure_policy(spec, {"spec": {"containers": [{"name": name}]}})
        assert policy is not None
        assert len(policy["rules"]) == expected  # the first is about pods that the cluster ended
