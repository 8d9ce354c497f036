"""The roles of a gang begin with the largest pods, and wait for each other only so long."""

from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec

from tdcs.api.trainingjob import TrainingJobSpec
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job import role_order
from tdcs.decide.job.observed_job import JobView, Observed
from tdcs.model.job_pods import PodView
from tdcs.model.kube_objects import Object

SOON, LATER = "2026-01-01T00:00:05Z", "2026-01-01T00:00:20Z"


def role(replicas: int, *, gpus: int) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


def spec(**more: Any) -> TrainingJobSpec:
    """A chief and two workers with two GPUs each, and servers without."""
    roles = {"Chief": role(1, gpus=2), "Worker": role(2, gpus=2), "PS": role(1, gpus=0)}
    return job_spec(roles=roles, **more)


def observed(*placed: str, started: bool = True, **more: Any) -> Observed:
    """The job, whose larger roles have begun or not; `placed` are the pods that have a node, as ROLE-INDEX."""
    large = JobView(exists=True, suspended=not started, start_time=NOW if started else None)
    role_and_index = (name.split("-") for name in placed)
    return Observed(
        spec=spec(**more),
        status=TrainingJobStatus(),
        jobs={"Chief": large, "Worker": large, "PS": JobView(exists=True, suspended=True)},
        pods=[
            PodView(
                name=f"{role}{index}", role="Chief" if role == "Chief" else "Worker", index=index, node="a"
            )
            for role, index in role_and_index
        ],
    )


def test_equal_pods_begin_together_and_smaller_ones_later() -> None:
    assert role_order.may_start(observed(started=False), now=NOW) == {"Chief", "Worker"}
    assert role_order.may_start(observed("Chief-0", "Worker-0"), now=SOON) == {"Chief", "Worker"}
    assert role_order.may_start(observed("Chief-0", "Worker-0", "Worker-1"), now=SOON) == {
        "Chief",
        "Worker",
        "PS",
    }


@pytest.mark.failure_mode("gang-of-several-sizes")
def test_the_wait_has_a_bound() -> None:
    short = observed("Chief-0", "Worker-0")
    assert role_order.next_start(short, now=SOON) == 15
    assert role_order.may_start(short, now=LATER) == {"Chief", "Worker", "PS"}
    assert role_order.next_start(short, now=LATER) is None
    # By a clock that is a year behind the one of the Job's controller.
    assert role_order.next_start(short, now="2025-01-01T00:00:00Z") is None


def test_without_gang_nobody_waits() -> None:
    free = observed(started=False, scheduling={"gang": False})
    assert role_order.may_start(free, now=NOW) == {"Chief", "Worker", "PS"}


def test_who_has_begun_is_not_stopped_when_a_larger_pod_loses_its_node() -> None:
    running = observed("Chief-0")
    jobs = {**running.jobs, "PS": JobView(exists=True, start_time=NOW)}
    lost = Observed(spec=running.spec, status=running.status, jobs=jobs, pods=running.pods)
    assert "PS" in role_order.may_start(lost, now=SOON)
