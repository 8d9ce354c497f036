"""Pods whose own containers have ended, and that an injected container keeps running."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NOW, job_spec

from tdcs.api.durations import time_after
from tdcs.api.trainingjob_status import TrainingJobStatus
from tdcs.decide.job.left_sidecars import GRACE, SIDECAR_RUNNING, next_look, without_sidecars
from tdcs.decide.job.observed_job import Observed
from tdcs.model.job_pods import PodProblem, PodView

FAILED = PodProblem(reason="Error", message="container main ended with exit code 1", code=1)
KEPT = PodView(name="w0", index="0", phase="Running", ready=True, ended={"main": 0}, finished=NOW)
KEPT_FAILED = replace(KEPT, ended={"main": 1}, program_failure=FAILED)


def observed(*pods: PodView, **spec: Any) -> Observed:
    return Observed(spec=job_spec(**spec), status=TrainingJobStatus(), pods=pods)


def after(pod: PodView, seconds: float, **spec: Any) -> PodView:
    """The pod as decisions see it so long after its program has ended."""
    (judged,) = without_sidecars(observed(pod, **spec), now=time_after(NOW, seconds=seconds)).pods
    return judged


@pytest.mark.parametrize("seconds", [0, GRACE - 1])
def test_within_the_grace_period_a_pod_runs_and_is_marked_unless_it_failed(seconds: float) -> None:
    assert after(KEPT, seconds) == replace(KEPT, kept_alive=True)
    assert after(KEPT_FAILED, seconds) == KEPT_FAILED


@pytest.mark.parametrize("seconds", [GRACE, GRACE + 1, 1e6])
def test_after_it_a_pod_whose_program_ended_well_has_succeeded(seconds: float) -> None:
    pod = after(KEPT, seconds)
    assert (pod.phase, pod.ready, pod.kept_alive) == ("Succeeded", False, True)


def test_it_does_not_matter_whether_another_injected_container_has_ended() -> None:
    assert after(replace(KEPT, ended={"main": 0, "certificates": 1}), GRACE).phase == "Succeeded"


def test_after_it_a_failed_pod_has_failed_where_all_pods_restart() -> None:
    pod = after(KEPT_FAILED, GRACE, runPolicy={"failurePolicy": {"restart": "All"}})
    assert (pod.phase, pod.failure, pod.kept_alive) == ("Failed", FAILED, True)


def test_where_only_its_own_pod_restarts_the_user_is_told_what_keeps_it() -> None:
    pod = after(KEPT_FAILED, GRACE, runPolicy={"failurePolicy": {"restart": "Pod"}})
    assert pod.phase == "Running"
    assert pod.waiting is not None
    assert pod.waiting.reason == SIDECAR_RUNNING
    assert pod.waiting.message.startswith("Error: container main ended with exit code 1, and a container")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(replace(KEPT, ended={}), id="nothing has ended"),
        pytest.param(replace(KEPT, ended={"proxy": 0}), id="only what was injected has"),
        pytest.param(replace(KEPT, phase="Succeeded"), id="it has ended itself"),
        pytest.param(replace(KEPT, phase="Pending"), id="it has not started"),
        pytest.param(replace(KEPT, going=True), id="it is being deleted"),
        pytest.param(replace(KEPT, role="Launcher"), id="its role was removed from the spec"),
    ],
)
def test_other_pods_stay_as_they_are(pod: PodView) -> None:
    assert after(pod, 10 * GRACE) == pod
    assert next_look(observed(pod), now=NOW) is None


def test_the_next_look_is_when_the_first_grace_period_ends() -> None:
    later = replace(KEPT, name="w1", index="1", finished=time_after(NOW, seconds=20))
    assert next_look(observed(KEPT, later), now=time_after(NOW, seconds=20)) == GRACE - 20
    assert next_look(observed(KEPT, later), now=time_after(NOW, seconds=GRACE)) == 20
    assert next_look(observed(KEPT, later), now=time_after(NOW, seconds=GRACE + 20)) is None
    assert next_look(observed(), now=NOW) is None


def test_an_end_at_an_unknown_time_has_no_grace_period() -> None:
    pod = replace(KEPT, finished="")
    assert after(pod, 0).phase == "Succeeded"
    assert next_look(observed(pod), now=NOW) is None
